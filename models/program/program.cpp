#include "models/program.hpp"

#include <fmt/format.h>

#include <array>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "models/refusal.hpp"

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

std::string_view name_of(KernelOp op) {
  static constexpr std::array<std::string_view, kKernelOpCount> names = {"embed",
                                                                         "embed_backward",
                                                                         "norm",
                                                                         "norm_backward",
                                                                         "matmul",
                                                                         "matmul_input_gradient",
                                                                         "matmul_weight_gradient",
                                                                         "rope",
                                                                         "rope_backward",
                                                                         "qk_norm",
                                                                         "qk_norm_backward",
                                                                         "accumulate",
                                                                         "attention",
                                                                         "attention_backward",
                                                                         "activation",
                                                                         "activation_backward",
                                                                         "route",
                                                                         "route_backward",
                                                                         "dispatch",
                                                                         "dispatch_backward",
                                                                         "grouped_matmul",
                                                                         "grouped_matmul_input_gradient",
                                                                         "grouped_matmul_weight_gradient",
                                                                         "combine",
                                                                         "combine_backward",
                                                                         "gate",
                                                                         "gate_backward",
                                                                         "latent_heads",
                                                                         "latent_heads_backward",
                                                                         "add_residual",
                                                                         "add_residual_backward",
                                                                         "logits_maximum",
                                                                         "logits_sum",
                                                                         "loss",
                                                                         "loss_backward",
                                                                         "regroup",
                                                                         "ungroup",
                                                                         "clear",
                                                                         "scale",
                                                                         "take_rows",
                                                                         "place_rows",
                                                                         "place_keys",
                                                                         "take_keys",
                                                                         "all_reduce",
                                                                         "all_to_all",
                                                                         "reduce_scatter",
                                                                         "all_gather"};
  return names[static_cast<std::size_t>(op)];
}

static int chunk_with(const std::vector<Chunk>& chunks, int virtual_stage) {  // -1: none
  for (std::size_t i = 0; i < chunks.size(); ++i)
    if (chunks[i].virtual_stage == virtual_stage) return static_cast<int>(i);
  return -1;
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

bool makes_tensors(const ProgramClass& of_class, const Instruction& instruction) {
  return instruction.op == Op::collective && instruction.collective == CollectiveKind::all_gather &&
         instruction.shard >= 0 &&
         of_class.shards[static_cast<std::size_t>(instruction.shard)].parameter_part >= 0 &&
         of_class.shards[static_cast<std::size_t>(instruction.shard)].part == 0;
}

bool goes_to_host(const ProgramClass& of_class, const Instruction& instruction) {
  return of_class.tensors[static_cast<std::size_t>(instruction.into.at(0))].on_host;
}

std::string_view name_of(CollectiveKind kind) {
  static constexpr std::array<std::string_view, 4> names = {"all_reduce", "reduce_scatter", "all_gather",
                                                            "all_to_all"};
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

ExpertPlace expert_place(const ProgramClass& of_class, const RankEntry& entry) {
  const std::int64_t cut = of_class.expert_tensor_parallel;
  const std::int64_t copy_of_stage = entry.replica * of_class.context_parallel + entry.context_index;
  const std::int64_t index = copy_of_stage * of_class.tensor_parallel + entry.tensor_index;
  ExpertPlace place;
  place.tensor_index = index % cut;
  place.part = index / cut % of_class.expert_parallel;
  place.copy = index / cut / of_class.expert_parallel;
  place.slice = entry.tensor_index / cut;
  place.slices = of_class.tensor_parallel / cut;
  return place;
}

int other_end(const Program& program, Rank rank, int slot) {
  const auto& mine = program.class_of(rank).chunks;
  const auto chunk = static_cast<std::size_t>(slot / 2) % mine.size();
  const Rank peer = program.ranks[static_cast<std::size_t>(rank)].peers[static_cast<std::size_t>(slot)];
  const auto& theirs = program.class_of(peer).chunks;
  const auto& their_peers = program.ranks[static_cast<std::size_t>(peer)].peers;
  const int wanted = chunk_with(theirs, mine[chunk].virtual_stage + (is_next(slot) ? 1 : -1));
  if (wanted < 0) return -1;
  const int first = is_next(slot) ? previous_slot(wanted) : next_slot(wanted);
  for (std::size_t i = static_cast<std::size_t>(first); i < their_peers.size(); i += 2 * theirs.size())
    if (their_peers[i] == rank) return static_cast<int>(i);
  return -1;
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

std::string describe(const Program& program, Rank rank, int stream, int index) {
  const RankEntry& entry = program.ranks[static_cast<std::size_t>(rank)];
  const ProgramClass& of_class = program.class_of(rank);
  const Instruction& instruction = program.at(rank, stream, index);
  std::string what;
  switch (instruction.op) {
    case Op::compute:
      what = of_class.blocks[static_cast<std::size_t>(instruction.block)].name;
      break;
    case Op::send:
    case Op::recv:
      what = fmt::format("{} {} rank {}", instruction.op == Op::send ? "send" : "recv",
                         instruction.op == Op::send ? "to" : "from",
                         entry.peers[static_cast<std::size_t>(instruction.slot)]);
      break;
    case Op::collective:
      what = name_of(instruction.collective);
      break;
    case Op::optimizer:
      what = "optimizer step";
      break;
    case Op::copy:
      what = goes_to_host(of_class, instruction) ? "copy to host" : "copy from host";
      break;
  }
  if (instruction.micro_batch >= 0) what += fmt::format(" micro-batch {}", instruction.micro_batch);
  return fmt::format("stage {} rank {} {}[{}] {}", entry.stage, rank,
                     name_of(of_class.streams[static_cast<std::size_t>(stream)].kind), index, what);
}

}  // namespace motley
