#include "models/cost/collective_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/cost/carrier.hpp"
#include "models/program/routing.hpp"

namespace motley {
namespace {

// Prices rounds between the members of one group; equal rounds, such as a ring's, are priced once.
class Pricer {
 public:
  Pricer(const Program& program, const Cluster& cluster, const Group& group)
      : cluster_(cluster), carrier_(choose_carrier(program, cluster, group).carrier) {
    for (Rank rank : group.ranks) chips_.push_back(program.ranks[rank].chip);
  }

  CollectiveCost price(CollectiveAlgorithm algorithm, const CollectiveSteps& steps) {
    const double chunk = steps.share(1);
    CollectiveCost cost;
    cost.algorithm = algorithm;
    cost.latency_s = steps.setup_s;
    std::vector<CollectiveMessage> round, last;
    CollectiveCost of_last;
    const auto all = messages(steps);
    for (std::size_t i = 0; i < all.size(); ++i) {
      round.push_back(all[i]);
      round.back().round = 0;
      if (i + 1 < all.size() && all[i + 1].round == all[i].round) continue;
      if (round != last) of_last = price_at_once(round, chunk);
      cost.latency_s += of_last.latency_s;
      cost.s_per_byte += of_last.s_per_byte;
      cost.kappa = std::max(cost.kappa, of_last.kappa);
      last = std::exchange(round, {});
    }
    const CollectiveCost at_once = price_at_once(all, chunk);
    cost.least_s_per_byte = at_once.s_per_byte;
    if (algorithm == CollectiveAlgorithm::flat) cost.latency_s = at_once.latency_s + further_s(all);
    if (algorithm == CollectiveAlgorithm::once_a_node)
      cost.kappa = 0;  // members write to others' memory, as single messages do
    if (steps.pipelined > 0) cost.s_per_byte = cost.least_s_per_byte / steps.pipelined;
    return cost;
  }

 private:
  struct Way {
    Route route;
    MessageCost transport;
  };

  CollectiveCost price_at_once(const std::vector<CollectiveMessage>& round, double chunk) {
    CollectiveCost cost;
    std::map<int, double> share_on_link;                 // by link: share of the payload
    std::map<std::pair<int, int>, double> share_on_way;  // by pair of members: share of the payload
    for (const CollectiveMessage& message : round) {
      const Way& way = way_of(message.from, message.to);
      for (int link : way.route.links) share_on_link[link] += message.chunks * chunk;
      double& share = share_on_way[{message.from, message.to}];
      share += message.chunks * chunk;
      cost.latency_s = std::max(cost.latency_s, way.route.latency_s + way.transport.software_latency_s);
      cost.s_per_byte = std::max(cost.s_per_byte, share / way.route.rate);
      cost.kappa = std::max(cost.kappa, way.transport.kappa);
    }
    for (const auto& [link, share] : share_on_link) {
      const LinkProperties& properties = cluster_.link_table[static_cast<std::size_t>(link)];
      cost.s_per_byte = std::max(cost.s_per_byte, share / (properties.bandwidth * properties.efficiency));
    }
    return cost;
  }
  // Seconds for further messages of the member that sends or receives most, where all are posted together.
  double further_s(const std::vector<CollectiveMessage>& all) {
    struct Count {
      int inside = 0, over = 0;
    };
    std::map<std::pair<int, bool>, Count> counts;  // by member, and whether it sends
    for (const CollectiveMessage& message : all)
      for (const bool sends : {true, false}) {
        Count& count = counts[{sends ? message.from : message.to, sends}];
        ++(way_of(message.from, message.to).route.inside_node ? count.inside : count.over);
      }
    double most_s = 0;
    for (const auto& [member, count] : counts)
      most_s = std::max(most_s, further_messages_s(count.inside, count.over));
    return most_s;
  }
  const Way& way_of(int from, int to) {
    const auto [entry, fresh] = ways_.try_emplace({from, to});
    if (fresh) {
      Way& way = entry->second;
      way.route = route(cluster_, chip(from), chip(to), carrier_);
      way.transport = message_cost_over(cluster_, chip(from), chip(to), carrier_, way.route);
    }
    return entry->second;
  }
  int chip(int place) const { return chips_[static_cast<std::size_t>(place)]; }

  const Cluster& cluster_;
  const Carrier carrier_;
  std::vector<int> chips_;
  std::map<std::pair<int, int>, Way> ways_;
};

// The cost of a ring in which all members do alike, or of an exchange with everyone.
CollectiveCost plain_cost(const Program& program, const Cluster& cluster, const Group& group,
                          const CollectiveTask& task) {
  const CollectiveKind kind = task.kind;
  const CollectiveAlgorithm plain = plain_algorithm(kind);
  const auto R = static_cast<int>(group.ranks.size());
  if (R < 2) return {plain, 0, 0, 0, 0};
  const RingCost cost = kind == CollectiveKind::all_to_all
                            ? pairwise_cost(program, cluster, group, part_sizes(task, R))
                            : ring_cost(program, cluster, group);
  const double steps = collective_steps(kind, cost.rank_count);
  const double s_per_byte = steps / (cost.rank_count * cost.bandwidth);
  return {plain, steps * cost.latency_s, s_per_byte, cost.kappa, s_per_byte};
}

bool is_priced_whole(CollectiveKind kind, CollectiveAlgorithm algorithm) {
  return algorithm == plain_algorithm(kind) && !is_rooted(kind) && kind != CollectiveKind::barrier;
}

}  // namespace

double CollectiveCost::seconds(std::int64_t bytes) const {
  return latency_s + s_per_byte * static_cast<double>(bytes) + overhead_s(bytes);
}

double CollectiveCost::overhead_s(std::int64_t bytes) const {
  return 2 * kappa * std::sqrt(latency_s * s_per_byte * static_cast<double>(bytes));
}

namespace {

// Bytes on the wire for each byte, if a switch that reduces joins all members, or the members on each of two nodes;
// 0: no switch does.
double reduction_of(const Program& program, const Cluster& cluster, const Group& group,
                    const GroupShape& shape) {
  const bool of_two_nodes = shape.per_node > 1 && 2 * shape.per_node == shape.rank_count;
  if (shape.rank_count < 2 || (shape.per_node != shape.rank_count && !of_two_nodes)) return 0;
  double most = 0;
  for (int first = 0; first < shape.rank_count; first += shape.per_node) {
    const int chip = program.ranks[group.ranks[static_cast<std::size_t>(first)]].chip;
    const InsideFabric& inside =
        cluster.groups[static_cast<std::size_t>(cluster.chip_group[static_cast<std::size_t>(chip)])].inside;
    if (inside.in_switch <= 0) return 0;
    most = std::max(most, inside.bandwidth * efficiency_of(inside) / inside.in_switch);
  }
  return most;
}

}  // namespace

GroupShape shape_of(const Program& program, const Cluster& cluster, const Group& group) {
  GroupShape shape;
  shape.rank_count = static_cast<int>(group.ranks.size());
  shape.per_node = members_per_node(program, cluster, group);
  shape.in_switch = reduction_of(program, cluster, group, shape);
  if (group.kind != GroupKind::expert || program.routing.experts == 0 || shape.rank_count < 2) return shape;
  const DistinctCopies copies = distinct_copies(program.routing, shape.rank_count, shape.per_node);
  shape.a_node = copies.a_node;
  shape.a_rank = copies.a_rank;
  return shape;
}

CollectiveCost collective_cost(const Program& program, const Cluster& cluster, const Group& group,
                               const CollectiveTask& task, CollectiveAlgorithm algorithm) {
  if (is_priced_whole(task.kind, algorithm)) return plain_cost(program, cluster, group, task);
  const GroupShape shape = shape_of(program, cluster, group);
  return Pricer(program, cluster, group).price(algorithm, expand(task, algorithm, shape));
}

RingCost ring_or_switch_cost(const Program& program, const Cluster& cluster, const Group& group) {
  RingCost ring = ring_cost(program, cluster, group);
  if (group.kind != GroupKind::tensor || shape_of(program, cluster, group).in_switch <= 0) return ring;
  const CollectiveCost cost =
      collective_cost(program, cluster, group, CollectiveKind::all_reduce, CollectiveAlgorithm::in_switch);
  ring.in_switch = {cost.latency_s, cost.s_per_byte, cost.kappa};
  return ring;
}

std::vector<CollectiveCost> collective_costs(const Program& program, const Cluster& cluster,
                                             const Group& group, const CollectiveTask& task) {
  std::vector<CollectiveCost> costs = {
      collective_cost(program, cluster, group, task, plain_algorithm(task.kind))};
  const GroupShape shape = shape_of(program, cluster, group);
  if (shape.rank_count < 2) return costs;
  Pricer pricer(program, cluster, group);
  for (CollectiveAlgorithm algorithm :
       {CollectiveAlgorithm::tree, CollectiveAlgorithm::double_binary_tree, CollectiveAlgorithm::recursive,
        CollectiveAlgorithm::hierarchical, CollectiveAlgorithm::in_switch, CollectiveAlgorithm::once_a_node})
    if (does(algorithm, task, shape))
      costs.push_back(pricer.price(algorithm, expand(task, algorithm, shape)));
  return costs;
}

CollectiveAlgorithm fastest(const std::vector<CollectiveCost>& costs, std::int64_t bytes) {
  MOTLEY_CHECK(!costs.empty());
  const auto sooner = [&](const CollectiveCost& a, const CollectiveCost& b) {
    return a.seconds(bytes) < b.seconds(bytes);
  };
  return std::min_element(costs.begin(), costs.end(), sooner)->algorithm;
}

std::string explain(const std::vector<CollectiveCost>& costs, CollectiveAlgorithm chosen,
                    CollectiveAlgorithm wanted, std::int64_t bytes) {
  std::string text = fmt::format("{}: ", name_of(chosen));
  std::vector<std::string> others;
  for (const CollectiveCost& cost : costs) {
    const std::string seconds = format_seconds(cost.seconds(bytes));
    if (cost.algorithm == chosen)
      text += seconds;
    else
      others.push_back(fmt::format("{} ({})", name_of(cost.algorithm), seconds));
  }
  if (wanted == chosen) text += ", as asked for";
  if (wanted == CollectiveAlgorithm::ring && chosen == CollectiveAlgorithm::in_switch)
    text += ", sooner than the ring";
  if (wanted == CollectiveAlgorithm::automatic) text += ", as NCCL would choose";
  if (!others.empty())
    text += fmt::format("{} {}", wanted == CollectiveAlgorithm::fastest ? ", before" : "; there are",
                        fmt::join(others, ", "));
  return text;
}

}  // namespace motley
