#include "models/program/program.hpp"

#include <fmt/format.h>

#include <array>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "models/base/refusal.hpp"
#include "models/program/edit.hpp"

namespace motley {

std::string_view name_of(StreamKind kind) {
  switch (kind) {
    case StreamKind::compute:
      return "compute";
    case StreamKind::recv_activation:
      return "recv_activation";
    case StreamKind::send_activation:
      return "send_activation";
    case StreamKind::recv_gradient:
      return "recv_gradient";
    case StreamKind::send_gradient:
      return "send_gradient";
    case StreamKind::collective:
      return "collective";
    case StreamKind::exchange:
      return "exchange";
    case StreamKind::gather:
      return "gather";
    case StreamKind::to_host:
      return "to_host";
    case StreamKind::host:
      return "host";
    case StreamKind::from_host:
      return "from_host";
  }
  return "?";
}

bool adds_gradients(KernelOp op) {
  switch (op) {
    case KernelOp::embed_backward:
    case KernelOp::norm_backward:
    case KernelOp::matmul_weight_gradient:
    case KernelOp::grouped_matmul_weight_gradient:
    case KernelOp::accumulate:
    case KernelOp::add_residual_backward:
      return true;
    default:
      return false;
  }
}

bool reads_parameters(KernelOp op) { return op == KernelOp::norm_backward || !adds_gradients(op); }

const PeerMessage* Instruction::message() const {
  if (const Send* send = as<Send>()) return send;
  return as<Recv>();
}
PeerMessage* Instruction::message() {
  if (Send* send = as<Send>()) return send;
  return as<Recv>();
}

std::span<const TensorId> moved_tensors(const Instruction& instruction) {
  if (const PeerMessage* message = instruction.message()) return {&message->tensor, 1};
  if (const auto* collective = instruction.as<Collective>()) return collective->tensors;
  if (const auto* step = instruction.as<OptimizerStep>()) return step->tensors;
  if (const auto* copy = instruction.as<Copy>()) return copy->tensors;
  return {};
}

std::int64_t payload_bytes(const Instruction& instruction) {
  if (const PeerMessage* message = instruction.message()) return message->bytes;
  if (const auto* collective = instruction.as<Collective>()) return collective->bytes;
  if (const auto* copy = instruction.as<Copy>()) return copy->bytes;
  return 0;
}

std::int64_t expected_bytes(const Collective& collective) {
  return collective.expected > 0 ? collective.expected : collective.bytes;
}

std::int64_t expected_bytes(const Instruction& instruction) {
  const auto* collective = instruction.as<Collective>();
  return collective != nullptr ? expected_bytes(*collective) : payload_bytes(instruction);
}

std::optional<ShardId> shard_of(const Instruction& instruction) {
  if (const auto* collective = instruction.as<Collective>()) return collective->shard;
  if (const auto* copy = instruction.as<Copy>()) return copy->shard;
  return std::nullopt;
}

bool makes_tensors(const RankProgram& rank_program, const Instruction& instruction) {
  const auto* collective = instruction.as<Collective>();
  if (collective == nullptr || collective->kind != CollectiveKind::all_gather || !collective->shard)
    return false;
  const Shard& shard = rank_program.shards[*collective->shard];
  return shard.parameter_part.has_value() && shard.part == 0;
}

bool goes_to_host(const RankProgram& rank_program, const Instruction& instruction) {
  return rank_program.tensors[std::get<Copy>(instruction.body).into.at(0)].on_host;
}

ChunkId chunk_of(const RankProgram& rank_program, PeerSlot slot) {
  return ChunkId(at(slot) / 2 % rank_program.chunks.size());
}

std::string_view name_of(CollectiveKind kind) {
  static constexpr std::array<std::string_view, 9> names = {"all_reduce", "reduce_scatter", "all_gather",
                                                            "all_to_all", "broadcast",      "reduce",
                                                            "gather",     "scatter",        "barrier"};
  return names[static_cast<std::size_t>(kind)];
}

CollectiveKind collective_of(KernelOp op) {
  switch (op) {
    case KernelOp::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case KernelOp::all_gather:
      return CollectiveKind::all_gather;
    case KernelOp::all_to_all:
      return CollectiveKind::all_to_all;
    default:
      MOTLEY_CHECK(op == KernelOp::all_reduce);
      return CollectiveKind::all_reduce;
  }
}

ExpertPlace expert_place(const RankProgram& rank_program, const RankEntry& entry) {
  const std::int64_t cut = rank_program.expert_tensor_parallel;
  const std::int64_t copy_of_stage = entry.replica * rank_program.context_parallel + entry.context_index;
  const std::int64_t index = copy_of_stage * rank_program.tensor_parallel + entry.tensor_index;
  ExpertPlace place;
  place.tensor_index = index % cut;
  place.part = index / cut % rank_program.expert_parallel;
  place.copy = index / cut / rank_program.expert_parallel;
  place.slice = entry.tensor_index / cut;
  place.slices = rank_program.tensor_parallel / cut;
  return place;
}

std::optional<PeerSlot> other_end(const Program& program, Rank rank, PeerSlot slot) {
  const RankProgram& mine = program.program_of(rank);
  const Rank peer = program.ranks[rank].peers[slot].value();
  const RankProgram& theirs = program.program_of(peer);
  const auto& their_peers = program.ranks[peer].peers;
  const int virtual_stage = mine.chunks[chunk_of(mine, slot)].virtual_stage + (is_next(slot) ? 1 : -1);
  const auto chunk = chunk_at(theirs, virtual_stage);
  if (!chunk) return std::nullopt;
  const PeerSlot first = is_next(slot) ? previous_slot(*chunk) : next_slot(*chunk);
  for (std::size_t i = at(first); i < their_peers.size(); i += 2 * theirs.chunks.size())
    if (their_peers[PeerSlot(i)] == rank) return PeerSlot(i);
  return std::nullopt;
}

std::string_view name_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::tensor:
      return "tensor";
    case GroupKind::data:
      return "data";
    case GroupKind::embedding:
      return "embedding";
    case GroupKind::expert:
      return "expert";
    case GroupKind::gather:
      return "gather";
    case GroupKind::activation_gather:
      return "activation gather";
    case GroupKind::gradient_gather:
      return "gradient gather";
    case GroupKind::context:
      return "context";
    case GroupKind::tensor_gradient:
      return "tensor gradient";
  }
  return "?";
}

bool gathers_at_boundary(GroupKind kind) {
  return kind == GroupKind::activation_gather || kind == GroupKind::gradient_gather;
}

std::string program_hash(const Program& program) {
  const std::string text = print(program);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string describe(const Program& program, Rank rank, StreamId stream, int index) {
  const RankEntry& entry = program.ranks[rank];
  const RankProgram& rank_program = program.program_of(rank);
  const Instruction& instruction = program.at(rank, stream, index);
  std::string what;
  switch (instruction.op()) {
    case Op::compute:
      what = rank_program.blocks[std::get<Compute>(instruction.body).block].name;
      break;
    case Op::send:
      what = fmt::format("send to rank {}", entry.peers[instruction.message()->slot].value());
      break;
    case Op::recv:
      what = fmt::format("recv from rank {}", entry.peers[instruction.message()->slot].value());
      break;
    case Op::collective:
      what = name_of(std::get<Collective>(instruction.body).kind);
      break;
    case Op::optimizer:
      what = "optimizer step";
      break;
    case Op::copy:
      what = goes_to_host(rank_program, instruction) ? "copy to host" : "copy from host";
      break;
  }
  if (instruction.micro_batch >= 0) what += fmt::format(" micro-batch {}", instruction.micro_batch);
  return fmt::format("stage {} rank {} {}[{}] {}", entry.stage, rank,
                     name_of(rank_program.streams[stream].kind), index, what);
}

}  // namespace motley
