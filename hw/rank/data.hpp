// The training data: the bytes of a text file; each byte is a token, and there is no tokenizer. A sequence depends only
// on (seed, step, number in the global batch), so every layout of ranks sees the same sequences. Read next:
// hw/world/train.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/strategy/strategy.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

class Text {
 public:
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  static Text load(const std::string& path);  // throws Refusal "unreadable-text"

  // Throws Refusal if the transformer cannot be trained on this text: "text-vocabulary" (its vocabulary has fewer than
  // 256 tokens) or "short-text".
  void suits(const Transformer& transformer, const Train& train) const;

  // Appends the T tokens that begin `ahead` tokens after the begin of a sequence (0 .. global_batch-1). After its last
  // byte the text begins again.
  void append(const Train& train, std::int64_t step, std::int64_t sequence, std::int64_t ahead,
              std::vector<std::int32_t>& tokens) const;

  std::uint64_t hash() const;  // of its bytes
  std::size_t size() const { return bytes_.size(); }

 private:
  std::string bytes_;
};

}  // namespace motley
