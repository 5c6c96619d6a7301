// The training data: the bytes of a text file, a byte a token. Which sequence is trained on when depends on (seed,
// step, number in the global batch) alone, so every layout of ranks sees the same. No tokenizer. Read next:
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
  static Text load(const std::string& path);  // Refusal "unreadable-text"

  // Refuses what cannot be trained on it: "text-vocabulary" (fewer than 256 tokens), "short-text".
  void suits(const Transformer& transformer, const Train& train) const;

  // Appends T tokens of a sequence, 0 .. global_batch-1: its own or, `ahead` > 0, those that stand so many further on.
  // After its last byte the text begins again.
  void append(const Train& train, std::int64_t step, std::int64_t sequence, std::int64_t ahead,
              std::vector<std::int32_t>& tokens) const;

 private:
  std::string bytes_;
};

}  // namespace motley
