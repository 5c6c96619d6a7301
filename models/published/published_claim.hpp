// What papers state about whole systems, beside Motley's predictions: throughputs, ratios of throughputs, orders. A
// paper does not tell what its chips and its network reached. A claim may turn a few knobs on some of its runs to
// match these, and predict the other runs: only those are evidence, and where they miss, the table names the missing
// effect. Nothing is simulated here. Read next: tests/validation/claims.yaml, tools/commands/validate_claims.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

struct ClaimRun {
  std::string name, scenario;  // `scenario` is a path from the folder of the table
};

// A knob, turned until the throughput of `run` is the stated one.
struct ClaimKnob {
  std::string run;
  // The NICs whose share of their line is the knob; nothing: the knob is the chips' efficiency.
  std::optional<NicKind> network;
};

struct ClaimRow {
  std::string says;
  // The claim is about the throughput of `run`, its ratio to that of `over`, or its ratio to the sum over `bound`
  // (runs, and chips of each).
  std::string run, over;
  std::vector<std::pair<std::string, double>> bound;
  std::vector<std::string> order;    // runs from the slowest to the fastest, in place of a throughput
  double stated = 0, tolerance = 0;  // the tolerance is absolute; 0: the source gives none
  bool at_least = false;             // `stated` is a lower bound
  std::string missing;               // the effect that the prediction lacks; empty: none is known
  bool is_ratio() const { return !over.empty() || !bound.empty(); }
};

struct Claim {
  std::string name, says, source, trust;
  std::vector<ClaimRun> runs;
  std::vector<ClaimKnob> knobs;
  std::vector<ClaimRow> rows;
  Location where = {};
};
std::vector<Claim> read_claims(const std::string& path);

struct ClaimOutcome {
  const ClaimRow* row = nullptr;
  double predicted = 0;   // for an order: 1 if it holds, else 0
  bool turned = false;    // true: a knob was turned until it agreed, so its agreement proves nothing
  std::string seen = {};  // for an order: the runs in predicted order; else empty
  double error_pct() const { return 100 * (predicted / row->stated - 1); }
  bool within() const;
};
struct ClaimOutcomes {
  const Claim* claim = nullptr;
  std::vector<std::pair<ClaimKnob, double>> knobs;  // each knob with its final value
  std::map<std::string, double> throughput;         // by run: TFLOP/s of each chip by Megatron-LM's formula
  std::vector<ClaimOutcome> rows;
};

using StepSeconds = std::function<double(const Job&)>;
ClaimOutcomes predict(const Claim& claim, const std::string& folder, const StepSeconds& step_s);

std::string to_text(const std::vector<ClaimOutcomes>& outcomes);
std::string to_json(const std::vector<ClaimOutcomes>& outcomes);  // schema "motley.validate-claims/1"

}  // namespace motley
