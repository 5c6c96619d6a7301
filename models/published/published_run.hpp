// A published measurement of a training run, as a row of a table. The row, and the rules of
// platforms/published/unprinted.yaml for what it does not print, become a scenario and the seconds of a step. If a
// row leaves something important open, it is not guessed: the row is passed over, with the reason. Read next:
// models/published/validation.hpp.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/base/csv.hpp"
#include "models/published/published_rules.hpp"
#include "models/scenario/scenario.hpp"

namespace motley {

// Columns: id, accelerator, n_accelerators, per_node, model_name, hidden, ffn_hidden, layers, heads, kv_heads, vocab,
// seq_len, global_batch, micro_batch, tp, pp, vpp, dp, cp, ep, schedule, zero_stage_or_fsdp, recompute, precision,
// metric, value, unit, notes. An empty cell: not printed. Other columns are allowed.
struct PublishedRun {
  std::string id, set;  // the set is the part of the id before the dash
  CsvRow row;
};
// Reads "full", "selective per-op", "none for 8K" by their beginning, of which the longest known one counts
// ("selective per-op" is alternate, "selective" alone is not). Nothing: another text.
std::optional<Recompute> printed_recompute(const std::string& text);

// Reads a table. Refuses ("bad-csv") a table without ids.
std::vector<PublishedRun> read_published_runs(const std::string& path);

struct Measured {
  // The run on chips with the figures of the set's software: the shipped ones, or, for a run that took part in their
  // fit, those of a fit that left out all runs of its model's size.
  Scenario scenario;
  // The same cluster with figures fitted without any run of the set, and their interval. Nothing: there is no such
  // fit.
  std::optional<Cluster> unseen;
  Interval unseen_interval;
  double step_s = 0;
  std::optional<double> peak_bytes;   // peak of the fullest chip
  Counted counted = Counted::device;  // what `peak_bytes` counts
  bool experts = false;               // the model has experts, and no such run took part in any fit
  // The recomputation is printed, known for the set, or implied by a peak. False: memory cannot be predicted.
  bool recompute_known = false;
};
struct PassedOver {
  std::string reason;
};

}  // namespace motley
