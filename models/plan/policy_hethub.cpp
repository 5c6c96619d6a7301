// Assumes: the paper's tree was not read. This one is pruned by divisibility, by memory, and by closed forms, of which
// the best are simulated, as its predictor judges leaves. A type recomputes no more than its stages need to fit.
#include "models/plan/policy_hethub.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "models/base/index.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/type_degrees.hpp"
#include "models/strategy/partition.hpp"

namespace motley {
namespace {

constexpr std::size_t kHethubProposed = 12;    // of each variant
constexpr std::size_t kExpandedDegrees = 128;  // choices of degrees that fit, in all orders of the types

enum Variant : int { kUniform, kNonUniform };

// The next stronger recompute; nothing: there is none.
std::optional<Recompute> stronger(const Recompute& recompute) {
  const auto place = std::find(kPlannedRecomputes.begin(), kPlannedRecomputes.end(), recompute);
  if (place == kPlannedRecomputes.end() || place + 1 == kPlannedRecomputes.end()) return std::nullopt;
  return *(place + 1);
}

class HethubTree {
 public:
  HethubTree(const PolicyInput& input, Variant variant)
      : input_(input), estimator_(input.job, input.pricer), variant_(variant) {}

  void search(std::vector<TypeDegrees> list) {
    const auto bound = [&](const TypeDegrees& each) {
      return variant_ == kUniform ? each.even_s : each.balanced_s;
    };
    std::stable_sort(list.begin(), list.end(),
                     [&](const TypeDegrees& a, const TypeDegrees& b) { return bound(a) < bound(b); });
    std::size_t expanded = 0;
    for (const TypeDegrees& degrees : list) {
      if (bound(degrees) >= cut_s() || expanded == kExpandedDegrees) {
        ++pruned;
        continue;
      }
      std::vector<int> order(degrees.stages.size());
      std::iota(order.begin(), order.end(), 0);
      bool fits = false;
      do fits = take(in_order(degrees, order)) || fits;
      while (std::next_permutation(order.begin(), order.end()));
      expanded += fits ? 1 : 0;
    }
  }

  std::vector<PlannedPipeline> best;  // the lowest estimates first
  std::int64_t explored = 0, pruned = 0;

 private:
  double cut_s() const {
    return best.size() < kHethubProposed ? std::numeric_limits<double>::infinity() : best.back().estimate_s;
  }

  // Returns whether a pipeline in that order fits.
  bool take(const PlannedPipeline& pipeline) {
    ++explored;
    bool fits = false;
    PlannedPipeline heavier = pipeline;
    if (use_recompute_that_fits(heavier)) {
      keep(std::move(heavier));
      fits = true;
    }
    if (variant_ == kUniform) return fits;
    PlannedPipeline fewer = pipeline;  // where memory is short, fewer layers instead of recompute
    if (share(fewer, estimator_.most_layers(fewer))) {
      keep(std::move(fewer));
      fits = true;
    }
    return fits;
  }

  // Divides the layers. Nothing else is changed.
  bool share(PlannedPipeline& pipeline, const std::vector<std::int64_t>& most) const {
    const std::int64_t layers = input_.job.transformer.layers;
    std::vector<std::int64_t> counts;
    if (variant_ == kUniform) {
      counts = even_layers(layers, static_cast<std::int64_t>(pipeline.stages.size()));
    } else {
      std::vector<double> speeds;
      for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
        const StageWay& way = pipeline.stages[i].way;
        speeds.push_back(
            i > 0 && way == pipeline.stages[i - 1].way
                ? speeds.back()
                : 1 / input_.pricer.price(way, pipeline.micro_batch, pipeline.replicas)->least_layer_s);
      }
      counts = layers_in_proportion(layers, speeds, most);
    }
    for (std::size_t i = 0; i < counts.size(); ++i) pipeline.stages[i].layers = counts[i];
    return !counts.empty();
  }

  // Lets each type recompute more until its stages fit.
  bool use_recompute_that_fits(PlannedPipeline& pipeline) const {
    const std::vector<std::int64_t> any(pipeline.stages.size(), input_.job.transformer.layers);
    while (share(pipeline, any)) {
      const std::vector<std::int64_t> most = estimator_.most_layers(pipeline);
      std::size_t short_one = 0;
      while (short_one < most.size() && most[short_one] >= pipeline.stages[short_one].layers) ++short_one;
      if (short_one == most.size()) return true;
      const StageWay way = pipeline.stages[short_one].way;
      const std::optional<Recompute> more = stronger(way.recompute);
      if (!more) return false;
      for (PlannedStage& stage : pipeline.stages)
        if (stage.way.group == way.group) stage.way.recompute = *more;
      if (input_.pricer.price({way.group, way.tensor_parallel, *more}, pipeline.micro_batch,
                              pipeline.replicas) == nullptr)
        return false;
    }
    return false;
  }

  void keep(PlannedPipeline pipeline) {
    pipeline.estimate_s = estimator_.step_s(pipeline);
    if (pipeline.estimate_s >= cut_s()) return;
    const auto is_faster = [](const PlannedPipeline& a, const PlannedPipeline& b) {
      return a.estimate_s < b.estimate_s;
    };
    best.insert(std::upper_bound(best.begin(), best.end(), pipeline, is_faster), std::move(pipeline));
    if (best.size() > kHethubProposed) best.pop_back();
  }

  const PolicyInput& input_;
  PipelineEstimator estimator_;
  Variant variant_;
};

}  // namespace

std::vector<std::int64_t> layers_in_proportion(std::int64_t layers, std::span<const double> speeds,
                                               std::span<const std::int64_t> most) {
  const std::size_t stages = speeds.size();
  std::int64_t room = 0;
  for (const std::int64_t each : most) {
    if (each < 1) return {};
    room += std::min(each, layers);
  }
  if (room < layers || layers < static_cast<std::int64_t>(stages)) return {};
  std::vector<std::int64_t> counts(stages, 1);
  const double all = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  std::vector<double> share;
  for (const double speed : speeds) share.push_back(speed / all * static_cast<double>(layers));
  std::int64_t left = layers - static_cast<std::int64_t>(stages);
  for (std::size_t i = 0; i < stages; ++i) {
    const auto whole = static_cast<std::int64_t>(std::floor(share[i] * (1 + 1e-12)));
    const std::int64_t more = std::clamp<std::int64_t>(std::min(whole, most[i]) - 1, 0, left);
    counts[i] += more;
    left -= more;
  }
  for (; left > 0; --left) {
    std::size_t next = stages;
    const auto lack = [&](std::size_t i) { return share[i] - static_cast<double>(counts[i]); };
    for (std::size_t i = 0; i < stages; ++i)
      if (counts[i] < most[i] && (next == stages || lack(i) > lack(next) * (1 + 1e-12) + 1e-9)) next = i;
    ++counts[next];
  }
  return counts;
}

Proposals propose_hethub(const PolicyInput& input) {
  const std::vector<TypeDegrees> degrees = type_degrees(input.job, input.pricer);
  const PipelineEstimator estimator(input.job, input.pricer);
  Proposals proposals;
  proposals.variants = {"uniform layers", "layers by speed, or uniform where that is faster"};
  for (const Variant variant : {kUniform, kNonUniform}) {
    HethubTree tree(input, variant);
    tree.search(degrees);
    proposals.explored += tree.explored;
    proposals.pruned += tree.pruned;
    for (const PlannedPipeline& pipeline : tree.best) {
      Proposal& proposal = proposals.list.emplace_back();
      proposal.job = with_pipeline(input.job, pipeline);
      use_transport(PlanPolicy::hethub, proposal.job.cluster);
      proposal.least_s = least_step_s(estimator.stage_seconds(pipeline), pipeline.micro_batches);
      proposal.variant = variant;
    }
  }
  return proposals;
}

}  // namespace motley
