// What software makes of chips and how sure that is: unknown is never narrower, figures do not cross what they do not
// know, and a fleet of several vendors gets one treatment. All over the shipped software and chips.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "models/base/data_files.hpp"
#include "models/scenario/measured_on.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/software.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using Catch::Matchers::Contains;
using tests::kSanitized;
using tests::least_of;

namespace {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_folder() + "/" + folder))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> named_software() {
  std::vector<std::string> names = names_in("platforms/software");
  std::erase(names, kUsualSoftware);
  return names;
}

std::vector<Chip> accelerators() {
  std::vector<Chip> chips;
  for (const std::string& name : names_in("platforms/chips"))
    if (Chip chip = load_chip(name); chip.kind != "cpu") chips.push_back(std::move(chip));
  return chips;
}

// Nodes as those of shipped runs, with these chips.
Cluster cluster_of(const std::vector<Chip>& chips) {
  Cluster cluster = load_cluster("dgx-a100-4");
  const NodeGroup nodes = cluster.groups.at(0);
  cluster.groups.clear();
  for (const Chip& chip : chips) {
    cluster.groups.push_back(nodes);
    cluster.groups.back().name = fmt::format("group-{}", cluster.groups.size());
    cluster.groups.back().chip = chip;
  }
  build_topology(cluster);
  return cluster;
}

bool holds(const Interval& wide, const Interval& narrow) {
  return wide.low <= narrow.low && wide.high >= narrow.high;
}

constexpr std::array kOfSoftware = {&ChipSoftware::elementwise_passes, &ChipSoftware::unfused_attention,
                                    &ChipSoftware::layer_launch,       &ChipSoftware::micro_batch_overhead,
                                    &ChipSoftware::variation,          &ChipSoftware::collective_share};

}  // namespace

TEST_CASE("the less is known of a software on a chip, the wider its interval", "[slow]") {
  int calibrated = 0, similar = 0, unseen = 0;
  for (const std::string& software : named_software())
    for (const Chip& chip : accelerators()) {
      Cluster cluster = cluster_of({chip}), unnamed = cluster;
      const Interval interval = use_software(software, cluster), usual = use_usual_software(unnamed);
      CAPTURE(software, chip.name, name_of(interval.regime));
      CHECK(usual.regime == Regime::unseen);
      CHECK(holds(usual, interval_of_left_out()));
      if (interval.regime == Regime::similar) CHECK(holds(interval, interval_of_left_out()));
      if (interval.regime == Regime::unseen) CHECK(holds(interval, usual));
      CHECK(holds(interval_with_experts(interval), interval));
      CHECK(interval_with_experts(interval).regime != Regime::calibrated);
      calibrated += interval.regime == Regime::calibrated ? 1 : 0;
      similar += interval.regime == Regime::similar ? 1 : 0;
      unseen += interval.regime == Regime::unseen ? 1 : 0;
    }
  CHECK(calibrated > 2);
  CHECK(similar > 20);
  CHECK(unseen > 100);
}

TEST_CASE("a prediction is the middle of its interval, where no experts are") {
  const auto middle = [](const Interval& interval) { return std::sqrt(interval.low * interval.high); };
  CHECK(middle(interval_of_unnamed()) == Approx(1).epsilon(0.06));
  CHECK(middle(interval_of_left_out()) == Approx(1).epsilon(0.06));
  // What the chips' own figures predict is no middle but a bound.
  CHECK(interval_of_own().low > 0.9);
  CHECK(middle(interval_of_own()) > 1.1);
}

TEST_CASE("chips of several vendors of which a software knows nothing are treated alike", "[slow]") {
  const std::vector<Chip> chips = accelerators();
  int compared = 0;
  for (const std::string& software : named_software()) {
    const ChipSoftware neutral =
        neutral_figures(read_yaml(data_folder() + "/platforms/software/" + software + ".yaml"));
    for (const Chip& chip : chips) {
      Cluster cluster = cluster_of({chip});
      if (use_software(software, cluster).regime != Regime::unseen) continue;
      const ChipSoftware& reached = cluster.groups[0].chip.software;
      CAPTURE(software, chip.name);
      for (const auto member : kOfSoftware)
        if ((chip.software.*member).value == 0) CHECK((reached.*member).value == (neutral.*member).value);
      if (neutral.gemm_efficiency.value > 0)
        CHECK(reached.gemm_efficiency.value / chip.software.gemm_efficiency.value ==
              Approx(neutral.gemm_efficiency.value));
      ++compared;
    }
  }
  CHECK(compared > 100);
}

TEST_CASE("what a software keeps in memory stays on the chips of whose family it has figures") {
  Cluster kin = cluster_of({load_chip("a100-40gb-sxm"), load_chip("rtx-3090")});
  use_software("megatron-2023", kin);
  for (const NodeGroup& group : kin.groups) CHECK(group.chip.software.kept_scores.value == 5);
  Cluster strangers = cluster_of({load_chip("h2-a"), load_chip("mi300x")});
  use_software("megatron-2023", strangers);
  for (const NodeGroup& group : strangers.groups) {
    CHECK(group.chip.software.kept_scores.value == 0);
    CHECK(group.chip.software.unfused_attention.value == 0);  // scores that are written stay in memory
  }
}

TEST_CASE("a software changes every chip of a fleet alike if it does not know one of them", "[slow]") {
  const std::vector<Chip> chips = accelerators();
  int fleets = 0;
  for (const std::string& software : named_software())
    for (std::size_t i = 0; i + 2 < chips.size(); i += kSanitized ? 4 : 1) {
      const std::vector<Chip> fleet = {chips[i], chips[(7 * i + 3) % chips.size()], chips[i + 2]};
      Cluster cluster = cluster_of(fleet);
      if (use_software(software, cluster).regime != Regime::unseen) continue;
      CAPTURE(software, fleet[0].name, fleet[1].name, fleet[2].name);
      const auto change = [&](std::size_t chip) {
        return cluster.groups[chip].chip.software.gemm_efficiency.value /
               fleet[chip].software.gemm_efficiency.value;
      };
      CHECK(change(1) == Approx(change(0)));
      CHECK(change(2) == Approx(change(0)));
      for (const auto member : kOfSoftware)
        for (const std::size_t chip : {1, 2})
          CHECK((cluster.groups[chip].chip.software.*member).value ==
                (cluster.groups[0].chip.software.*member).value);
      ++fleets;
    }
  CHECK(fleets > least_of(100));
}

TEST_CASE("kin share a vendor and a family, and a chip without a family has none") {
  Cluster cluster = cluster_of({load_chip("h200")});
  CHECK(use_software("nemo-2024", cluster).regime == Regime::similar);
  Chip strange = load_chip("h200");
  for (const auto& [vendor, family] :
       {std::pair{"nvidia", ""}, std::pair{"other", "hopper"}, std::pair{"nvidia", "volta"}}) {
    strange.vendor = vendor;
    strange.family = family;
    cluster = cluster_of({strange});
    CAPTURE(vendor, family);
    CHECK(use_software("nemo-2024", cluster).regime == Regime::unseen);
  }
}

TEST_CASE("a software is calibrated only on clusters like those of its runs") {
  const std::vector<MeasuredOn> runs = {{"a100-80gb-sxm", 8, NicKind::infiniband, 25e9, 1000},
                                        {"h100-80gb-sxm", 8, NicKind::infiniband, 0, 8}};
  Cluster cluster = load_cluster("dgx-a100");
  cluster.groups[0].nodes = 125;
  Nic& nic = cluster.groups[0].nics.at(0);
  nic.kind = NicKind::infiniband;
  nic.bandwidth = 25e9 * 8 / nic.count;
  CHECK(was_measured(runs, cluster));
  SECTION("twice as many chips are near, more are not") {
    cluster.groups[0].nodes = 250;
    CHECK(was_measured(runs, cluster));
    cluster.groups[0].nodes = 251;
    CHECK_FALSE(was_measured(runs, cluster));
  }
  SECTION("the kind of NIC") {
    nic.kind = NicKind::roce;
    CHECK_FALSE(was_measured(runs, cluster));
    cluster.groups[0].nodes = 1;  // no NIC is used
    CHECK(was_measured(runs, cluster));
  }
  SECTION("the rate of NICs") {
    nic.bandwidth *= 1.2;
    CHECK(was_measured(runs, cluster));
    nic.bandwidth *= 1.2;
    CHECK_FALSE(was_measured(runs, cluster));
  }
  SECTION("the chip, and nodes where only one was measured") {
    cluster.groups[0].chip = load_chip("h100-80gb-sxm");
    CHECK_FALSE(was_measured(runs, cluster));
    cluster.groups[0].nodes = 1;
    CHECK(was_measured(runs, cluster));
    cluster.groups[0].chip = load_chip("a100-40gb-sxm");
    CHECK_FALSE(was_measured(runs, cluster));
  }
  SECTION("several groups") {
    cluster.groups.push_back(cluster.groups[0]);
    CHECK_FALSE(was_measured(runs, cluster));
  }
  CHECK(read_measured_on(parse_yaml(print(runs), "measured")) == runs);
}

TEST_CASE("every shipped software was measured where it has figures, as its file says") {
  int entries = 0;
  for (const std::string& software : named_software()) {
    const Yaml file = read_yaml(data_folder() + "/platforms/software/" + software + ".yaml");
    const YamlEntry* const measured = file->find("measured");
    if (measured == nullptr) continue;
    for (const MeasuredOn& each : read_measured_on(measured->value)) {
      CAPTURE(software, each.chip);
      CHECK(file->find("on")->value->find(each.chip) != nullptr);
      ++entries;
    }
  }
  CHECK(entries > 10);
}

TEST_CASE(
    "the usual software says every figure that it carries, and makes no chip or NIC better than it is") {
  const Yaml file = read_yaml(data_folder() + "/platforms/software/" + kUsualSoftware + ".yaml");
  const ChipSoftware neutral = neutral_figures(file);
  for (const double share : {neutral.gemm_efficiency.value, neutral.attention_efficiency.value}) {
    CHECK(share > 0.8);
    CHECK(share <= 1);
  }
  for (const auto member : kOfSoftware)
    if (member != &ChipSoftware::unfused_attention) CHECK((neutral.*member).value > 0);
  CHECK(neutral.elementwise_passes.value >= 1);
  const Cluster bare = load_cluster("dgx-a100-4");
  Cluster cluster = bare;
  use_usual_software(cluster);
  CHECK(cluster.groups[0].nics == bare.groups[0].nics);
}

TEST_CASE("CPUs and their NICs keep their figures, and `none` keeps those of every chip") {
  const Cluster hosts = load_cluster("host-4");
  Cluster cluster = hosts;
  use_usual_software(cluster);
  CHECK(cluster == hosts);
  const Cluster fleet = load_cluster("mixed-fleet");
  cluster = fleet;
  const Interval own = use_software(kNoSoftware, cluster);
  CHECK(cluster == fleet);
  CHECK(own.software.empty());
}

TEST_CASE("own figures are given back as they were") {
  const Cluster fleet = load_cluster("mixed-fleet");
  Cluster cluster = fleet;
  const OwnFigures own = own_figures(cluster);
  use_usual_software(cluster);
  CHECK(cluster != fleet);
  use_own_figures(own, cluster);
  for (NodeGroup& group : cluster.groups) group.chip.software.collective_share = {};
  CHECK(cluster == fleet);
}

TEST_CASE("figures that a chip has are kept from the usual software, but shares are scaled") {
  Chip chip = load_chip("a100-80gb-sxm");
  chip.software.layer_launch = {1e-3, "measured"};
  const ChipSoftware neutral = neutral_figures(
      parse_yaml("any: {layer_launch: {value: 5 ms, source: s}, variation: {value: 0.01, source: s}, "
                 "gemm_efficiency: {value: 0.5, source: s}}",
                 "usual"));
  const double own = chip.software.gemm_efficiency.value;
  use_neutral_figures(neutral, chip);
  CHECK(chip.software.layer_launch.value == 1e-3);
  CHECK(chip.software.variation.value == 0.01);
  CHECK(chip.software.gemm_efficiency.value == Approx(own / 2));
  CHECK_THROWS_WITH(neutral_figures(parse_yaml("any: {kept_scores: {value: 5, source: s}}", "usual")),
                    Contains("kept_scores"));
}
