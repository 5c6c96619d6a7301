// The pages that say what scenarios and platforms may contain: their examples can be read, and no key is missing.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "models/base/data_files.hpp"
#include "models/check/check.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"

namespace fs = std::filesystem;
using namespace motley;

namespace {

const fs::path kSourceRoot = MOTLEY_SOURCE_DIR;

// The blocks between ```yaml and ``` of a page.
std::vector<std::string> examples(const fs::path& page) {
  std::vector<std::string> blocks;
  std::ifstream file(page);
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      inside = line == "```yaml";
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back() += line + "\n";
    }
  }
  return blocks;
}

void collect_keys(const Yaml& node, std::set<std::string>& keys) {
  for (const YamlEntry& entry : node->entries) {
    keys.insert(entry.key);
    collect_keys(entry.value, keys);
  }
  for (const Yaml& item : node->items) collect_keys(item, keys);
}

// The keys that a reader's source knows: words given to find(), need() or entry(), and the tables of figures.
std::set<std::string> keys_known(const std::string& source) {
  std::ostringstream text;
  text << std::ifstream(kSourceRoot / "models" / source).rdbuf();
  const std::string code = text.str();
  const std::regex asked(
      R"re((?:find|need|entry)\("([a-z0-9_]+)"\)|\{"([a-z0-9_]+)", &Chip(?:Software)?::)re");
  std::set<std::string> keys;
  for (std::sregex_iterator it(code.begin(), code.end(), asked), end; it != end; ++it)
    keys.insert((*it)[1].matched ? (*it)[1] : (*it)[2]);
  return keys;
}

void expect_all_named(const std::vector<std::string>& blocks, const std::vector<std::string>& sources,
                      const std::set<std::string>& not_ours) {
  std::set<std::string> named;
  for (const std::string& block : blocks) collect_keys(parse_yaml(block, "README.md"), named);
  int known = 0;
  for (const std::string& source : sources)
    for (const std::string& key : keys_known(source)) {
      if (not_ours.contains(key)) continue;
      INFO(key << " of models/" << source);
      CHECK(named.contains(key));
      ++known;
    }
  CHECK(known > 20);
}

}  // namespace

TEST_CASE("the examples of scenarios/README.md are scenarios, and name every key") {
  const std::vector<std::string> blocks = examples(kSourceRoot / "scenarios/README.md");
  REQUIRE(blocks.size() == 11);
  for (const std::string& block : blocks) {
    // The example is read as if it were beside the page, because its paths are relative to it.
    const Yaml node = parse_yaml(block, (kSourceRoot / "scenarios/README.md").string());
    const Scenario scenario = read_scenario(node, (kSourceRoot / "scenarios/README.md").string());
    CHECK_NOTHROW(check(compile(scenario), scenario));
  }
  expect_all_named(blocks, {"scenario/scenario.cpp", "strategy/strategy_text.cpp"}, {});
}

TEST_CASE("the defaults that scenarios/README.md names are the defaults") {
  const std::vector<std::string> blocks = examples(kSourceRoot / "scenarios/README.md");
  REQUIRE(blocks.size() == 11);
  const std::string page = (kSourceRoot / "scenarios/README.md").string();
  const Scenario scenario = read_scenario(parse_yaml(blocks[0], page), page);
  Train train;
  train.global_batch = 8;
  train.sequence = 128;
  train.text = scenario.job.train.text;
  CHECK(scenario.job.train == train);
  CHECK(fs::equivalent(train.text, default_text_path()));
  Fidelity fidelity;
  fidelity.fold = true;  // the default of `motley simulate`
  CHECK(scenario.job.fidelity == fidelity);
  Strategy standard;
  standard.templates = scenario.job.strategy.templates;
  CHECK(scenario.job.strategy == standard);
}

TEST_CASE("the examples of platforms/README.md are a cluster and a chip, and name every key") {
  const std::vector<std::string> blocks = examples(kSourceRoot / "platforms/README.md");
  REQUIRE(blocks.size() >= 3);
  const auto cluster = [&](std::size_t block) {
    return read_cluster(parse_yaml(blocks[block], "README.md"), "example", kSourceRoot / "platforms");
  };
  CHECK(cluster(0).chip_count() == 24);
  for (std::size_t block = 1; block + 1 < blocks.size(); ++block)
    CHECK(parse_cluster(print(cluster(block))) == cluster(block));
  CHECK(read_chip(parse_yaml(blocks.back(), "README.md"), "").name == "example");
  expect_all_named(blocks,
                   {"cluster/chip_text.cpp", "cluster/cluster_text.cpp", "cluster/node_text.cpp",
                    "cluster/network_text.cpp", "cluster/site_text.cpp", "cluster/variation_text.cpp"},
                   {});
}
