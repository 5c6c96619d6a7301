// One published row with the rules for its set, model and recipe, and the parts of a job that are read from it, one
// in each file. All of them call pass_over() for what they cannot know. Private to models/published. Read next:
// models/published/published_run.cpp, which combines the parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/published/printed_cells.hpp"
#include "models/published/published_rules.hpp"
#include "models/published/published_run.hpp"

namespace motley {

struct PrintedRow {
  const PublishedRules& rules;
  const PublishedRun& run;
  const std::vector<PublishedRun>& table;
  PrintedCells cells;
  SetRule set;                         // the defaults if there is no rule for the set
  const RecipeRule* recipe = nullptr;  // null: there is no rule for its recipe

  PrintedRow(const PublishedRules& all_rules, const PublishedRun& one, const std::vector<PublishedRun>& all);
  const ModelRule& model() const;
  std::int64_t sequence() const;
};

Transformer printed_transformer(const PrintedRow& row);  // printed_transformer.cpp

// printed_cluster.cpp. The cluster as it is sold, without the figures of any software.
Cluster printed_cluster(const PrintedRow& row);
// Puts the figures of the set's software on the cluster: the shipped ones, or, for a run that took part in their fit,
// those of the fit that left the run out. Returns the interval of the shipped ones.
Interval use_software_of_set(const PrintedRow& row, Cluster& cluster);
void use_what_is_kept(const PrintedRow& row, Cluster& cluster);
void use_attention_of_recipe(const PrintedRow& row, Cluster& cluster);
// Measured layers were fitted to no run, so they are used in every regime.
void use_measured_layers(const PrintedRow& row, const Job& job, Cluster& cluster);

// printed_strategy.cpp. `job` must have its cluster and transformer, and for read_strategy() its train.
void read_train(const PrintedRow& row, Job& job);
void read_strategy(const PrintedRow& row, Job& job);

// printed_measurement.cpp. Seconds of a step, from what the row's metric counts.
double measured_step_s(const PrintedRow& row, const Job& job);
// Peak bytes of the fullest chip; nothing: not printed.
std::optional<double> measured_peak_bytes(const PrintedRow& row);

}  // namespace motley
