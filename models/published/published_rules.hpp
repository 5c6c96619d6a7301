// The content of platforms/published/unprinted.yaml about published runs: the nodes of an accelerator, the shape of a
// model, the habits of a set of rows, the recipes of some rows; and the fits of software that left some runs out. The
// rules alone read no row. Read next: models/published/published_run.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/check/memory.hpp"
#include "models/scenario/job.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

struct PublishedRun;
struct Measured;
struct PassedOver;

struct AcceleratorRule {
  std::string chip, cluster;
  int domain = 0;  // chips of a node; 0: the row tells
};

struct ModelRule {
  std::vector<std::string> prefixes;  // prefixes of bare_name() of the models
  std::string like;                   // name of a shipped transformer
  std::string unlike;                 // reason why such models cannot be predicted; empty: they can
  std::map<std::string, std::int64_t> sizes;
  std::optional<bool> tied;
  bool gated = true;
  std::string layers;  // file of platforms/layers/ with the model's measured layers; empty: there is none
  Transformer shape() const;
};

struct SetRule {
  std::int64_t vocabulary = 0;  // used if a row prints none; 0: that of the model's shape
  std::optional<Recompute> recompute;
  bool sequence_parallel = false, overlap = false, scatter_gather = false, overlap_parameters = false;
  bool composed = false;     // its steps were added up from measured pieces, not timed as a whole
  std::optional<bool> tied;  // whether its software ties embeddings; nothing: as the model's shape
  int zero = 0;
  ReduceGradients reduce_gradients = ReduceGradients::each;  // of rows that divide gradients
  // Used if a row prints none, whatever other rows print; 0: unknown.
  std::int64_t virtual_stages = 0;
  std::optional<Format> precision;             // precision of all rows
  double nics = 0;                             // bytes/s of a node; 0: that of the cluster
  std::string software;                        // name in platforms/software/; empty: unknown
  Recompute selective = Recompute::selective;  // the meaning of "selective" in the set's tables
  // Files of platforms/kept/ by accelerator; `kept_cut` is used if tensor parallelism divides the vocabulary.
  std::map<std::string, std::string> kept, kept_cut;
  Format gradients = Format::fp32;
  Counted counted = Counted::device;
  double expert_room = 0;
  ExpertWeights expert_weights = ExpertWeights::combine;
  std::int64_t sequence = 0, micro_batch = 0;  // used if a row prints none; 0: such a row is passed over
};

// What the published recipe of some rows does, although their table does not print it.
struct RecipeRule {
  std::string set;                              // the set of the rows
  std::set<std::string> releases;               // of the software: release_of()
  std::vector<std::string> names;               // as ModelRule::prefixes; empty: any model
  std::set<std::string> accelerators;           // empty: any
  std::vector<std::string> precisions;          // beginnings of the precision; empty: any
  std::map<std::string, std::int64_t> degrees;  // required values of some columns
  std::string unlike;                           // reason why such rows cannot be predicted; empty: they can
  ExpertCopies expert_copies = ExpertCopies::expert;
  bool overlap_experts = false;
  // The rest is used in place of what the set's rule says; nothing, 0 or empty: as that rule says.
  std::optional<Recompute> recompute;            // used if the row does not print it
  std::optional<std::int64_t> recompute_layers;  // as Stage::recompute_layers, with that recompute
  std::int64_t offloaded_layers = 0;             // of the model's, whose activations go to the node's memory
  std::optional<ExpertWeights> expert_weights;
  double expert_room = 0;
  std::string kept;                // a file of platforms/kept/
  bool unfused_attention = false;  // the software has no fused kernel for those heads on that chip
  bool covers(const PublishedRun& run) const;
};

// The release of a row's software: `release=26.04` among its notes, or the tag of its source (`@v25.05`). Nothing: the
// row does not say, and it is covered as a row of any release.
std::optional<std::string> release_of(const PublishedRun& run);

// A fit of software that left out some runs, given by their ids or as a whole set.
struct FitWithoutRuns {
  std::set<std::string> runs;
  std::string set;
  std::map<std::string, Yaml> software;  // figures by name
};

// Figures that are not in files, or not yet: software figures by name, in place of platforms/software/, and texts in
// place of platforms/published/left_out/.
struct TrialFigures {
  std::map<std::string, Yaml> software;
  std::vector<Yaml> left_out;
};

class PublishedRules {
 public:
  // Reads unprinted.yaml of the data folder, and the files of left_out/ beside it.
  PublishedRules();

  // Uses these figures from now on in place of the files of their names, and these fits in place of all of left_out/.
  void use(const TrialFigures& trial);

  // Nothing: the accelerator, the set, or the set's software is unknown.
  std::optional<std::string> chip_of(const std::string& accelerator) const;
  std::optional<std::string> software_of(const std::string& set) const;

  // Null: there is no rule for it.
  const AcceleratorRule* accelerator(const std::string& name) const;
  const ModelRule* model(const std::string& name) const;
  const SetRule* set(const std::string& name) const;
  const RecipeRule* recipe(const PublishedRun& run) const;
  const FitWithoutRuns* fit_without_run(const std::string& id) const;
  Yaml figures_without_set(const std::string& set, const std::string& software) const;
  Yaml trial_figures(const std::string& software) const;

  // Reads a run under these rules. `all` is the table, in which other rows of the set may print what this one does
  // not.
  std::variant<Measured, PassedOver> read(const PublishedRun& run,
                                          const std::vector<PublishedRun>& all) const;

 private:
  std::map<std::string, AcceleratorRule> accelerators_;
  std::vector<ModelRule> models_;
  std::map<std::string, SetRule> sets_;
  std::vector<RecipeRule> recipes_;
  std::vector<FitWithoutRuns> fits_;
  std::map<std::string, Yaml> trial_;  // figures of software, in place of platforms/software/
};

}  // namespace motley
