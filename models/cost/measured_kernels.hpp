// Prices kernels by the measured times of a chip's layers: each kernel keeps its share of its layer's seconds,
// forward and backward. Without measured layers it changes nothing. Read next: models/cluster/measured_layers.hpp.
#pragma once

#include <map>
#include <utility>

#include "models/cluster/measured_layers.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {

// Assumes: tensor-parallel collectives that were included in the measurement keep their modelled share of it; a
// forward that a backward repeats takes as long as the first time.
class MeasuredKernels {
 public:
  // Throws Refusal("not-measured") for a degree or micro-batch that was not measured, for ranks with parts of
  // sequences, and for collectives that would count twice.
  MeasuredKernels(const Program& program, const RankProgram& rank_program, const Chip& chip,
                  const RingCost* tensor_ring);

  bool any() const { return !chip_.software.layers.times.empty(); }
  // Factor on a kernel's seconds.
  double factor(const Block& block, const Kernel& kernel) const;
  double optimizer_s(const RankProgram& rank_program) const;  // for optimizer states that are not divided

 private:
  bool is_measured(const Kernel& kernel) const;
  LayerPlace place_of(int layer) const;
  void refuse_others(const RankProgram& rank_program) const;

  const Program& program_;
  const Chip& chip_;
  LayerTimes times_;
  std::map<std::pair<int, bool>, double> modelled_;  // seconds by layer, and whether they are the backward's
};

}  // namespace motley
