// A model, a training shape and a strategy from Megatron-LM's arguments, wherever these stand: in a line, or in
// FlagScale's YAML. What Megatron-LM would refuse is refused, as are models that Motley has not. Facts are of the
// version in framework.cpp. Read next: megatron_settings.hpp, the way out.
#pragma once

#include <cstdint>
#include <optional>

#include "models/frameworks/import.hpp"
#include "models/frameworks/written_settings.hpp"

namespace motley {

// Refuses arguments that exclude one another, or that Megatron-LM no longer takes ("clashing-settings").
void refuse_megatron_clashes(const WrittenSettings& settings);
Transformer read_megatron_model(WrittenSettings& settings, const std::string& name);
Train read_megatron_train(WrittenSettings& settings);
// What stands beside degrees and layers: overlaps, division of the optimizer, recomputation, offloading.
// `pipelines`: whether there are two stages or more; `interleaved`: whether stages hold several chunks.
struct ImportedForm {
  bool pipelines = false, interleaved = false;
  std::int64_t tensor_parallel = 1, replicas = 1, context_parallel = 1;
};
Strategy read_megatron_options(WrittenSettings& settings, const Train& train, const ImportedForm& form);
// Recomputation of every stage; layers: at the beginning of each chunk, nothing: all.
void read_megatron_recompute(WrittenSettings& settings, Strategy& strategy, std::vector<Stage>& stages);

// How many ranks start, and where that is said; nothing: all chips of the cluster.
struct StartedRanks {
  std::optional<std::int64_t> ranks;
  Location where;
};
// Reads the whole job, whose stages are alike, into `imported`.
void read_megatron_job(WrittenSettings& settings, const StartedRanks& started, const ImportOptions& options,
                       Imported& imported);

// Adds the settings that were not read to the ignored ones.
void list_ignored(const WrittenSettings& settings, std::vector<IgnoredSetting>& ignored);

}  // namespace motley
