// From a Trace to what people ask for: iteration time, throughput, MFU, and a breakdown per stage
// that adds up.
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

// Of the stage's slowest rank (the one whose last step ends last; lowest rank on ties). Sums to
// iteration_s.
struct StageBreakdown {
  int stage = 0;
  Rank rank = 0;
  double compute_s = 0, recompute_s = 0;
  double tensor_parallel_s = 0;   // exposed by construction: inside computes or in the compute stream
  double expert_parallel_s = 0;   // exposed likewise: tokens on their way to and from their experts
  double context_parallel_s = 0;  // likewise: keys, values and their gradients on their way
  double pipeline_s = 0;          // compute stream idle while a transfer it waits for is on the wire
  double data_parallel_s = 0;     // idle while a gradient reduction is on the wire
  double offload_s = 0;           // idle while the host copies or steps for it
  double bubble_s = 0;            // all other idling: peers not ready, the tail
  double optimizer_s = 0;
};

// The seconds of the critical path by what they were spent on (models/trace/critical_path.hpp). Sums to iteration_s.
struct PathBreakdown {
  double compute_s = 0, recompute_s = 0;
  double tensor_parallel_s = 0, expert_parallel_s = 0, context_parallel_s = 0, pipeline_s = 0,
         data_parallel_s = 0, offload_s = 0;
  double optimizer_s = 0;
  double gap_s = 0;        // nothing the Program names was waited for
  std::int64_t links = 0;  // instructions
};

struct Report {
  std::string scenario, strategy_hash, program_hash, flop_formula;
  double iteration_s = 0;
  double tokens_per_s = 0, tokens_per_s_per_chip = 0;
  double sequences_per_s = 0;
  double tflops_per_chip = 0;  // model FLOPs
  double tflops_per_chip_megatron =
      0;                    // as Megatron-LM and Holmes print it: a full recompute counted, done or not
  double mfu = 0, hfu = 0;  // against the peak of the training precision
  std::vector<StageBreakdown> breakdown;
  std::vector<StageMemory> memory;
  PathBreakdown critical_path;
  Spending spending;
  std::int64_t chips = 0;
  std::optional<Interval> interval;  // how far a measured step may lie from iteration_s; nothing: not said
};
// `memory`: what check() found; empty: found here, which runs the Null world again. A folded Trace
// holds representatives only: sums over ranks come from the Program.
Report make_report(const Job& job, const Program& program, const Trace& trace,
                   std::vector<StageMemory> memory = {});

std::string to_json(const Report& report);  // schema "motley.simulate/1"; keys in a fixed order
std::string to_text(const Report& report);  // for a terminal

}  // namespace motley
