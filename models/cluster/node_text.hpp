// The parts of a node beside its chips, as YAML: fabric, PCIe tree, host, NICs. A part of
// models/cluster/cluster_text.cpp.
#pragma once

#include "models/base/yaml_reader.hpp"
#include "models/cluster/cluster.hpp"

namespace motley {

// Reads a group of nodes. Files of chips that it names are searched in `folder` first.
NodeGroup read_group(const Yaml& node, const std::string& folder);
// A group that leaves its nodes to its chip, with that part of the usual nodes written out; with all parts for
// `inside`, as a group that has its own `inside` has no usual nodes. Any other group stays as it is.
Yaml with_usual_part(const Yaml& group, std::string_view key, const std::string& folder);
// Reads the fabric inside a node of such chips. `pcie` is the PCIe tree of the same group. Nothing: the group has none.
InsideFabric read_inside(const Yaml& node, const Chip& chip, const std::optional<Pcie>& pcie);
Pcie read_pcie(const Yaml& node, int chips_per_node);
// Reads a host. `has_pcie`: the group's chips reach their host through a PCIe tree, so that it has no `link`.
Host read_host(const Yaml& node, bool has_pcie);
Nic read_nic(const Yaml& node, int chips_per_node);
NicKind to_nic_kind(const Yaml& node);

// Each prints one line without indent or newline, which its reader reads back.
std::string print_inside(const NodeGroup& group);
std::string print(const Pcie& pcie);
std::string print(const Host& host);
std::string print(const Nic& nic);

}  // namespace motley
