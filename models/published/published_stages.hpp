// Plans with stages printed one by one, such as Sailor's: the layers of each stage, and the chips of its replicas.
// The text of a published row becomes stages of a strategy; only what is printed is used. Read next:
// models/published/published_run.hpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

// Reads "layers per stage 7/9/9/9", in which embedding and head count as a layer each. Nothing: not printed.
std::optional<std::vector<std::int64_t>> layers_per_stage(const std::string& notes);

// Place of one replica of one stage: "RTX-3090(tp8)".
struct StagePlace {
  std::string chips;
  std::int64_t tensor_parallel = 1;
  bool operator==(const StagePlace&) const = default;
};
// Reads "stage map: A(tp8)+B(tp8) | C(tp8)+B(tp8)": by stage, then by replica. Nothing: not printed, or in another
// form.
std::optional<std::vector<std::vector<StagePlace>>> stage_map(const std::string& notes);

// Reads "RTX-3090:2+Titan-RTX:2", counts of chips by kind. Nothing: one kind of chip, or another form.
std::optional<std::map<std::string, std::int64_t>> chips_by_kind(const std::string& accelerator);

// Gives the stages of every pipeline these numbers of layers, embedding and head counted. False: they do not sum to
// the model's layers, and the strategy is unchanged.
bool set_layers(const std::vector<std::int64_t>& per_stage, const Transformer& transformer,
                Strategy& strategy);

// The pipelines of a stage map. Adjacent replicas whose stages have the same degrees become one pipeline. Every
// pipeline has `micro_batches`, and no layers until set_layers() sets them. Each stage is on the cluster's groups
// that the map names.
std::vector<PipelineTemplate> pipelines_of(const std::vector<std::vector<StagePlace>>& map,
                                           std::int64_t micro_batches);

// Keeps only the named groups of the cluster, with these numbers of chips, in nodes as full as possible. False: the
// cluster has no group of such a name.
bool keep_chips(const std::map<std::string, std::int64_t>& counts, Cluster& cluster);

}  // namespace motley
