// Assumes: formula and stages of the search are recalled, unverified. Stage one tries every choice of a type's tensor
// parallelism, recompute (none, attention alone, all) and optimizer offload; stage two takes the best of them and
// splits one type after the other in two runs of stages, of which one has another tensor parallelism or recompute, as
// long as the formula falls. A stage takes as long as the longer of its work and of passing activations on. Layers
// balance the longest stage. The formula alone chooses: of its best plans, the first that a simulation finds to fit is
// the plan.
#include "models/plan/policy_heteroauto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/type_degrees.hpp"

namespace motley {
namespace {

constexpr std::size_t kHeteroAutoProposed = 16;
constexpr std::size_t kExpandedByType = 64;  // choices of degrees that fit, with every recompute and offload
constexpr std::size_t kSplit = 4;            // plans of stage one that stage two refines
constexpr std::size_t kMostRunsOfType = 3;

// Stages side by side on one group, all run alike.
struct TypeRun {
  StageWay way;
  std::int64_t stages = 1;
  bool offloads = false;  // the optimizer's state, to the memory of the nodes
  bool operator==(const TypeRun&) const = default;
};

struct HeteroPlan {
  PlannedPipeline pipeline;  // its stages follow the runs
  std::vector<TypeRun> runs;
  double step_s = std::numeric_limits<double>::infinity();  // by the formula
};

class HeteroAuto {
 public:
  explicit HeteroAuto(const PolicyInput& input)
      : input_(input), estimator_(input.job, input.pricer), order_(groups_by_memory(input.job.cluster)) {}

  Proposals run() {
    choose_by_type();
    Proposals proposals;
    proposals.ends_with_first = true;
    proposals.explored = explored_;
    proposals.pruned = pruned_;
    if (best_.empty()) return proposals;
    const double by_type_s = best_.front().step_s;
    std::vector<HeteroPlan> split;
    for (std::size_t i = 0; i < std::min(kSplit, best_.size()); ++i) split.push_back(split_types(best_[i]));
    split.insert(split.end(), best_.begin(), best_.end());  // where sub-groups do not stand
    std::stable_sort(split.begin(), split.end(), is_faster);
    proposals.explored = explored_;
    proposals.notes.push_back(
        fmt::format("by its formula: {} a step with each type run alike, {} with sub-groups",
                    format_seconds(by_type_s), format_seconds(split.front().step_s)));
    for (const HeteroPlan& plan : split) proposals.list.push_back({job_of(plan), 0});
    return proposals;
  }

 private:
  static bool is_faster(const HeteroPlan& a, const HeteroPlan& b) { return a.step_s < b.step_s; }
  double cut_s() const {
    return best_.size() < kHeteroAutoProposed ? std::numeric_limits<double>::infinity() : best_.back().step_s;
  }

  // Stage one.
  void choose_by_type() {
    std::vector<TypeDegrees> list = type_degrees(input_.job, input_.pricer);
    std::stable_sort(list.begin(), list.end(),
                     [](const TypeDegrees& a, const TypeDegrees& b) { return a.balanced_s < b.balanced_s; });
    std::size_t expanded = 0;
    for (const TypeDegrees& degrees : list) {
      if (degrees.balanced_s >= cut_s() || expanded == kExpandedByType) {
        ++pruned_;
        continue;
      }
      HeteroPlan plan;
      plan.pipeline.micro_batch = degrees.micro_batch;
      plan.pipeline.micro_batches = degrees.micro_batches;
      plan.pipeline.replicas = degrees.replicas;
      for (const int group : order_)
        plan.runs.push_back(
            {{group, degrees.tensor[at(group)], Recompute::none}, degrees.stages[at(group)], false});
      expanded += choose_runs(plan, 0) ? 1 : 0;
    }
  }

  // Every recompute and offload of run `next` and those after it. Returns whether one of them fits.
  bool choose_runs(HeteroPlan& plan, std::size_t next) {
    if (next == plan.runs.size()) {
      ++explored_;
      HeteroPlan priced = plan;
      if (!price(priced)) return false;
      keep(std::move(priced));
      return true;
    }
    bool fits = false;
    TypeRun& run = plan.runs[next];
    const bool may_offload = input_.job.cluster.groups[at(run.way.group)].host.has_value();
    for (const bool offloads : {false, true}) {
      if (offloads && !may_offload) break;
      for (const Recompute& recompute : kPlannedRecomputes) {
        run.offloads = offloads;
        run.way.recompute = recompute;
        fits = choose_runs(plan, next + 1) || fits;
      }
    }
    return fits;
  }

  void keep(HeteroPlan plan) {
    if (plan.step_s >= cut_s()) return;
    best_.insert(std::upper_bound(best_.begin(), best_.end(), plan, is_faster), std::move(plan));
    if (best_.size() > kHeteroAutoProposed) best_.pop_back();
  }

  // One, two, four and so on of the stages, at either end.
  static std::vector<std::int64_t> places_to_split(std::int64_t stages) {
    std::set<std::int64_t> places;
    for (std::int64_t each = 1; each < stages; each *= 2) places.insert({each, stages - each});
    return {places.begin(), places.end()};
  }

  // Stage two.
  HeteroPlan split_types(HeteroPlan plan) {
    for (bool is_better = true; is_better;) {
      HeteroPlan best = plan;
      for (std::size_t run = 0; run < plan.runs.size(); ++run) try_splits(plan, run, best);
      is_better = best.step_s < plan.step_s;
      plan = std::move(best);
    }
    return plan;
  }

  void try_splits(const HeteroPlan& plan, std::size_t place, HeteroPlan& best) {
    const TypeRun& whole = plan.runs[place];
    const auto same = std::count_if(plan.runs.begin(), plan.runs.end(),
                                    [&](const TypeRun& each) { return each.way.group == whole.way.group; });
    if (at(same) >= kMostRunsOfType) return;
    const NodeGroup& group = input_.job.cluster.groups[at(whole.way.group)];
    for (const std::int64_t first : places_to_split(whole.stages))
      for (const std::int64_t tensor : tensor_degrees(group))
        for (const Recompute& recompute : kPlannedRecomputes)
          for (const bool changes_first : {true, false}) {
            TypeRun kept = whole, changed = whole;
            changed.way.tensor_parallel = tensor;
            changed.way.recompute = recompute;
            const std::int64_t stages = changes_first ? first : whole.stages - first;
            kept.stages = whole.stages - stages;
            changed.stages = stages * whole.way.tensor_parallel / tensor;  // on the same chips
            if (changed.way == whole.way || changed.stages * tensor != stages * whole.way.tensor_parallel)
              continue;
            HeteroPlan next = plan;
            next.runs[place] = changes_first ? changed : kept;
            next.runs.insert(next.runs.begin() + static_cast<std::ptrdiff_t>(place) + 1,
                             changes_first ? kept : changed);
            ++explored_;
            if (price(next) && next.step_s < best.step_s) best = std::move(next);
          }
  }

  // Bytes of a layer's optimizer state on a chip, counted as that of one large matrix.
  double optimizer_bytes(const TypeRun& run, std::int64_t replicas) const {
    constexpr std::int64_t kSide = 4'096;
    Parameter matrix;
    matrix.name = "layers.0.weight";
    matrix.shape = {kSide, kSide};
    const double each = static_cast<double>(motley::optimizer_bytes(input_.job.train.optimizer_rule(), matrix,
                                                                    matrix.shape)) /
                        (kSide * kSide);
    return estimator_.layer_parameters() * each / static_cast<double>(run.way.tensor_parallel * replicas);
  }

  // Divides the layers and takes the formula. False: the stages cannot hold them.
  bool price(HeteroPlan& plan) {
    PlannedPipeline& pipeline = plan.pipeline;
    pipeline.stages.clear();
    std::vector<const TypeRun*> run_of;
    for (const TypeRun& run : plan.runs)
      for (std::int64_t stage = 0; stage < run.stages; ++stage) {
        pipeline.stages.push_back({run.way, 0});
        run_of.push_back(&run);
      }
    const auto stages = static_cast<std::int64_t>(pipeline.stages.size());
    std::vector<double> layer_s, fixed_s;
    std::vector<std::int64_t> most;
    for (std::int64_t s = 0; s < stages; ++s) {
      const TypeRun& run = *run_of[at(s)];
      const StagePrice* priced = input_.pricer.price(run.way, pipeline.micro_batch, pipeline.replicas);
      if (priced == nullptr) return false;
      StageBytes bytes = priced->bytes;
      if (run.offloads) bytes.layer -= std::min(bytes.layer, optimizer_bytes(run, pipeline.replicas));
      const auto flying = static_cast<double>(std::min(stages - s, pipeline.micro_batches));
      most.push_back(bytes.most_layers(flying, s == 0, s + 1 == stages));
      layer_s.push_back(priced->least_layer_s);
      fixed_s.push_back(priced->pass.seconds() + (s == 0 ? priced->embedding.seconds() : 0) +
                        (s + 1 == stages ? priced->head.seconds() : 0));
    }
    const auto counts = balanced_layers(input_.job.transformer.layers, layer_s, fixed_s, most);
    if (counts.empty()) return false;
    std::vector<double> updates;
    for (std::int64_t s = 0; s < stages; ++s) {
      pipeline.stages[at(s)].layers = counts[at(s)];
      updates.push_back(update_of(*run_of[at(s)], counts[at(s)], pipeline.replicas));
    }
    std::vector<double> seconds = estimator_.stage_seconds(pipeline);
    const std::vector<double> transfers = estimator_.transfer_seconds(pipeline);
    for (std::size_t i = 0; i < transfers.size(); ++i) seconds[i] = std::max(seconds[i], transfers[i]);
    plan.step_s = hetero_auto_step_s(seconds, updates, pipeline.micro_batches);
    return true;
  }

  double update_of(const TypeRun& run, std::int64_t layers, std::int64_t replicas) const {
    double seconds = estimator_.update_s(run.way, layers, replicas);
    if (!run.offloads) return seconds;
    // Gradients go to the host and parameters come back; its processor reads and writes the whole state.
    const NodeGroup& group = input_.job.cluster.groups[at(run.way.group)];
    const auto count = static_cast<double>(layers) * estimator_.layer_parameters() /
                       static_cast<double>(run.way.tensor_parallel * replicas);
    const auto moved =
        static_cast<double>(bytes_of(input_.job.train.gradients) + bytes_of(input_.job.train.precision));
    const double link = group.host->link > 0 ? group.host->link : group.inside.bandwidth;
    seconds += count * moved / link;
    return seconds + 2 * static_cast<double>(layers) * optimizer_bytes(run, replicas) * group.chips_per_node /
                         group.host->memory_bandwidth;
  }

  Job job_of(const HeteroPlan& plan) const {
    Job job = with_pipeline(input_.job, plan.pipeline);
    use_transport(PlanPolicy::heteroauto, job.cluster);
    std::size_t stage = 0;
    for (const TypeRun& run : plan.runs)
      for (std::int64_t i = 0; i < run.stages; ++i, ++stage)
        if (run.offloads)
          job.strategy.templates[0].stages[stage].offload = Offload{.optimizer = 1, .activations = 0};
    return job;
  }

  const PolicyInput& input_;
  PipelineEstimator estimator_;
  std::vector<int> order_;
  std::vector<HeteroPlan> best_;  // the least by the formula first
  std::int64_t explored_ = 0, pruned_ = 0;
};

}  // namespace

std::vector<int> groups_by_memory(const Cluster& cluster) {
  std::vector<int> order(cluster.groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return cluster.groups[at(a)].chip.memory_bytes.value > cluster.groups[at(b)].chip.memory_bytes.value;
  });
  return order;
}

double hetero_auto_step_s(std::span<const double> stage_s, std::span<const double> update_s,
                          std::int64_t micro_batches, double alpha) {
  const double all = std::accumulate(stage_s.begin(), stage_s.end(), 0.0);
  double longest = 0;
  for (std::size_t i = 0; i < stage_s.size(); ++i)
    longest = std::max(
        longest, static_cast<double>(micro_batches) * stage_s[i] + alpha * (all - stage_s[i]) + update_s[i]);
  return longest;
}

std::vector<std::int64_t> balanced_layers(std::int64_t layers, std::span<const double> layer_s,
                                          std::span<const double> fixed_s,
                                          std::span<const std::int64_t> most) {
  const std::size_t stages = layer_s.size();
  std::int64_t room = 0;
  for (const std::int64_t each : most) {
    if (each < 1) return {};
    room += std::min(each, layers);
  }
  if (room < layers || layers < static_cast<std::int64_t>(stages)) return {};
  const auto held = [&](double longest_s) {
    std::vector<std::int64_t> counts;
    for (std::size_t i = 0; i < stages; ++i) {
      const double count = std::floor((longest_s - fixed_s[i]) / layer_s[i] * (1 + 1e-12));
      counts.push_back(
          static_cast<std::int64_t>(std::clamp(count, 1.0, static_cast<double>(std::min(most[i], layers)))));
    }
    return counts;
  };
  const auto sum = [](const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  double least_s = 0, most_s = 0;
  for (std::size_t i = 0; i < stages; ++i)
    most_s = std::max(most_s, fixed_s[i] + layer_s[i] * static_cast<double>(layers));
  if (sum(held(least_s)) < layers)
    while (most_s - least_s > 1e-6 * most_s) {
      const double middle_s = (least_s + most_s) / 2;
      (sum(held(middle_s)) >= layers ? most_s : least_s) = middle_s;
    }
  else
    most_s = least_s;
  std::vector<std::int64_t> counts = held(most_s);
  for (std::int64_t over = sum(counts) - layers; over > 0;
       --over) {  // the longest stage that can gives a layer up
    std::size_t longest = stages;
    const auto seconds = [&](std::size_t i) {
      return fixed_s[i] + layer_s[i] * static_cast<double>(counts[i]);
    };
    for (std::size_t i = 0; i < stages; ++i)
      if (counts[i] > 1 && (longest == stages || seconds(i) > seconds(longest))) longest = i;
    --counts[longest];
  }
  return counts;
}

Proposals propose_heteroauto(const PolicyInput& input) { return HeteroAuto(input).run(); }

}  // namespace motley
