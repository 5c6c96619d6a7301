#include "hw/transport/verbs/port.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace motley {
namespace {

// The codes of width and speed are those of the InfiniBand Architecture Specification 1.4, PortInfo, as verbs.h passes
// them on.
int lanes_of(int active_width) {
  switch (active_width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
  }
  return 0;
}

double lane_gigabits(int active_speed) {
  switch (active_speed) {
    case 1:
      return 2.5;  // SDR
    case 2:
      return 5;  // DDR
    case 4:
    case 8:
      return 10;  // QDR, FDR-10
    case 16:
      return 14;  // FDR
    case 32:
      return 25;  // EDR
    case 64:
      return 50;  // HDR
    case 128:
      return 100;  // NDR
  }
  return 0;
}

// How much an address is preferred: 0 is of no use.
int rank_of_gid(const ibv_gid_entry& entry, const RdmaPort& port) {
  if (entry.port_num != port.number || entry.gid_index > 0xff) return 0;
  if (!port.ethernet) return entry.gid_type == IBV_GID_TYPE_IB ? 1 : 0;
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return 0;
  constexpr std::array<std::uint8_t, 12> kMappedIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const std::uint8_t* const raw = entry.gid.raw;
  if (std::equal(kMappedIpv4.begin(), kMappedIpv4.end(), raw)) return 3;
  const bool of_link = raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
  return of_link ? 1 : 2;
}

bool choose_gid(const std::vector<ibv_gid_entry>& entries, RdmaPort& port) {
  int best = 0;
  for (const ibv_gid_entry& entry : entries) {
    const int rank = rank_of_gid(entry, port);
    if (rank <= best) continue;
    best = rank;
    port.gid = entry.gid;
    port.gid_index = static_cast<std::uint8_t>(entry.gid_index);
  }
  return best > 0;
}

std::vector<ibv_gid_entry> all_gids(ibv_context* context) {
  constexpr std::size_t kMost = 1024;
  std::vector<ibv_gid_entry> entries(kMost);
  const ssize_t count = ibv_query_gid_table(context, entries.data(), kMost, 0);
  entries.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return entries;
}

void add(std::string& reasons, const std::string& reason) {
  reasons += (reasons.empty() ? "" : ", ") + reason;
}

}  // namespace

double gigabits_of(const ibv_port_attr& state) {
  return lanes_of(state.active_width) * lane_gigabits(state.active_speed);
}

std::optional<RdmaPort> usable_port(ibv_context* context, std::string& why) {
  why.clear();
  if (context->device->transport_type != IBV_TRANSPORT_IB) {
    why = "neither InfiniBand nor RoCE";
    return std::nullopt;
  }
  ibv_device_attr attributes{};
  if (const int error = ibv_query_device(context, &attributes); error != 0) {
    why = std::string("cannot be asked: ") + std::strerror(error);
    return std::nullopt;
  }
  const std::vector<ibv_gid_entry> gids = all_gids(context);
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    RdmaPort port;
    port.number = static_cast<std::uint8_t>(number);
    const std::string name = "port " + std::to_string(number);
    ibv_port_attr state{};
    if (const int error = ibv_query_port(context, port.number, &state); error != 0) {
      add(why, name + " cannot be asked: " + std::strerror(error));
      continue;
    }
    if (state.state != IBV_PORT_ACTIVE) {
      add(why, name + " is not active");
      continue;
    }
    port.ethernet = state.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.mtu = state.active_mtu;
    port.lid = state.lid;
    port.gigabits = gigabits_of(state);
    if (choose_gid(gids, port)) return port;
    add(why, name + (port.ethernet ? " has no address of RoCE v2" : " has no address"));
  }
  if (why.empty()) why = "it has no port";
  return std::nullopt;
}

}  // namespace motley
