#include "models/plan/pipeline_rows.hpp"

#include <algorithm>
#include <cmath>

#include "models/compile/compile.hpp"

namespace motley {

std::vector<std::int64_t> sorted_divisors(std::int64_t number) {
  std::vector<std::int64_t> list;
  for (std::int64_t each = 1; each * each <= number; ++each)
    if (number % each == 0) {
      list.push_back(each);
      if (each * each != number) list.push_back(number / each);
    }
  std::sort(list.begin(), list.end());
  return list;
}

std::int64_t most_sequences(const Train& train) {
  constexpr std::int64_t kSequences = 8, kTokens = 65536;
  return std::max(kSequences, kTokens / train.sequence);
}

namespace {

// Ranks over which sequences may be cut. Assumes: parts of fewer tokens gain nothing that tensor parallelism does not.
std::vector<std::int64_t> context_degrees(const Job& job, const PipelineForm& form) {
  constexpr std::int64_t kLeastPart = 512;
  std::vector<std::int64_t> degrees = {1};
  while (form.cuts_sequences && job.train.sequence / (2 * degrees.back()) >= kLeastPart &&
         job.train.sequence % (4 * degrees.back()) == 0)
    degrees.push_back(2 * degrees.back());
  return degrees;
}

std::vector<std::int64_t> expert_degrees(const Job& job, const PipelineForm& form) {
  std::vector<std::int64_t> degrees = {1};
  const std::int64_t experts = job.transformer.experts.count;
  while (form.divides_experts && experts > 0 && experts % (2 * degrees.back()) == 0)
    degrees.push_back(2 * degrees.back());
  return degrees;
}

// Adds a segment of each group from `group` on, in all cuts, or none.
void extend(const Cluster& cluster, std::size_t group, Row& segments, std::vector<Row>& sets) {
  if (group == cluster.groups.size()) {
    if (!segments.empty()) sets.push_back(segments);
    return;
  }
  extend(cluster, group + 1, segments, sets);
  const std::int64_t chips = cluster.groups[group].chips_per_node;
  for (std::int64_t cut = 1; cut <= chips; cut *= 2) {
    if (chips % cut != 0) continue;
    segments.push_back({static_cast<int>(group), cut});
    extend(cluster, group + 1, segments, sets);
    segments.pop_back();
  }
}

}  // namespace

// All shapes; first those whose replicas have about eight nodes each. An early end then has found good ones, and later
// ones are pruned by them.
std::vector<ReplicaShape> shapes_of(const Job& job, const PipelineForm& form) {
  constexpr double kNodes = 8;
  std::int64_t nodes = 0;
  for (const NodeGroup& group : job.cluster.groups) nodes += group.nodes;
  std::vector<std::pair<double, ReplicaShape>> shapes;
  for (const std::int64_t micro_batch : sorted_divisors(job.train.global_batch)) {
    if (micro_batch > std::max(most_sequences(job.train), form.micro_batch)) break;
    if (form.micro_batch > 0 && micro_batch != form.micro_batch) continue;
    for (const std::int64_t replicas : sorted_divisors(job.train.global_batch / micro_batch)) {
      if (replicas > job.cluster.chip_count()) break;
      if (form.replicas > 0 && replicas != form.replicas) continue;
      const double nodes_each = static_cast<double>(nodes) / static_cast<double>(replicas);
      for (const std::int64_t context_parallel : context_degrees(job, form))
        for (const std::int64_t expert_parallel : expert_degrees(job, form))
          shapes.emplace_back(std::abs(std::log2(nodes_each / kNodes)),
                              ReplicaShape{micro_batch, replicas, context_parallel, expert_parallel});
    }
  }
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ReplicaShape> list;
  for (const auto& [distance, shape] : shapes) list.push_back(shape);
  return list;
}

bool is_too_large(const Job& job, const ReplicaShape& shape) {
  return is_too_large(job, job.train.global_batch / shape.micro_batch / shape.replicas,
                      shape.context_parallel, shape.expert_parallel);
}

bool has_unlike_cuts(const Row& row) {
  return std::any_of(row.begin(), row.end(), [&](const RowSegment& segment) {
    return segment.tensor_parallel != row.front().tensor_parallel;
  });
}

std::vector<Row> segment_sets(const Cluster& cluster) {
  std::vector<Row> sets;
  Row segments;
  extend(cluster, 0, segments, sets);
  return sets;
}

std::vector<Row> orders_of(Row segments, const PipelineForm& form) {
  const auto is_earlier = [](const RowSegment& a, const RowSegment& b) { return a.group < b.group; };
  std::vector<Row> rows;
  do {
    if (!form.allows_row || form.allows_row(segments)) rows.push_back(segments);
  } while (std::next_permutation(segments.begin(), segments.end(), is_earlier));
  return rows;
}

}  // namespace motley
