// Pass "transfers": sends and receives between neighbouring virtual stages of different ranks. Each boundary has a
// stream of its own in each direction: a receive is posted p2p_buffers computes ahead, a send may be outstanding that
// long. Without overlap (overlap_p2p: false) the next compute waits for what the last one sent, and receives are posted
// together with those sends, as Megatron-LM's fused send_forward_recv_backward does.
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

Instruction transfer(const ProgramClass& of_class, Op op, int slot, int tensor, int micro_batch) {
  Instruction made;
  made.op = op;
  made.micro_batch = micro_batch;
  made.slot = slot;
  made.tensors = {tensor};
  made.bytes = of_class.tensors[static_cast<std::size_t>(tensor)].bytes;
  return made;
}

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

void add_receives(const Job& job, ProgramClass& of_class, const Boundary& boundary, int tensor) {
  if (tensor < 0) return;
  const auto fed = computes_of(of_class, boundary);
  const auto stream = static_cast<std::size_t>(stream_of(of_class, boundary.recv, boundary.chunk));
  const int ahead = job.strategy.p2p_buffers;
  for (int j = 0; j < static_cast<int>(fed.size()); ++j) {
    Instruction& compute = of_class.streams[0].instructions[static_cast<std::size_t>(fed[j])];
    Instruction recv = transfer(of_class, Op::recv, boundary.recv_slot, tensor, compute.micro_batch);
    if (job.strategy.overlap_p2p) {
      if (j >= ahead) recv.after.push_back({0, fed[j - ahead]});
    } else if (fed[j] > 0) {
      recv.after.push_back({0, fed[j] - 1});
    }
    compute.after.push_back({static_cast<std::int16_t>(stream), j});
    of_class.streams[stream].instructions.push_back(recv);
  }
}

void add_sends(const Job& job, ProgramClass& of_class, const Boundary& boundary, int tensor) {
  if (tensor < 0) return;
  const auto drained = computes_of(of_class, boundary);
  const auto stream = static_cast<std::size_t>(stream_of(of_class, boundary.send, boundary.chunk));
  const int outstanding = job.strategy.p2p_buffers;
  auto& computes = of_class.streams[0].instructions;
  for (int j = 0; j < static_cast<int>(drained.size()); ++j) {
    const auto from = static_cast<std::size_t>(drained[j]);
    Instruction send = transfer(of_class, Op::send, boundary.send_slot, tensor, computes[from].micro_batch);
    send.after.push_back({0, drained[j]});
    send.frees = {tensor};
    of_class.streams[stream].instructions.push_back(send);
    const After sent{static_cast<std::int16_t>(stream), j};
    if (!job.strategy.overlap_p2p) {
      if (from + 1 < computes.size()) computes[from + 1].after.push_back(sent);
    } else if (j + outstanding < static_cast<int>(drained.size())) {
      computes[static_cast<std::size_t>(drained[j + outstanding])].after.push_back(sent);
    }
  }
}

}  // namespace

void add_transfers(const Job& job, Program& program) {
  for (ProgramClass& of_class : program.classes)
    for (int chunk = 0; chunk < static_cast<int>(of_class.chunks.size()); ++chunk) {
      const Boundary forward = activations(chunk), back = gradients(chunk);
      add_receives(job, of_class, forward, boundary_tensor(of_class, chunk, "input"));
      add_sends(job, of_class, forward, boundary_tensor(of_class, chunk, "output"));
      add_receives(job, of_class, back, boundary_tensor(of_class, chunk, "output.gradient"));
      add_sends(job, of_class, back, boundary_tensor(of_class, chunk, "input.gradient"));
    }
}

}  // namespace motley
