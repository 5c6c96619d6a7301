// What to buy: the same job planned on the cluster as it is, with every addition of a price list, and without one of
// its groups. Read next: models/plan/price_list.hpp, models/plan/planner.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/plan/planner.hpp"
#include "models/plan/price_list.hpp"

namespace motley {

// One answer: nodes that are added, a group that is retired, or nothing.
struct Purchase {
  std::vector<int> nodes;       // by offer
  int retired = -1;             // index in Cluster::groups; -1: every group stays
  std::string what;             // "2 nodes of b200, without a100", "nothing"
  std::int64_t chips = 0;       // of the cluster then
  double usd_per_hour = 0;      // of what is added
  double bound = 0;             // no strategy has a lower value of the goal there
  std::optional<Plan> planned;  // nothing: no strategy was found there, or the bound says that none is better
  std::string refused;          // why no strategy was found; empty: it was planned, or not looked at
  bool is_pruned = false;       // the bound is not below the best value of another answer
};

struct Purchases {
  std::vector<Purchase> answers;  // the best first; then those without a plan, by their bounds
  std::size_t planned = 0;        // plans that were made
  bool is_whole = true;           // false: time was over before all answers were looked at
};

// The cluster that an answer makes, as a job without a strategy. Assumes: more nodes of a group that cost something
// else than its chips change the price of all its chips to the mean; all chips of a node cost the same; chips that a
// plan leaves out cost nothing, whether they are bought or not.
Job after(const Purchase& purchase, const Job& job, const PriceList& list);

// Plans the answers in the order of their bounds, as long as one may be better than the best: what is left out has a
// bound that says so. Every plan is made as plan() makes it with these limits, so that the best answer is that of
// planning all.
Purchases plan_purchases(const Job& job, const PriceList& list, const Judge& judge, const PlanLimits& limits);

}  // namespace motley
