// Layouts that save most memory.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/certificate.hpp"

namespace motley {
namespace {

struct SparingGroup {
  int group = 0;
  std::int64_t cut = 1, stages = 0;
  double memory = 0;  // bytes of a chip
};

// Layers in proportion to the memory of the stages' chips, at least one each.
std::vector<std::int64_t> by_memory(const std::vector<double>& memory, std::int64_t layers) {
  const double all = std::accumulate(memory.begin(), memory.end(), 0.0);
  const auto rest = static_cast<double>(layers - static_cast<std::int64_t>(memory.size()));
  std::vector<std::int64_t> counts;
  double before = 0;
  for (const double each : memory) {
    const auto first = static_cast<std::int64_t>(before / all * rest + 0.5);
    before += each;
    counts.push_back(1 + static_cast<std::int64_t>(before / all * rest + 0.5) - first);
  }
  return counts;
}

// How a row is laid out.
struct SparingWay {
  bool is_reversed = false;  // the groups with the least memory come first
  bool spares_ends = false;  // the stages with embedding and head have fewer layers for it
  bool offloads = false;     // nodes keep optimizer state and activations
};

// Bytes of state of the embedding, which the first and, untied or not, the last stage hold.
double embedding_bytes(const Job& job) {
  const auto count = static_cast<double>(job.transformer.vocabulary * job.transformer.hidden);
  return state_bytes(job) / static_cast<double>(parameter_count(job.transformer)) * count;
}

std::optional<Job> sparing_job(const Job& job, const std::vector<SparingGroup>& row, std::int64_t replicas,
                               int zero, const SparingWay& way) {
  Job sparing = job;
  Strategy& strategy = sparing.strategy = {};
  PipelineTemplate& pipeline = strategy.templates.emplace_back();
  pipeline.replicas = replicas;
  pipeline.micro_batches = job.train.global_batch / replicas;
  if (job.train.micro_batch != 1) pipeline.micro_batch = 1;
  strategy.zero = replicas > 1 ? zero : 0;
  strategy.recompute = Recompute::full;
  strategy.expert_weights = planned_expert_weights(job.transformer);
  if (way.offloads) {
    strategy.offload.optimizer = strategy.offload.activations = 1;
    for (const SparingGroup& each : row)
      if (!job.cluster.groups[at(each.group)].host) return std::nullopt;
  }
  std::vector<double> memory;
  for (const SparingGroup& each : row)
    for (std::int64_t stage = 0;
         stage < each.stages && static_cast<std::int64_t>(memory.size()) < job.transformer.layers; ++stage) {
      Stage& next = pipeline.stages.emplace_back();
      next.tensor_parallel = each.cut;
      next.on = {job.cluster.groups[at(each.group)].name};
      strategy.sequence_parallel = strategy.sequence_parallel || each.cut > 1;
      memory.push_back(each.memory * static_cast<double>(each.cut));
    }
  if (memory.empty()) return std::nullopt;
  if (way.spares_ends)
    for (double* end : {&memory.front(), &memory.back()})
      *end = std::max(*end - embedding_bytes(job) / (strategy.zero == 3 ? static_cast<double>(replicas) : 1),
                      1.0);
  const std::vector<std::int64_t> layers = by_memory(memory, job.transformer.layers);
  std::int64_t first = 0;
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    pipeline.stages[stage].first_layer = first;
    first += layers[stage];
    pipeline.stages[stage].last_layer = first;
  }
  return sparing;
}

// Every way to choose some groups and cuts, the groups in the order of their memory.
void each_row(const Job& job, const std::vector<int>& order, std::int64_t replicas, const PlanPins& pins,
              const std::function<void(const std::vector<SparingGroup>&)>& take) {
  std::vector<SparingGroup> row;
  const std::function<void(std::size_t)> extend = [&](std::size_t place) {
    if (place == order.size()) {
      if (!row.empty()) take(row);
      return;
    }
    const NodeGroup& nodes = job.cluster.groups[at(order[place])];
    for (std::int64_t cut = nodes.chips_per_node; cut > 0; cut /= 2) {
      const std::int64_t stages = std::int64_t{nodes.nodes} * nodes.chips_per_node / (cut * replicas);
      if (nodes.chips_per_node % cut != 0 || stages == 0) continue;
      row.push_back({order[place], cut, stages, nodes.chip.memory_bytes.value});
      const std::int64_t most = pins.pipeline_parallel > 0 ? pins.pipeline_parallel : pins.most_stages;
      if (most > 0) row.back().stages = std::min(row.back().stages, most);
      extend(place + 1);
      row.pop_back();
    }
    extend(place + 1);
  };
  extend(0);
}

}  // namespace

std::vector<Job> sparing_jobs(const Job& job, const PlanPins& pins) {
  constexpr std::size_t kMostOfAWay = 128;
  std::vector<int> by_most_memory;
  for (std::size_t group = 0; group < job.cluster.groups.size(); ++group)
    by_most_memory.push_back(static_cast<int>(group));
  std::stable_sort(by_most_memory.begin(), by_most_memory.end(), [&](int a, int b) {
    return job.cluster.groups[at(a)].chip.memory_bytes.value >
           job.cluster.groups[at(b)].chip.memory_bytes.value;
  });
  std::vector<Job> jobs;
  for (const SparingWay& way :
       {SparingWay{}, {false, true}, {true, false}, {true, true}, {false, false, true}}) {
    const std::size_t most = jobs.size() + kMostOfAWay;
    std::vector<int> order = by_most_memory;
    if (way.is_reversed) std::reverse(order.begin(), order.end());
    for (std::int64_t replicas = 1; replicas <= job.cluster.chip_count(); ++replicas) {
      if (job.train.global_batch % replicas != 0) continue;
      if (pins.data_parallel > 0 && replicas != pins.data_parallel) continue;
      each_row(job, order, replicas, pins, [&](const std::vector<SparingGroup>& row) {
        for (const int zero : {3, 2, 1}) {
          if (jobs.size() >= most || (replicas == 1 && zero != 1)) continue;
          if (std::optional<Job> sparing = sparing_job(job, row, replicas, zero, way))
            jobs.push_back(*sparing);
        }
      });
    }
  }
  return jobs;
}

}  // namespace motley
