// The RDMA probe: lists verbs devices with their ports and registers a little memory on each. It
// moves nothing, because a transfer needs a peer. It is compiled into libmotley_verbs.so.
#include <infiniband/verbs.h>

#include <array>
#include <cstdio>
#include <string>

#include "hw/device/probe_module.hpp"

namespace {

// The codes of width and speed are those of the InfiniBand Architecture Specification 1.4, PortInfo, as verbs.h
// passes them on.
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

// Returns true if the device gives a protection domain and registers a page of memory.
bool registers_memory(ibv_context* context) {
  ibv_pd* domain = ibv_alloc_pd(context);
  if (domain == nullptr) return false;
  std::array<char, 4096> page{};
  ibv_mr* region = ibv_reg_mr(domain, page.data(), page.size(), IBV_ACCESS_LOCAL_WRITE);
  const bool registered = region != nullptr;
  if (registered) ibv_dereg_mr(region);
  ibv_dealloc_pd(domain);
  return registered;
}

bool describe_device(ibv_device* device, const MotleyProbeSink* sink) {
  std::string line = ibv_get_device_name(device);
  ibv_context* context = ibv_open_device(device);
  ibv_device_attr attributes{};
  if (context == nullptr || ibv_query_device(context, &attributes) != 0) {
    sink->say(sink->context, "device", (line + ": cannot be opened").c_str());
    if (context != nullptr) ibv_close_device(context);
    return false;
  }
  for (int port = 1; port <= attributes.phys_port_cnt; ++port) {
    ibv_port_attr state{};
    if (ibv_query_port(context, static_cast<std::uint8_t>(port), &state) != 0) continue;
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), ", port %d %s %s %.0f Gb/s", port,
                  state.link_layer == IBV_LINK_LAYER_ETHERNET ? "ethernet" : "infiniband",
                  ibv_port_state_str(state.state),
                  lanes_of(state.active_width) * lane_gigabits(state.active_speed));
    line += text.data();
  }
  const bool registered = registers_memory(context);
  line += registered ? "; registers memory" : "; cannot register memory";
  ibv_close_device(context);
  sink->say(sink->context, "device", line.c_str());
  return registered;
}

}  // namespace

extern "C" int motley_probe(const MotleyProbeSink* sink) {
  sink->say(sink->context, "version", MOTLEY_PART_VERSION);
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  int ran = 0;
  for (int i = 0; devices != nullptr && i < count; ++i)
    if (describe_device(devices[i], sink)) ++ran;
  if (devices != nullptr) ibv_free_device_list(devices);
  const std::string detail =
      count == 0 || devices == nullptr
          ? std::string("no RDMA device")
          : std::to_string(ran) + " of " + std::to_string(count) + " devices opened and registered memory";
  sink->say(sink->context, "detail", detail.c_str());
  return ran > 0 ? 0 : 1;
}
