// What the seconds of a step go to: the one attribution, which the report's table and `motley explain` share.
//
// An instruction that works has the purpose that purpose_of() says. The critical path says what the step as a whole
// went to: work (what compute streams do) and wires (messages, collectives and copies outside of them). The seconds of
// a rank are its own work and the path's wires; what the path works longer than the rank is `waiting` while a late
// member of one of the rank's groups kept it waiting, else `bubble`. If the rank itself works longer than the path
// does, its work hides a part of the wires. So a row and the path have the same wires, unless the rank's work hides
// them, and the same work, bubble and waiting together. Read next: models/trace/critical_path.hpp,
// models/report/report.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "models/cost/compute_cost.hpp"
#include "models/trace/critical_path.hpp"

namespace motley {

enum class Purpose : std::uint8_t {
  compute,
  recompute,
  bubble,   // other stages of the pipeline work, and this one cannot
  waiting,  // a slower member of one of the rank's groups works, and the rank waits for it
  tensor_parallel,
  expert_parallel,
  context_parallel,
  pipeline,       // transfers between stages
  data_parallel,  // collectives of gradients and parameters
  offload,        // copies to and from the host, and steps of its processor
  optimizer,
};
inline constexpr int kPurposes = static_cast<int>(Purpose::optimizer) + 1;

// Seconds by purpose.
struct Breakdown {
  double compute_s = 0, recompute_s = 0;
  double bubble_s = 0, waiting_s = 0;
  double tensor_parallel_s = 0, expert_parallel_s = 0, context_parallel_s = 0;
  double pipeline_s = 0, data_parallel_s = 0, offload_s = 0;
  double optimizer_s = 0;

  double& operator[](Purpose purpose);
  double operator[](Purpose purpose) const;
  double sum_s() const;
};

// The purpose of an instruction while it works; of a compute: Purpose::compute, although its kernels may have several.
Purpose purpose_of(const Program& program, Rank rank, const Instruction& instruction);

// How a rank spent the step. Its seconds add up to the iteration.
struct RankBreakdown : Breakdown {
  std::optional<Rank> slower;  // the member for which it waited longest; none: it waited for none
  double for_slower_s = 0;     // the part of waiting_s that it waited for that member
  double communicating_s = 0;  // its own messages and collectives were on the wire, and it computed nothing
};

class Attribution {
 public:
  // Keeps references to all; they must outlive it. The Trace must be sorted.
  Attribution(const Program& program, CostTable& costs, const Trace& trace);

  const CriticalPath& path() const { return path_; }
  // The path's seconds, without its gaps. Computes are divided as their prices are.
  Breakdown of_path() const;
  // For each rank that has events in the Trace.
  std::map<Rank, RankBreakdown> by_rank();

 private:
  // The events of one rank.
  struct Events {
    Rank rank;
    const TraceEvent* begin = nullptr;
    const TraceEvent* end = nullptr;
  };

  bool is_work(const Step& step, Purpose purpose) const;
  void add(Rank rank, const Instruction& instruction, Purpose purpose, double seconds, Breakdown& row);
  RankBreakdown of_rank(const Events& events);
  void add_waiting(const Events& events, const std::vector<StepSpan>& work, double most_s,
                   RankBreakdown& row) const;
  std::map<Rank, double> waits_of(const Events& events, const std::vector<StepSpan>& work) const;
  double on_wire_s(const Events& events, const std::vector<StepSpan>& work) const;

  const Program& program_;
  CostTable& costs_;
  const Trace& trace_;
  double iteration_s_;
  CriticalPath path_;
  Breakdown work_, wires_;  // of the path
  Rank busiest_;            // the rank that works longest on the path
};

}  // namespace motley
