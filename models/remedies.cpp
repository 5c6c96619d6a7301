#include "models/remedies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/check.hpp"
#include "models/refusal.hpp"
#include "models/units.hpp"

namespace motley {
namespace {

struct Variation {
  std::string change;
  Job job;
};

bool is_one_short_template(const Job& job) {
  const auto& templates = job.strategy.templates;
  if (templates.size() != 1) return false;
  for (const Stage& stage : templates[0].stages)
    if (!stage.on.empty() || !stage.more.empty() || stage.replicas > 0 ||
        stage.tensor_parallel != job.strategy.tp())
      return false;
  return true;
}

// The same options over other degrees; nothing where they are not legal.
std::optional<Job> with_degrees(const Job& job, std::int64_t tp, std::int64_t pp, std::int64_t dp) {
  try {
    Job other = job;
    other.strategy.templates = expand(job.transformer, job.train, tp, pp, dp, job.strategy.cp()).templates;
    validate(other.transformer, other.train, other.strategy);
    return other;
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

// Whether all nodes say what memory they have.
bool can_offload(const Job& job) {
  return std::all_of(job.cluster.groups.begin(), job.cluster.groups.end(),
                     [](const NodeGroup& group) { return group.host.has_value(); });
}

std::vector<Variation> options_of(const Job& job) {
  std::vector<Variation> list;
  const auto add = [&](const std::string& change, auto&& edit) {
    Variation variation{change, job};
    edit(variation.job.strategy);
    const bool tried = std::any_of(list.begin(), list.end(), [&](const Variation& each) {
      return each.job.strategy == variation.job.strategy;
    });
    if (!tried && !(variation.job.strategy == job.strategy)) list.push_back(std::move(variation));
  };
  const auto recompute = [](Strategy& strategy) { strategy.recompute = Recompute::full; };
  const bool replicated = job.strategy.templates.size() > 1 || job.strategy.templates[0].copies() > 1;
  constexpr int kMost = 3;
  for (int zero = job.strategy.zero + 1; replicated && zero <= kMost; ++zero)
    add(fmt::format("zero: {}", zero), [&](Strategy& strategy) { strategy.zero = zero; });
  if (job.strategy.tp() > 1)
    add("sequence_parallel: true", [](Strategy& strategy) { strategy.sequence_parallel = true; });
  add("recompute: full", recompute);
  for (int zero = job.strategy.zero + 1; replicated && zero <= kMost; ++zero)
    add(fmt::format("zero: {} and recompute: full", zero), [&](Strategy& strategy) {
      strategy.zero = zero;
      recompute(strategy);
    });
  if (can_offload(job)) {
    const auto offload = [](Strategy& strategy, Offload what) {
      strategy.offload = what;
      for (PipelineTemplate& pipeline : strategy.templates)
        for (Stage& stage : pipeline.stages) stage.offload.reset();
    };
    add("offload: {optimizer: 1}", [&](Strategy& strategy) { offload(strategy, {1, 0}); });
    add("offload: {optimizer: 1} and recompute: full", [&](Strategy& strategy) {
      offload(strategy, {1, 0});
      recompute(strategy);
    });
    add("offload: {optimizer: 1, activations: 1} and recompute: full", [&](Strategy& strategy) {
      offload(strategy, {1, 1});
      recompute(strategy);
    });
  }
  return list;
}

std::vector<Variation> variations_of(const Job& job) {
  std::vector<Variation> list = options_of(job);
  if (!is_one_short_template(job)) return list;
  const std::int64_t tp = job.strategy.tp(), pp = job.strategy.pp(), dp = job.strategy.dp();
  if (job.train.micro_batch > 1) {
    Job smaller = job;
    smaller.train.micro_batch = 1;
    if (auto legal = with_degrees(smaller, tp, pp, dp)) list.push_back({"micro_batch: 1", *legal});
  }
  constexpr std::int64_t kMost = 64;
  for (std::int64_t times = 2; times <= kMost; times *= 2) {
    const std::int64_t chips = job.cluster.chip_count() / (tp * pp * job.strategy.cp());
    for (const bool by_stages : {true, false}) {
      const std::int64_t more_tp = by_stages ? tp : tp * times, more_pp = by_stages ? pp * times : pp;
      const std::int64_t replicas = dp % times == 0 ? dp / times : dp;
      if (replicas * times > chips) continue;
      std::string change = by_stages ? fmt::format("pipeline_parallel: {}", more_pp)
                                     : fmt::format("tensor_parallel: {}", more_tp);
      if (replicas != dp) change += fmt::format(", data_parallel: {}", replicas);
      const auto legal = with_degrees(job, more_tp, more_pp, replicas);
      if (!legal) continue;
      list.push_back({change, *legal});
      for (const Variation& option : options_of(*legal))
        list.push_back({fmt::format("{}, {}", change, option.change), option.job});
    }
  }
  return list;
}

Remedy measured(const Variation& variation) {
  Remedy remedy;
  remedy.change = variation.change;
  const Program program = compile(variation.job);
  double fullest = -1;
  bool host_fits = true;
  for (const StageMemory& stage :
       memory_by_stage(program, variation.job.cluster, variation.job.train.fragmentation)) {
    const double full =
        static_cast<double>(stage.peak) / static_cast<double>(std::max<std::int64_t>(stage.capacity, 1));
    host_fits = host_fits && (stage.host_capacity == 0 || stage.host <= stage.host_capacity);
    if (full <= fullest) continue;
    fullest = full;
    remedy.peak = stage.peak;
    remedy.capacity = stage.capacity;
  }
  if (!host_fits)
    throw Refusal(Exit::infeasible, "out-of-host-memory", {},
                  "the nodes' memory holds less than is offloaded");
  return remedy;
}

double fullness(const Remedy& remedy) {
  return static_cast<double>(remedy.peak) / static_cast<double>(std::max<std::int64_t>(remedy.capacity, 1));
}

}  // namespace

std::vector<Remedy> remedies(const Job& job) {
  constexpr std::size_t kEnough = 3;
  std::vector<Remedy> tried;
  std::size_t fitting = 0;
  for (const Variation& variation : variations_of(job)) {
    try {
      tried.push_back(measured(variation));
    } catch (const Refusal&) {  // does not stand on this cluster
      continue;
    }
    fitting += tried.back().fits() ? 1 : 0;
    if (fitting == kEnough) break;
  }
  return tried;
}

std::string describe(const std::vector<Remedy>& tried) {
  std::string text;
  for (const Remedy& remedy : tried) {
    if (!remedy.fits()) continue;
    text += fmt::format("{}`{}` fits with {}", text.empty() ? "" : "; ", remedy.change,
                        format_bytes(static_cast<double>(remedy.peak)));
  }
  if (!text.empty()) return text;
  const auto best = std::min_element(
      tried.begin(), tried.end(), [](const Remedy& a, const Remedy& b) { return fullness(a) < fullness(b); });
  if (best == tried.end()) return "chips with more memory, or more of them";
  return fmt::format("nothing of {} changes tried fits; nearest is `{}` with {} of {}: more chips would help",
                     tried.size(), best->change, format_bytes(static_cast<double>(best->peak)),
                     format_bytes(static_cast<double>(best->capacity)));
}

}  // namespace motley
