// Changes of a job without a plan, each planned until one has a plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/plan/certificate.hpp"
#include "models/plan/cluster_edit.hpp"
#include "models/plan/pins.hpp"

namespace motley {
namespace {

constexpr int kMostAdded = 1 << 14;

// Whether the job has a plan; the first strategy that stands is enough.
bool has_plan(const Job& job, const Judge& judge, const PlanLimits& limits) {
  bool stands = false;
  PlanLimits quick = limits;
  quick.certifies = quick.suggests = false;
  quick.has_search_time = quick.has_first_time = {};
  quick.goal = {};
  quick.has_time = [&] { return !stands && limits.has_time(); };
  quick.progress = [&](std::size_t, double best, double) { stands = stands || best > 0; };
  try {
    Job anew = job;
    anew.strategy = {};
    plan(anew, judge, quick);
    return true;
  } catch (const Refusal& refusal) {
    if (refusal.exit_code() != Exit::infeasible) throw;
    return false;
  }
}

// The pins with one of them left out, and its name.
std::vector<std::pair<std::string, PlanPins>> looser(const PlanPins& pins) {
  std::vector<std::pair<std::string, PlanPins>> list;
  const PlanPins none;
  const auto leave_out = [&](const char* name, auto member) {
    if (pins.*member == none.*member) return;
    list.emplace_back(name, pins);
    list.back().second.*member = none.*member;
  };
  leave_out("groups", &PlanPins::groups);
  leave_out("tp", &PlanPins::tensor_parallel);
  leave_out("pp", &PlanPins::pipeline_parallel);
  leave_out("dp", &PlanPins::data_parallel);
  leave_out("micro_batch", &PlanPins::micro_batch);
  leave_out("most_stages", &PlanPins::most_stages);
  leave_out("forbidden_links", &PlanPins::forbidden_links);
  return list;
}

// The fewest more nodes of the group, from `least` on, with which there is a plan: doubled until there is one, and then
// halved. Assumes: where some number of nodes has a plan, a larger one has, too.
std::optional<int> fewest_nodes(const Job& job, int group, int least, const Judge& judge,
                                const PlanLimits& limits, std::int64_t most_chips) {
  const std::int64_t chips = job.cluster.groups[at(group)].chips_per_node;
  int below = least - 1, more = least;
  const auto is_in_reach = [&] {
    return more <= kMostAdded && more * chips < most_chips &&
           (job.cluster.chip_count() + more * chips) <= kChips.most;
  };
  while (is_in_reach() && limits.has_time()) {
    if (has_plan(with_more_nodes(job, group, more), judge, limits)) {
      while (more - below > 1 && limits.has_time()) {
        const int middle = below + (more - below) / 2;
        (has_plan(with_more_nodes(job, group, middle), judge, limits) ? more : below) = middle;
      }
      return more;
    }
    below = more;
    more = least + 2 * (more - least + 1);
  }
  return std::nullopt;
}

// The least memory that the chips of one group must have. Assumes: where some memory is enough, more is, too.
std::optional<SmallestChange> larger_chips(const Job& job, const Judge& judge, const PlanLimits& limits) {
  constexpr double kMostTimes = 1024, kClose = 1.02;
  std::optional<SmallestChange> smallest;
  double least = kMostTimes;
  for (std::size_t group = 0; group < job.cluster.groups.size(); ++group) {
    const auto with = [&](double times) {
      Job larger = job;
      larger.strategy = {};
      double& bytes = larger.cluster.groups[group].chip.memory_bytes.value;
      bytes = std::ceil(bytes * times);
      build_topology(larger.cluster);
      return larger;
    };
    double below = 1, times = 1.25;
    while (times < least && limits.has_time() && !has_plan(with(times), judge, limits)) {
      below = times;
      times *= 1.5;
    }
    if (times >= least || !limits.has_time()) continue;
    while (times / below > kClose && limits.has_time()) {
      const double middle = std::sqrt(times * below);
      (has_plan(with(middle), judge, limits) ? times : below) = middle;
    }
    least = times;
    const NodeGroup& nodes = job.cluster.groups[group];
    smallest =
        SmallestChange{fmt::format("chips of `{}` with {} in place of {}", nodes.name,
                                   format_bytes(with(times).cluster.groups[group].chip.memory_bytes.value),
                                   format_bytes(nodes.chip.memory_bytes.value)),
                       with(times), limits.pins, 0};
  }
  return smallest;
}

}  // namespace

std::optional<SmallestChange> find_smallest_change(const Job& job, const Judge& judge,
                                                   const PlanLimits& limits, const Certificate& certificate) {
  for (auto& [name, pins] : looser(limits.pins)) {
    PlanLimits with = limits;
    with.pins = pins;
    if (has_plan(job, judge, with))
      return SmallestChange{fmt::format("without the pin `{}`", name), job, std::move(pins), 0};
  }
  const int groups = static_cast<int>(job.cluster.groups.size());
  if (certificate.bound == CertificateBound::sequences) {
    Job larger = job;
    larger.train.global_batch = static_cast<std::int64_t>(certificate.needed);
    if (has_plan(larger, judge, limits))
      return SmallestChange{fmt::format("`global_batch: {}`", larger.train.global_batch), larger, limits.pins,
                            0};
  }
  for (int one = 0; one < groups && certificate.bound == CertificateBound::links; ++one)
    for (int other = one + 1; other < groups; ++other) {
      if (joining_kind(job.cluster, one, other)) continue;
      const std::optional<Job> joined = with_link(job, one, other);
      if (joined && has_plan(*joined, judge, limits))
        return SmallestChange{
            fmt::format("a link `between: [{}, {}]` over {}", job.cluster.groups[at(one)].name,
                        job.cluster.groups[at(other)].name, name_of(joined->cluster.links.back().over)),
            *joined, limits.pins, 0};
    }
  std::optional<SmallestChange> smallest;
  for (int group = 0; group < groups; ++group) {
    const NodeGroup& nodes = job.cluster.groups[at(group)];
    const double node_bytes = nodes.chip.memory_bytes.value * nodes.chips_per_node;
    const bool counts_bytes = certificate.bound == CertificateBound::memory;
    const double least = counts_bytes ? std::ceil(certificate.missing() / node_bytes) : 1;
    if (least > kMostAdded) continue;
    const std::int64_t most_chips = smallest ? smallest->chips : kChips.most;
    const std::optional<int> more =
        fewest_nodes(job, group, std::max(static_cast<int>(least), 1), judge, limits, most_chips);
    if (!more) continue;
    const std::int64_t chips = std::int64_t{*more} * nodes.chips_per_node;
    smallest = SmallestChange{
        fmt::format("{} more node{} of `{}`, {} chips", *more, *more == 1 ? "" : "s", nodes.name, chips),
        with_more_nodes(job, group, *more), limits.pins, chips};
  }
  return smallest ? smallest : larger_chips(job, judge, limits);
}

}  // namespace motley
