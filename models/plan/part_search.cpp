#include "models/plan/part_search.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/partial_recompute.hpp"

namespace motley {
namespace {

constexpr std::size_t kOfEachPart = 8;
constexpr std::size_t kAllSets = 4;  // groups of which every set is tried

// The sets of groups that are tried, each as one truth for every group.
std::vector<std::vector<bool>> sets_of_groups(std::size_t groups) {
  std::vector<std::vector<bool>> sets;
  const std::size_t count = groups <= kAllSets ? std::size_t{1} << groups : 0;
  for (std::size_t bits = 1; bits < count; ++bits) {
    std::vector<bool>& set = sets.emplace_back(groups);
    for (std::size_t group = 0; group < groups; ++group) set[group] = (bits >> group & 1) != 0;
  }
  if (count > 0) return sets;
  sets.emplace_back(groups, true);
  for (std::size_t one = 0; one < groups; ++one)
    for (std::size_t other = one; other < groups; ++other) {
      std::vector<bool>& set = sets.emplace_back(groups);
      set[one] = set[other] = true;
    }
  return sets;
}

// The job on parts of the chosen groups. Its topology stays that of the whole cluster, on which the plan will run.
Job on_part(const Job& job, const std::vector<bool>& set, int halvings) {
  Job part = job;
  for (std::size_t group = 0; group < set.size(); ++group) {
    int& nodes = part.cluster.groups[group].nodes;
    nodes = set[group] ? std::max(nodes >> halvings, 1) : 0;
  }
  return part;
}

}  // namespace

Verdict estimated(const Job& job, StagePricer& pricer, const PlannedPipeline& pipeline) {
  constexpr double kSecondsPerHour = 3600, kJoulesOfKwh = 3.6e6;
  double usd = 0, kwh = 0, grams = 0;
  std::int64_t first = 0;
  for (const PlannedStage& stage : pipeline.stages) {
    const NodeGroup& nodes = job.cluster.groups[at(stage.way.group)];
    const Site site = job.cluster.site_of(stage.way.group);
    const auto chips =
        static_cast<double>(pipeline.replicas * pipeline.context_parallel * stage.way.tensor_parallel);
    const std::optional<PartialStage> price = partial_stage(pipeline, stage, pricer);
    const double of_pass =
        !price ? 0
               : price->of_layers(first, first + stage.layers, recomputed_layers(pipeline, stage)).seconds();
    const double busy_s =
        std::min(pipeline.estimate_s, of_pass * static_cast<double>(pipeline.micro_batches));
    const double joules =
        nodes.chip.watts.value * (busy_s * kComputingPower + (pipeline.estimate_s - busy_s) * kWaitingPower) +
        site.node_watts / nodes.chips_per_node * pipeline.estimate_s;
    usd += chips * nodes.chip.price_per_hour.value * pipeline.estimate_s / kSecondsPerHour;
    kwh += chips * joules * site.pue / kJoulesOfKwh;
    grams += chips * joules * site.pue / kJoulesOfKwh * site.carbon.value_or(0);
    first += stage.layers;
  }
  Verdict verdict;
  verdict.step_s = pipeline.estimate_s;
  verdict.bill.usd = usd;
  verdict.bill.kwh = kwh;
  verdict.bill.kg_co2e = grams / 1000;
  return verdict;
}

std::vector<PlannedPipeline> search_parts(const Job& job, StagePricer& pricer, const Goal& goal,
                                          std::size_t most, const std::function<bool()>& has_time,
                                          const PipelineForm& form) {
  int largest = 1;
  for (const NodeGroup& group : job.cluster.groups) largest = std::max(largest, group.nodes);
  std::vector<std::pair<Verdict, PlannedPipeline>> estimates;
  std::set<std::string> known;
  for (const std::vector<bool>& set : sets_of_groups(job.cluster.groups.size()))
    for (int halvings = 0; largest >> halvings > 0 && has_time(); ++halvings) {
      const Job part = on_part(job, set, halvings);
      for (PlannedPipeline& pipeline : search_pipelines(part, pricer, kOfEachPart, has_time, form).best)
        if (known.insert(print(with_pipeline(job, pipeline).strategy)).second)
          estimates.emplace_back(estimated(job, pricer, pipeline), std::move(pipeline));
    }
  std::stable_sort(estimates.begin(), estimates.end(),
                   [&](const auto& a, const auto& b) { return goal.is_better(a.first, b.first); });
  std::vector<PlannedPipeline> best;
  for (auto& [verdict, pipeline] : estimates)
    if (best.size() < most) best.push_back(std::move(pipeline));
  return best;
}

}  // namespace motley
