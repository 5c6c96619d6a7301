// How the text form of a Program names its tensors, streams and peers. Only models/program includes it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "models/program/program.hpp"

namespace motley {

inline constexpr const char* kProgramHeader = "motley-program 2";

// The words that begin a list in a line; a tensor or block that is called so stands in quotes.
bool is_keyword(std::string_view text);
std::string quote_unless_plain(const std::string& text);

// A tensor is called by its name, and by its number, "#12", where another has the same name or where the name begins
// with `#`.
class TensorNames {
 public:
  explicit TensorNames(const RankProgram& rank_program);
  std::string quoted(TensorId id) const;    // in quotes where it has a space
  std::string unquoted(TensorId id) const;  // its number where it has a space or a comma
  std::optional<TensorId> find(const std::string& text) const;

 private:
  const RankProgram& rank_program_;
  std::unordered_map<std::string_view, std::optional<TensorId>> ids_;  // none: several have the name
};

// A block is called by its name where no other of the program has it, else by its number, "#1".
std::string block_reference(const RankProgram& rank_program, BlockId block);
std::optional<BlockId> find_block(const RankProgram& rank_program, const std::string& text);

// "send_activation", of a further chunk "send_activation.1". The first stream of that kind and chunk is called so, a
// further one by its number, "#3".
std::string stream_name(const Stream& stream);
std::string stream_reference(const RankProgram& rank_program, StreamId stream);
std::optional<StreamId> find_stream(const RankProgram& rank_program, const std::string& text);

// "next", "previous"; of chunk 1 "next.1", its further partner 2 "next.1+2".
std::string peer_name(const RankProgram& rank_program, PeerSlot slot);
std::optional<PeerSlot> find_peer(const RankProgram& rank_program, const std::string& name);

}  // namespace motley
