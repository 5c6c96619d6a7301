// Plans whose stages are printed one by one, as Sailor's are: how many layers each holds, and on which chips its
// replicas stand. From the text of a published row to stages of a strategy; it decides nothing that is not printed.
// Read next: models/published_run.hpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/strategy.hpp"

namespace motley {

// "layers per stage 7/9/9/9": embedding and head counted as a layer each. Nothing: not printed.
std::optional<std::vector<std::int64_t>> layers_per_stage(const std::string& notes);

// Of one replica of one stage: "RTX-3090(tp8)".
struct StagePlace {
  std::string chips;
  std::int64_t tensor_parallel = 1;
  bool operator==(const StagePlace&) const = default;
};
// "stage map: A(tp8)+B(tp8) | C(tp8)+B(tp8)": by stage, by replica. Nothing: not printed, or not of that form.
std::optional<std::vector<std::vector<StagePlace>>> stage_map(const std::string& notes);

// "RTX-3090:2+Titan-RTX:2". Nothing: one kind of chip, or not of that form.
std::optional<std::map<std::string, std::int64_t>> chips_by_kind(const std::string& accelerator);

// Has the stages of every pipeline hold so many, embedding and head counted. False: they are not the model's.
bool set_layers(const std::vector<std::int64_t>& per_stage, const Transformer& transformer,
                Strategy& strategy);

// Pipelines of a map: neighbours in it whose stages have the same degrees are replicas of one. All have so many
// micro-batches; layers are set_layers()'s. Each stage is on the cluster's groups of that name.
std::vector<PipelineTemplate> pipelines_of(const std::vector<std::vector<StagePlace>>& map,
                                           std::int64_t micro_batches);

// Those groups of the cluster that are named, in nodes as full as can be. False: it has no such group.
bool keep_chips(const std::map<std::string, std::int64_t>& counts, Cluster& cluster);

}  // namespace motley
