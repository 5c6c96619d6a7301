// Reads scenarios/*.yaml and platforms/*.yaml into values; refuses every mistake at file:line:column.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/scenario/interval.hpp"
#include "models/scenario/job.hpp"
#include "models/scenario/plan_request.hpp"
#include "models/scenario/plan_request_check.hpp"
#include "models/scenario/software.hpp"
#include "models/scenario/world_choice.hpp"

namespace motley {

struct Scenario {
  std::string path;
  std::vector<std::string> settings;  // of which it was read, as load_scenario() was given them
  std::string name;
  Job job;
  WorldChoice world;
  PlanRequest plan;  // what `plan` asks of the planner
  PlanPlaces plan_places;
  double measured_s = 0;          // the step of a real run of it; 0: none was measured
  Interval interval;              // interval of measured steps around the predicted ones
  std::optional<OwnFigures> own;  // the cluster's own figures; nothing: the scenario names its software
  // Locations of these keys in the file, for later refusals. strategy_location is that of `plan` where the file leaves
  // the strategy to the planner.
  Location model_location, cluster_location, strategy_location;
};

// The path of a scenario that a person names. A name without `/` that is no file here is that of a scenario that ships:
// `quickstart`.
std::string find_scenario(const std::string& path_or_name);

// The map of a scenario's file, with these settings (models/scenario/setting.hpp).
Yaml read_scenario_file(const std::string& path_or_name, const std::vector<std::string>& settings);

// Reads a scenario file. `model:` is a shipped name, a path of a Hugging Face config.json, or a model written inline;
// `cluster:` is a name in platforms/ (searched beside the scenario, then in the data folder), a path, or a cluster
// written inline. Throws Refusal.
Scenario load_scenario(const std::string& path_or_name, const std::vector<std::string>& settings = {});

// What a scenario is read for. run: it needs `strategy`. plan: it has `strategy` or `plan`, or neither; without
// `strategy` its job has no pipelines.
enum class ScenarioUse : std::uint8_t { run, plan };

// Reads a scenario from a node. Files that it names are searched beside `path`, where the scenario stands or would
// stand.
Scenario read_scenario(const Yaml& node, const std::string& path, ScenarioUse use = ScenarioUse::run);

}  // namespace motley
