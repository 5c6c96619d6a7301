#include "models/explain/wires.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/base/index.hpp"
#include "models/plan/levers.hpp"

namespace motley {

const NodeGroup& Wires::group_of(int chip) const {
  return cluster_.groups[at(cluster_.chip_group[at(chip)])];
}

const Wire& Wires::of_transfer(Rank rank, const Instruction& transfer) {
  const Rank peer = program_.ranks[rank].peers[transfer.message()->slot].value();
  const bool sends = transfer.op() == Op::send;
  const Rank from = sends ? rank : peer, to = sends ? peer : rank;
  const auto [known, is_new] = transfers_.try_emplace({from, to});
  if (is_new) known->second = wire(from, to, carrier_between(program_, cluster_, from, to));
  return known->second;
}

const Wire& Wires::of_group(GroupId index) {
  const auto [known, is_new] = groups_.try_emplace(index);
  Wire& slowest = known->second;
  if (!is_new) return slowest;
  const Group& group = program_.groups[index];
  const Carrier carrier = choose_carrier(program_, cluster_, group).carrier;
  std::optional<double> lowest;
  const auto consider = [&](Rank from, Rank to) {
    if (from == to) return;
    const double rate = route(cluster_, chip_of(from), chip_of(to), carrier).rate;
    if (lowest && rate >= *lowest) return;
    lowest = rate;
    slowest = wire(from, to, carrier);
  };
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    consider(group.ranks[i], group.ranks[(i + 1) % group.ranks.size()]);
    consider(group.ranks[0], group.ranks[i]);
  }
  return slowest;
}

Wire Wires::wire(Rank from_rank, Rank to_rank, const Carrier& carrier) const {
  const int from = chip_of(from_rank), to = chip_of(to_rank);
  const NodeGroup &a = group_of(from), &b = group_of(to);
  const Route taken = route(cluster_, from, to, carrier);
  if (taken.inside_node) {
    const bool tree = a.inside.kind == FabricKind::pcie && a.pcie;
    return {std::string(name_of(a.inside.kind)), a.name, {tree ? pcie_key(a) : inside_key(a)}, taken.rate};
  }
  const NicKind kind = joining_nic(cluster_, from, to, carrier).kind;
  Wire where{std::string(name_of(kind)), a.name, {}, taken.rate};
  // The chips' own links are on the route too.
  const auto add_end = [&](const NodeGroup& end) {
    where.keys.push_back(nic_key(end, kind));
    if (end.pcie)
      where.keys.push_back(pcie_key(end));
    else if (end.inside.bandwidth <= taken.bandwidth)
      where.keys.push_back(inside_key(end));
  };
  add_end(a);
  if (&a != &b) {
    where.group =
        a.name < b.name ? fmt::format("{} - {}", a.name, b.name) : fmt::format("{} - {}", b.name, a.name);
    add_end(b);
  }
  const auto is_of = [](const Network& network, const NodeGroup& end) {
    return network.groups.empty() ||
           std::find(network.groups.begin(), network.groups.end(), end.name) != network.groups.end();
  };
  for (std::size_t i = 0; i < cluster_.networks.size(); ++i) {
    const Network& network = cluster_.networks[i];
    if (network.over == kind && (is_of(network, a) || is_of(network, b)))
      where.keys.push_back(network_key(i));
  }
  for (std::size_t i = 0; i < cluster_.site_link_id.size(); ++i) {
    const int id = cluster_.site_link_id[i];
    if (id < 0 || std::none_of(taken.links.begin(), taken.links.end(),
                               [id](int link) { return (link | 1) == (id | 1); }))
      continue;
    where.on = "link between sites";
    where.group = name_of(cluster_.links[i]);
    where.keys.insert(where.keys.end(), {link_key(i), flow_key(i)});
  }
  return where;
}

}  // namespace motley
