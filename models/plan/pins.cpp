#include "models/plan/pins.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "models/base/index.hpp"

namespace motley {
namespace {

using GroupPair = std::pair<int, int>;  // the lower index first

int group_of_name(const Cluster& cluster, const std::string& name) {
  for (std::size_t group = 0; group < cluster.groups.size(); ++group)
    if (cluster.groups[group].name == name) return static_cast<int>(group);
  return -1;
}

GroupPair in_order(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

std::set<GroupPair> forbidden_pairs(const PlanPins& pins, const Cluster& cluster) {
  std::set<GroupPair> pairs;
  for (const std::vector<std::string>& pair : pins.forbidden_links)
    pairs.insert(in_order(group_of_name(cluster, pair.at(0)), group_of_name(cluster, pair.at(1))));
  return pairs;
}

// The tensor parallelism that is pinned on the group; 0: any.
std::int64_t pinned_degree(const PlanPins& pins, const std::string& group) {
  for (const auto& [name, degree] : pins.tensor_parallel)
    if (name.empty() || name == group) return degree;
  return 0;
}

// Pairs of groups of which a chip of one sends bytes to a chip of the other.
std::set<GroupPair> talking_pairs(const Cluster& cluster, const Program& program) {
  const auto group_of = [&](Rank rank) { return cluster.chip_group[at(program.ranks[rank].chip)]; };
  std::set<GroupPair> pairs;
  for (const Rank rank : program.ranks.ids())
    for (const std::optional<Rank>& peer : program.ranks[rank].peers)
      if (peer) pairs.insert(in_order(group_of(rank), group_of(*peer)));
  for (const Group& group : program.groups) {
    std::set<int> members;
    for (const Rank rank : group.ranks) members.insert(group_of(rank));
    for (const int one : members)
      for (const int other : members) pairs.insert(in_order(one, other));
  }
  return pairs;
}

std::optional<std::string> find_broken_group(const PlanPins& pins, const Job& job, const Program& program) {
  std::set<std::string> used;
  for (const RankEntry& rank : program.ranks)
    used.insert(job.cluster.groups[at(job.cluster.chip_group[at(rank.chip)])].name);
  const std::set<std::string> asked(pins.groups.begin(), pins.groups.end());
  if (!asked.empty() && used != asked)
    return fmt::format("pin `groups: [{}]`: the plan stands on {}", fmt::join(pins.groups, ", "),
                       fmt::join(used, ", "));
  const std::set<GroupPair> talking = talking_pairs(job.cluster, program);
  for (const GroupPair& pair : forbidden_pairs(pins, job.cluster))
    if (talking.contains(pair))
      return fmt::format("pin `forbidden_links`: bytes go between `{}` and `{}`",
                         job.cluster.groups[at(pair.first)].name, job.cluster.groups[at(pair.second)].name);
  return std::nullopt;
}

std::optional<std::string> find_broken_degree(const PlanPins& pins, const Job& job, const Program& program) {
  std::int64_t replicas = 0;
  for (const PipelineTemplate& pipeline : job.strategy.templates) {
    replicas += pipeline.replicas;
    const auto stages = static_cast<std::int64_t>(pipeline.stages.size());
    if (pins.pipeline_parallel > 0 && stages != pins.pipeline_parallel)
      return fmt::format("pin `pp: {}`: the plan has {} stages", pins.pipeline_parallel, stages);
    if (pins.most_stages > 0 && stages > pins.most_stages)
      return fmt::format("pin `most_stages: {}`: the plan has {} stages", pins.most_stages, stages);
    const std::int64_t micro_batch = pipeline.micro_batch > 0 ? pipeline.micro_batch : job.train.micro_batch;
    if (pins.micro_batch > 0 && micro_batch != pins.micro_batch)
      return fmt::format("pin `micro_batch: {}`: the plan has {} sequences", pins.micro_batch, micro_batch);
  }
  if (pins.data_parallel > 0 && replicas != pins.data_parallel)
    return fmt::format("pin `dp: {}`: the plan has {} replicas", pins.data_parallel, replicas);
  for (const RankEntry& rank : program.ranks) {
    const std::string& group = job.cluster.groups[at(job.cluster.chip_group[at(rank.chip)])].name;
    const std::int64_t asked = pinned_degree(pins, group),
                       has = program.rank_programs[rank.rank_program].tensor_parallel;
    if (asked > 0 && has != asked)
      return fmt::format("pin `tp: {}`: a stage on `{}` has tp {}", asked, group, has);
  }
  return std::nullopt;
}

}  // namespace

bool is_pinned(const PlanPins& pins) { return !(pins == PlanPins{}); }

PipelineForm pinned(PipelineForm form, const PlanPins& pins, const Job& job) {
  form.replicas = pins.data_parallel;
  form.has_unlike_replicas = form.has_unlike_replicas && pins.data_parallel == 0;
  form.micro_batch = pins.micro_batch;
  form.stages = pins.pipeline_parallel;
  form.most_stages = pins.pipeline_parallel > 0 ? pins.pipeline_parallel : pins.most_stages;
  if (!is_pinned(pins)) return form;
  form.allows_row = [&pins, &job,
                     forbidden = forbidden_pairs(pins, job.cluster)](const std::vector<RowSegment>& row) {
    std::set<std::string> groups;
    for (const RowSegment& segment : row) {
      const std::string& name = job.cluster.groups[at(segment.group)].name;
      const std::int64_t degree = pinned_degree(pins, name);
      if (degree > 0 && segment.tensor_parallel != degree) return false;
      groups.insert(name);
    }
    if (!pins.groups.empty() && groups != std::set<std::string>(pins.groups.begin(), pins.groups.end()))
      return false;
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      if (forbidden.contains(in_order(row[i].group, row[i + 1].group))) return false;
    const bool ends_talk = job.transformer.tied_embeddings && row.size() > 1;
    return !ends_talk || !forbidden.contains(in_order(row.front().group, row.back().group));
  };
  return form;
}

std::optional<std::string> find_broken_pin(const PlanPins& pins, const Job& job, const Program& program) {
  if (std::optional<std::string> broken = find_broken_group(pins, job, program)) return broken;
  return find_broken_degree(pins, job, program);
}

}  // namespace motley
