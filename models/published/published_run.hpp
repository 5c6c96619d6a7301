// A training run that somebody measured and published, as a row of a table: from what is printed, and what
// platforms/published/unprinted.yaml says of the rest, to a scenario and to the seconds that a step took. What a row
// leaves open in a way that matters is not guessed: it is passed over, with the reason. Read next:
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
// metric, value, unit, notes. An empty cell: not printed. Others may stand there too.
struct PublishedRun {
  std::string id, set;  // the set is what stands before the id's dash
  CsvRow row;
};
// "full", "selective per-op", "none for 8K": by how it begins, the longest beginning first ("selective per-op" is
// alternate, "selective" alone is not). Refuses ("bad-csv") what begins otherwise.
Recompute printed_recompute(const std::string& text, const Location& where);

// Refuses ("bad-csv") a table without ids.
std::vector<PublishedRun> read_published_runs(const std::string& path);

struct Measured {
  // On chips with the figures of the set's software: those that ship, but for a run that they were fitted to those of a
  // fit that left out all runs of its model's size.
  Scenario scenario;
  // The same cluster with figures fitted without any run of the set, and their interval; nothing: there is no such fit.
  std::optional<Cluster> unseen;
  Interval unseen_interval;
  double step_s = 0;
  std::optional<double> peak_bytes;   // of the fullest chip
  Counted counted = Counted::device;  // what `peak_bytes` counts
  bool experts = false;               // the model has experts; no such run took part in any fit
  bool runs_on = false;               // what is measured is from one step's begin to the next's
  bool recompute_known =
      false;  // printed, known of the set, or told by a peak; else memory cannot be predicted
};
struct PassedOver {
  std::string reason;
};

}  // namespace motley
