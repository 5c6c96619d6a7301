// Groups that leave their nodes to their chip, and what is remarked on groups.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/cluster/cluster.hpp"
#include "models/cluster/node_text.hpp"
#include "models/compile/compile.hpp"
#include "models/report/job_notes.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/dice.hpp"

using namespace motley;

namespace {

Cluster short_cluster(const std::string& group) { return parse_cluster("groups: [" + group + "]"); }

std::vector<Chip> chips_with_usual_nodes() {
  std::vector<Chip> chips;
  for (const std::string& file : data_files("platforms/chips", ".yaml"))
    if (Chip chip = load_chip(file); !chip.usual_node.empty()) chips.push_back(std::move(chip));
  return chips;
}

std::vector<std::string> notes_of(const std::vector<std::string>& settings,
                                  const std::string& name = "quickstart") {
  const Scenario scenario = load_scenario(name, settings);
  return job_notes(scenario.job, compile(scenario.job));
}

}  // namespace

TEST_CASE("a group that says no inside has the nodes of the cluster that its chip names") {
  const std::vector<Chip> chips = chips_with_usual_nodes();
  REQUIRE(chips.size() > 8);
  for (const Chip& chip : chips) {
    INFO(chip.name);
    const Cluster cluster = short_cluster(fmt::format("{{chip: {}, nodes: 3}}", chip.name));
    const NodeGroup &group = cluster.groups.at(0), usual = load_cluster(chip.usual_node).groups.at(0);
    CHECK(group.name == chip.name);
    CHECK(group.nodes == 3);
    CHECK(group.chip == chip);
    CHECK(group.chips_per_node == usual.chips_per_node);
    CHECK(group.inside == usual.inside);
    CHECK(group.nics == usual.nics);
    CHECK(group.host == usual.host);
    CHECK(group.remarks.texts.size() == 1);
    CHECK(parse_cluster(print(cluster)) == cluster);
  }
}

TEST_CASE("what a group says stands before the usual node") {
  const NodeGroup group =
      short_cluster("{name: own, chip: h100-80gb-sxm, nodes: 2, chips_per_node: 4, nics: []}").groups.at(0);
  CHECK(group.name == "own");
  CHECK(group.chips_per_node == 4);
  CHECK(group.nics.empty());
  CHECK(group.inside == load_cluster("dgx-h100-pod").groups.at(0).inside);
}

TEST_CASE(
    "groups of usual nodes all reach each other where nothing is said of links, and it is remarked on") {
  const std::vector<Chip> chips = chips_with_usual_nodes();
  tests::Dice dice(29);
  int over_ethernet = 0;
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<Chip> drawn = chips;
    dice.shuffle(drawn);
    drawn.resize(dice.one_of<std::size_t>({2, 3, 4}));
    std::string groups;
    for (const Chip& chip : drawn) groups += fmt::format("{{chip: {}, nodes: 1}}, ", chip.name);
    const Cluster cluster = short_cluster(groups);
    INFO(groups);
    const int count = static_cast<int>(cluster.groups.size());
    for (int a = 0; a < count; ++a)
      for (int b = 0; b < count; ++b) {
        const std::optional<NicKind> kind = joining_kind(cluster, a, b);
        REQUIRE(kind);
        over_ethernet += a < b && kind == NicKind::ethernet ? 1 : 0;
      }
    for (std::size_t i = 0; i < cluster.groups.size(); ++i)
      CHECK(cluster.groups[i].remarks.texts.size() == (i == 0 ? 1 : 2));
    CHECK(parse_cluster(print(cluster)) == cluster);
  }
  CHECK(over_ethernet > 10);
}

TEST_CASE("no link is assumed where a cluster says something of its links, or describes all nodes") {
  const std::string inside = "chips_per_node: 8, inside: {fabric: nvswitch, bandwidth: 300 GB/s}, ",
                    nics = "nics: [{kind: infiniband, count: 8, bandwidth: 200 Gb/s}]";
  const auto joined = [](const std::string& text) {
    return joining_kind(parse_cluster(text), 0, 1).has_value();
  };
  const std::string h100 = "{chip: h100-80gb-sxm, nodes: 1}", h200 = "{chip: h200, nodes: 1}",
                    own = "{chip: a100-80gb-sxm, nodes: 1, " + inside + nics + "}",
                    other = "{name: b, chip: a100-80gb-sxm, nodes: 1, " + inside + nics + "}",
                    without = "{chip: a100-80gb-sxm, nodes: 1, " + inside + "nics: []}";
  CHECK(joined("groups: [" + h100 + ", " + h200 + "]"));
  CHECK(joined("groups: [" + h100 + ", " + own + "]"));
  CHECK_FALSE(joined("{groups: [" + h100 + ", " + h200 + "], links: []}"));
  CHECK_FALSE(joined("groups: [" + own + ", " + other + "]"));
  CHECK_FALSE(joined("groups: [" + h100 + ", " + without + "]"));
}

TEST_CASE("a chip without usual nodes needs them in the group") {
  CHECK_THROWS_AS(short_cluster("{chip: rtx-4090, nodes: 2}"), Refusal);
}

TEST_CASE(
    "a bandwidth that is the sum of both directions is remarked on, and no cluster that ships has one") {
  const auto remarks = [](const char* bandwidth) {
    return short_cluster(
               fmt::format("{{chip: h100-80gb-sxm, nodes: 1, chips_per_node: 8, inside: {{fabric: nvswitch, "
                           "bandwidth: {}}}}}",
                           bandwidth))
        .groups.at(0)
        .remarks.texts;
  };
  CHECK(remarks("450 GB/s").empty());
  CHECK(remarks("600 GB/s").empty());
  REQUIRE(remarks("900 GB/s").size() == 1);
  CHECK(remarks("900 GB/s")[0].find("450 GB/s in each direction") != std::string::npos);
  for (const std::string& file : data_files("platforms", ".yaml")) {
    if (file.find("/measured/") != std::string::npos) continue;
    INFO(file);
    for (const NodeGroup& group : load_cluster(file).groups) CHECK(group.remarks.texts.empty());
  }
}

TEST_CASE("idle chips and groups are named, and sequences longer than the model was made for") {
  CHECK(notes_of({}).empty());
  const std::string idle_name = load_scenario("quickstart").job.cluster.groups.at(0).name;
  CHECK(notes_of({"strategy.dp=2"}) ==
        std::vector<std::string>{fmt::format("16 of the 32 chips of `{}` are idle", idle_name)});
  CHECK(notes_of({"train.sequence=20000", "strategy.tp=8", "strategy.dp=2"}) ==
        std::vector<std::string>{
            "20000 tokens in a row are more than the 4096 positions that `llama-2-7b` was made for"});
  const std::vector<std::string> notes = notes_of({"strategy={tp: 8, dp: 1, on: h100}"}, "mixed-fleet");
  REQUIRE(notes.size() == 3);
  CHECK(notes[0].find("no rank stands on `a100`") != std::string::npos);
}

TEST_CASE("data_parallel: auto takes as many replicas as chips and batch allow") {
  tests::Dice dice(17);
  for (int trial = 0; trial < 60; ++trial) {
    const int tp = dice.one_of({1, 2, 4, 8}), pp = dice.one_of({1, 2, 4}),
              batch = dice.one_of({6, 32, 48, 128, 250}), micro = dice.one_of({1, 2});
    const Scenario scenario =
        load_scenario("quickstart", {fmt::format("strategy={{tp: {}, pp: {}, dp: auto}}", tp, pp),
                                     fmt::format("train.global_batch={}", batch),
                                     fmt::format("train.micro_batch={}", micro)});
    const std::int64_t chips = scenario.job.cluster.chip_count(), dp = scenario.job.strategy.dp();
    INFO(tp << " " << pp << " " << batch << " " << micro << " " << dp);
    CHECK(dp * tp * pp <= chips);
    CHECK(batch % (dp * micro) == 0);
    for (std::int64_t more = dp + 1; more * tp * pp <= chips; ++more) CHECK(batch % (more * micro) != 0);
  }
}
