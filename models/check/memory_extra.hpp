// Memory of a chip beyond the tensors of a Program: the communication library's buffers, copies of reduced or
// gathered tensors, driver and libraries, and memory that the allocator loses. None of it is in a Trace: host ranks,
// which really run, have none of it. Read next: models/check/check.hpp.
//
// Assumes, for all chips: libraries allocate buffers as NCCL does, whoever the vendor is. A host (`kind: cpu`) needs
// no memory worth counting beside its tensors, and its allocator gives pages back.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

// Bytes of communication buffers of every rank: a communicator for each of its groups, and one for each neighbour in
// its pipeline.
//
// A connection of a channel has a buffer for each protocol: 4 MiB for Simple (NCCL_BUFFSIZE, NVIDIA's NCCL guide,
// 2026-06), 8 steps x 512 threads x 8 lines x 16 B for LL, 8 x 640 threads x 120 x 8 B for LL128 (NVIDIA/nccl 2.30,
// src/include, read 2026-06). Inside a node one end has it, between nodes both ends have it.
// Assumes: in each channel a rank has one connection of a ring and two of a tree, whatever algorithm is chosen,
// because NCCL sets up both; 24 channels over NVSwitch, 12 over a mesh of NVLink, 28 over xGMI, 2 over PCIe; between
// nodes 2 for each member in a node, 16 at most (as the logs of NCCL and RCCL print on DGX A100 and MI300X; not
// measured here).
// Assumes: a transfer to and from a neighbour uses 2 channels. Buffers of chips that reach their switch (NVLink
// SHARP) are not counted.
IdTable<Rank, std::int64_t> communication_buffers(const Program& program, const Cluster& cluster);

// Bytes of copies that a rank of the program needs: the largest copy on each stream that communicates, because all
// may be under way at once.
// Assumes: gradients that are reduced together and parameters that are gathered together always lie one after the
// other (Megatron-LM's and DeepSpeed's flat buffers) and need no copy. Copied are tensors that are gathered from
// parts or reduced to parts (PyTorch's FSDP2), and parts of tensors that are cut in different ways.
std::int64_t copied_buckets(const RankProgram& rank_program);

std::int64_t reserved_by_runtime(const Chip& chip);
// Bytes lost between activations. Parameters, gradients and optimizer state are allocated once and lose nothing.
std::int64_t lost_to_fragmentation(const Chip& chip, std::int64_t activations_peak, double share);

}  // namespace motley
