// What papers say of whole systems, beside what Motley predicts: throughputs, ratios of throughputs, orders. Of what a
// paper leaves open (what its chips reached, what its network did) a claim may turn a few knobs on some of its runs and
// predict the others: those say something, and where they miss, the table says which effect is missing. It simulates
// nothing itself. Read next: tests/validation/claims.yaml, tools/validate_claims.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/compile.hpp"

namespace motley {

struct ClaimRun {
  std::string name, scenario;  // path, from the folder of the table
};

// A knob, turned until `run` gives what is stated of it.
struct ClaimKnob {
  std::string run;
  std::optional<NicKind>
      network;  // share of their line that NICs of this kind reach; nothing: the chips' efficiency
};

struct ClaimRow {
  std::string says;
  std::string run, over;                              // its throughput, or that over another's
  std::vector<std::pair<std::string, double>> bound;  // or over the sum of these runs', so many chips each
  std::vector<std::string> order;                     // instead: from the slowest to the fastest
  double stated = 0, tolerance = 0;                   // tolerance: absolute; 0: the source gives none
  bool at_least = false;                              // `stated` is the least of it
  std::string missing;                                // the effect that the prediction lacks
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
  double predicted = 0;   // of an order: 1 where it holds, else 0
  bool turned = false;    // a knob was turned for it: it says nothing
  std::string seen = {};  // of an order: the runs as they come
  double error_pct() const { return 100 * (predicted / row->stated - 1); }
  bool within() const;
};
struct ClaimOutcomes {
  const Claim* claim = nullptr;
  std::vector<std::pair<ClaimKnob, double>> knobs;  // and what they came to
  std::map<std::string, double> throughput;         // by run: TFLOP/s a chip by Megatron-LM's formula
  std::vector<ClaimOutcome> rows;
};

using StepSeconds = std::function<double(const Job&)>;
ClaimOutcomes predict(const Claim& claim, const std::string& folder, const StepSeconds& step_s);

std::string to_text(const std::vector<ClaimOutcomes>& outcomes);
std::string to_json(const std::vector<ClaimOutcomes>& outcomes);  // schema "motley.validate-claims/1"

}  // namespace motley
