// Where the ranks of a launch run: each on a host, some of its processors, a device and a NIC. As a file:
//   ranks:
//     - {rank: 0, host: localhost, processors: 0-3, device: 0, nic: mlx5_0}
//     - {rank: 1, host: node2, processors: "0-2,8"}
// Only `rank` is needed. Read next: hw/launch/launch.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

struct RankBinding {
  std::string host = "localhost";    // as ssh names it
  std::vector<int> processors = {};  // ascending; empty: any
  // What the rank finds in MOTLEY_DEVICE and MOTLEY_NIC.
  std::optional<std::int64_t> device = {};
  std::string nic = {};
  bool operator==(const RankBinding&) const = default;
};
using Binding = IdTable<Rank, RankBinding>;

// Whether a name is one of this host's: localhost, a loopback address, or what it calls itself.
bool is_this_host(const std::string& name);
std::vector<int> usable_processors();  // of this process, ascending; empty: more than can be told

// Reads "a:2,b:2": ranks 0 and 1 on host a, ranks 2 and 3 on b. Throws Refusal "bad-hosts".
Binding read_hosts(const std::string& list);
// Reads the file's text. Throws Refusal "bad-binding", and those of parse_yaml(), with file, line and column: for ranks
// that are not 0 to one less than their number, processors that this host does not have (another host's are not known
// here), and two ranks on one processor.
Binding parse_binding(const std::string& text, const std::string& file);
// Each rank of this host gets processors that no other rank has, as many as any other, where no rank has any yet and
// there are enough of them.
Binding bound_evenly(Binding binding);
std::string print(const Binding& binding);          // what parse_binding() reads
std::string print_as_json(const Binding& binding);  // so does this

}  // namespace motley
