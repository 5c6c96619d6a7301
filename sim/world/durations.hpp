// Where the seconds of computes and optimizer steps come from: cost models (Sim), an executor that really runs them
// (Mixed), or a recorded trace (Replay). One question, asked once an instruction. Read next: sim/world/options.hpp.
#pragma once

#include <vector>

#include "models/cost/compute_cost.hpp"
#include "models/scenario/job.hpp"
#include "sim/world/options.hpp"

namespace motley {

class Durations {
 public:
  // Keeps references to all; they must outlive it. Throws Refusal("wrong-tape").
  Durations(const Job& job, const Program& program, const SimOptions& options);
  // Of a compute or optimizer instruction; executes it where the rank is real.
  double seconds(const Step& step, const Instruction& instruction);
  const RingCost& cost(CollectiveKind kind, GroupId group) {
    return kind == CollectiveKind::all_to_all ? costs_.pairwise(group) : costs_.ring(group);
  }
  CollectiveAlgorithm algorithm_of(CollectiveKind kind, GroupId group, CollectiveAlgorithm wanted,
                                   std::int64_t bytes) {
    return costs_.algorithm_of(kind, group, wanted, bytes);
  }
  CostTable& costs() { return costs_; }
  // Its computes run on the actor's stack.
  bool executes(Rank rank) const { return options_.executor != nullptr && is_measured(rank); }
  std::vector<Rank> measured_ranks() const;
  bool is_measured(Rank rank) const {
    return !measured_.empty() && measured_[static_cast<std::size_t>(rank)];
  }

 private:
  double recorded_s(const Step& step) const;
  void check_tape() const;

  const Program& program_;
  const SimOptions& options_;
  CostTable costs_;
  std::vector<bool> measured_;  // by rank; empty: none
};

}  // namespace motley
