#include "models/program/program_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "models/program/program_fields.hpp"

namespace motley {
namespace {

template <class E>
std::vector<std::string> names_up_to(E last) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) names.emplace_back(name_of(static_cast<E>(i)));
  return names;
}

ProgramWords all_words() {
  ProgramWords words;
  for (Format format : kFormats) words.formats.emplace_back(name_of(format));
  for (Optimizer optimizer : every<Optimizer>()) words.optimizers.emplace_back(name_of(optimizer));
  words.kernels = names_up_to(static_cast<KernelOp>(kKernelOpCount - 1));
  for (ReduceOp reduce : every<ReduceOp>()) words.reduces.emplace_back(name_of(reduce));
  words.collectives = names_up_to(CollectiveKind::barrier);
  words.streams = names_up_to(StreamKind::from_host);
  return words;
}

bool is_plain(std::string_view text) {
  return !text.empty() && text.find_first_of(" ,=()\"#") == std::string_view::npos && !is_keyword(text);
}

// Reads a number that is the whole text; none: the text is no number.
std::optional<int> to_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

const ProgramWords& program_words() {
  static const ProgramWords words = all_words();
  return words;
}

bool is_keyword(std::string_view text) {
  static constexpr std::array<std::string_view, 9> keywords = {
      "from", "with", "to", "over", "into", "after", "frees", "kernels", "micro-batch"};
  return std::find(keywords.begin(), keywords.end(), text) != keywords.end();
}

std::string quote_unless_plain(const std::string& text) {
  return is_plain(text) ? text : fmt::format("\"{}\"", text);
}

TensorNames::TensorNames(const RankProgram& rank_program) : rank_program_(rank_program) {
  for (TensorId id : rank_program.tensors.ids()) {
    const auto [entry, is_new] = ids_.try_emplace(rank_program.tensors[id].name, id);
    if (!is_new) entry->second.reset();
  }
}

std::string TensorNames::quoted(TensorId id) const {
  if (!rank_program_.tensors.has(id)) return fmt::format("#{}", id);
  const std::string& name = rank_program_.tensors[id].name;
  return ids_.at(name) && !name.starts_with('#') ? quote_unless_plain(name) : fmt::format("#{}", id);
}

std::string TensorNames::unquoted(TensorId id) const {
  const std::string text = quoted(id);
  return text.starts_with('"') ? fmt::format("#{}", id) : text;
}

std::optional<TensorId> TensorNames::find(const std::string& text) const {
  if (text.starts_with('#')) {
    const std::optional<int> number = to_number(std::string_view(text).substr(1));
    return number ? std::optional(TensorId(*number)) : std::nullopt;
  }
  const auto entry = ids_.find(text);
  return entry == ids_.end() ? std::nullopt : entry->second;
}

std::string block_reference(const RankProgram& rank_program, BlockId block) {
  const std::string& name = rank_program.blocks[block].name;
  return find_block(rank_program, name) == block ? quote_unless_plain(name) : fmt::format("#{}", block);
}

std::optional<BlockId> find_block(const RankProgram& rank_program, const std::string& text) {
  if (text.starts_with('#')) {
    const std::optional<int> number = to_number(std::string_view(text).substr(1));
    return number && rank_program.blocks.has(BlockId(*number)) ? std::optional(BlockId(*number))
                                                               : std::nullopt;
  }
  std::optional<BlockId> block;
  for (BlockId id : rank_program.blocks.ids()) {
    if (rank_program.blocks[id].name != text) continue;
    if (block) return std::nullopt;
    block = id;
  }
  return block;
}

std::string stream_name(const Stream& stream) {
  std::string name(name_of(stream.kind));
  return stream.chunk == ChunkId{} ? name : fmt::format("{}.{}", name, stream.chunk);
}

std::string stream_reference(const RankProgram& rank_program, StreamId stream) {
  std::string name = stream_name(rank_program.streams[stream]);
  return find_stream(rank_program, name) == stream ? name : fmt::format("#{}", stream);
}

std::optional<StreamId> find_stream(const RankProgram& rank_program, const std::string& text) {
  if (text.starts_with('#')) {
    const std::optional<int> number = to_number(std::string_view(text).substr(1));
    return number && rank_program.streams.has(StreamId(*number)) ? std::optional(StreamId(*number))
                                                                 : std::nullopt;
  }
  for (StreamId id : rank_program.streams.ids())
    if (stream_name(rank_program.streams[id]) == text) return id;
  return std::nullopt;
}

std::string peer_name(const RankProgram& rank_program, PeerSlot slot) {
  const auto chunks = static_cast<int>(std::max<std::size_t>(rank_program.chunks.size(), 1));
  const int boundary = slot.value() / 2, chunk = boundary % chunks, partner = boundary / chunks;
  std::string name = is_next(slot) ? "next" : "previous";
  if (chunk > 0) name += fmt::format(".{}", chunk);
  if (partner > 0) name += fmt::format("+{}", partner);
  return name;
}

std::optional<PeerSlot> find_peer(const RankProgram& rank_program, const std::string& name) {
  std::string_view rest = name;
  const bool next = rest.starts_with("next");
  if (!next && !rest.starts_with("previous")) return std::nullopt;
  rest.remove_prefix(next ? 4 : 8);
  const std::size_t plus = std::min(rest.find('+'), rest.size());
  std::string_view chunk_text = rest.substr(0, plus), partner_text = rest.substr(plus);
  std::optional<int> chunk = 0, partner = 0;
  if (!chunk_text.empty()) chunk = chunk_text[0] == '.' ? to_number(chunk_text.substr(1)) : std::nullopt;
  if (!partner_text.empty()) partner = to_number(partner_text.substr(1));
  const auto chunks = static_cast<int>(std::max<std::size_t>(rank_program.chunks.size(), 1));
  constexpr int kMostPartners = 1 << 20;
  if (!chunk || !partner || *chunk >= chunks || *partner > kMostPartners) return std::nullopt;
  return PeerSlot(2 * (*partner * chunks + *chunk) + (next ? 1 : 0));
}

}  // namespace motley
