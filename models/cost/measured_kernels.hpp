// What was measured of a chip's layers, in place of what their kernels should take: each kernel keeps its share of its
// layer's seconds, forward and backward. Where nothing was measured it changes nothing. Read next:
// models/cluster/measured_layers.hpp.
#pragma once

#include <map>
#include <utility>

#include "models/cluster/measured_layers.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {

// Assumes: tensor-parallel collectives that are among what was measured keep their modelled share of it too; a
// forward that a backward computes again takes what it did the first time.
class MeasuredKernels {
 public:
  // Throws Refusal("not-measured"): another degree or micro-batch than was measured, ranks with parts of sequences,
  // collectives that would count twice.
  MeasuredKernels(const Program& program, const RankProgram& rank_program, const Chip& chip,
                  const RingCost* tensor_ring);

  bool any() const { return !chip_.software.layers.times.empty(); }
  // What a kernel's seconds are to be multiplied by.
  double factor(const Block& block, const Kernel& kernel) const;
  double optimizer_s(const RankProgram& rank_program) const;  // of states that are held whole

 private:
  bool is_measured(const Kernel& kernel) const;
  LayerPlace place_of(int layer) const;
  void refuse_others(const RankProgram& rank_program) const;

  const Program& program_;
  const Chip& chip_;
  LayerTimes times_;
  std::map<std::pair<int, bool>, double> modelled_;  // by layer, and whether of the backward
};

}  // namespace motley
