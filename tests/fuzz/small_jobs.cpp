// What small is, and the small jobs of targets that need one beside their input.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/base/units.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

bool has_many_chips(const Yaml& node) {
  // Shipped clusters of more than kMostChips.
  static const std::set<std::string> large = {"a100-16384", "mixed-100k", "mixed-100k.yaml",
                                              "a100-16384.yaml"};
  if (node->is_scalar()) return large.contains(node->text);
  double chips = 0;
  const auto number = [](const Yaml& group, const char* key) {
    const YamlEntry* const entry = group->find(key);
    double value = 1;
    if (entry != nullptr) static_cast<void>(read_number(entry->value->text, value));
    return value;
  };
  for (const Yaml& item : node->items) {
    if (item->find("nodes") != nullptr) chips += number(item, "nodes") * number(item, "chips_per_node");
    if (has_many_chips(item)) return true;
  }
  if (chips > static_cast<double>(kMostChips)) return true;
  return std::any_of(node->entries.begin(), node->entries.end(),
                     [](const YamlEntry& entry) { return has_many_chips(entry.value); });
}

std::int64_t instruction_count(const Program& program) {
  std::int64_t count = 0;
  for (const RankEntry& entry : program.ranks)
    for (const Stream& stream : program.rank_programs[entry.rank_program].streams)
      count += static_cast<std::int64_t>(stream.instructions.size());
  return count;
}

std::int64_t estimated_passes(const Strategy& strategy) {
  double passes = 0;
  for (const PipelineTemplate& pipeline : strategy.templates)
    for (const Stage& stage : pipeline.stages) {
      std::int64_t layers = 1 + stage.last_layer - stage.first_layer;
      for (const Layers& more : stage.more) layers += 1 + more.last - more.first;
      passes += static_cast<double>(pipeline.micro_batches) * static_cast<double>(layers);
    }
  return static_cast<std::int64_t>(std::min(passes, 1e18));
}

std::string small_group(const std::string& name, const std::string& chip, int chips) {
  return fmt::format(
      "{{name: {}, nodes: 1, chip: {}, chips_per_node: {}, inside: {{fabric: nvswitch, bandwidth: 300 "
      "GB/s}}, nics: "
      "[{{kind: infiniband, count: 1, bandwidth: 200 Gb/s}}, {{kind: ethernet, count: 1, bandwidth: 25 "
      "Gb/s}}]}}",
      name, chip, chips);
}

std::string small_scenario(const std::string& precision, const std::string& cluster) {
  return fmt::format(
      "{{model: {{family: gpt2, layers: 2, hidden: 32, heads: 2, vocabulary: 64, max_positions: 16}}, "
      "cluster: {}, "
      "train: {{global_batch: 2, micro_batch: 1, sequence: 8, precision: {}}}, strategy: {{pp: 2}}}}",
      cluster.empty() ? "host-2" : cluster, precision);
}

}  // namespace motley::tests
