// Why a step takes as long as it does, what would make it shorter, and why one job is faster than another. The
// critical path tells where the seconds go; every figure for a better part or another strategy comes from a new
// simulation of the changed job, never from an estimate. There is no search: one thing is changed at a time, and the
// gain of two changes is not the sum of their gains. Read next: models/explain/path_parts.hpp,
// models/plan/levers.hpp, models/plan/changes.hpp.
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
  // The seconds saved if only the critical path mattered: at most what it spends there. Under contention the real
  // saving may be larger. Nothing: the lever has no keys by which the path names it.
  std::optional<double> on_path_s;
};
struct ChangeGain {
  std::string what;
  Trial trial;
};

// A job and the results of its simulations.
struct Explained {
  Report report;                        // report of the unchanged job
  std::vector<PathPart> path;           // the longest part first
  std::int64_t path_links = 0;          // number of instructions on the path
  double factor = 1.1;                  // factor on a rate; a latency is divided by it
  std::vector<LeverGain> levers, sets;  // the shortest step first
  std::optional<LeverGain> all;
  std::vector<ChangeGain> changes;  // the shortest step first; refused changes last
};

// Share of the step that a chip, on average, waits for other stages of its pipeline (Purpose::bubble).
double stages_wait_share(const Explained& explained);

struct ExplainOptions {
  double factor = 1.1;
  bool levers = true, changes = true;
  ExperimentProgress progress = {};
  TrialRunner run_trials = run_one_by_one;
};

// Explains a job that has passed check(). `trace` is the result of `simulation`, `memory` that of check(). Trials
// simulate with `simulation`; options.run_trials may run several of them at once.
Explained explain(const Job& job, const Program& program, const Trace& trace, std::vector<StageMemory> memory,
                  const Simulation& simulation, const ExplainOptions& options = {});

std::string to_text(const Explained& explained);
std::string to_json(const Explained& explained);  // schema "motley.explain/1"

// One row of two paths side by side. Groups of a cluster with the same chips and wires share a row; if the two
// clusters have different chips, kernels on all chips share a row.
struct PathDifference {
  Spent spent = Spent::matmul;
  bool recompute = false;
  std::string on;
  double a_s = 0, b_s = 0;
};
// A part of a job, or two parts, in which the two jobs differ.
struct PartDifference {
  std::string part;  // "model", "cluster", "train", "strategy", "fidelity"; "train and strategy"
  std::vector<KeyDifference> keys;
  Trial a_with_b;  // A with this part of B
  Trial b_with_a;
};
struct Why {
  Explained a, b;
  double a_tokens = 0, b_tokens = 0;  // tokens in a step
  std::vector<PathDifference>
      path;  // the largest difference first; b_s - a_s add up to the difference of the steps
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
