// What platforms/published/unprinted.yaml says of published runs: the nodes of an accelerator, the shape of a model,
// the habits of a set of rows, the recipes of some rows; and the fits of software that left some runs out. It reads no
// row by itself. Read next: models/published/published_run.hpp.
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

namespace motley {

struct PublishedRun;
struct Measured;
struct PassedOver;

struct AcceleratorRule {
  std::string chip, cluster;
  int domain = 0;  // chips of a node; 0: as the row says
};

struct ModelRule {
  std::vector<std::string> prefixes;  // of bare_name() of the models it is about
  std::string like;                   // the name of a shipped transformer
  std::string unlike;                 // why no such model can be predicted; empty: one can
  std::map<std::string, std::int64_t> sizes;
  std::optional<bool> tied;
  bool gated = true;
  std::string layers;  // the file of platforms/layers/ with its measured layers; empty: nobody measured them
  Transformer shape() const;
};

struct SetRule {
  std::int64_t vocabulary = 0;  // where a row prints none; 0: that of the model's shape
  std::optional<Recompute> recompute;
  bool sequence_parallel = false, overlap = false, scatter_gather = false, overlap_parameters = false,
       runs_on = false;
  int zero = 0;
  std::int64_t virtual_stages = 0;             // where a row prints none; 0: unknown
  std::optional<Format> precision;             // of all rows
  double nics = 0;                             // bytes/s of a node; 0: the cluster's
  std::string software;                        // a name in platforms/software/; empty: none is known
  Recompute selective = Recompute::selective;  // what the set's tables call "selective"
  // The file of platforms/kept/ by accelerator; `kept_cut` where tensor parallelism divides the vocabulary.
  std::map<std::string, std::string> kept, kept_cut;
  Format gradients = Format::fp32;
  Counted counted = Counted::device;
  double expert_room = 0;
  std::int64_t sequence = 0, micro_batch = 0;  // where a row prints none; 0: such a row is passed over
};

// What the published recipe of some rows does that their table does not print.
struct RecipeRule {
  std::string first, last;                      // ids of the first and last of rows that follow one another
  std::vector<std::string> names;               // as ModelRule::prefixes; empty: any model
  std::set<std::string> accelerators;           // empty: any
  std::vector<std::string> precisions;          // how the precision begins; empty: any
  std::map<std::string, std::int64_t> degrees;  // what columns print, where it matters
  ExpertCopies expert_copies = ExpertCopies::expert;
  bool overlap_experts = false;
  std::optional<Recompute> recompute;  // where the row does not print it
  bool unfused_attention = false;      // the software has no fused kernel for those heads on that chip
  bool covers(const PublishedRun& run) const;
};

// A fit of software that left runs out: by their ids, or all of a set.
struct FitWithoutRuns {
  std::set<std::string> runs;
  std::string set;
  std::map<std::string, Yaml> software;  // figures by name
};

// Figures that no file holds, or not yet: what would stand in platforms/software/, by name, and each text that would
// stand in platforms/published/left_out/.
struct TrialFigures {
  std::map<std::string, Yaml> software;
  std::vector<Yaml> left_out;
};

class PublishedRules {
 public:
  // Reads unprinted.yaml of the data folder and what is in left_out/ beside it.
  PublishedRules();

  // From here on those stand for the files of their names, and their fits without some runs for all of left_out/.
  void use(const TrialFigures& trial);
  // No set's software is known any more.
  void forget_software();

  // Nothing: no such accelerator is known, or no such set, or no software of it.
  std::optional<std::string> chip_of(const std::string& accelerator) const;
  std::optional<std::string> software_of(const std::string& set) const;

  // Null: nothing is known of it.
  const AcceleratorRule* accelerator(const std::string& name) const;
  const ModelRule* model(const std::string& name) const;
  const SetRule* set(const std::string& name) const;
  const RecipeRule* recipe(const PublishedRun& run) const;
  const FitWithoutRuns* fit_without_run(const std::string& id) const;
  Yaml figures_without_set(const std::string& set, const std::string& software) const;
  Yaml trial_figures(const std::string& software) const;

  // Under these rules. `all`: the table, in which other rows of the same set may print what this one does not.
  std::variant<Measured, PassedOver> read(const PublishedRun& run,
                                          const std::vector<PublishedRun>& all) const;

 private:
  std::map<std::string, AcceleratorRule> accelerators_;
  std::vector<ModelRule> models_;
  std::map<std::string, SetRule> sets_;
  std::vector<RecipeRule> recipes_;
  std::vector<FitWithoutRuns> fits_;
  std::map<std::string, Yaml> trial_;  // figures of software, which stand for platforms/software/
};

}  // namespace motley
