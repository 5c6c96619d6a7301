// A price list has these keys:
//   nodes:                        the kinds of nodes, each with
//     group: NAME                 more nodes of a group of the scenario's cluster, or
//     group: {name: ..., ...}     a group as in a cluster file; its `nodes` are the most that can be had
//     price: 55 USD/h             of a node-hour; more nodes of a group cost what its chips cost unless it is given
//     purchase: 300000 USD        in place of `price`, with
//     lifetime: 35040 h           the hours over which it is paid
//     most: 4                     nodes; for a written group, its `nodes`
//   chips: 64                     chips that may be added at most
//   budget: 500 USD/h             what all added nodes may cost at most
#include "models/plan/price_list.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/cluster/node_text.hpp"

namespace motley {
namespace {

constexpr std::int64_t kMostAdditions = 1000;
constexpr int kMostNodes = 1 << 16;
constexpr double kSecondsPerHour = 3600;

const NodeGroup* find_group(const Cluster& cluster, const std::string& name) {
  for (const NodeGroup& group : cluster.groups)
    if (group.name == name) return &group;
  return nullptr;
}

std::string names_text(const Cluster& cluster, const std::string& name) {
  std::vector<std::string> names;
  for (const NodeGroup& group : cluster.groups) names.push_back(group.name);
  return suggest(name, names);
}

double price_of(const Fields& fields, const NodeOffer& offer, const Cluster& cluster) {
  const Yaml price = fields.find("price"), purchase = fields.find("purchase"),
             lifetime = fields.find("lifetime");
  if (price && purchase)
    throw Refusal(Exit::usage, "bad-price-list", purchase->where,
                  fmt::format("nodes of `{}` have a price and a purchase price", offer.name),
                  "keep one of them");
  if (price) return to_quantity(price, Dimension::dollars_per_hour, Sign::positive);
  if (purchase) {
    if (!lifetime)
      throw Refusal(Exit::usage, "bad-price-list", purchase->where,
                    fmt::format("the purchase price of nodes of `{}` has no lifetime", offer.name),
                    "as `lifetime: 35040 h`: the hours over which it is paid");
    return to_quantity(purchase, Dimension::dollars, Sign::positive) /
           (to_quantity(lifetime, Dimension::seconds, Sign::positive) / kSecondsPerHour);
  }
  const NodeGroup& group = offer.group ? *offer.group : *find_group(cluster, offer.name);
  const double usd = group.chip.price_per_hour.value * group.chips_per_node;
  if (usd <= 0)
    throw Refusal(
        Exit::usage, "unpriced", fields.where(),
        fmt::format("nodes of `{}` have no price, and chip `{}` has none", offer.name, group.chip.name),
        "as `price: 55 USD/h` a node-hour, or `purchase: 300000 USD` with `lifetime: 35040 h`");
  return usd;
}

NodeOffer read_offer(const Yaml& node, const std::string& folder, const Cluster& cluster) {
  const Fields fields(node, "nodes of a price list", {"group", "price", "purchase", "lifetime", "most"});
  const Yaml group = fields.need("group");
  NodeOffer offer;
  if (group->is_scalar()) {
    offer.name = to_text(group);
    if (find_group(cluster, offer.name) == nullptr)
      throw Refusal(Exit::usage, "unknown-group", group->where,
                    fmt::format("cluster `{}` has no group `{}`", cluster.name, offer.name),
                    names_text(cluster, offer.name));
    offer.most = static_cast<int>(to_integer(fields.need("most"), {1, kMostNodes}));
  } else {
    offer.group = read_group(group, folder);
    offer.name = offer.group->name;
    offer.most = offer.group->nodes;
    if (find_group(cluster, offer.name) != nullptr)
      throw Refusal(
          Exit::usage, "listed-twice", group->where,
          fmt::format("cluster `{}` has a group `{}` already", cluster.name, offer.name),
          fmt::format("write `group: {}` for more of its nodes, or give this one another name", offer.name));
    if (const Yaml most = fields.find("most"))
      offer.most = static_cast<int>(to_integer(most, {1, kMostNodes}));
  }
  offer.usd_per_hour = price_of(fields, offer, cluster);
  return offer;
}

// Calls `take` with every addition within the limits, in the order of their numbers.
template <class Take>
void each_addition(const PriceList& list, const Cluster& cluster, std::vector<int>& nodes, const Take& take) {
  const std::size_t place = nodes.size();
  if (place == list.offers.size()) {
    take(nodes);
    return;
  }
  for (int count = 0; count <= list.offers[place].most; ++count) {
    nodes.push_back(count);
    std::int64_t chips = 0;
    double usd = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      chips += std::int64_t{nodes[i]} * chips_of_node(list.offers[i], cluster);
      usd += nodes[i] * list.offers[i].usd_per_hour;
    }
    const bool fits = (list.most_chips == 0 || chips <= list.most_chips) &&
                      (list.most_usd_per_hour == 0 || usd <= list.most_usd_per_hour * (1 + 1e-12));
    if (fits) each_addition(list, cluster, nodes, take);
    nodes.pop_back();
    if (!fits) return;
  }
}

}  // namespace

int chips_of_node(const NodeOffer& offer, const Cluster& cluster) {
  return offer.group ? offer.group->chips_per_node : find_group(cluster, offer.name)->chips_per_node;
}

std::vector<std::vector<int>> additions_of(const PriceList& list, const Cluster& cluster) {
  std::vector<std::vector<int>> additions;
  std::vector<int> nodes;
  each_addition(list, cluster, nodes, [&](const std::vector<int>& each) { additions.push_back(each); });
  return additions;
}

PriceList read_price_list(const Yaml& node, const std::string& path, const Cluster& cluster) {
  const Fields fields(node, "a price list", {"nodes", "chips", "budget"});
  PriceList list;
  const Yaml nodes = fields.need("nodes");
  for (const Yaml& item : to_sequence(nodes)) {
    NodeOffer offer = read_offer(item, folder_of(path), cluster);
    for (const NodeOffer& other : list.offers)
      if (other.name == offer.name)
        throw Refusal(Exit::usage, "listed-twice", item->where,
                      fmt::format("nodes of `{}` are listed twice", offer.name), "one entry for each kind");
    list.offers.push_back(std::move(offer));
  }
  if (list.offers.empty())
    throw Refusal(Exit::usage, "bad-price-list", nodes->where, "the price list is empty",
                  "as `nodes: [{group: a, most: 4, price: 55 USD/h}]`");
  if (const Yaml chips = fields.find("chips")) list.most_chips = to_integer(chips, kPositive);
  if (const Yaml budget = fields.find("budget"))
    list.most_usd_per_hour = to_quantity(budget, Dimension::dollars_per_hour, Sign::positive);
  std::vector<int> counts;
  std::int64_t additions = 0;
  each_addition(list, cluster, counts, [&](const std::vector<int>&) {
    if (++additions > kMostAdditions)
      throw Refusal(Exit::usage, "bad-price-list", nodes->where,
                    fmt::format("there are more than {} ways to add these nodes", kMostAdditions),
                    "fewer kinds, a smaller `most`, or less `chips` or `budget`");
  });
  list.additions = additions;
  return list;
}

}  // namespace motley
