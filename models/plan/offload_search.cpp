#include "models/plan/offload_search.hpp"

#include <algorithm>
#include <limits>

#include "models/plan/stage_price.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {
namespace {

// Seconds in which the nodes' processors step all parameters, if each node steps as many as its memory is fast.
// AdamW reads a gradient and reads and writes the parameter and its two moments, in fp32.
double hosts_step_s(const Job& job) {
  constexpr double kBytes = 7 * 4;
  double rate = 0;
  for (const NodeGroup& group : job.cluster.groups) rate += group.nodes * group.host->memory_bandwidth;
  return static_cast<double>(parameter_count(job.transformer)) * kBytes / rate;
}

}  // namespace

std::vector<Job> offloading_proposals(const Job& job, const PipelineForm& form,
                                      const std::vector<PlannedPipeline>& others,
                                      const std::function<bool()>& has_time) {
  constexpr std::size_t kMost = 12;
  std::vector<Job> jobs;
  if (!std::all_of(job.cluster.groups.begin(), job.cluster.groups.end(),
                   [](const NodeGroup& group) { return group.host.has_value(); }))
    return jobs;
  const double hosts_s = hosts_step_s(job);
  double most_s = std::numeric_limits<double>::infinity();
  for (const PlannedPipeline& other : others) most_s = std::min(most_s, other.estimate_s);
  for (const Offload& offload : {Offload{1, 0}, Offload{1, 1}}) {
    StagePricer pricer(job, offload, form.recomputes());
    const PipelineSearch search = search_pipelines(job, pricer, kMost, has_time, form);
    for (const PlannedPipeline& pipeline : search.best) {
      if (pipeline.estimate_s + hosts_s >= most_s) continue;
      jobs.push_back(with_pipeline(job, pipeline));
      jobs.back().strategy.offload = offload;
    }
    if (!search.best.empty()) break;
  }
  return jobs;
}

}  // namespace motley
