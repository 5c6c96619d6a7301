// Pass "transfers": sends and receives between neighbouring virtual stages of different ranks. Each boundary has a
// stream of its own in each direction: a receive is posted p2p_buffers computes ahead, a send may be outstanding that
// long. Without overlap (overlap_p2p: false) the next compute waits for what the last one sent, and receives are posted
// together with those sends, as Megatron-LM's fused send_forward_recv_backward does. Where neighbours are cut or
// replicated in unlike ways a rank has several partners: their parts follow one another on the boundary's stream.
#include <algorithm>

#include "models/compile_passes.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

struct Boundary {
  StreamKind recv, send;
  bool forward;  // the computes it feeds (recv) or drains (send)
  int chunk, recv_slot, send_slot;
};
Boundary activations(int chunk) {
  return {StreamKind::recv_activation,
          StreamKind::send_activation,
          true,
          chunk,
          previous_slot(chunk),
          next_slot(chunk)};
}
Boundary gradients(int chunk) {
  return {StreamKind::recv_gradient, StreamKind::send_gradient, false, chunk,
          next_slot(chunk),          previous_slot(chunk)};
}

// -1: the chunk has none, as nothing crosses ranks there.
int boundary_tensor(const ProgramClass& of_class, int chunk, const char* what) {
  const std::string name = boundary_name(of_class, chunk, what);
  for (std::size_t i = 0; i < of_class.tensors.size(); ++i)
    if (of_class.tensors[i].name == name) return static_cast<int>(i);
  return -1;
}

// What each rank of a stage sends or receives at a boundary, for one micro-batch: of each block of sequences, which
// another replica has there, the same.
struct Moves {
  int partners = 1, rows = 1;
  std::int32_t parts = 1, part_stride = 0, part_step = 0;  // of partner k: part_step * k
  int gather_slot = -1;                                    // of a recv; -1: what comes is all it needs
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
  if (resharding == Resharding::gather) {  // part i is moved by rank i of the larger side
    moves.parts = static_cast<std::int32_t>(std::max(mine, theirs));
    moves.part_stride = mine >= theirs ? 1 : ratio;
    moves.part_step = 1;
  } else if ((op == Op::send) == (mine > theirs) && mine != theirs) {  // many to one: each a part
    moves.parts = ratio;
    moves.part_stride = mine > theirs ? 1 : 0;
    moves.part_step = mine > theirs ? 0 : 1;
  }
  return moves;
}

// Both sides have their own rows only, and a rank of the smaller side those of several of the larger, in order.
Moves moves_of_rows(std::int64_t mine, std::int64_t theirs) {
  Moves moves;
  if (theirs <= mine) return moves;
  moves.partners = static_cast<int>(theirs / mine);
  moves.parts = moves.partners;
  moves.part_step = 1;
  return moves;
}

class Boundaries {
 public:
  Boundaries(const Job& job, const Program& program, std::int32_t index)
      : job_(job),
        program_(program),
        index_(index),
        of_class_(program.classes[static_cast<std::size_t>(index)]) {}

  Moves moves(Op op, const Boundary& boundary) const {
    const PipelineTemplate& pipeline = job_.strategy.templates[static_cast<std::size_t>(of_class_.pipeline)];
    const bool to_next = is_next(op == Op::send ? boundary.send_slot : boundary.recv_slot);
    const auto all = virtual_stages(pipeline);
    const int neighbour =
        of_class_.chunks[static_cast<std::size_t>(boundary.chunk)].virtual_stage + (to_next ? 1 : -1);
    const int other = all[static_cast<std::size_t>(neighbour)].stage;
    if (all.size() > pipeline.stages.size()) return {};  // equal degrees, direct: find_at_boundaries()
    const auto side = [&](int stage) {
      const Stage& of = pipeline.stages[static_cast<std::size_t>(stage)];
      return Side{of.tensor_parallel, pipeline.replicas_of(of)};
    };
    const Resharding resharding = resharding_before(pipeline, std::max(other, of_class_.stage));
    if (job_.strategy.sequence_parallel)
      return moves_of_rows(of_class_.tensor_parallel, side(other).tensor_parallel);
    Moves moves = moves_between(op, side(of_class_.stage), side(other), resharding);
    if (op == Op::recv && resharding == Resharding::gather)
      moves.gather_slot = group_slot(
          program_, index_, boundary.forward ? GroupKind::activation_gather : GroupKind::gradient_gather);
    return moves;
  }

  // In their order on the boundary's stream.
  std::vector<Instruction> transfers(Op op, const Boundary& boundary, int tensor, int micro_batch) const {
    const Moves of = moves(op, boundary);
    std::vector<Instruction> list;
    for (int k = 0; k < of.rows * of.partners; ++k) {
      Instruction made;
      made.op = op;
      made.micro_batch = micro_batch;
      made.slot = (op == Op::send ? boundary.send_slot : boundary.recv_slot) +
                  2 * static_cast<int>(of_class_.chunks.size()) * k;
      made.tensors = {tensor};
      made.part = of.part_step * (k % of.partners);
      made.parts = of.parts;
      made.part_stride = of.part_stride;
      made.row = k / of.partners;
      made.rows = of.rows;
      made.bytes = of_class_.tensors[static_cast<std::size_t>(tensor)].bytes / (of.rows * of.parts);
      list.push_back(std::move(made));
    }
    for (int row = 0; of.gather_slot >= 0 && row < of.rows; ++row) {
      Instruction gather;
      gather.op = Op::collective;
      gather.collective = CollectiveKind::all_gather;
      gather.micro_batch = micro_batch;
      gather.slot = of.gather_slot;
      gather.tensors = {tensor};
      gather.row = row;
      gather.rows = of.rows;
      gather.bytes = of_class_.tensors[static_cast<std::size_t>(tensor)].bytes / of.rows;
      list.push_back(std::move(gather));
    }
    return list;
  }

 private:
  const Job& job_;
  const Program& program_;
  const std::int32_t index_;
  const ProgramClass& of_class_;
};

// Forwards of the chunk, or its backwards: whole, or the input gradients where they are split.
std::vector<int> computes_of(const ProgramClass& of_class, const Boundary& boundary) {
  std::vector<int> indices;
  const auto& computes = of_class.streams[0].instructions;
  for (std::size_t i = 0; i < computes.size(); ++i) {
    const Block& block = of_class.blocks[static_cast<std::size_t>(computes[i].block)];
    const bool crosses = boundary.forward
                             ? block.pass == Pass::forward
                             : block.pass == Pass::backward || block.pass == Pass::input_gradient;
    if (block.chunk == boundary.chunk && crosses) indices.push_back(static_cast<int>(i));
  }
  return indices;
}

void add_receives(const Job& job, const Boundaries& boundaries, ProgramClass& of_class,
                  const Boundary& boundary, int tensor) {
  if (tensor < 0) return;
  const auto fed = computes_of(of_class, boundary);
  const auto stream = static_cast<std::size_t>(stream_of(of_class, boundary.recv, boundary.chunk));
  auto& received = of_class.streams[stream].instructions;
  const int ahead = job.strategy.p2p_buffers;
  for (int j = 0; j < static_cast<int>(fed.size()); ++j) {
    Instruction& compute = of_class.streams[0].instructions[static_cast<std::size_t>(fed[j])];
    auto recvs = boundaries.transfers(Op::recv, boundary, tensor, compute.micro_batch);
    if (job.strategy.overlap_p2p) {
      if (j >= ahead) recvs[0].after.push_back({0, fed[j - ahead]});
    } else if (fed[j] > 0) {
      recvs[0].after.push_back({0, fed[j] - 1});
    }
    received.insert(received.end(), recvs.begin(), recvs.end());
    compute.after.push_back({static_cast<std::int16_t>(stream), static_cast<int>(received.size()) - 1});
  }
}

void add_sends(const Job& job, const Boundaries& boundaries, ProgramClass& of_class, const Boundary& boundary,
               int tensor) {
  if (tensor < 0) return;
  const auto drained = computes_of(of_class, boundary);
  const auto stream = static_cast<std::size_t>(stream_of(of_class, boundary.send, boundary.chunk));
  auto& sent = of_class.streams[stream].instructions;
  const int outstanding = job.strategy.p2p_buffers;
  auto& computes = of_class.streams[0].instructions;
  for (int j = 0; j < static_cast<int>(drained.size()); ++j) {
    const auto from = static_cast<std::size_t>(drained[j]);
    auto sends = boundaries.transfers(Op::send, boundary, tensor, computes[from].micro_batch);
    sends.front().after.push_back({0, drained[j]});
    sends.back().frees = {tensor};
    sent.insert(sent.end(), sends.begin(), sends.end());
    const After last{static_cast<std::int16_t>(stream), static_cast<int>(sent.size()) - 1};
    if (!job.strategy.overlap_p2p) {
      if (from + 1 < computes.size()) computes[from + 1].after.push_back(last);
    } else if (j + outstanding < static_cast<int>(drained.size())) {
      computes[static_cast<std::size_t>(drained[j + outstanding])].after.push_back(last);
    }
  }
}

}  // namespace

void add_transfers(const Job& job, Program& program) {
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    ProgramClass& of_class = program.classes[i];
    const Boundaries of(job, program, static_cast<std::int32_t>(i));
    for (int chunk = 0; chunk < static_cast<int>(of_class.chunks.size()); ++chunk) {
      const Boundary forward = activations(chunk), back = gradients(chunk);
      add_receives(job, of, of_class, forward, boundary_tensor(of_class, chunk, "input"));
      add_sends(job, of, of_class, forward, boundary_tensor(of_class, chunk, "output"));
      add_receives(job, of, of_class, back, boundary_tensor(of_class, chunk, "output.gradient"));
      add_sends(job, of, of_class, back, boundary_tensor(of_class, chunk, "input.gradient"));
    }
  }
}

}  // namespace motley
