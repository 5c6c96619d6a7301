#include "models/cluster/network_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/cluster/cluster_layout.hpp"
#include "models/cluster/node_text.hpp"

namespace motley {
namespace {

const NodeGroup& find_group(const Cluster& cluster, const Yaml& name) {
  std::vector<std::string> names;
  for (const NodeGroup& group : cluster.groups) names.push_back(group.name);
  const std::string chosen = to_name(name, names);
  for (const NodeGroup& group : cluster.groups)
    if (group.name == chosen) return group;
  return cluster.groups.front();
}

void need_nic(const NodeGroup& group, NicKind kind, const Yaml& asked, const char* hint) {
  if (nic_index(group, kind) < 0)
    throw Refusal(Exit::usage, "no-such-nic", asked->where,
                  fmt::format("group `{}` has no {} NIC", group.name, name_of(kind)), hint);
}

double rate_of(const Yaml& value) { return to_quantity(value, Dimension::bytes_per_second, Sign::positive); }

void read_site(const Fields& fields, GroupLink& link) {
  if (const Yaml value = fields.find("bandwidth")) link.bandwidth = rate_of(value);
  if (const Yaml value = fields.find("latency"))
    link.latency_s = to_quantity(value, Dimension::seconds, Sign::not_negative);
  if (const Yaml value = fields.find("per_flow")) link.per_flow = rate_of(value);
  for (const char* key : {"latency", "per_flow"})
    if (fields.find(key) && !link.is_site_link())
      throw Refusal(Exit::usage, "site-link", fields.where(key),
                    fmt::format("only links between sites have `{}`", key),
                    "give the link its `bandwidth`, or leave this out: the groups then stand on one network");
  if (link.per_flow > link.bandwidth)
    throw Refusal(Exit::usage, "faster-than-line", fields.where("per_flow"),
                  "one flow is faster than the link", "`per_flow` is at most `bandwidth`");
}

// The keys that a network of that shape may have.
std::vector<std::string> keys_of(NetworkShape shape) {
  std::vector<std::string> keys = {"over", "groups", "shape", "latency"};
  const std::vector<std::string> more =
      shape == NetworkShape::dragonfly
          ? std::vector<std::string>{"nodes_per_router", "routers_per_group", "local", "global"}
          : std::vector<std::string>{"nodes_per_leaf", "spines", "oversubscription", "uplink", "routing"};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

int count_of(const Yaml& value) { return static_cast<int>(to_integer(value, {1, 1 << 16})); }

void read_leaves(const Fields& fields, Network& network) {
  network.nodes_per_leaf = count_of(fields.need("nodes_per_leaf"));
  network.spines = static_cast<int>(to_integer(fields.need("spines"), {1, 1024}));
  if (const Yaml value = fields.find("oversubscription"))
    network.oversubscription = to_number(value, Sign::positive);
  if (const Yaml value = fields.find("uplink")) {
    if (fields.find("oversubscription"))
      throw Refusal(Exit::usage, "network-uplink", value->where, "`oversubscription` already says it",
                    "give one of the two; the other follows from the NICs");
    network.uplink = rate_of(value);
  }
  if (const Yaml value = fields.find("routing")) network.routing = to_choice<Routing>(value);
}

void read_routers(const Fields& fields, Network& network) {
  network.nodes_per_leaf = count_of(fields.need("nodes_per_router"));
  network.routers_per_group = static_cast<int>(to_integer(fields.need("routers_per_group"), {1, 256}));
  network.local = rate_of(fields.need("local"));
  network.global = rate_of(fields.need("global"));
}

// Refuses a network whose groups are not joined over its kind by links that are not between sites.
void check_joined(const Cluster& cluster, const Network& network, const Location& where) {
  std::vector<std::string> reached = {network.groups.front()};
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const GroupLink& link : cluster.links)
      for (const auto& [from, to] : {std::pair{link.from, link.to}, std::pair{link.to, link.from}})
        if (from == reached[i] && link.over == network.over && !link.is_site_link() &&
            std::find(reached.begin(), reached.end(), to) == reached.end())
          reached.push_back(to);
  for (const std::string& group : network.groups)
    if (std::find(reached.begin(), reached.end(), group) == reached.end())
      throw Refusal(
          Exit::usage, "network-groups", where,
          fmt::format("groups `{}` and `{}` are on no common {} network", network.groups.front(), group,
                      name_of(network.over)),
          fmt::format("join them under `links:` over {}, or describe two networks", name_of(network.over)));
}

void check_only(const Cluster& cluster, const Network& network, const Location& where) {
  for (const Network& other : cluster.networks) {
    if (other.over != network.over) continue;
    const bool both =
        other.groups.empty() || network.groups.empty() ||
        std::any_of(network.groups.begin(), network.groups.end(), [&](const std::string& group) {
          return std::find(other.groups.begin(), other.groups.end(), group) != other.groups.end();
        });
    if (both)
      throw Refusal(Exit::usage, "listed-twice", where,
                    fmt::format("a second {} network of the same groups", name_of(network.over)),
                    "each network names its `groups`, which no other network of the kind has");
  }
}

// Reads links into a cluster. A link of two groups stands for itself. A link of more groups, or of all, stands for one
// between each pair of them that has no link of its own.
class LinkReader {
 public:
  explicit LinkReader(Cluster& cluster) : cluster_(cluster) {
    for (const NodeGroup& group : cluster.groups) names_.push_back(group.name);
  }

  // Reads the link if it is one of two groups and `of_pairs` is true, or if neither is so.
  void read(const Yaml& node, bool of_pairs) {
    const Fields fields(node, "a link", {"between", "over", "bandwidth", "latency", "per_flow", "staged"});
    const Yaml between = fields.need("between");
    const bool pair = between->kind == YamlNode::Kind::sequence && between->items.size() == 2;
    if (pair != of_pairs) return;
    const std::vector<std::size_t> ends = ends_of(between);
    const Yaml over = fields.need("over");
    GroupLink link;
    link.over = to_nic_kind(over);
    for (const std::size_t end : ends)
      need_nic(cluster_.groups[end], link.over, over, "a link joins NICs of one kind that its groups have");
    if (const Yaml staged = fields.find("staged")) link.staged = to_bool(staged);
    read_site(fields, link);
    for (std::size_t i = 0; i < ends.size(); ++i)
      for (std::size_t j = i + 1; j < ends.size(); ++j) join(ends[i], ends[j], link, pair, node->where);
  }

 private:
  using Pair = std::pair<std::size_t, std::size_t>;  // of groups, the lower index first

  // The groups that the link names: a list, or `all`.
  std::vector<std::size_t> ends_of(const Yaml& between) const {
    std::vector<std::size_t> ends;
    if (between->is_scalar()) {
      to_choice(between, {"all"});
      for (std::size_t i = 0; i < names_.size(); ++i) ends.push_back(i);
    } else {
      for (const Yaml& name : to_sequence(between)) ends.push_back(index_of(name, between->where, ends));
    }
    if (ends.size() < 2)
      throw Refusal(Exit::usage, "wrong-type", between->where,
                    fmt::format("expected two groups or more, found {}", ends.size()),
                    "as `between: [a, b]`, or `between: all` for every pair of groups");
    return ends;
  }
  std::size_t index_of(const Yaml& name, const Location& between,
                       const std::vector<std::size_t>& ends) const {
    const auto named = std::find(names_.begin(), names_.end(), to_name(name, names_));
    const auto index = static_cast<std::size_t>(named - names_.begin());
    if (std::find(ends.begin(), ends.end(), index) != ends.end())
      throw Refusal(Exit::usage, "listed-twice", between,
                    fmt::format("group `{}` is linked with itself", names_[index]),
                    "nodes of one group talk over its first NIC kind");
    return index;
  }

  void join(std::size_t from, std::size_t to, GroupLink link, bool pair, const Location& where) {
    const Pair ends = std::minmax(from, to);
    if (!pair && of_their_own_.contains(ends)) return;
    if (!linked_.insert(ends).second)
      throw Refusal(Exit::usage, "listed-twice", where,
                    fmt::format("groups `{}` and `{}` are already linked", names_[from], names_[to]),
                    "two groups talk over one kind of NIC: keep one link");
    if (pair) of_their_own_.insert(ends);
    link.from = names_[from];
    link.to = names_[to];
    cluster_.links.push_back(std::move(link));
  }

  Cluster& cluster_;
  std::vector<std::string> names_;  // of the groups
  std::set<Pair> linked_, of_their_own_;
};

}  // namespace

void read_links(const Yaml& node, Cluster& cluster) {
  LinkReader reader(cluster);
  for (const bool pairs : {true, false})
    for (const Yaml& item : to_sequence(node)) reader.read(item, pairs);
}

Network read_network(const Yaml& node, const Cluster& cluster) {
  std::vector<std::string> all = keys_of(NetworkShape::leaf_spine);
  for (const std::string& key : keys_of(NetworkShape::dragonfly)) all.push_back(key);
  Network network;
  static constexpr std::array kListed = {NetworkShape::leaf_spine, NetworkShape::rail_optimised,
                                         NetworkShape::dragonfly};
  network.shape = to_choice<NetworkShape>(Fields(node, "a network", all).need("shape"), kListed);
  const Fields fields(node, fmt::format("a {} network", name_of(network.shape)), keys_of(network.shape));
  const Yaml over = fields.need("over");
  network.over = to_nic_kind(over);
  if (const Yaml groups = fields.find("groups"))
    for (const Yaml& item : to_sequence(groups)) {
      const NodeGroup& group = find_group(cluster, item);
      need_nic(group, network.over, item, "a network is of NICs of one kind that its groups have");
      network.groups.push_back(group.name);
    }
  if (std::none_of(cluster.groups.begin(), cluster.groups.end(),
                   [&](const NodeGroup& group) { return nic_index(group, network.over) >= 0; }))
    need_nic(cluster.groups.front(), network.over, over, "nor has any other group");
  if (!network.groups.empty()) check_joined(cluster, network, fields.where("groups"));
  check_only(cluster, network, node->where);
  if (const Yaml value = fields.find("latency"))
    network.latency_s = to_quantity(value, Dimension::seconds, Sign::not_negative);
  if (network.shape == NetworkShape::dragonfly)
    read_routers(fields, network);
  else
    read_leaves(fields, network);
  return network;
}

TransportPolicy to_transport(const Yaml& node) { return to_choice<TransportPolicy>(node); }

std::string print(const GroupLink& link) {
  std::string text =
      fmt::format("{{between: [{}, {}], over: {}", quote(link.from), quote(link.to), name_of(link.over));
  if (link.is_site_link())
    text += fmt::format(", bandwidth: {}, latency: {}", format_line_rate(link.bandwidth),
                        format_exact(link.latency_s, Dimension::seconds));
  if (link.per_flow > 0) text += fmt::format(", per_flow: {}", format_line_rate(link.per_flow));
  if (link.staged) text += ", staged: true";
  return text + "}";
}

std::string print(const Network& network) {
  const auto rate = [](double value) { return format_line_rate(value); };
  std::string text = fmt::format("{{over: {}", name_of(network.over));
  for (std::size_t i = 0; i < network.groups.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? ", groups: [" : ", ", quote(network.groups[i]));
  text += fmt::format("{}, shape: {}", network.groups.empty() ? "" : "]", name_of(network.shape));
  if (network.shape == NetworkShape::dragonfly)
    text += fmt::format(", nodes_per_router: {}, routers_per_group: {}, local: {}, global: {}",
                        network.nodes_per_leaf, network.routers_per_group, rate(network.local),
                        rate(network.global));
  else
    text += fmt::format(", nodes_per_leaf: {}, spines: {}, {}, routing: {}", network.nodes_per_leaf,
                        network.spines,
                        network.uplink > 0 ? "uplink: " + rate(network.uplink)
                                           : "oversubscription: " + format_exact(network.oversubscription),
                        name_of(network.routing));
  return text + fmt::format(", latency: {}}}", format_exact(network.latency_s, Dimension::seconds));
}

}  // namespace motley
