// From a Trace to the figures that people ask for: iteration time, throughput, MFU, and a breakdown by stage that
// adds up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/check/check.hpp"
#include "models/report/spending.hpp"
#include "models/scenario/interval.hpp"
#include "models/scenario/job.hpp"
#include "models/trace/trace.hpp"

namespace motley {

// Seconds of the stage's slowest rank (whose last step ends last; lowest rank on ties). They sum to iteration_s.
struct StageBreakdown {
  int stage = 0;
  Rank rank;
  double compute_s = 0, recompute_s = 0;
  double tensor_parallel_s = 0;   // exposed by construction: inside computes or in the compute stream
  double expert_parallel_s = 0;   // exposed in the same way: tokens that travel to and from their experts
  double context_parallel_s = 0;  // exposed in the same way: keys, values and their gradients that travel
  double pipeline_s = 0;          // compute stream idle while an awaited transfer is on the wire
  double data_parallel_s = 0;     // idle while a gradient reduction is on the wire
  double offload_s = 0;           // idle while the host copies or steps for the rank
  double bubble_s = 0;            // all other idle time: late peers, the tail
  double optimizer_s = 0;
};

// The seconds of the critical path by their purpose (models/trace/critical_path.hpp). They sum to iteration_s.
struct PathBreakdown {
  double compute_s = 0, recompute_s = 0;
  double tensor_parallel_s = 0, expert_parallel_s = 0, context_parallel_s = 0, pipeline_s = 0,
         data_parallel_s = 0, offload_s = 0;
  double optimizer_s = 0;
  double gap_s = 0;        // waiting for nothing in the Program
  std::int64_t links = 0;  // instructions on the path
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
  std::vector<StageBreakdown> breakdown;
  std::vector<StageMemory> memory;
  PathBreakdown critical_path;
  Spending spending;
  std::int64_t chips = 0;
  std::optional<Interval> interval;  // interval of a measured step around iteration_s; nothing: unknown
};
// Makes the report. `memory` is what check() returned; if it is empty, the Null world runs again to count it. A
// folded Trace has representatives only: sums over ranks come from the Program.
Report make_report(const Job& job, const Program& program, const Trace& trace,
                   std::vector<StageMemory> memory = {});

std::string to_json(const Report& report);  // schema "motley.simulate/1"; keys in a fixed order
std::string to_text(const Report& report);  // for a terminal

}  // namespace motley
