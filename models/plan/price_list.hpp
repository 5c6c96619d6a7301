// A list of nodes that can be bought or rented: `motley plan --buy PRICES.yaml`. Read next: models/plan/purchase.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

// One kind of node. Its price is that of a node-hour: as it is written, or a purchase price over the hours of its life.
struct NodeOffer {
  std::string name;  // of the group that the nodes make
  std::optional<NodeGroup>
      group;  // as it would be bought; nothing: more nodes of the cluster's group of that name
  double usd_per_hour = 0;
  int most = 0;  // nodes
};

struct PriceList {
  std::vector<NodeOffer> offers;
  std::int64_t most_chips = 0;   // chips that may be added; 0: any
  double most_usd_per_hour = 0;  // of all that is added; 0: any
  std::int64_t additions = 0;    // ways to add nodes within these limits, the empty one included
};

// Reads a price list for a cluster. Chips that it names are searched beside `path` first. Throws Refusal for what
// models/plan/price_list.cpp documents: a kind without a price, a group that is not there, too many additions.
PriceList read_price_list(const Yaml& node, const std::string& path, const Cluster& cluster);

// The numbers of nodes of each offer, for every addition within the limits; the first adds nothing.
std::vector<std::vector<int>> additions_of(const PriceList& list, const Cluster& cluster);

// Chips of a node of the offer.
int chips_of_node(const NodeOffer& offer, const Cluster& cluster);

}  // namespace motley
