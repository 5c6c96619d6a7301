// From a Trace to the figures that people ask for: iteration time, throughput, MFU, and a breakdown by stage that
// adds up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/check/check.hpp"
#include "models/report/attribution.hpp"
#include "models/report/coverage.hpp"
#include "models/report/spending.hpp"
#include "models/scenario/interval.hpp"
#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// Where a rank stands: "v100-32gb-sxm" in the group "s" of the cluster.
struct StandsOn {
  std::string chip, group;
};

// How the rank of a stage that works most spent the step (the lowest rank on ties). The seconds sum to iteration_s.
struct StageBreakdown : Breakdown {
  int stage = 0;
  Rank rank;
  StandsOn on;
};

// The rank of a stage that waits longest for slower members of its groups, and the rank for which it waits longest.
struct StageWait {
  int stage = 0;
  Rank rank;
  StandsOn on;
  double waiting_s = 0;
  int slower_stage = 0;
  Rank slower;
  StandsOn slower_on;
  double for_slower_s = 0;
};

// The seconds of the critical path by their purpose (models/trace/critical_path.hpp); none of them are bubble or
// waiting. With gap_s they sum to iteration_s.
struct PathBreakdown : Breakdown {
  double gap_s = 0;        // waiting for nothing in the Program
  std::int64_t links = 0;  // instructions on the path
};

// Changes of the strategy that were simulated, because they might shorten what the step loses most to.
struct Advice {
  std::int64_t simulated = 0;  // 0: none was simulated
  std::string change;  // the best one, as in the scenario: "schedule: zb-h2"; empty: none shortens the step
  double step_s = 0;   // with that change
};

// Spines that a hash chooses are a draw of many that are equally likely.
struct RouteDraws {
  bool repeated =
      false;       // one rank of each class was simulated: leaves that are otherwise alike repeat one draw
  int others = 0;  // other draws that were simulated
  double least_s = 0, most_s = 0;  // their steps
};

// How the step spreads because what is called alike is not (Cluster::variation). Report::iteration_s is about its mean.
struct StepSpread {
  std::string parts;   // what varies: "chips (sd 2 %)"
  double alike_s = 0;  // the step if nothing varied
  double mean_s = 0, p5_s = 0, p50_s = 0, p95_s = 0;
  struct Part {
    std::string name;  // "chips 136 to 143 of node 17 (dgx)"
    double speed = 1;
  };
  std::vector<Part> slowest;   // the parts whose low speeds stand for all others' in the report
  std::int64_t simulated = 0;  // jobs that were simulated
  std::vector<double> drawn;   // steps of whole draws, ascending; empty: none was simulated
};

// What was measured rather than imagined: the computes of real ranks.
struct RealPart {
  std::vector<Rank> ranks;
  bool for_class = false;  // each of them for all ranks that must behave like it
  // Transfers and collectives in which only real ranks take part: tensors moved. Their time is the fabric's price, or,
  // if `measured`, what moving them took.
  std::int64_t moved = 0;
  std::int64_t moved_bytes = 0;
  bool measured = false;
  PathSet paths;  // that their bytes took
  // Those in which simulated ranks take part, too: what these bring is filled in, and their time is the fabric's price.
  std::int64_t filled_in = 0;
  std::int64_t filled_in_bytes = 0;
};

struct Report {
  std::string scenario, strategy_hash, program_hash, flop_formula;
  double iteration_s = 0;
  double tokens_per_s = 0, tokens_per_s_per_chip = 0;
  double sequences_per_s = 0;
  double tflops_per_chip = 0;  // from model FLOPs
  double tflops_per_chip_megatron =
      0;                    // as Megatron-LM and Holmes print it: with a full recompute, done or not
  double mfu = 0, hfu = 0;  // against the peak of the training precision
  std::vector<StageBreakdown> breakdown;  // by stage
  Breakdown all_chips;                    // the mean of all chips
  std::vector<StageWait> waits;           // by stage; stages that do not wait for slower ranks are left out
  bool has_unlike_groups = false;         // ranks stand on several groups of the cluster
  std::vector<StageMemory> memory;
  PathBreakdown critical_path;
  Advice advice;
  Spending spending;
  std::int64_t chips = 0;
  double simulation_bytes = 0;       // memory that the simulation was expected to need; 0: not known
  std::optional<Interval> interval;  // interval of a measured step around iteration_s; nothing: unknown
  std::optional<Coverage> coverage;  // nothing: no chip's kernels were measured
  std::optional<RouteDraws> draws;   // nothing: no flow's spine is drawn
  std::optional<RealPart> real;      // nothing: every rank is imagined
  std::optional<StepSpread> spread;  // nothing: speeds do not vary
  std::vector<std::string> notes;    // job_notes()
  double measured_s = 0;             // the step of a real run; 0: the scenario says none
  double own_s = 0;  // the step by the chips' own figures, without any software's; 0: it was not simulated
};
// Nothing: the trace has no real ranks, or no others.
std::optional<RealPart> real_part(const Program& program, const Trace& trace);

// Makes the report. `memory` is what check() returned; if it is empty, the Null world runs again to count it. A
// folded Trace has representatives only: sums over ranks come from the Program.
Report make_report(const Job& job, const Program& program, const Trace& trace,
                   std::vector<StageMemory> memory = {});

// The cost of the step alone, as make_report() counts it.
Spending spending_of(const Job& job, const Program& program, const Trace& trace);

// The purpose that takes the largest share of all chips' time. Computing only if it takes more than half, and no other
// a tenth.
Purpose bound_by(const Report& report);
// Share of the step that a chip, on average, spends on a purpose.
double share_of(const Report& report, Purpose purpose);

// A line for each stage that waits long for a slower rank; empty: none does.
std::string print_waits(const Report& report);
std::string to_json(const Report& report);  // schema "motley.simulate/1"; keys in a fixed order
std::string to_text(const Report& report);  // for a terminal

}  // namespace motley
