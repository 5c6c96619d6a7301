// Where the seconds of computes and optimizer steps come from: cost models (Sim), an executor that really runs them
// (Mixed), or a recorded trace (Replay). Where several steps follow each other, a real rank executes the first, and its
// seconds are those of all. Read next: sim/world/options.hpp.
#pragma once

#include <map>
#include <vector>

#include "models/cost/compute_cost.hpp"
#include "models/scenario/job.hpp"
#include "sim/world/options.hpp"

namespace motley {

class Durations {
 public:
  // Keeps references to all arguments, which must outlive it. Throws Refusal("wrong-tape").
  Durations(const Job& job, const Program& program, const SimOptions& options);
  // Seconds of a compute or optimizer instruction; executes the instruction if its rank is real. Throws
  // Refusal("too-slow").
  double seconds(const Step& step, const Instruction& instruction);
  // The kernels of a compute whose seconds() have been asked for, from its begin, were nothing to slow it.
  std::vector<KernelSpan> kernels(const Step& step, const Instruction& instruction);
  const RingCost& cost(CollectiveKind kind, GroupId group) {
    return kind == CollectiveKind::all_to_all ? costs_.pairwise(group) : costs_.ring(group);
  }
  CollectiveAlgorithm algorithm_of(CollectiveKind kind, GroupId group, CollectiveAlgorithm wanted,
                                   std::int64_t bytes) {
    return costs_.algorithm_of(kind, group, wanted, bytes);
  }
  CostTable& costs() { return costs_; }
  std::vector<Rank> measured_ranks() const;
  bool is_measured(Rank rank) const { return !measured_.empty() && measured_[rank]; }

 private:
  double unbounded_s(const Step& step, const Instruction& instruction);
  const TraceEvent& recorded(const Step& step) const;
  double recorded_s(const Step& step) const;
  std::vector<KernelSpan> recorded_kernels(const Step& step) const;
  void check_tape() const;

  const Program& program_;
  const SimOptions& options_;
  CostTable costs_;
  std::map<Step, double> executed_;
  std::map<Step, std::vector<KernelSpan>> executed_kernels_;
  IdTable<Rank, bool> measured_;  // empty: no rank is measured
};

}  // namespace motley
