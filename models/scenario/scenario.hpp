// scenarios/*.yaml and platforms/*.yaml -> values, with every mistake refused at file:line:column.
#pragma once

#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/program/program.hpp"
#include "models/scenario/interval.hpp"
#include "models/scenario/job.hpp"

namespace motley {

// Where a scenario runs. sim: imagined, in virtual time. real: trained by processes. mixed: imagined, but some ranks
// really compute. replay: mixed, from a tape. null: nothing takes time.
enum class WorldKind : std::uint8_t { sim, real, mixed, replay, null };
template <>
inline constexpr auto kWords<WorldKind> = words("sim", "real", "mixed", "replay", "null");

struct WorldChoice {
  WorldKind kind = WorldKind::sim;
  std::vector<Rank> real_ranks;  // mixed: those that really compute
  bool operator==(const WorldChoice&) const = default;
};

struct Scenario {
  std::string path;
  std::string name;
  Job job;
  WorldChoice world;
  Interval interval;  // where measured steps lie, by the predicted one
  // Where these keys stand in the file: later refusals point there.
  Location model_location, cluster_location, strategy_location;
};

// `model:` a shipped name, a path of a Hugging Face config.json, or written inline; `cluster:` a
// name in platforms/ (searched beside the scenario, then in the data folder), a path, or inline.
// Throws Refusal.
Scenario load_scenario(const std::string& path);

// `path`: where it stands, or would; files it names are searched beside that.
Scenario read_scenario(const Yaml& node, const std::string& path);

}  // namespace motley
