// Plans whose stages are printed one by one, as Sailor's are: how many layers each holds, and on which chips its
// replicas stand. From the text of a published row to stages of a strategy; it decides nothing that is not printed.
// Read next: models/published/published_run.hpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

// Reads "layers per stage 7/9/9/9", where embedding and head count as a layer each. Nothing: not printed.
std::optional<std::vector<std::int64_t>> layers_per_stage(const std::string& notes);

// Where one replica of one stage stands: "RTX-3090(tp8)".
struct StagePlace {
  std::string chips;
  std::int64_t tensor_parallel = 1;
  bool operator==(const StagePlace&) const = default;
};
// Reads "stage map: A(tp8)+B(tp8) | C(tp8)+B(tp8)": by stage, then by replica. Nothing: not printed, or not of that
// form.
std::optional<std::vector<std::vector<StagePlace>>> stage_map(const std::string& notes);

// Reads "RTX-3090:2+Titan-RTX:2", counts of chips by kind. Nothing: one kind of chip, or not of that form.
std::optional<std::map<std::string, std::int64_t>> chips_by_kind(const std::string& accelerator);

// Has the stages of every pipeline hold so many layers, embedding and head counted. False: they are not the model's,
// and the strategy is as it was.
bool set_layers(const std::vector<std::int64_t>& per_stage, const Transformer& transformer,
                Strategy& strategy);

// The pipelines of a stage map. Replicas that stand beside each other in it and whose stages have the same degrees
// become one pipeline. Every pipeline has `micro_batches`, and no layers yet: set_layers() sets them. Each stage is on
// the cluster's groups of the names that the map says.
std::vector<PipelineTemplate> pipelines_of(const std::vector<std::vector<StagePlace>>& map,
                                           std::int64_t micro_batches);

// Keeps of the cluster the groups that are named, with so many chips, in nodes as full as can be. False: it has no
// group of such a name.
bool keep_chips(const std::map<std::string, std::int64_t>& counts, Cluster& cluster);

}  // namespace motley
