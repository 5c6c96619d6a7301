// Pass "separate": each all_to_all kernel, by which ranks exchange tokens of experts, leaves its compute and becomes
// an instruction of the compute stream, and so does each collective over a context-parallel group. Tensor-parallel
// collectives do so where they may contend with other traffic (fidelity.tensor_parallel: fluid or expanded). Other
// kernels stay. A collective that has a share of attention beside it (models/compile/attention.cpp) moves to a stream
// of its own.
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile_passes.hpp"
#include "models/program/routing.hpp"

namespace motley {
namespace {

GroupSlot slot_of(const RankProgram& rank_program, const Kernel& kernel) {
  if (kernel.op == KernelOp::all_to_all) return kExpertGroup;
  return kernel.over == GroupKind::context ? context_slot(rank_program) : kTensorGroup;
}

Collective collective_for(const RankProgram& rank_program, const Kernel& kernel) {
  Collective collective;
  collective.kind = collective_of(kernel.op);
  collective.reduce = kernel.reduce;
  collective.slot = slot_of(rank_program, kernel);
  collective.tensors = kernel.out;
  collective.bytes = kernel.bytes;
  if (kernel.op != KernelOp::all_to_all) return collective;
  collective.bytes = rank_program.tensors[kernel.out.at(0)].bytes;
  if (kernel.bytes < collective.bytes) collective.expected = kernel.bytes;
  return collective;
}

std::vector<Instruction> cut_at_collectives(const RankProgram& rank_program, const Instruction& whole,
                                            const Compute& compute, bool tensor_parallel) {
  const auto& kernels = rank_program.blocks[compute.block].kernels;
  const auto leaves = [&](const Kernel& kernel) {
    return is_collective(kernel.op) && (tensor_parallel || !priced_in_computes(kernel));
  };
  std::size_t most = 1;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i)
    most += leaves(kernels[at(i)]) || is_share_of_attention(kernels[at(i)]) ? 2 : 0;
  std::vector<Instruction> pieces;
  pieces.reserve(most);
  const auto add_compute = [&](int first, int last) {
    if (first == last) return;
    Instruction& piece = pieces.emplace_back();
    piece.body = Compute{compute.block, first, last};
    piece.micro_batch = whole.micro_batch;
  };
  int first = compute.first_kernel;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    if (is_share_of_attention(kernel)) {
      add_compute(first, i);
      add_compute(i, i + 1);
      first = i + 1;
    }
    if (!leaves(kernel)) continue;
    add_compute(first, i);
    first = i + 1;
    Instruction& instruction = pieces.emplace_back();
    instruction.body = collective_for(rank_program, kernel);
    instruction.micro_batch = whole.micro_batch;
  }
  add_compute(first, compute.last_kernel);
  pieces.front().after = whole.after;
  return pieces;
}

bool is_share(const RankProgram& rank_program, const Instruction& instruction) {
  const Compute* const compute = instruction.as<Compute>();
  return compute != nullptr &&
         is_share_of_attention(rank_program.blocks[compute->block].kernels[at(compute->first_kernel)]);
}

// Moves each collective that stands before a share of attention into a stream of its own. It begins after the
// instruction before it, and the instruction after the share waits for it.
void move_beside_shares(RankProgram& rank_program) {
  const auto leaves = [&rank_program](const std::vector<Instruction>& computes, std::size_t i) {
    return computes[i].op() == Op::collective && i + 1 < computes.size() &&
           is_share(rank_program, computes[i + 1]);
  };
  std::vector<std::size_t> moved;
  {
    const std::vector<Instruction>& computes = rank_program.streams[kComputeStream].instructions;
    for (std::size_t i = 0; i < computes.size(); ++i)
      if (leaves(computes, i)) moved.push_back(i);
  }
  if (moved.empty()) return;
  std::vector<Instruction> before = std::move(rank_program.streams[kComputeStream].instructions);
  const StreamId exchange = stream_of(rank_program, StreamKind::exchange);
  std::vector<After> places;
  std::vector<Instruction> kept, exchanges;
  places.reserve(before.size());
  kept.reserve(before.size() - moved.size());
  exchanges.reserve(moved.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool goes = exchanges.size() < moved.size() && moved[exchanges.size()] == i;
    std::vector<Instruction>& into = goes ? exchanges : kept;
    places.push_back({goes ? exchange : kComputeStream, static_cast<int>(into.size())});
    into.push_back(std::move(before[i]));
  }
  rank_program.streams[kComputeStream].instructions = std::move(kept);
  rank_program.streams[exchange].instructions = std::move(exchanges);
  for (Stream& stream : rank_program.streams)
    for (Instruction& instruction : stream.instructions)
      for (After& after : instruction.after)
        if (after.stream == kComputeStream) after = places[at(after.index)];
  const auto make_wait = [&](std::size_t later, std::size_t earlier) {
    const After place = places[later];
    rank_program.streams[place.stream].instructions[at(place.index)].after.push_back(places[earlier]);
  };
  for (const std::size_t i : moved) {
    MOTLEY_CHECK(i > 0 && i + 2 < before.size());
    make_wait(i, i - 1);
    make_wait(i + 2, i);
  }
}

}  // namespace

void separate_tensor_collectives(const Job& job, Program& program) {
  if (job.fidelity.expert_copies == ExpertCopies::node) {
    const Experts& experts = job.transformer.experts;
    program.routing = {experts.count,         experts.per_token, experts.groups, experts.groups_per_token,
                       job.train.expert_skew, job.train.seed};
    for (const RankProgram& rank_program : program.rank_programs)
      if (rank_program.expert_parallel > 1)
        refuse_dear_routing(program.routing, rank_program.expert_parallel);
  }
  const bool tensor_parallel = job.fidelity.tensor_parallel != CollectiveLevel::formula;
  for (RankProgram& rank_program : program.rank_programs) {
    const bool always = rank_program.expert_parallel > 1 || rank_program.context_parallel > 1;
    if (!always && (!tensor_parallel || rank_program.tensor_parallel == 1)) continue;
    std::vector<std::vector<Instruction>> pieces;
    for (const Instruction& whole : rank_program.streams[kComputeStream].instructions) {
      pieces.emplace_back();
      if (const Compute* const compute = whole.as<Compute>())
        pieces.back() = cut_at_collectives(rank_program, whole, *compute, tensor_parallel);
    }
    replace_computes(rank_program, std::move(pieces));
    move_beside_shares(rank_program);
  }
}

}  // namespace motley
