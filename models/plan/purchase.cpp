#include "models/plan/purchase.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/plan/cluster_edit.hpp"
#include "models/plan/goal_bound.hpp"

namespace motley {
namespace {

int group_of_offer(const NodeOffer& offer, const Cluster& cluster) {
  for (std::size_t group = 0; group < cluster.groups.size(); ++group)
    if (cluster.groups[group].name == offer.name) return static_cast<int>(group);
  return -1;
}

std::string words_of(const Purchase& purchase, const Job& job, const PriceList& list) {
  std::string text;
  for (std::size_t i = 0; i < purchase.nodes.size(); ++i)
    if (purchase.nodes[i] > 0)
      text += fmt::format("{}{} node{} of {}", text.empty() ? "" : ", ", purchase.nodes[i],
                          purchase.nodes[i] == 1 ? "" : "s", list.offers[i].name);
  if (purchase.retired >= 0)
    text +=
        fmt::format("{}retire {}", text.empty() ? "" : ", ", job.cluster.groups[at(purchase.retired)].name);
  return text.empty() ? "nothing" : text;
}

// A retired group of which nodes are bought would only change its size.
bool buys_retired(const Purchase& purchase, const Job& job, const PriceList& list) {
  for (std::size_t i = 0; i < purchase.nodes.size(); ++i)
    if (purchase.nodes[i] > 0 && purchase.retired >= 0 &&
        list.offers[i].name == job.cluster.groups[at(purchase.retired)].name)
      return true;
  return false;
}

// The least work of groups by their names: that of a group is the same with any number of its nodes.
class LeastWorks {
 public:
  std::vector<StagePricer::LeastWork> of_groups(const Job& job) {
    std::vector<StagePricer::LeastWork> works;
    StagePricer pricer(job);
    for (std::size_t group = 0; group < job.cluster.groups.size(); ++group) {
      const auto [place, is_new] = known_.try_emplace(job.cluster.groups[group].name);
      if (is_new) place->second = pricer.least_work(static_cast<int>(group));
      works.push_back(place->second);
    }
    return works;
  }

 private:
  std::map<std::string, StagePricer::LeastWork> known_;
};

// Of equal values the one that adds less, and then the one that retires nothing.
bool is_better_answer(const Purchase& a, const Purchase& b) {
  const auto rank = [](const Purchase& each) {
    return std::tuple(each.planned ? each.planned->value() : Goal::kNone, each.planned ? 0 : each.bound,
                      each.usd_per_hour, each.retired);
  };
  return rank(a) < rank(b);
}

std::vector<Purchase> all_answers(const Job& job, const PriceList& list, const Goal& goal) {
  std::vector<Purchase> answers;
  LeastWorks works;
  const int groups = static_cast<int>(job.cluster.groups.size());
  for (const std::vector<int>& nodes : additions_of(list, job.cluster))
    for (int retired = -1; retired < groups; ++retired) {
      Purchase answer;
      answer.nodes = nodes;
      answer.retired = retired;
      const bool adds = std::any_of(nodes.begin(), nodes.end(), [](int count) { return count > 0; });
      if (buys_retired(answer, job, list) || (retired >= 0 && groups == 1 && !adds)) continue;
      const Job changed = after(answer, job, list);
      answer.bound = GoalBounds(changed, works.of_groups(changed)).least_value(goal);
      answer.chips = changed.cluster.chip_count();
      answer.what = words_of(answer, job, list);
      for (std::size_t i = 0; i < nodes.size(); ++i)
        answer.usd_per_hour += nodes[i] * list.offers[i].usd_per_hour;
      answers.push_back(std::move(answer));
    }
  return answers;
}

}  // namespace

Job after(const Purchase& purchase, const Job& job, const PriceList& list) {
  Job changed = job;
  changed.strategy = {};
  for (std::size_t i = 0; i < purchase.nodes.size(); ++i) {
    const NodeOffer& offer = list.offers[i];
    const int count = purchase.nodes[i];
    if (count == 0) continue;
    if (offer.group) {
      NodeGroup group = *offer.group;
      group.nodes = count;
      group.chip.price_per_hour.value = offer.usd_per_hour / group.chips_per_node;
      changed = with_group(changed, group);
      continue;
    }
    const int group = group_of_offer(offer, changed.cluster);
    const int before = changed.cluster.groups[at(group)].nodes;
    changed = with_more_nodes(changed, group, count);
    NodeGroup& nodes = changed.cluster.groups[at(group)];
    double& usd = nodes.chip.price_per_hour.value;
    if (usd > 0) usd = (usd * before + offer.usd_per_hour / nodes.chips_per_node * count) / (before + count);
  }
  if (purchase.retired < 0) return changed;
  return without_group(changed, purchase.retired);
}

Purchases plan_purchases(const Job& job, const PriceList& list, const Judge& judge,
                         const PlanLimits& limits) {
  Purchases purchases;
  purchases.answers = all_answers(job, list, limits.goal);
  const auto by_bound = [](const Purchase& a, const Purchase& b) { return a.bound < b.bound; };
  std::stable_sort(purchases.answers.begin(), purchases.answers.end(), by_bound);
  double best = Goal::kNone;
  for (Purchase& answer : purchases.answers) {
    // "nothing" is always planned: every other answer is compared with it.
    if (answer.bound >= best && answer.what != "nothing") {
      answer.is_pruned = true;
      continue;
    }
    if (!limits.has_time()) {
      purchases.is_whole = false;
      continue;
    }
    try {
      answer.planned = plan(after(answer, job, list), judge, limits);
      best = std::min(best, answer.planned->value());
      ++purchases.planned;
    } catch (const Refusal& refusal) {
      if (refusal.exit_code() != Exit::infeasible) throw;
      answer.refused = refusal.message();
    }
  }
  std::stable_sort(purchases.answers.begin(), purchases.answers.end(), is_better_answer);
  return purchases;
}

}  // namespace motley
