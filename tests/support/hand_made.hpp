// Programs written by hand for tests of the Sim world: a few ranks, computes of known seconds, messages of known bytes.
// A compute takes the seconds it is given: its one kernel moves that many bytes through a memory of 1 byte/ns.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "models/compile.hpp"
#include "sim/world.hpp"

namespace motley::tests {

inline Chip unit_chip() {
  Chip chip;
  chip.name = "unit";
  chip.vendor = "none";
  chip.kind = "cpu";
  chip.peak_flops[Format::fp32] = {1e9, "assumed"};
  chip.memory_bytes = {1e12, "assumed"};
  chip.memory_bandwidth = {1e9, "assumed"};
  chip.gemm_efficiency = {1, "assumed"};
  chip.attention_efficiency = {1, "assumed"};
  chip.bandwidth_efficiency = {1, "assumed"};
  return chip;
}

// Loopback: the fabric gives what its figures say, nothing is taken off (models/network_cost.cpp).
inline Cluster one_node(int chips, InsideFabric inside = {FabricKind::loopback, 1e9, 1e-5}) {
  Cluster cluster;
  cluster.name = "one-node";
  NodeGroup group;
  group.name = "all";
  group.nodes = 1;
  group.chip = unit_chip();
  group.chips_per_node = chips;
  group.inside = inside;
  cluster.groups.push_back(group);
  build_topology(cluster);
  return cluster;
}

// One class a rank; stream 0 is the compute stream, the others are made as they are asked for.
class HandMade {
 public:
  explicit HandMade(Cluster cluster, Fidelity fidelity = {}) {
    job.cluster = std::move(cluster);
    job.fidelity = fidelity;
    program.precision = Format::fp32;
    for (Rank rank = 0; rank < job.cluster.chip_count(); ++rank) {
      ProgramClass of_class;
      of_class.name = "rank";
      of_class.streams.resize(1);
      of_class.blocks.resize(1);
      of_class.blocks[0].name = "work";
      of_class.chunks = {{rank, 0, 0}};
      program.classes.push_back(of_class);
      RankEntry entry;
      entry.of_class = entry.chip = entry.stage = rank;
      entry.peers = {-1, -1};
      entry.groups = {-1, -1, -1};
      program.ranks.push_back(entry);
    }
  }

  // `to` receives on its kPrevious slot what `from` sends on its kNext slot, and the other way round.
  void join(Rank from, Rank to) {
    entry(from).peers[kNext] = to;
    entry(to).peers[kPrevious] = from;
  }
  void group(GroupKind kind, int slot, std::vector<Rank> ranks) {
    for (Rank rank : ranks)
      entry(rank).groups[static_cast<std::size_t>(slot)] = static_cast<int>(program.groups.size());
    program.groups.push_back({kind, std::move(ranks)});
  }

  After compute(Rank rank, double seconds, std::vector<After> after = {}) {
    auto& kernels = class_of(rank).blocks[0].kernels;
    Kernel kernel;
    kernel.op = KernelOp::activation;
    kernel.bytes = static_cast<std::int64_t>(seconds * 1e9);
    kernels.push_back(kernel);
    Instruction made;
    made.op = Op::compute;
    made.block = 0;
    made.first_kernel = static_cast<int>(kernels.size()) - 1;
    made.last_kernel = made.first_kernel + 1;
    return add(rank, StreamKind::compute, made, std::move(after));
  }
  After send(Rank rank, int slot, std::int64_t bytes, std::vector<After> after = {}) {
    return transfer(rank, Op::send, slot, bytes, std::move(after));
  }
  After recv(Rank rank, int slot, std::int64_t bytes, std::vector<After> after = {}) {
    return transfer(rank, Op::recv, slot, bytes, std::move(after));
  }
  After all_reduce(Rank rank, int slot, std::int64_t bytes, std::vector<After> after = {}) {
    return collective(CollectiveKind::all_reduce, rank, slot, bytes, std::move(after));
  }
  After collective(CollectiveKind kind, Rank rank, int slot, std::int64_t bytes,
                   std::vector<After> after = {}) {
    Instruction made;
    made.op = Op::collective;
    made.collective = kind;
    made.slot = slot;
    made.bytes = bytes;
    return add(rank, StreamKind::collective, made, std::move(after));
  }

  RankEntry& entry(Rank rank) { return program.ranks[static_cast<std::size_t>(rank)]; }
  Trace run(const SimOptions& options = {}) const { return simulate_in_child(job, program, options); }

  Job job;
  Program program;

 private:
  ProgramClass& class_of(Rank rank) { return program.classes[static_cast<std::size_t>(rank)]; }
  After transfer(Rank rank, Op op, int slot, std::int64_t bytes, std::vector<After> after) {
    Instruction made;
    made.op = op;
    made.slot = slot;
    made.bytes = bytes;
    const bool activation = (op == Op::send) == (slot == kNext);
    const StreamKind sends = activation ? StreamKind::send_activation : StreamKind::send_gradient;
    const StreamKind recvs = activation ? StreamKind::recv_activation : StreamKind::recv_gradient;
    return add(rank, op == Op::send ? sends : recvs, made, std::move(after));
  }
  After add(Rank rank, StreamKind kind, Instruction made, std::vector<After> after) {
    made.after = std::move(after);
    auto& streams = class_of(rank).streams;
    std::size_t index = 0;
    while (index < streams.size() && streams[index].kind != kind) ++index;
    if (index == streams.size()) {
      streams.emplace_back();
      streams.back().kind = kind;
    }
    streams[index].instructions.push_back(made);
    return {static_cast<std::int16_t>(index),
            static_cast<std::int32_t>(streams[index].instructions.size()) - 1};
  }
};

inline double end_of(const Trace& trace) {
  double end_s = 0;
  for (const TraceEvent& event : trace.events) end_s = std::max(end_s, event.end_s);
  return end_s;
}
inline const TraceEvent& event_of(const Trace& trace, Rank rank, After of) {
  for (const TraceEvent& event : trace.events)
    if (event.step == Step{rank, of.stream, of.index}) return event;
  throw std::logic_error("no such event");
}

}  // namespace motley::tests
