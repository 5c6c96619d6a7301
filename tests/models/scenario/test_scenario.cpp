// Scenarios from files: all that ship can be read, and a later refusal still names the place in the file.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "models/base/data_files.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/prepare.hpp"
#include "models/program/collective.hpp"
#include "models/scenario/plan_request_fields.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;

namespace {

const std::string kSourceFolder = MOTLEY_SOURCE_DIR;

// A file in a folder of its own.
class Written {
 public:
  explicit Written(const std::string& text, const std::string& name = "written.yaml")
      : path_(folder_.write(name, text)) {}
  void add(const std::string& text, const std::string& name) const { folder_.write(name, text); }
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

// A scenario on two cores with the given `strategy:` and the text after it.
std::string tiny(const std::string& strategy_and_more) {
  return "model: tiny-gpt2\ncluster: host-2\n"
         "train: {global_batch: 8, micro_batch: 2, sequence: 64, precision: fp32}\nstrategy: " +
         strategy_and_more + "\n";
}

Scenario read_page(const std::string& text) { return load_scenario(Written(text).path()); }

}  // namespace

TEST_CASE("every scenario that ships is read, and its strategy is legal and fits its cluster") {
  const std::string name = GENERATE(as<std::string>(), "quickstart", "quickstart-train", "gpt3-175b-1024");
  INFO(name);
  const Scenario scenario = load_scenario(kSourceFolder + "/scenarios/" + name + ".yaml");
  CHECK(scenario.name == name);
  const Job& job = scenario.job;
  CHECK_NOTHROW(validate(job.transformer, job.train, job.strategy));
  CHECK(job.strategy.rank_count() <= job.cluster.chip_count());
  CHECK(job.train.global_batch ==
        job.strategy.dp() * job.strategy.templates[0].micro_batches * job.train.micro_batch);
  CHECK(scenario.strategy_location.file == scenario.path);
  CHECK(scenario.strategy_location.line > scenario.cluster_location.line);
  CHECK(scenario.cluster_location.line == scenario.model_location.line + 1);
}

TEST_CASE("the fixed scenarios are the ones that others compare with") {
  const Scenario gpt3 = load_scenario(kSourceFolder + "/scenarios/gpt3-175b-1024.yaml");
  CHECK(gpt3.job.cluster.chip_count() == 1024);
  CHECK(gpt3.job.cluster.chip_of(0).name == "a100-80gb-sxm");
  CHECK(gpt3.job.strategy.tp() == 8);
  CHECK(gpt3.job.strategy.pp() == 8);
  CHECK(gpt3.job.strategy.dp() == 16);
  CHECK(gpt3.job.strategy.recompute == Recompute::full);
  CHECK(gpt3.job.strategy.templates[0].micro_batches == 128);
  CHECK(gpt3.job.train.sequence == 2048);
  CHECK(gpt3.job.train.precision == Format::bf16);
  const Scenario train = load_scenario(kSourceFolder + "/scenarios/quickstart-train.yaml");
  CHECK(train.job.strategy.rank_count() == 2);
  CHECK(train.job.train.steps == 50);
  CHECK(train.job.train.precision == Format::fp32);
  CHECK(train.world.kind == WorldKind::real);
}

TEST_CASE("a refusal without a place gets one, and one that has a place keeps it") {
  const Refusal placeless(Exit::infeasible, "out-of-memory", {}, "too large", "less");
  const Refusal placed = located(placeless, {"a.yaml", 4, 2});
  CHECK(std::string(placed.what()) == "a.yaml:4:2: too large\n  hint: less");
  CHECK(placed.kind() == "out-of-memory");
  CHECK(placed.exit_code() == Exit::infeasible);
  CHECK(std::string(located(placed, {"b.yaml", 9, 9}).what()) == placed.what());
}

TEST_CASE("a refusal cannot steer the terminal that shows it") {
  const Refusal refusal(Exit::usage, "unknown-key", {"a\x1b]0;b\x07.yaml", 1, 1}, "key `\x1b[31m` \x7f",
                        "\r");
  CHECK(std::string(refusal.what()) == "a\\x1b]0;b\\x07.yaml:1:1: key `\\x1b[31m` \\x7f\n  hint: \\x0d");
}

TEST_CASE("short, long and explicit forms of a strategy are the same strategy") {
  const Scenario brief = read_page(tiny("{pp: 2, schedule: gpipe, recompute: full}"));
  const Scenario longer =
      read_page(tiny("{pipeline_parallel: 2, tp: 1, dp: 1, schedule: gpipe, recompute: full}"));
  CHECK(brief.job.strategy == longer.job.strategy);
  std::string explicit_form = print(brief.job.strategy);
  explicit_form = "\n  " + std::regex_replace(explicit_form, std::regex("\n"), "\n  ");
  CHECK(read_page(tiny(explicit_form)).job.strategy == brief.job.strategy);
}

TEST_CASE("what a scenario leaves out is the default") {
  const Scenario scenario = read_page(tiny("{}"));
  CHECK(scenario.name == "written");
  CHECK(scenario.world == WorldChoice{});
  CHECK(scenario.job.fidelity == Fidelity{});
  CHECK(scenario.job.strategy.rank_count() == 1);
  Train train;
  train.global_batch = 8;
  train.micro_batch = 2;
  train.sequence = 64;
  train.precision = Format::fp32;
  CHECK(scenario.job.train == train);
}

TEST_CASE("worlds, fidelity and training figures are read as written") {
  const Scenario mixed =
      read_page(tiny("{dp: 2}\nname: two\nworld: {kind: mixed, real_ranks: [1]}\n"
                     "fidelity: {data_parallel: expanded, tensor_parallel: fluid, "
                     "fold: true}"));
  CHECK(mixed.name == "two");
  CHECK(mixed.world == WorldChoice{WorldKind::mixed, {1_rank}});
  CHECK(mixed.job.fidelity == Fidelity{CollectiveLevel::expanded, CollectiveLevel::fluid, true});
  for (CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree, CollectiveAlgorithm::double_binary_tree,
        CollectiveAlgorithm::recursive, CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::flat,
        CollectiveAlgorithm::automatic}) {
    const std::string line = fmt::format("{{}}\nfidelity: {{algorithm: {}}}", name_of(algorithm));
    CHECK(read_page(tiny(line)).job.fidelity.algorithm == algorithm);
  }
  CHECK(read_page(tiny("{}\nfidelity: {expert_copies: expert}")).job.fidelity == Fidelity{});
  CHECK(read_page(tiny("{}\nfidelity: {expert_copies: node}")).job.fidelity.expert_copies ==
        ExpertCopies::node);
  CHECK_THROWS_WITH(read_page(tiny("{}\nfidelity: {expert_copies: rack}")), Catch::Contains("rack"));
  CHECK(read_page(tiny("{}\nworld: null")).world.kind == WorldKind::null);
  CHECK(read_page(tiny("{}\nworld: real")).world.kind == WorldKind::real);
  const std::string text = std::regex_replace(
      tiny("{}"), std::regex("precision: fp32"),
      "precision: bf16, gradients: bf16, learning_rate: 3e-4, beta1: 0.8, beta2: 0.9, epsilon: 1e-6, "
      "weight_decay: 0, seed: 7, steps: 9");
  const Train train = read_page(text).job.train;
  CHECK(train == Train{.global_batch = 8,
                       .micro_batch = 2,
                       .sequence = 64,
                       .precision = Format::bf16,
                       .gradients = Format::bf16,
                       .learning_rate = 3e-4,
                       .beta1 = 0.8,
                       .beta2 = 0.9,
                       .epsilon = 1e-6,
                       .weight_decay = 0,
                       .seed = 7,
                       .steps = 9,
                       .text = "",
                       .matmuls = {}});
}

TEST_CASE("an option's ablations take the place of the scenario's") {
  std::vector<Ablation> ablated = {Ablation::no_overlap, Ablation::sockets};
  Ablations{}.read(parse_yaml("sockets, uniform-layers", "--ablate"), ablated);
  CHECK(ablated == std::vector<Ablation>{Ablation::sockets, Ablation::uniform_layers});
}

TEST_CASE("a model and a cluster may stand beside the scenario, or in it") {
  const Scenario shipped = read_page(tiny("{pp: 2}"));
  const Written beside(
      std::regex_replace(std::regex_replace(tiny("{pp: 2}"), std::regex("tiny-gpt2"), "mine/config.json"),
                         std::regex("host-2"), "own.yaml"));
  beside.add(text_of(kSourceFolder + "/scenarios/models/tiny-gpt2.json"), "mine/config.json");
  beside.add(text_of(kSourceFolder + "/platforms/host-2.yaml"), "own.yaml");
  const Scenario own = load_scenario(beside.path());
  CHECK(own.job.transformer.name == "mine");
  CHECK(own.job.cluster.name == "own");
  CHECK(own.job.cluster.groups == shipped.job.cluster.groups);
  CHECK(strategy_hash(own.job.transformer, own.job.train, own.job.strategy) ==
        strategy_hash(shipped.job.transformer, shipped.job.train, shipped.job.strategy));
  const auto indented = [](const std::string& text) {
    return "\n  " + std::regex_replace(text, std::regex("\n"), "\n  ");
  };
  const Scenario inlined = read_page(std::regex_replace(
      std::regex_replace(tiny("{pp: 2}"), std::regex("host-2"), indented(print(shipped.job.cluster))),
      std::regex("tiny-gpt2"), indented(print(shipped.job.transformer))));
  CHECK(inlined.job.cluster == shipped.job.cluster);
  CHECK(inlined.job.transformer == shipped.job.transformer);
}

TEST_CASE("refusals of compile and check point into the scenario") {
  const Scenario large = read_page(
      "model: gpt3-175b\ncluster: dgx-a100\ntrain: {global_batch: 8, sequence: 2048}\nstrategy: {tp: 8}\n");
  try {
    check(compile(large), large);
    FAIL("175 B parameters do not fit on one node");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "out-of-memory");
    CHECK(refusal.where().file == large.path);
    CHECK(refusal.where().line == 4);
  }
}

TEST_CASE("where several stages do not fit, the fullest is spoken of, and how many there are") {
  const Scenario uneven = read_page(
      "model: gpt3-175b\ncluster: dgx-a100\ntrain: {global_batch: 8, sequence: 2048}\n"
      "strategy: {tp: 2, pp: 4, layers: [10, 20, 46, 20]}\n");
  try {
    check(compile(uneven), uneven);
    FAIL("175 B parameters do not fit on one node");
  } catch (const Refusal& refusal) {
    CHECK_THAT(refusal.message(), Catch::StartsWith("stage 2 needs"));
    CHECK_THAT(refusal.message(), Catch::EndsWith("; 4 of 4 stages do not fit"));
  }
}

TEST_CASE("every figure of every chip that ships names its source and date, or says it is assumed") {
  const std::regex dated(".*(20[0-9]{2}|assumed).*");
  int chips = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSourceFolder + "/platforms/chips")) {
    const Chip chip = load_chip(entry.path().string());
    INFO(chip.name);
    ++chips;
    std::vector<Sourced> figures = {chip.memory_bytes,
                                    chip.memory_bandwidth,
                                    chip.multiprocessors,
                                    chip.software.gemm_efficiency,
                                    chip.software.gemm_k_half,
                                    chip.software.gemm_wave,
                                    chip.software.attention_efficiency,
                                    chip.software.attention_s_half,
                                    chip.software.bandwidth_efficiency,
                                    chip.software.kernel_overhead,
                                    chip.software.step_overhead,
                                    chip.watts,
                                    chip.software.overlap_slowdown,
                                    chip.price_per_hour,
                                    chip.software.reserved_memory};
    for (const auto& [format, peak] : chip.peak_flops) figures.push_back(peak);
    for (const Sourced& figure : figures) {
      INFO(figure.value << " from: " << figure.source);
      CHECK((figure == Sourced{} || std::regex_match(figure.source, dated)));
    }
    CHECK(chip.software.gemm_efficiency.value <= 1);
    CHECK(chip.software.attention_efficiency.value <= 1);
    CHECK(chip.software.bandwidth_efficiency.value <= 1);
    CHECK_FALSE(chip.peak_flops.empty());  // fp32 may be missing: not every maker states it
  }
  CHECK(chips >= 4);
}

TEST_CASE("a chip has the narrow formats that its maker states, and no others") {
  const auto has = [](const char* name, Format format) {
    return load_chip(kSourceFolder + "/platforms/chips/" + name + ".yaml").peak_flops.contains(format);
  };
  for (const char* none : {"v100-32gb-sxm", "a100-80gb-sxm", "mi250x", "rtx-3090", "tpu-v5p"})
    for (Format format : {Format::fp8, Format::mxfp8, Format::nvfp4}) CHECK_FALSE(has(none, format));
  for (const char* fp8_alone : {"h100-80gb-sxm", "h200", "l40s", "mi300x", "gaudi3"}) {
    CHECK(has(fp8_alone, Format::fp8));
    CHECK_FALSE(has(fp8_alone, Format::mxfp8));
    CHECK_FALSE(has(fp8_alone, Format::nvfp4));
  }
  CHECK(has("mi355x", Format::mxfp8));
  CHECK_FALSE(has("mi355x", Format::nvfp4));
  for (Format format : kFormats) CHECK(has("b200", format));
}

TEST_CASE("the text to train on is plain ASCII, long enough for a batch") {
  const std::string text = text_of(default_text_path());
  CHECK(text.size() > 10'000);
  for (const char c : text) REQUIRE((c == '\n' || (c >= ' ' && c <= '~')));
}

TEST_CASE("a scenario that is called as a cluster is not taken for it, nor by one beside it") {
  const std::string text =
      "model: tiny-gpt2\ncluster: host-2\ntrain: {global_batch: 4, sequence: 16, precision: fp32}\nstrategy: "
      "{dp: 2}\n";
  Written scenario(text, "host-2.yaml");
  scenario.add(text, "other.yaml");
  for (const char* name : {"host-2.yaml", "other.yaml"})
    CHECK(load_scenario((std::filesystem::path(scenario.path()).parent_path() / name).string())
              .job.cluster.chip_count() == 2);
}
