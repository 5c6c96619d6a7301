// What is inside a node, as YAML: fabric, PCIe tree, NICs. Only models/cluster_text.cpp includes it.
#pragma once

#include "models/cluster.hpp"
#include "models/yaml_reader.hpp"

namespace motley {

// `pcie` is that of the group, or nothing.
InsideFabric read_inside(const Yaml& node, const std::optional<Pcie>& pcie);
Pcie read_pcie(const Yaml& node, int chips_per_node);
// `has_pcie`: the group's chips reach their hosts through a PCIe tree.
Host read_host(const Yaml& node, bool has_pcie);
Nic read_nic(const Yaml& node, int chips_per_node);
NicKind to_nic_kind(const Yaml& node);

// One line each, without indent or newline, as the reader takes it.
std::string print_inside(const NodeGroup& group);
std::string print(const Pcie& pcie);
std::string print(const Host& host);
std::string print(const Nic& nic);

}  // namespace motley
