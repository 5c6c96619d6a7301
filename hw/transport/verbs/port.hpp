// Which port of an RDMA device can be used, by which address, or why none can. It needs libibverbs alone: the probe
// (hw/transport/verbs/probe.cpp), which is a module of its own, asks it, too. Read next: hw/transport/verbs/device.hpp.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace motley {

struct RdmaPort {
  std::uint8_t number = 0;
  bool ethernet = false;  // RoCE v2; else InfiniBand
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint16_t lid = 0;
  std::uint8_t gid_index = 0;
  ibv_gid gid{};
  double gigabits = 0;  // per second
};

// Of what ibv_query_port says.
double gigabits_of(const ibv_port_attr& state);

// The first port of the device that is up and has an address, by which queues of type RC reach others. Of several
// addresses it takes that of RoCE v2 with IPv4 before others. Nothing, and `why`: there is none.
std::optional<RdmaPort> usable_port(ibv_context* context, std::string& why);

}  // namespace motley
