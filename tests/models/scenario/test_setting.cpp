// --set: every value of every scenario that ships can be set to what it is, files in its way are opened without a
// change, and a mistake is refused at its place in the setting.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "models/base/temporary_folder.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/setting.hpp"
#include "models/strategy/degree_names.hpp"
#include "models/strategy/strategy_fields.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using tests::Dice;
using tests::drawn_of;
using tests::least_of;

namespace {

const std::string kScenarios = std::string(MOTLEY_SOURCE_DIR) + "/scenarios";

std::vector<std::string> shipped() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kScenarios))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

Scenario read(const Yaml& node, const std::string& path) {
  return read_scenario(node, path, ScenarioUse::plan);
}

bool same_job(const Scenario& a, const Scenario& b) {
  return a.job.transformer == b.job.transformer && a.job.cluster == b.job.cluster &&
         a.job.train == b.job.train && a.job.strategy == b.job.strategy && a.name == b.name;
}

// "key=value" for each scalar below the node that --set can write in one line.
void add_settings(const Yaml& node, const std::string& key, std::vector<std::string>& settings) {
  if (node->is_scalar())
    settings.push_back(key + "=" + print_yaml(node).substr(0, print_yaml(node).size() - 1));
  const std::string above = key.empty() ? "" : key + ".";
  for (const YamlEntry& entry : node->entries)
    if (entry.key.find('.') == std::string::npos) add_settings(entry.value, above + entry.key, settings);
  for (std::size_t i = 0; i < node->items.size(); ++i)
    add_settings(node->items[i], above + std::to_string(i), settings);
}

std::string setting_refusal(const std::string& setting, const std::string& scenario = "quickstart") {
  try {
    load_scenario(kScenarios + "/" + scenario + ".yaml", {setting});
  } catch (const Refusal& refusal) {
    return fmt::format("{} {}", refusal.kind(), refusal.what());
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a scenario that is printed as YAML reads back as the same job") {
  for (const std::string& path : shipped()) {
    INFO(path);
    const Yaml root = read_yaml(path);
    CHECK(same_job(read(root, path), read(parse_yaml(print_yaml(root), path), path)));
  }
}

TEST_CASE("a scenario whose model, cluster and chips are opened is the same job") {
  for (const std::string& path : shipped()) {
    INFO(path);
    const Yaml root = read_yaml(path);
    const Scenario before = read(root, path);
    std::vector<ScenarioSetting> settings = {
        parse_setting(fmt::format("model.hidden={}", before.job.transformer.hidden))};
    for (std::size_t i = 0; i < before.job.cluster.groups.size(); ++i) {
      const NodeGroup& group = before.job.cluster.groups[i];
      settings.push_back(parse_setting(fmt::format("cluster.groups.{}.nodes={}", i, group.nodes)));
      settings.push_back(
          parse_setting(fmt::format("cluster.groups.{}.chip.kind={}", group.name, group.chip.kind)));
    }
    const Scenario after = read(with_settings(root, path, settings), path);
    CHECK(after.job.transformer == before.job.transformer);
    CHECK(after.job.cluster == before.job.cluster);
    CHECK(after.job.strategy == before.job.strategy);
  }
}

TEST_CASE("each value of a scenario may be set to what it is", "[slow]") {
  Dice dice(7);
  constexpr std::size_t kTried = drawn_of(40U);  // about, of each scenario
  std::size_t tried = 0;
  for (const std::string& path : shipped()) {
    const Yaml root = read_yaml(path);
    const Yaml opened = root->find("cluster")->value->is_scalar()
                            ? with_settings(root, path, {parse_setting("cluster.links_measured_on=")})
                            : root;
    const Scenario before = read(opened, path);
    std::vector<std::string> settings;
    add_settings(opened, "", settings);
    for (std::size_t i = 0; i < settings.size(); ++i) {
      if (settings.size() > kTried && !dice.once_in(static_cast<unsigned>(settings.size() / kTried)))
        continue;
      INFO(path << ": " << settings[i]);
      CHECK(same_job(before, read(with_settings(opened, path, {parse_setting(settings[i])}), path)));
      ++tried;
    }
  }
  REQUIRE(tried > least_of(200U));
}

TEST_CASE("of two settings of one key the later one counts, whichever name of a degree they have") {
  const std::string path = kScenarios + "/quickstart.yaml";
  for (const auto& [first, second] : {std::pair{"tensor_parallel", "tp"}, {"tp", "tensor_parallel"}}) {
    const Scenario scenario =
        load_scenario(path, {fmt::format("strategy.{}=1", first), fmt::format("strategy.{}=8", second),
                             "strategy.data_parallel=2"});
    CHECK(scenario.job.strategy.tp() == 8);
    CHECK(scenario.job.strategy.dp() == 2);
  }
}

TEST_CASE("every short name of a degree is known to --set") {
  const auto check = [](const auto& list) {
    list.each([](const auto& field) {
      if (!field.short_key.empty()) CHECK(other_name(field.key) == field.short_key);
    });
  };
  check(StageFields{});
  check(PipelineTemplateFields{});
}

TEST_CASE("items of lists are named by number, name, kind or all at once") {
  const std::string path = kScenarios + "/mixed-fleet.yaml";
  const auto nodes = [&](const std::string& setting) {
    std::vector<int> counts;
    for (const NodeGroup& group : load_scenario(path, {setting}).job.cluster.groups)
      counts.push_back(group.nodes);
    return counts;
  };
  const std::vector<int> before = nodes("name=same");
  REQUIRE(before.size() == 3);
  const std::string name = load_scenario(path).job.cluster.groups[1].name;
  std::vector<int> changed = before;
  changed[1] = 33;
  CHECK(nodes("cluster.groups.1.nodes=33") == changed);
  CHECK(nodes("cluster.groups." + name + ".nodes=33") == changed);
  CHECK(nodes("cluster.groups.*.nodes=33") == std::vector<int>(3, 33));
  const Scenario faster = load_scenario(path, {"cluster.groups.*.nics.roce.bandwidth=800Gb/s"});
  for (const NodeGroup& group : faster.job.cluster.groups) CHECK(group.nics[0].bandwidth == 1e11);
}

TEST_CASE("a chip that stands beside its cluster's file is found where the cluster is opened") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("there"));
  std::filesystem::copy(std::string(MOTLEY_SOURCE_DIR) + "/platforms/chips/h200.yaml",
                        folder.file("there/own-chip.yaml"));
  folder.write("there/own.yaml",
               "groups:\n- {name: a, nodes: 4, chip: own-chip, chips_per_node: 8, inside: {fabric: nvswitch, "
               "bandwidth: 450 GB/s}, nics: [{kind: infiniband, count: 8, bandwidth: 400 Gb/s}]}\n");
  const std::string path =
      folder.write("own-scenario.yaml",
                   "model: llama-2-7b\ncluster: there/own.yaml\ntrain: {global_batch: 64, sequence: "
                   "4096}\nstrategy: {dp: 8, tp: 4}\n");
  const Scenario before = load_scenario(path), after = load_scenario(path, {"cluster.groups.0.nodes=4"});
  CHECK(after.job.cluster == before.job.cluster);
}

TEST_CASE("an empty value takes a key out, and a missing map is made") {
  const std::string path = kScenarios + "/quickstart.yaml";
  CHECK(load_scenario(path, {"train.micro_batch="}).job.train.micro_batch == Train{}.micro_batch);
  CHECK(load_scenario(path, {"fidelity.fold=false"}).job.fidelity.fold == false);
  CHECK(load_scenario(path, {"world=null"}).world.kind == WorldKind::null);
}

TEST_CASE("a mistake in a setting is refused at its place") {
  CHECK(setting_refusal("strategy.tensr_parallel=8") ==
        "unknown-key --set strategy.tensr_parallel=8:1:10: `strategy` has no key `tensr_parallel`\n"
        "  hint: did you mean `tensor_parallel`?");
  CHECK(setting_refusal("strategy.tensor_parallel=eight") ==
        "wrong-type --set strategy.tensor_parallel=eight:1:26: expected a whole number, found `eight`");
  CHECK(setting_refusal("cluster.groups.h1000.nodes=4", "mixed-fleet") ==
        "no-such-item --set cluster.groups.h1000.nodes=4:1:16: `cluster.groups` has no item `h1000`\n"
        "  hint: did you mean `h100`?");
  CHECK(setting_refusal("strategy.schedule.kind=1f1b", "mixed-fleet") ==
        "not-a-map --set strategy.schedule.kind=1f1b:1:19: `strategy.schedule` is `1f1b`, which has no keys\n"
        "  hint: `strategy.schedule=...` sets it");
  CHECK(setting_refusal("tp=8") ==
        "bad-setting --set tp=8:1:1: a scenario has no key `tp`\n  hint: did you mean `strategy.tp`?");
  CHECK(setting_refusal("micro_batch=8") ==
        "bad-setting --set micro_batch=8:1:1: a scenario has no key `micro_batch`\n  hint: did you mean "
        "`train.micro_batch`?");
  CHECK(
      setting_refusal("strategy") ==
      "bad-setting --set strategy:1:1: a setting without `=`\n  hint: as `--set strategy.tensor_parallel=8`");
  CHECK(setting_refusal("strategy..tp=8") ==
        "bad-setting --set strategy..tp=8:1:10: a key is empty here\n  hint: as `--set "
        "strategy.tensor_parallel=8`");
}

TEST_CASE("parts of a group that leaves its nodes to its chip can be changed, by its chip's name") {
  const std::string text =
      "model: llama-3-8b\n"
      "cluster: {groups: [{chip: h100-80gb-sxm, nodes: 2}, {chip: mi300x, nodes: 2}]}\n"
      "train: {global_batch: 64, sequence: 4096}\n"
      "strategy: {tp: 8, dp: 4}\n";
  const auto changed = [&](const std::string& setting) {
    return read(with_settings(parse_yaml(text, "own.yaml"), "own.yaml", {parse_setting(setting)}), "own.yaml")
        .job.cluster;
  };
  const Cluster plain = read(parse_yaml(text, "own.yaml"), "own.yaml").job.cluster;
  const Cluster slower = changed("cluster.groups.mi300x.nics.*.bandwidth=100Gb/s");
  CHECK(slower.groups[0] == plain.groups[0]);
  CHECK(slower.groups[1].nics[0].bandwidth == 12.5e9);
  CHECK(slower.links == plain.links);
  const Cluster narrower = changed("cluster.groups.0.inside.bandwidth=400GB/s");
  CHECK(narrower.groups[0].inside.bandwidth == 400e9);
  CHECK(narrower.groups[0].nics.at(0) == plain.groups[0].nics.at(0));
  CHECK(changed("cluster.groups.h100-80gb-sxm.nodes=3").groups[0].nodes == 3);
  // A value that a usual part has already changes nothing.
  CHECK(changed("cluster.groups.mi300x.nics.roce.latency=6us") == plain);
}

TEST_CASE("a value of several lines is refused") {
  CHECK(tests::refusal_on_page([] { parse_setting("strategy={tp: 2,\npp: 2}"); }) ==
        tests::expected_refusal("bad-setting: a value of several lines"));
}
