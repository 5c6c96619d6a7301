#include "models/published/published_stages.hpp"

#include <algorithm>
#include <numeric>
#include <regex>

namespace motley {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == at)
      parts.emplace_back();
    else if (c != ' ')
      parts.back() += c;
  return parts;
}

std::optional<StagePlace> place_of(const std::string& text) {
  static const std::regex form("([A-Za-z0-9-]+)\\(tp([1-9][0-9]{0,4})\\)");
  std::smatch match;
  if (!std::regex_match(text, match, form)) return std::nullopt;
  return StagePlace{match[1], std::stoll(match[2])};
}

bool are_alike(const std::vector<std::vector<StagePlace>>& map, std::size_t one, std::size_t other) {
  return std::all_of(map.begin(), map.end(), [&](const std::vector<StagePlace>& stage) {
    return stage[one].tensor_parallel == stage[other].tensor_parallel;
  });
}

}  // namespace

std::optional<std::vector<std::int64_t>> layers_per_stage(const std::string& notes) {
  static const std::regex form("layers per stage ([0-9]{1,6}(/[0-9]{1,6})*)");
  std::smatch match;
  if (!std::regex_search(notes, match, form)) return std::nullopt;
  std::vector<std::int64_t> layers;
  for (const std::string& part : split(match[1], '/')) layers.push_back(std::stoll(part));
  return layers;
}

std::optional<std::vector<std::vector<StagePlace>>> stage_map(const std::string& notes) {
  static const std::regex form("stage map: ([^;]*)");
  std::smatch match;
  if (!std::regex_search(notes, match, form)) return std::nullopt;
  std::vector<std::vector<StagePlace>> map;
  for (const std::string& stage : split(match[1], '|')) {
    map.emplace_back();
    for (const std::string& text : split(stage, '+')) {
      const auto place = place_of(text);
      if (!place) return std::nullopt;
      map.back().push_back(*place);
    }
    if (map.back().size() != map.front().size()) return std::nullopt;
  }
  return map;
}

std::optional<std::map<std::string, std::int64_t>> chips_by_kind(const std::string& accelerator) {
  static const std::regex form("([A-Za-z0-9-]+):([1-9][0-9]{0,6})");
  std::map<std::string, std::int64_t> counts;
  for (const std::string& part : split(accelerator, '+')) {
    std::smatch match;
    if (!std::regex_match(part, match, form)) return std::nullopt;
    counts[match[1]] += std::stoll(match[2]);
  }
  return counts;
}

bool set_layers(const std::vector<std::int64_t>& per_stage, const Transformer& transformer,
                Strategy& strategy) {
  const std::int64_t all = std::accumulate(per_stage.begin(), per_stage.end(), std::int64_t{0});
  if (all != transformer.layers + 2) return false;
  std::vector<PipelineTemplate> templates = strategy.templates;
  for (PipelineTemplate& pipeline : templates) {
    if (pipeline.stages.size() != per_stage.size()) return false;
    std::int64_t next = -1;  // -1: the embedding
    for (std::size_t i = 0; i < per_stage.size(); ++i) {
      Stage& stage = pipeline.stages[i];
      stage.first_layer = std::max<std::int64_t>(next, 0);
      stage.last_layer = std::min(next += per_stage[i], transformer.layers);
      if (stage.first_layer >= stage.last_layer) return false;
    }
  }
  strategy.templates = std::move(templates);
  return true;
}

std::vector<PipelineTemplate> pipelines_of(const std::vector<std::vector<StagePlace>>& map,
                                           std::int64_t micro_batches) {
  std::vector<PipelineTemplate> pipelines;
  for (std::size_t replica = 0; replica < map.front().size(); ++replica) {
    if (replica == 0 || !are_alike(map, replica - 1, replica)) {
      pipelines.emplace_back();
      pipelines.back().replicas = 0;
      pipelines.back().micro_batches = micro_batches;
      for (const std::vector<StagePlace>& stage : map) {
        pipelines.back().stages.emplace_back();
        pipelines.back().stages.back().tensor_parallel = stage[replica].tensor_parallel;
      }
    }
    ++pipelines.back().replicas;
    for (std::size_t i = 0; i < map.size(); ++i)
      pipelines.back().stages[i].on.push_back(map[i][replica].chips);
  }
  return pipelines;
}

bool keep_chips(const std::map<std::string, std::int64_t>& counts, Cluster& cluster) {
  std::vector<NodeGroup> kept;
  for (const auto& [name, count] : counts) {
    const auto named =
        std::find_if(cluster.groups.begin(), cluster.groups.end(),
                     [&wanted = name](const NodeGroup& group) { return group.name == wanted; });
    if (named == cluster.groups.end()) return false;
    NodeGroup group = *named;
    std::int64_t a_node = std::min<std::int64_t>(group.chips_per_node, count);
    while (count % a_node != 0) --a_node;
    group.chips_per_node = static_cast<int>(a_node);
    group.nodes = static_cast<int>(count / a_node);
    kept.push_back(std::move(group));
  }
  cluster.groups = std::move(kept);
  std::erase_if(cluster.links, [&](const GroupLink& link) {
    return !counts.contains(link.from) || !counts.contains(link.to);
  });
  build_topology(cluster);
  return true;
}

}  // namespace motley
