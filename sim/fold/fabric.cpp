#include "sim/fold/fabric.hpp"

#include <algorithm>
#include <utility>

#include "models/base/index.hpp"

namespace motley {

Fabric::Fabric(const Program& program, const Cluster& cluster, const Folding& folding)
    : program_(program), cluster_(cluster), folding_(folding) {
  make_paths(crossings(folding));
}

std::int32_t Fabric::link_of(std::int32_t link_class, std::int64_t parts) {
  const auto [where, is_new] = links_.try_emplace(link_class, static_cast<std::int32_t>(capacities_.size()));
  if (!is_new) return where->second;
  const LinkProperties& properties = cluster_.link_table[at(folding_.symmetry.links.first[at(link_class)])];
  capacities_.push_back(properties.bandwidth * properties.efficiency / static_cast<double>(parts));
  return where->second;
}

// The rate that one flow of the lane reaches alone, where that is less than its links give: a chip may be far from its
// NIC, and a ring moves at the rate of its slowest edge (its flow must not end early on a healthy NIC). Infinite where
// only the links limit the flow.
double Fabric::cap_of(const Path& path, const Lane& lane) const {
  double capacity = std::numeric_limits<double>::infinity();
  for (int id : path.route.links) {
    const LinkProperties& properties = cluster_.link_table[at(id)];
    capacity = std::min(capacity, properties.bandwidth * properties.efficiency);
  }
  double cap = path.route.rate < capacity ? path.route.rate : 0;
  if (lane.cap > 0) cap = cap > 0 ? std::min(cap, lane.cap) : lane.cap;
  return cap > 0 ? cap : std::numeric_limits<double>::infinity();
}

void Fabric::make_paths(const Crossings& crossings) {
  const std::vector<std::int32_t>& lanes = folding_.symmetry.lanes.first;
  paths_.reserve(lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = folding_.arrangement.lanes[at(lanes[i])];
    const int from = program_.ranks[lane.from].chip;
    const int to = program_.ranks[lane.to].chip;
    Path path;
    if (lane.host != 0) {
      path.route = host_route(cluster_, from, lane.host == 1);
    } else {
      path.route = route(cluster_, from, to, lane.carrier);
      path.transport = message_cost_over(cluster_, from, to, lane.carrier, path.route);
      if (lane.group) path.transport.message_kappa = 0;  // collectives have a kappa term of their own
      if (lane.latency_s >= 0) {
        path.route.latency_s = lane.latency_s;
        path.transport.software_latency_s = 0;
      }
    }
    path.pays_latency = lane.by_ranks;
    path.cap = path.alone = cap_of(path, lane);
    for (const Crossing& crossing : crossings.of_lane[i]) {
      const std::int64_t parts = crossings.parts[at(crossing.link_class)];
      const Use use{link_of(crossing.link_class, parts), static_cast<std::int32_t>(crossing.times / parts)};
      path.uses.push_back(use);
      path.alone = std::min(path.alone, capacities_[at(use.link)] / use.times);
    }
    paths_.push_back(std::move(path));
  }
}

// A flow of a collective carries less than twice the payload, and one that stands for several at most a few times that.
double Fabric::largest_flow() const {
  double largest = 1;
  for (const RankProgram& each : program_.rank_programs)
    for (const Stream& stream : each.streams)
      for (const Instruction& instruction : stream.instructions)
        largest = std::max(largest, static_cast<double>(payload_bytes(instruction)));
  return 64 * largest;
}

double Fabric::alone_s(std::int32_t lane, std::int64_t bytes) const {
  return bytes > 0 ? static_cast<double>(bytes) / path(lane).alone : 0;
}

double Fabric::latency_s(const Path& path, std::int64_t bytes) {
  return path.pays_latency ? path.route.latency_s + message_overhead_s(path.transport, path.route, bytes) : 0;
}

}  // namespace motley
