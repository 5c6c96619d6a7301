// scenarios/*.yaml and platforms/*.yaml -> values, with every mistake refused at file:line:column.
#pragma once

#include <string>
#include <vector>

#include "models/check.hpp"
#include "models/compile.hpp"
#include "models/interval.hpp"
#include "models/refusal.hpp"

namespace motley {

struct WorldChoice {
  std::string kind = "sim";      // sim | real | mixed | replay | null
  std::vector<Rank> real_ranks;  // mixed
  bool operator==(const WorldChoice&) const = default;
};

struct Scenario {
  std::string path;
  std::string name;
  Job job;
  WorldChoice world;
  Interval interval;  // of a predicted step
  // Of the keys in the file: where later refusals point.
  Location model_location, cluster_location, strategy_location;
};

// `model:` a shipped name, a path of a Hugging Face config.json, or written inline; `cluster:` a
// name in platforms/ (searched beside the scenario, then in the data folder), a path, or inline.
// Throws Refusal.
Scenario load_scenario(const std::string& path);

// compile() and check() of the scenario's job, with refusals (out of memory, unreachable ranks) that point into
// its file.
Program compile(const Scenario& scenario);
std::vector<StageMemory> check(const Program& program, const Scenario& scenario);

Transformer load_transformer(const std::string& path_or_name);  // a Hugging Face config.json as it is
Cluster load_cluster(const std::string& path_or_name);
Chip load_chip(const std::string& path_or_name);

std::string print(const Transformer& transformer);  // inline YAML, parses back
std::string print(const Cluster& cluster);

Transformer parse_transformer(const std::string& text);
Cluster parse_cluster(const std::string& text);

// The text that ships for training: scenarios/text/ of the data folder.
std::string default_text_path();

// Where platforms/ and scenarios/ are: $MOTLEY_DATA, else beside the source tree, else the
// installed share folder.
std::string data_folder();

}  // namespace motley
