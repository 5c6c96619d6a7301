// One published row with what is known of its set, its model and its recipe, and the parts of a job that are read from
// it: a file for each. All of them pass_over() what they cannot know. Private to models/published. Read next:
// models/published/published_run.cpp, which puts the parts together.
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
  SetRule set;                         // the defaults where nothing is known of the set
  const RecipeRule* recipe = nullptr;  // null: nobody knows it

  PrintedRow(const PublishedRules& all_rules, const PublishedRun& one, const std::vector<PublishedRun>& all);
  const ModelRule& model() const;
  std::int64_t sequence() const;
};

Transformer printed_transformer(const PrintedRow& row);  // printed_transformer.cpp

// printed_cluster.cpp. The cluster as it is sold: no software's figures are on it yet.
Cluster printed_cluster(const PrintedRow& row);
// Puts the figures of the set's software on the cluster: those that ship, but for a run that they were fitted to those
// of the fit that left it out. Returns the interval of the shipped ones.
Interval use_software_of_set(const PrintedRow& row, Cluster& cluster);
void use_what_is_kept(const PrintedRow& row, Cluster& cluster);
void use_attention_of_recipe(const PrintedRow& row, Cluster& cluster);
// Layers that were measured one by one were fitted to no run: they are used in every regime.
void use_measured_layers(const PrintedRow& row, const Job& job, Cluster& cluster);

// printed_strategy.cpp. The cluster, the transformer and, for the strategy, the train of `job` must be there.
void read_train(const PrintedRow& row, Job& job);
void read_strategy(const PrintedRow& row, Job& job);

// printed_measurement.cpp. Seconds of a step by what the row's metric counts.
double measured_step_s(const PrintedRow& row, const Job& job);
// Peak bytes of the fullest chip; nothing: not printed.
std::optional<double> measured_peak_bytes(const PrintedRow& row);

}  // namespace motley
