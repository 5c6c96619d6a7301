// Which host a process runs on, as other processes can compare it: ranks of one host may read each other's memory and
// share its NICs, and ranks of different hosts do not. Read next: hw/transport/shm/peer_memory.hpp.
#pragma once

#include <string>
#include <vector>

namespace motley {

// The boot of this host, whose processes share one steady clock, and behind it the value of MOTLEY_HOST_ID, where that
// is set: containers and network namespaces of one host are told apart by it. It never makes one host of two.
std::string host_id();
// The host in what memory_domain() returns.
std::string host_of(const std::string& memory_domain);

// How many ranks each host has, where they stand host by host and each host has as many; else 1. `hosts`: by rank.
int ranks_per_host(const std::vector<std::string>& hosts);

}  // namespace motley
