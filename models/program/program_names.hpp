// The names of tensors, streams and peers in the text form of a Program. Only models/program includes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "models/program/program.hpp"

namespace motley {

inline constexpr const char* kProgramHeader = "motley-program 2";

// Words that begin a list in a line; a tensor or block with such a name stands in quotes.
bool is_keyword(std::string_view text);
std::string quote_unless_plain(const std::string& text);

// The names of tensors. A tensor is written as its number, "#12", where another tensor has the same name or the name
// begins with `#`.
class TensorNames {
 public:
  explicit TensorNames(const RankProgram& rank_program);
  std::string quoted(TensorId id) const;    // in quotes if the name has a space
  std::string unquoted(TensorId id) const;  // the number if the name has a space or a comma
  std::optional<TensorId> find(const std::string& text) const;

 private:
  const RankProgram& rank_program_;
  std::unordered_map<std::string_view, std::optional<TensorId>> ids_;  // none: several tensors have the name
};

// A block is written as its name if no other block of the program has it, else as its number, "#1".
std::string block_reference(const RankProgram& rank_program, BlockId block);
std::optional<BlockId> find_block(const RankProgram& rank_program, const std::string& text);

// "send_activation"; for a chunk after the first "send_activation.1". The first stream of a kind and chunk is written
// as this name, further ones as their number, "#3".
std::string stream_name(const Stream& stream);
std::string stream_reference(const RankProgram& rank_program, StreamId stream);
std::optional<StreamId> find_stream(const RankProgram& rank_program, const std::string& text);

// "next", "previous"; for chunk 1 "next.1", for its further partner 2 "next.1+2".
std::string peer_name(const RankProgram& rank_program, PeerSlot slot);
std::optional<PeerSlot> find_peer(const RankProgram& rank_program, const std::string& name);

}  // namespace motley
