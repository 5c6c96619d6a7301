// Pass "transfers": sends and receives between neighbouring virtual stages of different ranks. Each boundary has a
// stream of its own in each direction: a receive is posted p2p_buffers computes ahead, and a send may be outstanding
// for as many. Without overlap (overlap_p2p: false) the next compute waits for the sends of the last one, and
// receives are posted together with those sends, as in Megatron-LM's fused send_forward_recv_backward. Where
// neighbours are cut or replicated differently, a rank has several partners: their parts follow one another on the
// boundary's stream.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/compile/compile_passes.hpp"

namespace motley {
namespace {

// The streams, slots and tensors of a chunk's input and output: activations, or gradients in the other direction.
struct Boundary {
  StreamKind recv, send;
  bool forward;  // direction of the computes that wait (recv) or send
  ChunkId chunk;
  PeerSlot recv_slot, send_slot;
  std::optional<TensorId> received, sent;  // none: the boundary crosses no ranks
};
Boundary activations(const RankProgram& rank_program, ChunkId chunk) {
  constexpr TensorRole role = TensorRole::activation;
  return {StreamKind::recv_activation,
          StreamKind::send_activation,
          true,
          chunk,
          previous_slot(chunk),
          next_slot(chunk),
          boundary_tensor(rank_program, chunk, TensorUse::chunk_input, role),
          boundary_tensor(rank_program, chunk, TensorUse::chunk_output, role)};
}
Boundary gradients(const RankProgram& rank_program, ChunkId chunk) {
  constexpr TensorRole role = TensorRole::activation_gradient;
  return {StreamKind::recv_gradient,
          StreamKind::send_gradient,
          false,
          chunk,
          next_slot(chunk),
          previous_slot(chunk),
          boundary_tensor(rank_program, chunk, TensorUse::chunk_output, role),
          boundary_tensor(rank_program, chunk, TensorUse::chunk_input, role)};
}

// What each rank of a stage sends or receives at a boundary for one micro-batch: `rows` equal blocks of sequences,
// each with another replica, and the same parts of each block.
struct Moves {
  int partners = 1, rows = 1;
  std::int32_t parts = 1, part_stride = 0, part_step = 0;  // the part of partner k begins at part_step * k
  std::optional<GroupSlot> gather_slot;                    // of a recv; none: the rank receives all that it
                                                           // needs
};

struct Side {
  std::int64_t tensor_parallel, replicas;
};

Moves moves_between(Op op, const Side& here, const Side& there, Resharding resharding) {
  Moves moves;
  if (there.replicas > here.replicas) moves.rows = static_cast<int>(there.replicas / here.replicas);
  const std::int64_t mine = here.tensor_parallel, theirs = there.tensor_parallel;
  const auto ratio = static_cast<std::int32_t>(std::max(mine, theirs) / std::min(mine, theirs));
  if (theirs > mine) moves.partners = ratio;
  if (resharding == Resharding::gather) {  // rank i of the larger side moves part i
    moves.parts = static_cast<std::int32_t>(std::max(mine, theirs));
    moves.part_stride = mine >= theirs ? 1 : ratio;
    moves.part_step = 1;
  } else if ((op == Op::send) == (mine > theirs) && mine != theirs) {  // many ranks to one: each moves a part
    moves.parts = ratio;
    moves.part_stride = mine > theirs ? 1 : 0;
    moves.part_step = mine > theirs ? 0 : 1;
  }
  return moves;
}

// Under sequence parallelism a rank of the side with fewer ranks has the rows of several ranks of the other side, in
// order.
Moves moves_of_rows(std::int64_t mine, std::int64_t theirs) {
  Moves moves;
  if (theirs <= mine) return moves;
  moves.partners = static_cast<int>(theirs / mine);
  moves.parts = moves.partners;
  moves.part_step = 1;
  return moves;
}

// Makes the transfers of a stage's ranks.
class Boundaries {
 public:
  Boundaries(const Job& job, const Program& program, RankProgramId id)
      : job_(job), program_(program), id_(id), rank_program_(program.rank_programs[id]) {}

  // The receives of any micro-batch, in their order on the boundary's stream.
  std::vector<Instruction> receives(const Boundary& boundary) const {
    const Moves moves = moves_of(Op::recv, boundary);
    auto list = messages<Recv>(moves, boundary.recv_slot, *boundary.received);
    for (int row = 0; moves.gather_slot && row < moves.rows; ++row) {
      Collective gather;
      gather.kind = CollectiveKind::all_gather;
      gather.slot = *moves.gather_slot;
      gather.tensors = {*boundary.received};
      gather.row = row;
      gather.rows = moves.rows;
      gather.bytes = rank_program_.tensors[*boundary.received].bytes / moves.rows;
      list.emplace_back().body = std::move(gather);
    }
    return list;
  }
  std::vector<Instruction> sends(const Boundary& boundary) const {
    return messages<Send>(moves_of(Op::send, boundary), boundary.send_slot, *boundary.sent);
  }

 private:
  Moves moves_of(Op op, const Boundary& boundary) const {
    const PipelineTemplate& pipeline = job_.strategy.templates[at(rank_program_.pipeline)];
    const bool to_next = is_next(op == Op::send ? boundary.send_slot : boundary.recv_slot);
    const auto all = virtual_stages(pipeline);
    const int neighbour = rank_program_.chunks[boundary.chunk].virtual_stage + (to_next ? 1 : -1);
    const Stage &here = pipeline.stages[at(rank_program_.stage)],
                &there = pipeline.stages[at(all[at(neighbour)].stage)];
    if (job_.strategy.sequence_parallel)
      return moves_of_rows(rank_program_.tensor_parallel, there.tensor_parallel);
    const auto side = [&](const Stage& stage) {
      return Side{stage.tensor_parallel, pipeline.replicas_of(stage)};
    };
    Moves moves = moves_between(op, side(here), side(there),
                                resharding_between(to_next ? here : there, to_next ? there : here));
    if (op == Op::recv) moves.gather_slot = gather_slot(boundary);
    return moves;
  }

  // The group over which the chunk gathers what it is sent in parts. Such chunks have one each, in their order.
  std::optional<GroupSlot> gather_slot(const Boundary& boundary) const {
    const GroupKind kind = boundary.forward ? GroupKind::activation_gather : GroupKind::gradient_gather;
    if (!gathers(job_, rank_program_, boundary.chunk, kind)) return std::nullopt;
    std::size_t before = 0;
    for (const ChunkId chunk : rank_program_.chunks.ids())
      before += chunk < boundary.chunk && gathers(job_, rank_program_, chunk, kind) ? 1 : 0;
    return group_slots(program_, id_, kind).at(before);
  }

  template <class Message>
  std::vector<Instruction> messages(const Moves& moves, PeerSlot slot, TensorId tensor) const {
    const auto slots = static_cast<int>(2 * rank_program_.chunks.size());  // slots for one partner at each
                                                                           // boundary
    std::vector<Instruction> list;
    for (int k = 0; k < moves.rows * moves.partners; ++k) {
      Message message;
      message.slot = PeerSlot(slot.value() + slots * k);
      message.tensor = tensor;
      message.part = moves.part_step * (k % moves.partners);
      message.parts = moves.parts;
      message.part_stride = moves.part_stride;
      message.row = k / moves.partners;
      message.rows = moves.rows;
      message.bytes = rank_program_.tensors[tensor].bytes / (moves.rows * moves.parts);
      list.emplace_back().body = message;
    }
    return list;
  }

  const Job& job_;
  const Program& program_;
  const RankProgramId id_;
  const RankProgram& rank_program_;
};

// Indices of the chunk's forwards, or of its backwards (input gradients if they are split).
std::vector<int> computes_of(const RankProgram& rank_program, const Boundary& boundary) {
  std::vector<int> indices;
  const auto& computes = rank_program.streams[kComputeStream].instructions;
  for (std::size_t i = 0; i < computes.size(); ++i) {
    const Block& block = rank_program.blocks[computes[i].as<Compute>()->block];
    const bool crosses = boundary.forward
                             ? block.pass == Pass::forward
                             : block.pass == Pass::backward || block.pass == Pass::input_gradient;
    if (block.chunk == boundary.chunk && crosses) indices.push_back(static_cast<int>(i));
  }
  return indices;
}

std::vector<Instruction> of_micro_batch(std::vector<Instruction> list, std::int32_t micro_batch) {
  for (Instruction& instruction : list) instruction.micro_batch = micro_batch;
  return list;
}

void add_receives(const Job& job, const Boundaries& boundaries, RankProgram& rank_program,
                  const Boundary& boundary) {
  if (!boundary.received) return;
  const auto fed = computes_of(rank_program, boundary);
  const StreamId stream = stream_of(rank_program, boundary.recv, boundary.chunk);
  auto& received = rank_program.streams[stream].instructions;
  auto& computes = rank_program.streams[kComputeStream].instructions;
  const int ahead = job.strategy.p2p_buffers;
  const std::vector<Instruction> receives = boundaries.receives(boundary);
  for (int j = 0; j < static_cast<int>(fed.size()); ++j) {
    Instruction& compute = computes[at(fed[at(j)])];
    auto recvs = of_micro_batch(receives, compute.micro_batch);
    if (job.strategy.overlap_p2p) {
      if (j >= ahead) recvs[0].after.push_back({kComputeStream, fed[at(j - ahead)]});
    } else if (fed[at(j)] > 0) {
      recvs[0].after.push_back({kComputeStream, fed[at(j)] - 1});
    }
    received.insert(received.end(), recvs.begin(), recvs.end());
    compute.after.push_back({stream, static_cast<int>(received.size()) - 1});
  }
}

void add_sends(const Job& job, const Boundaries& boundaries, RankProgram& rank_program,
               const Boundary& boundary) {
  if (!boundary.sent) return;
  const auto drained = computes_of(rank_program, boundary);
  const StreamId stream = stream_of(rank_program, boundary.send, boundary.chunk);
  auto& sent = rank_program.streams[stream].instructions;
  const int outstanding = job.strategy.p2p_buffers;
  auto& computes = rank_program.streams[kComputeStream].instructions;
  const std::vector<Instruction> all_sends = boundaries.sends(boundary);
  for (int j = 0; j < static_cast<int>(drained.size()); ++j) {
    const auto from = at(drained[at(j)]);
    auto sends = of_micro_batch(all_sends, computes[from].micro_batch);
    sends.front().after.push_back({kComputeStream, drained[at(j)]});
    sends.back().frees = {*boundary.sent};
    sent.insert(sent.end(), sends.begin(), sends.end());
    const After last{stream, static_cast<int>(sent.size()) - 1};
    if (!job.strategy.overlap_p2p) {
      if (from + 1 < computes.size()) computes[from + 1].after.push_back(last);
    } else if (j + outstanding < static_cast<int>(drained.size())) {
      computes[at(drained[at(j + outstanding)])].after.push_back(last);
    }
  }
}

}  // namespace

std::optional<int> stage_beside(const std::vector<VirtualStage>& all, int virtual_stage, int neighbour) {
  if (neighbour < 0 || neighbour >= static_cast<int>(all.size())) return std::nullopt;
  const int stage = all[at(neighbour)].stage;
  if (stage == all[at(virtual_stage)].stage) return std::nullopt;
  return stage;
}

namespace {

// Whether any boundary of the pipeline may be one where ranks gather. Virtual stages need not be sorted to know it.
bool may_gather(const PipelineTemplate& pipeline) {
  return std::any_of(pipeline.stages.begin(), pipeline.stages.end(), [&](const Stage& stage) {
    return stage.resharding == Resharding::gather ||
           stage.tensor_parallel != pipeline.stages.front().tensor_parallel;
  });
}

}  // namespace

bool gathers(const Job& job, const RankProgram& rank_program, ChunkId chunk, GroupKind kind) {
  if (rank_program.sequence_parallel || rank_program.tensor_parallel == 1) return false;
  const PipelineTemplate& pipeline = job.strategy.templates[at(rank_program.pipeline)];
  if (!may_gather(pipeline)) return false;
  const int virtual_stage = rank_program.chunks[chunk].virtual_stage;
  const bool forward = kind == GroupKind::activation_gather;
  const std::optional<int> sender =
      stage_beside(virtual_stages(pipeline), virtual_stage, virtual_stage + (forward ? -1 : 1));
  if (!sender) return false;
  const Stage &here = pipeline.stages[at(rank_program.stage)], &there = pipeline.stages[at(*sender)];
  return resharding_between(forward ? there : here, forward ? here : there) == Resharding::gather;
}

void add_transfers(const Job& job, Program& program) {
  for (RankProgramId id : program.rank_programs.ids()) {
    RankProgram& rank_program = program.rank_programs[id];
    const Boundaries boundaries(job, program, id);
    for (ChunkId chunk : rank_program.chunks.ids())
      for (const Boundary& boundary : {activations(rank_program, chunk), gradients(rank_program, chunk)}) {
        add_receives(job, boundaries, rank_program, boundary);
        add_sends(job, boundaries, rank_program, boundary);
      }
  }
}

}  // namespace motley
