// Why a step takes as long as it does, what would make it shorter, and why one job is faster than another. Where the
// seconds go is read from the critical path; every figure of what a better part or another strategy brings is a new
// simulation of the changed job, never an estimate. It does not search: one thing at a time is changed, and what two
// changes bring together is not their sum. Read next: models/explain/path_parts.hpp, models/plan/levers.hpp,
// models/plan/changes.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/explain/experiments.hpp"
#include "models/explain/key_differences.hpp"
#include "models/explain/path_parts.hpp"
#include "models/plan/changes.hpp"
#include "models/plan/levers.hpp"
#include "models/report/report.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct LeverGain {
  Lever lever;
  double step_s = 0;
  // The seconds saved, were the critical path all there is: at most what it spends there. Under contention more may be
  // saved. Nothing: the lever has no keys by which the path names it.
  std::optional<double> on_path_s;
};
struct ChangeGain {
  std::string what;
  Trial trial;
};

// A job and what its simulation says.
struct Explained {
  Report report;                        // of the job as it is
  std::vector<PathPart> path;           // the longest first
  std::int64_t path_links = 0;          // instructions on it
  double factor = 1.1;                  // a rate is multiplied by it, a latency divided
  std::vector<LeverGain> levers, sets;  // the shortest step first
  std::optional<LeverGain> all;
  std::vector<ChangeGain> changes;  // the shortest step first; those that do not stand last
};

// The share of the step that a stage, on average, waits for others (StageBreakdown::bubble_s).
double stages_wait_share(const Explained& explained);

struct ExplainOptions {
  double factor = 1.1;
  bool levers = true, changes = true;
  ExperimentProgress progress = {};
};

// `trace` is what `simulation` makes of the job, `memory` what check() returned: the job has passed it.
Explained explain(const Job& job, const Program& program, const Trace& trace, std::vector<StageMemory> memory,
                  const Simulation& simulation, const ExplainOptions& options = {});

std::string to_text(const Explained& explained);
std::string to_json(const Explained& explained);  // schema "motley.explain/1"

// One row of two paths side by side. Groups of a cluster that have the same chips and wires share a row; where the two
// clusters have different chips, the kernels of all chips do.
struct PathDifference {
  Spent spent = Spent::matmul;
  bool recompute = false;
  std::string on;
  double a_s = 0, b_s = 0;
};
// A part of a job, or two, that the two jobs do not have in common.
struct PartDifference {
  std::string part;  // "model", "cluster", "train", "strategy", "fidelity"; "train and strategy"
  std::vector<KeyDifference> keys;
  Trial a_with_b;  // A, with this part of B's
  Trial b_with_a;
};
struct Why {
  Explained a, b;
  double a_tokens = 0, b_tokens = 0;  // a step
  std::vector<PathDifference>
      path;  // the furthest apart first; b_s - a_s add up to the difference of the steps
  std::vector<PartDifference> parts;
};

struct Side {
  const Job& job;
  const Explained& explained;
};
Why why(const Side& a, const Side& b, const Simulation& simulation, const ExplainOptions& options = {});

std::string to_text(const Why& why);
std::string to_json(const Why& why);  // schema "motley.explain/1"

}  // namespace motley
