// Where the seconds of computes and optimizer steps come from: cost models (Sim), an executor that really runs them
// (Mixed), or a recorded trace (Replay); and those of transfers among real ranks, where they are timed. Where several
// steps follow each other, a real rank executes the first, and its seconds are those of all. A collective inside a
// compute of a real rank is priced. Read next: sim/world/options.hpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "models/cost/compute_cost.hpp"
#include "models/scenario/job.hpp"
#include "models/world/symmetry.hpp"
#include "sim/world/options.hpp"

namespace motley {

class Durations {
 public:
  // Keeps references to all arguments, which must outlive it. Throws Refusal("wrong-tape", "unfolded-class").
  Durations(const Job& job, const Program& program, const SimOptions& options);
  // Whether each real rank stands for its class. It then has to be told the classes before seconds().
  bool for_class() const;
  // Throws Refusal("alike-real-ranks").
  void use_classes(const Partition<Rank>& classes);
  // Seconds of a compute or optimizer instruction; executes the instruction if its rank is real. Throws
  // Refusal("too-slow").
  double seconds(const Step& step, const Instruction& instruction);
  // Tells the executor that these steps, all that take part in a transfer, collective or copy, have met. Ranks that are
  // not real need nothing. Returns the seconds of those that are timed; nothing: they are priced.
  std::optional<double> communicate(const std::vector<Step>& met);
  // Which paths the bytes of a real rank's transfer or collective took; empty: none moved, or the rank is not real.
  PathSet paths(const Step& step) const;
  // Whether the transfer or collective of the step takes the seconds that moving it took.
  bool is_timed(const Step& step) const;
  // The kernels of a compute whose seconds() have been asked for, from its begin, were nothing to slow it.
  std::vector<KernelSpan> kernels(const Step& step, const Instruction& instruction);
  CostTable& costs() { return costs_; }
  std::vector<Rank> measured_ranks() const;
  bool is_measured(Rank rank) const { return !real_of_.empty() && real_of_[rank].has_value(); }
  bool any_measured() const { return !real_of_.empty(); }
  bool executes() const { return options_.executor != nullptr && !real_of_.empty(); }
  bool measured_transfers() const {
    return options_.tape != nullptr ? options_.tape->measured_transfers
                                    : options_.measured_transfers && executes();
  }

 private:
  double unbounded_s(const Step& step, const Instruction& instruction);
  const TraceEvent& recorded(const Step& step) const;
  double recorded_s(const Step& step) const;
  std::vector<KernelSpan> recorded_kernels(const Step& step) const;
  void check_tape() const;
  const std::vector<Rank>& asked() const;  // the ranks that options name as real, or the tape as measured
  Step real_step(Step step) const;
  std::optional<double> execute_transfer(const std::vector<Step>& real, bool complete);
  bool are_all_real_members(const std::vector<Step>& real) const;
  bool is_among_real(const Step& real) const;
  double recorded_transfer_s(const Step& step) const;
  double bounded(const Step& step, double seconds) const;
  double add_collectives(const Step& step, const Instruction& instruction, std::vector<KernelSpan>* spans);

  const Program& program_;
  const SimOptions& options_;
  CostTable costs_;
  std::map<Step, double> executed_;
  std::map<Step, std::vector<KernelSpan>> executed_kernels_;
  std::set<Step> communicated_;
  std::map<Step, double> moved_;   // seconds of transfers and collectives that are timed
  std::map<Step, PathSet> paths_;  // of those steps of real ranks whose bytes moved
  std::set<Rank> asked_;           // the ranks that are real
  IdTable<Rank, std::optional<Rank>>
      real_of_;  // the measured rank whose seconds a rank takes; empty: all are priced
};

}  // namespace motley
