// Programs written by hand for tests of the Sim world: a few ranks, computes of known seconds, messages of known bytes.
// A compute takes the seconds that it is given: its one kernel moves one byte for each nanosecond, which is the rate of
// the memory.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "models/compile/compile.hpp"
#include "models/program/edit.hpp"
#include "sim/workers/child.hpp"

namespace motley::tests {

inline Chip unit_chip() {
  Chip chip;
  chip.name = "unit";
  chip.vendor = "none";
  chip.kind = "cpu";
  chip.peak_flops[Format::fp32] = {1e9, "assumed"};
  chip.memory_bytes = {1e12, "assumed"};
  chip.memory_bandwidth = {1e9, "assumed"};
  chip.software.gemm_efficiency = {1, "assumed"};
  chip.software.attention_efficiency = {1, "assumed"};
  chip.software.bandwidth_efficiency = {1, "assumed"};
  return chip;
}

// One node of chips. A loopback fabric gives exactly the rate of its figures (models/cost/network_cost.cpp).
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

inline constexpr PeerSlot kPrevious = previous_slot(ChunkId{}), kNext = next_slot(ChunkId{});

// A Program in which each rank has a rank program of its own. The first stream is the compute stream; others are made
// when they are first used.
class HandMade {
 public:
  explicit HandMade(Cluster cluster, Fidelity fidelity = {}) {
    job.cluster = std::move(cluster);
    job.fidelity = fidelity;
    program.precision = Format::fp32;
    for (int chip = 0; chip < job.cluster.chip_count(); ++chip) {
      RankProgram rank_program;
      rank_program.name = "rank";
      rank_program.streams.resize(1);
      rank_program.blocks.resize(1);
      rank_program.blocks.front().name = "work";
      rank_program.chunks = {{chip, 0, 0}};
      RankEntry entry;
      entry.rank_program = program.rank_programs.add(rank_program);
      entry.chip = entry.stage = chip;
      entry.peers.resize(2);
      entry.groups.resize(3);
      program.ranks.add(entry);
    }
  }

  // Connects two ranks: `to` receives on its kPrevious slot what `from` sends on its kNext slot, and the other way
  // round.
  void join(Rank from, Rank to) {
    entry(from).peers[kNext] = to;
    entry(to).peers[kPrevious] = from;
  }
  void group(GroupKind kind, GroupSlot slot, const std::vector<Rank>& ranks) {
    const GroupId group = program.groups.add({kind, ranks});
    for (Rank rank : ranks) entry(rank).groups[slot] = group;
  }

  After compute(Rank rank, double seconds, std::vector<After> after = {}) {
    auto& kernels = program_of(rank).blocks.front().kernels;
    Kernel kernel;
    kernel.op = KernelOp::activation;
    kernel.bytes = static_cast<std::int64_t>(seconds * 1e9);
    kernels.push_back(kernel);
    const auto count = static_cast<std::int32_t>(kernels.size());
    return add(rank, StreamKind::compute, Compute{BlockId{}, count - 1, count}, std::move(after));
  }
  After send(Rank rank, PeerSlot slot, std::int64_t bytes, std::vector<After> after = {}) {
    const StreamKind kind = is_next(slot) ? StreamKind::send_activation : StreamKind::send_gradient;
    Send send;
    send.slot = slot;
    send.bytes = bytes;
    return add(rank, kind, send, std::move(after));
  }
  After recv(Rank rank, PeerSlot slot, std::int64_t bytes, std::vector<After> after = {}) {
    const StreamKind kind = is_next(slot) ? StreamKind::recv_gradient : StreamKind::recv_activation;
    Recv recv;
    recv.slot = slot;
    recv.bytes = bytes;
    return add(rank, kind, recv, std::move(after));
  }
  After all_reduce(Rank rank, GroupSlot slot, std::int64_t bytes, std::vector<After> after = {}) {
    return collective(CollectiveKind::all_reduce, rank, slot, bytes, std::move(after));
  }
  After collective(CollectiveKind kind, Rank rank, GroupSlot slot, std::int64_t bytes,
                   std::vector<After> after = {}) {
    Collective collective;
    collective.kind = kind;
    collective.slot = slot;
    collective.bytes = bytes;
    return add_collective(rank, collective, std::move(after));
  }
  After add_collective(Rank rank, const Collective& collective, std::vector<After> after = {}) {
    return add(rank, StreamKind::collective, collective, std::move(after));
  }

  RankEntry& entry(Rank rank) { return program.ranks[rank]; }
  Trace run(const SimOptions& options = {}) const { return simulate_in_child(job, program, options); }

  Job job;
  Program program;

 private:
  RankProgram& program_of(Rank rank) { return program.rank_programs[entry(rank).rank_program]; }
  After add(Rank rank, StreamKind kind, InstructionBody body, std::vector<After> after) {
    Instruction instruction;
    instruction.body = std::move(body);
    instruction.after = std::move(after);
    const StreamId stream = stream_of(program_of(rank), kind);
    auto& instructions = program_of(rank).streams[stream].instructions;
    instructions.push_back(std::move(instruction));
    return {stream, static_cast<std::int32_t>(instructions.size()) - 1};
  }
};

inline double end_of(const Trace& trace) {
  double end_s = 0;
  for (const TraceEvent& event : trace.events) end_s = std::max(end_s, event.end_s);
  return end_s;
}
inline const TraceEvent& event_of(const Trace& trace, Rank rank, After awaited) {
  for (const TraceEvent& event : trace.events)
    if (event.step == Step{rank, awaited.stream, awaited.index}) return event;
  throw std::logic_error("no such event");
}

}  // namespace motley::tests
