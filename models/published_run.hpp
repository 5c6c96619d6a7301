// A training run that somebody measured and published, as a row of a table: from what is printed, and what
// platforms/published/unprinted.yaml says of the rest, to a scenario and to the seconds that a step took. What a row
// leaves open in a way that matters is not guessed: it is passed over, with the reason. Read next:
// models/validation.hpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "models/csv.hpp"
#include "models/scenario.hpp"
#include "models/yaml_reader.hpp"

namespace motley {

// Columns: id, accelerator, n_accelerators, per_node, model_name, hidden, ffn_hidden, layers, heads, kv_heads, vocab,
// seq_len, global_batch, micro_batch, tp, pp, vpp, dp, cp, ep, schedule, zero_stage_or_fsdp, recompute, precision,
// metric, value, unit, notes. An empty cell: not printed. Others may stand there too.
struct PublishedRun {
  std::string id, set;  // the set is what stands before the id's dash
  CsvRow row;
};
// "full", "selective per-op", "none for 8K": by how it begins. Refuses ("bad-csv") what begins otherwise.
Recompute printed_recompute(const std::string& text, const Location& where);

std::string lower(std::string text);
// A name in lower case, without signs: "Qwen3_30B_a3B" is qwen330ba3b.
std::string bare_name(const std::string& text);

// Refuses ("bad-csv") a table without ids.
std::vector<PublishedRun> read_published_runs(const std::string& path);

struct Measured {
  // On chips with the figures of the set's software: those that ship, but of a run that they were fitted to those of a
  // fit that left out all runs of its model's size.
  Scenario scenario;
  // The same cluster with figures fitted without any run of the set, and their interval; none: no such fit is there.
  std::optional<Cluster> unseen;
  Interval unseen_interval;
  double step_s = 0;
  std::optional<double> peak_bytes;   // of the fullest chip
  Counted counted = Counted::device;  // what those are
  bool experts = false;               // the model's; no such run took part in any fit
  bool runs_on = false;          // into the next step: what is measured is from one's begin to the next's
  bool recompute_known = false;  // printed, known of the set, or told by a peak: else memory is not
};
struct PassedOver {
  std::string reason;
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

  // `all`: the table, in which other rows of the same set may print what this one does not.
  std::variant<Measured, PassedOver> read(const PublishedRun& run,
                                          const std::vector<PublishedRun>& all) const;

 private:
  struct Accelerator {
    std::string chip, cluster;
    int domain = 0;  // chips of a node; 0: as the row says
  };
  struct Likeness {
    std::vector<std::string> prefixes;
    std::string like;
    std::string unlike;  // why no such model can be predicted; empty: one can
    std::map<std::string, std::int64_t> sizes;
    std::optional<bool> tied;
    bool gated = true;
    std::string layers;  // of platforms/layers/: where its layers were measured; empty: nowhere
    Transformer shape() const;
  };
  struct Set {
    std::int64_t vocabulary = 0;
    std::optional<Recompute> recompute;
    bool sequence_parallel = false, overlap = false, scatter_gather = false, overlap_parameters = false,
         runs_on = false;
    int zero = 0;
    std::int64_t virtual_stages = 0;             // where none are printed; 0: unknown
    std::optional<Format> precision;             // of all rows
    double nics = 0;                             // bytes/s of a node; 0: the cluster's
    std::string software;                        // of platforms/software/; empty: none is known
    Recompute selective = Recompute::selective;  // what its tables call so
    // By accelerator, of platforms/kept/; and instead where tensor parallelism divides the vocabulary.
    std::map<std::string, std::string> kept, kept_cut;
    Format gradients = Format::fp32;
    Counted counted = Counted::device;
    double expert_room = 0;
    std::int64_t sequence = 0, micro_batch = 0;  // where a row prints none; 0: then nobody knows
  };
  // What the published recipe of some rows does that their table does not print.
  struct Recipe {
    std::string first, last;                      // ids: of rows that follow one another
    std::vector<std::string> names;               // as Likeness::prefixes
    std::set<std::string> accelerators;           // empty: any
    std::vector<std::string> precisions;          // what one begins with; empty: any
    std::map<std::string, std::int64_t> degrees;  // what columns print, where it matters
    ExpertCopies expert_copies = ExpertCopies::expert;
    bool overlap_experts = false;
    std::optional<Recompute> recompute;  // where the row does not print it
    bool unfused_attention = false;      // what runs it has no fused kernel for those heads on that chip
    bool of(const PublishedRun& run) const;
  };
  // A fit of software that left runs out: by their ids, or all of a set.
  struct LeftOut {
    std::set<std::string> runs;
    std::string set;
    std::map<std::string, Yaml> software;
  };
  static Likeness read_likeness(const Yaml& item);
  static Set read_set(const Yaml& node);
  static Recipe read_recipe(const Yaml& item);
  // The first that is of that row; null: nobody knows its recipe.
  const Recipe* recipe_of(const PublishedRun& run) const;

  std::map<std::string, Accelerator> accelerators_;
  std::vector<Likeness> models_;
  std::map<std::string, Set> sets_;
  std::vector<Recipe> recipes_;
  std::vector<LeftOut> left_out_;
  std::map<std::string, Yaml> trial_;  // of software, before what stands in platforms/software/

  static LeftOut read_left_out(const Yaml& file);

  friend class RunReader;
};

}  // namespace motley
