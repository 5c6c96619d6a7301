#include "models/cluster/cluster_layout.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace motley {
namespace {

// NICs that are near the same chips, in the order of their first NIC.
struct Bundle {
  std::vector<int> chips;
  int width = 0;
};

// Places NICs and chips in contiguous runs. With fewer NICs than chips, chip i is near NIC i*count/chips; with more
// NICs, NIC j is near chip j*chips/count.
std::vector<Bundle> side_by_side(int chips, int count) {
  std::vector<Bundle> bundles(static_cast<std::size_t>(std::min(chips, count)));
  for (int chip = 0; chip < chips; ++chip) {
    const int bundle = count < chips ? chip * count / chips : chip;
    bundles[static_cast<std::size_t>(bundle)].chips.push_back(chip);
  }
  for (int nic = 0; nic < count; ++nic) {
    const int bundle = count < chips ? nic : nic * chips / count;
    ++bundles[static_cast<std::size_t>(bundle)].width;
  }
  return bundles;
}

std::vector<Bundle> as_listed(const std::vector<std::vector<int>>& near) {
  std::vector<Bundle> bundles;
  for (std::vector<int> chips : near) {
    std::sort(chips.begin(), chips.end());
    const auto same = std::find_if(bundles.begin(), bundles.end(),
                                   [&](const Bundle& bundle) { return bundle.chips == chips; });
    if (same == bundles.end())
      bundles.push_back({std::move(chips), 1});
    else
      ++same->width;
  }
  return bundles;
}

PortLayout lay_out_ports(const NodeGroup& group, const Nic& nic, int first_link) {
  const std::vector<Bundle> bundles =
      nic.near.empty() ? side_by_side(group.chips_per_node, nic.count) : as_listed(nic.near);
  const int ports = static_cast<int>(bundles.size());
  const auto switch_of = [&](int chip) {
    return group.pcie ? chip * group.pcie->switches / group.chips_per_node : 0;
  };
  PortLayout layout;
  layout.first_link = first_link;
  // A chip that is near no NIC uses a port by its place: chip i uses port i*ports/chips.
  for (int chip = 0; chip < group.chips_per_node; ++chip)
    layout.port_of_chip.push_back(chip * ports / group.chips_per_node);
  layout.near.assign(layout.port_of_chip.size(), false);
  for (int port = 0; port < ports; ++port) {
    const Bundle& bundle = bundles[static_cast<std::size_t>(port)];
    layout.width.push_back(bundle.width);
    layout.pcie_switch.push_back(switch_of(bundle.chips.front()));
    for (int chip : bundle.chips) {
      layout.port_of_chip[static_cast<std::size_t>(chip)] = port;
      layout.near[static_cast<std::size_t>(chip)] = true;
    }
  }
  return layout;
}

}  // namespace

GroupLayout lay_out(const NodeGroup& group) {
  const int chips = group.chips_per_node;
  const int inside = is_star(group) ? 1 : 0;
  const int out = group.pcie ? 1 : static_cast<int>(group.nics.size());
  GroupLayout layout;
  layout.links_a_chip = 2 * (inside + out);
  layout.mesh = chips * layout.links_a_chip;
  layout.uplinks = layout.mesh + (is_mesh(group.inside.kind) ? 2 * pair_count(chips) : 0);
  layout.sockets = layout.uplinks + (group.pcie && group.pcie->switches > 1 ? 2 * group.pcie->switches : 0);
  int next = layout.sockets + (group.pcie ? 2 * pair_count(group.pcie->sockets) : 0);
  for (const Nic& nic : group.nics) {
    layout.ports.push_back(lay_out_ports(group, nic, next));
    next += layout.ports.back().count() * (group.pcie ? 4 : 2);
  }
  layout.hosts = next;
  if (group.host && group.host->link > 0) next += 2 * chips;
  layout.links_per_node = next;
  return layout;
}

int NodeLinks::peer(int from, int to) const {
  const int pair = pair_index(std::min(from, to), std::max(from, to), group.chips_per_node);
  return first + layout.mesh + 2 * pair + (from < to ? 0 : 1);
}

int NodeLinks::between_sockets(int from, int to) const {
  const int pair = pair_index(std::min(from, to), std::max(from, to), group.pcie->sockets);
  return first + layout.sockets + 2 * pair + (from < to ? 0 : 1);
}

int NodeLinks::port_link(int kind_index, int port) const {
  return first + layout.ports[static_cast<std::size_t>(kind_index)].first_link + port * (group.pcie ? 4 : 2);
}

double pcie_bandwidth(int generation, int lanes) {
  // PCI-SIG base specifications: 2.5 and 5 GT/s in 8b/10b, 8 to 32 GT/s in 128b/130b; 64 GT/s in 242B/256B flits.
  static const std::map<int, double> gigabit_a_lane = {{1, 2.5 * 0.8},          {2, 5 * 0.8},
                                                       {3, 8 * 128.0 / 130.0},  {4, 16 * 128.0 / 130.0},
                                                       {5, 32 * 128.0 / 130.0}, {6, 64 * 242.0 / 256.0}};
  return gigabit_a_lane.at(generation) * 1e9 / 8 * lanes;
}

int nic_index(const NodeGroup& group, NicKind kind) {
  const auto nic =
      std::find_if(group.nics.begin(), group.nics.end(), [&](const Nic& each) { return each.kind == kind; });
  return nic == group.nics.end() ? -1 : static_cast<int>(nic - group.nics.begin());
}

}  // namespace motley
