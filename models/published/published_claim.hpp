// What papers say of whole systems, beside what Motley predicts: throughputs, ratios of throughputs, orders. A paper
// leaves open what its chips reached and what its network did. A claim may turn a few knobs for that on some of its
// runs and predict the others: those say something, and where they miss, the table says which effect is missing. It
// simulates nothing itself. Read next: tests/validation/claims.yaml, tools/commands/validate_claims.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

struct ClaimRun {
  std::string name, scenario;  // path, from the folder of the table
};

// A knob, turned until the throughput of `run` is the stated one.
struct ClaimKnob {
  std::string run;
  // The knob is the share of their line that NICs of this kind reach; nothing: it is the chips' efficiency.
  std::optional<NicKind> network;
};

struct ClaimRow {
  std::string says;
  // The throughput of `run`; or its ratio to that of `over`, or to the sum over `bound` (runs, and chips of each).
  std::string run, over;
  std::vector<std::pair<std::string, double>> bound;
  std::vector<std::string> order;    // instead of a throughput: runs from the slowest to the fastest
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
};
std::vector<Claim> read_claims(const std::string& path);

struct ClaimOutcome {
  const ClaimRow* row = nullptr;
  double predicted = 0;   // for an order: 1 where it holds, else 0
  bool turned = false;    // a knob was turned until it agreed, so that its agreement says nothing
  std::string seen = {};  // for an order: the runs as they come; else empty
  double error_pct() const { return 100 * (predicted / row->stated - 1); }
  bool within() const;
};
struct ClaimOutcomes {
  const Claim* claim = nullptr;
  std::vector<std::pair<ClaimKnob, double>> knobs;  // each with the value it was turned to
  std::map<std::string, double> throughput;         // by run: TFLOP/s a chip by Megatron-LM's formula
  std::vector<ClaimOutcome> rows;
};

using StepSeconds = std::function<double(const Job&)>;
ClaimOutcomes predict(const Claim& claim, const std::string& folder, const StepSeconds& step_s);

std::string to_text(const std::vector<ClaimOutcomes>& outcomes);
std::string to_json(const std::vector<ClaimOutcomes>& outcomes);  // schema "motley.validate-claims/1"

}  // namespace motley
