// What a chip's memory holds beyond the tensors that a Program names: the communication library's buffers, copies of
// what is reduced or gathered, driver and libraries, and what the allocator loses. None of it is in a Trace: a host
// rank, which really runs, has none of it. Read next: models/check/check.hpp.
//
// Assumes, for all chips: NCCL's ways, whatever the vendor's library is called. A host (`kind: cpu`) keeps nothing that
// counts beside its tensors, and its allocator gives pages back.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

// Of every rank: a communicator for each of its groups, one for each neighbour in its pipeline.
//
// A connection of a channel has a buffer a protocol: 4 MiB of Simple (NCCL_BUFFSIZE, NVIDIA's NCCL guide, 2026-06), 8
// steps x 512 threads x 8 lines x 16 B of LL, 8 x 640 threads x 120 x 8 B of LL128 (NVIDIA/nccl 2.30, src/include, read
// 2026-06). Inside a node it lies with one end, between nodes with both.
// Assumes: of each channel a rank has one connection of a ring and two of a tree, whatever algorithm is chosen, as NCCL
// sets up both; 24 channels over NVSwitch, 12 over a mesh of NVLink, 28 over xGMI, 2 over PCIe; between nodes 2 for
// each member in a node, 16 at most (what NCCL's and RCCL's logs print on DGX A100 and MI300X; not measured here).
// Assumes: a transfer to and from a neighbour goes over 2 channels. Buffers of chips that reach their switch
// (NVLink SHARP) are not counted.
std::vector<std::int64_t> communication_buffers(const Program& program, const Cluster& cluster);

// Of a rank of the class: the largest copy on each stream that communicates, as all may be under way at once.
// Assumes: gradients that are reduced together and parameters that are gathered together lie one after the other
// throughout (Megatron-LM's and DeepSpeed's flat buffers) and need no copy. What is gathered from parts, or reduced to
// parts, before and after its use is copied (PyTorch's FSDP2), and so are parts of tensors cut in unlike ways.
std::int64_t copied_buckets(const RankProgram& rank_program);

std::int64_t reserved_by_runtime(const Chip& chip);
// Of activations that hold so much at their peak; parameters, gradients and optimizer state are made once, and stay.
std::int64_t lost_to_fragmentation(const Chip& chip, std::int64_t activations_peak, double share);

}  // namespace motley
