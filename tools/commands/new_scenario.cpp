#include "tools/commands/new_scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/check/check.hpp"
#include "models/cluster/node_text.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/certificate.hpp"
#include "models/plan/first_layout.hpp"
#include "models/scenario/scenario.hpp"
#include "models/strategy/recompute.hpp"
#include "tools/commands/listed_data.hpp"

namespace motley {
namespace {

// A name stays as it is; a path becomes one that means the same wherever the scenario stands.
std::string as_written(const std::string& name) {
  const bool is_path =
      name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".json");
  return is_path ? std::filesystem::absolute(name).lexically_normal().string() : name;
}

// A key with its value and a comment behind it. A comment of several lines stands in one column.
std::string line(const std::string& key_and_value, const std::vector<std::string>& comment) {
  constexpr std::size_t kColumn = 34;
  std::string text;
  for (std::size_t i = 0; i < comment.size(); ++i)
    text += fmt::format("{:<{}}# {}\n", i == 0 ? key_and_value + " " : "", kColumn, comment[i]);
  return text;
}

// ---- nodes

struct ShippedNode {
  NodeGroup group;
  std::string cluster;
};

// How well the nodes of a shipped group suit a chip.
int suits(const Cluster& cluster, const NodeGroup& group, const Chip& chip, bool several) {
  int points = 0;
  if (group.chip.name == chip.name) points += 128;
  if (group.chip.kind == chip.kind) points += 64;
  if (group.chip.vendor == chip.vendor) points += 32;
  if (!chip.family.empty() && group.chip.family == chip.family) points += 16;
  if (!several || !group.nics.empty()) points += 8;
  if (cluster.groups.size() == 1) points += 4;
  if (group.chips_per_node > 1) points += 2;
  if (!group.nics.empty() && group.nics.front().kind == NicKind::infiniband) points += 1;
  return points;
}

std::optional<ShippedNode> node_for(const Chip& chip, bool several) {
  std::optional<ShippedNode> best;
  int most = -1;
  for (const std::string& name : data_names(DataKind::clusters)) try {
      const Cluster cluster = find_cluster(name, data_folder() + "/platforms", {});
      for (const NodeGroup& group : cluster.groups)
        if (const int points = suits(cluster, group, chip, several); points > most) {
          most = points;
          best = ShippedNode{group, name};
        }
    } catch (const Refusal&) {  // whoever names that file is told
    }
  return best;
}

}  // namespace

std::string cluster_text(const NewScenario& asked) {
  if (!asked.cluster.empty())
    return line("cluster: " + as_written(asked.cluster),
                {"what it trains on: a name of `motley list clusters`"});
  const std::string path = find_file(asked.chip, ".", "platforms/chips", ".yaml", {});
  const Chip chip = read_chip(read_yaml(path), stem_of(path));
  const std::int64_t nodes = std::max<std::int64_t>(1, asked.nodes);
  std::optional<ShippedNode> shipped = node_for(chip, nodes > 1);
  NodeGroup group;
  std::string source = "assumed";
  if (shipped) {
    group = shipped->group;
    source = fmt::format("as in `{}`{}", shipped->cluster,
                         group.chip.name == chip.name
                             ? ""
                             : fmt::format(", whose chips are {}: correct them", group.chip.name));
  }
  if (asked.chips_per_node > 0 && asked.chips_per_node != group.chips_per_node) {
    group.pcie.reset();
    group.host.reset();
    group.chips_per_node = static_cast<int>(asked.chips_per_node);
  }
  for (Nic& nic : group.nics) nic.near.clear();
  std::string text =
      "cluster:                          # what it trains on; or a name of `motley list clusters`\n  "
      "groups:\n";
  text += line("    - name: nodes", {"a group of equal nodes; further groups may have other chips"});
  text += line(fmt::format("      nodes: {}", nodes), {"computers"});
  text += line("      chip: " + as_written(asked.chip), {"a name of `motley list chips`, or a file"});
  text += line(fmt::format("      chips_per_node: {}", group.chips_per_node), {"chips of a node"});
  text += fmt::format("      # from chip to chip in a node, in each direction; {}\n", source);
  text += fmt::format("      inside: {}\n", print_inside(group));
  if (group.pcie) text += fmt::format("      pcie: {}\n", print(*group.pcie));
  if (group.host) text += fmt::format("      host: {}\n", print(*group.host));
  if (nodes > 1 && group.nics.empty()) {
    group.nics.push_back({.kind = NicKind::ethernet, .count = 1, .bandwidth = 25e9 / 8, .latency_s = 30e-6});
    source = "assumed: correct them";
  }
  if (group.nics.empty()) return text;
  text += fmt::format(
      "      # between nodes: infiniband, roce or ethernet; `count` of them in a node; {}\n      nics:\n",
      source);
  for (const Nic& nic : group.nics) text += fmt::format("        - {}\n", print(nic));
  return text;
}

namespace {

// ---- training

// The format in which every chip can train; processor cores really train in fp32.
Format format_for(const Cluster& cluster) {
  for (const Format format : {Format::bf16, Format::fp16})
    if (std::all_of(cluster.groups.begin(), cluster.groups.end(), [&](const NodeGroup& group) {
          return group.chip.kind != "cpu" && group.chip.peak_flops.contains(format);
        }))
      return format;
  return Format::fp32;
}

// A few million tokens a step, as large models are trained with (Llama 2: 4 M, arXiv:2307.09288); on processor cores a
// step that they can really train. Every number of replicas that divides the chips divides it.
std::int64_t usual_batch(std::int64_t sequence, const Cluster& cluster, Format format) {
  const double tokens = format == Format::fp32 ? 1 << 10 : 1 << 22;
  const std::int64_t chips = cluster.chip_count();
  const double each = tokens / static_cast<double>(sequence * chips);
  return chips * std::max<std::int64_t>(1, static_cast<std::int64_t>(each + 0.5));
}

struct TrainFigures {
  std::int64_t global_batch = 1, micro_batch = 1, sequence = 1;
  Format format = Format::bf16;
};

std::string train_text(const TrainFigures& train) {
  return "train:\n" +
         line(fmt::format("  global_batch: {}", train.global_batch),
              {"sequences in a step, over all replicas"}) +
         line(fmt::format("  micro_batch: {}", train.micro_batch),
              {"sequences in one forward: more are faster and take more memory"}) +
         line(fmt::format("  sequence: {}", train.sequence), {"tokens in a sequence"}) +
         line(fmt::format("  precision: {}", name_of(train.format)),
              {"of weights and activations: or fp32, tf32, bf16, fp16"}) +
         line("  # matmuls: fp8", {"narrower operands of matrix products: fp8, mxfp8 or nvfp4"}) +
         line("  # tokens: 2T", {"of a whole run: its days, price and energy are then printed"});
}

std::string strategy_text(const FirstLayout& layout, bool has_experts) {
  const UniformDegrees& degrees = layout.degrees;
  std::string text =
      "strategy:                         # `motley plan THIS-FILE --out PLANNED.yaml` looks for a faster "
      "one\n";
  text += line(fmt::format("  tensor_parallel: {}", degrees.tensor),
               {"chips that share each layer: they exchange most, so keep them in a node"});
  text += line(fmt::format("  pipeline_parallel: {}", degrees.pipeline),
               {"stages, one after the other, each with a part of the layers"});
  text += line(fmt::format("  data_parallel: {}", degrees.data),
               {"replicas, which share the batch; the three multiply to the chips"});
  if (has_experts)
    text += line(fmt::format("  expert_parallel: {}", layout.expert_parallel),
                 {"chips of a stage over which the experts of a layer are divided"});
  text += line("  schedule: 1f1b", {"order of forwards and backwards: see `motley list schedules`"});
  text += line(fmt::format("  recompute: {}", text_of(degrees.recompute)),
               {"what a backward computes again to save memory: none, selective or full"});
  text += line(
      fmt::format("  zero: {}", layout.zero),
      {"what replicas divide: 0 nothing, 1 optimizer state, 2 gradients too,", "3 parameters too (FSDP)"});
  text += line(fmt::format("  sequence_parallel: {}", degrees.tensor > 1),
               {"divides rows of norms over the chips that share a layer"});
  text += line("  # overlap: {gradients: true}", {"reduces gradients while the last backward still runs"});
  return text;
}

constexpr const char* kFurther =
    "# software: megatron-bridge-2025  # what software reaches on these chips: `motley list software`; "
    "default: the usual\n"
    "# world: real                     # or sim (the default), mixed, replay, null: see scenarios/README.md, "
    "with every key\n";

std::string head_text(const Transformer& model, const Cluster& cluster) {
  std::vector<std::string> chips;
  for (const NodeGroup& group : cluster.groups)
    chips.push_back(fmt::format("{} {}", group.nodes * group.chips_per_node, group.chip.name));
  return fmt::format("# {} on {}: a first layout that fits, written by `motley new`.\n", model.name,
                     fmt::join(chips, " and "));
}

// The refusal of a job for which no layout stands.
Refusal no_layout(const Job& job, const std::string& last) {
  StagePricer pricer(job);
  const Certificate why = certify(job, pricer, {});
  return Refusal(
      Exit::infeasible, "no-plan", {}, why.text.empty() ? "no layout that was tried fits: " + last : why.text,
      "more --nodes, chips with more memory, a smaller model, or a --global-batch that more replicas divide");
}

}  // namespace

WrittenScenario write_scenario(const NewScenario& asked, const std::string& path) {
  const std::string model = line("model: " + as_written(asked.model),
                                 {"what is trained: a name of `motley list models`, or a config.json"});
  const std::string cluster = cluster_text(asked);
  const Transformer transformer = load_transformer(asked.model);
  TrainFigures train{.sequence = asked.sequence};
  // The cluster is read alone first, to choose a format that its chips have.
  const Yaml described = Fields(parse_yaml(cluster, path), "a scenario", {"cluster"}).need("cluster");
  const Cluster chips = described->is_scalar() ? find_cluster(described->text, folder_of(path), {})
                                               : read_cluster(described, stem_of(path), folder_of(path));
  train.format = format_for(chips);
  if (train.sequence == 0)
    train.sequence =
        std::min<std::int64_t>(train.format == Format::fp32 ? 128 : 4096, transformer.max_positions);
  train.global_batch =
      asked.global_batch > 0 ? asked.global_batch : usual_batch(train.sequence, chips, train.format);
  const auto text_with = [&](const std::string& strategy) {
    return head_text(transformer, chips) + model + cluster + train_text(train) + strategy + kFurther;
  };
  const Job job = read_scenario(parse_yaml(text_with(""), path), path, ScenarioUse::plan).job;
  WrittenScenario written;
  std::string last = "none is legal";
  const bool has_experts = transformer.experts.count > 0;
  const auto stands = [&](const FirstLayout& layout) {
    train.micro_batch = layout.degrees.micro_batch;
    written.text = text_with(strategy_text(layout, has_experts));
    try {
      const Job read = read_scenario(parse_yaml(written.text, path), path).job;
      written.memory = check(compile(read), read.cluster, read.train.fragmentation);
      return true;
    } catch (const Refusal& refusal) {
      last = refusal.message();
      return false;
    }
  };
  double room = 0;
  for (const NodeGroup& group : job.cluster.groups)
    room += group.chip.memory_bytes.value * group.nodes * group.chips_per_node;
  if (state_bytes(job) > room) throw no_layout(job, last);
  const std::optional<FirstLayout> layout = find_first_layout(job, stands);
  if (!layout) throw no_layout(job, last);
  written.strategy = fmt::format("tensor {} x pipeline {} x data {}", layout->degrees.tensor,
                                 layout->degrees.pipeline, layout->degrees.data);
  written.chips = chips.chip_count();
  return written;
}

}  // namespace motley
