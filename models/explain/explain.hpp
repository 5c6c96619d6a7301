// Why a step takes as long as it does, what would make it shorter, and why one job is faster than another. Where the
// seconds go is read from the critical path; every figure of what a better part or another strategy brings is a new
// simulation of the changed job, never an estimate. It does not search: one thing at a time is changed, and what two
// changes bring together is not their sum. Read next: models/path_parts.hpp, models/levers.hpp, models/changes.hpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/changes.hpp"
#include "models/compile.hpp"
#include "models/key_differences.hpp"
#include "models/levers.hpp"
#include "models/path_parts.hpp"
#include "models/report.hpp"

namespace motley {

// Runs a Program in virtual time, as often as asked. Throws what a World throws.
using Simulation = std::function<Trace(const Job&, const Program&)>;

// A job that was changed, compiled, checked and simulated.
struct Trial {
  double step_s = 0;    // 0: it does not stand
  std::string refused;  // why: the first line of the Refusal
  bool stands() const { return refused.empty(); }
};
// Throws what is no Refusal of the changed job itself.
Trial try_job(const Job& job, const Simulation& simulation);

struct LeverGain {
  Lever lever;
  double step_s = 0;
  // At most so many seconds, were the critical path all there is: by what it spends there. Under contention more may be
  // saved. Nothing: the path does not say.
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
  double factor = 1.1;                  // how much better
  std::vector<LeverGain> levers, sets;  // the shortest step first
  std::optional<LeverGain> all;
  std::vector<ChangeGain> changes;  // likewise; those that do not stand last
};

// What stages wait for each other (StageBreakdown::bubble_s), the mean over them as a share of the step.
double stages_wait_share(const Explained& explained);

struct ExplainOptions {
  double factor = 1.1;
  bool levers = true, changes = true;
  // Before each simulation: how many are done, of how many.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& what)> progress = {};
};

// `trace` is what `simulation` makes of the job, `memory` what check() found.
Explained explain(const Job& job, const Program& program, const Trace& trace, std::vector<StageMemory> memory,
                  const Simulation& simulation, const ExplainOptions& options = {});

std::string to_text(const Explained& explained);
std::string to_json(const Explained& explained);  // schema "motley.explain/1"

// One row of two paths laid side by side. Groups of a cluster count as one where they are of the same chips and wires;
// kernels of all chips do where the two do not have the same ones.
struct PathDifference {
  Spent spent = Spent::matmul;
  bool recompute = false;
  std::string on;
  double a_s = 0, b_s = 0;
};
// A part of a job that is not the same in both.
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
