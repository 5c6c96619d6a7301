// The RDMA probe: lists verbs devices with their ports, registers a little memory on each, and says which of them
// messages can use, and why not the others. It moves nothing, because a transfer needs a peer. It is compiled into
// libmotley_verbs.so.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "hw/device/probe_module.hpp"
#include "hw/transport/verbs/port.hpp"

namespace {

// Returns true if the device gives a protection domain and registers a page of memory. Else errno says why not.
bool registers_memory(ibv_context* context) {
  ibv_pd* domain = ibv_alloc_pd(context);
  if (domain == nullptr) return false;
  std::array<char, 4096> page{};
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* region = ibv_reg_mr(domain, page.data(), page.size(), kAccess);
  const int error = errno;
  if (region != nullptr) ibv_dereg_mr(region);
  ibv_dealloc_pd(domain);
  errno = error;
  return region != nullptr;
}

// What one device can do.
struct Ability {
  bool registers = false;
  bool carries_messages = false;
};

Ability describe_device(ibv_device* device, const MotleyProbeSink* sink) {
  std::string line = ibv_get_device_name(device);
  ibv_context* context = ibv_open_device(device);
  ibv_device_attr attributes{};
  if (context == nullptr || ibv_query_device(context, &attributes) != 0) {
    sink->say(sink->context, "device", (line + ": cannot be opened: " + std::strerror(errno)).c_str());
    if (context != nullptr) ibv_close_device(context);
    return {};
  }
  for (int port = 1; port <= attributes.phys_port_cnt; ++port) {
    ibv_port_attr state{};
    if (ibv_query_port(context, static_cast<std::uint8_t>(port), &state) != 0) continue;
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), ", port %d %s %s %.0f Gb/s", port,
                  state.link_layer == IBV_LINK_LAYER_ETHERNET ? "ethernet" : "infiniband",
                  ibv_port_state_str(state.state), motley::gigabits_of(state));
    line += text.data();
  }
  Ability ability;
  ability.registers = registers_memory(context);
  line += ability.registers ? "; registers memory"
                            : std::string("; cannot register memory: ") + std::strerror(errno);
  std::string why;
  if (const auto port = motley::usable_port(context, why)) {
    ability.carries_messages = ability.registers;
    std::array<char, INET6_ADDRSTRLEN> address{};
    inet_ntop(AF_INET6, port->gid.raw, address.data(), address.size());
    line += "; messages use port " + std::to_string(port->number) + ", " + address.data();
  } else {
    line += "; messages do not use it: " + why;
  }
  ibv_close_device(context);
  sink->say(sink->context, "device", line.c_str());
  return ability;
}

}  // namespace

extern "C" int motley_probe(const MotleyProbeSink* sink) {
  sink->say(sink->context, "version", MOTLEY_PART_VERSION);
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  int ran = 0, able = 0;
  for (int i = 0; devices != nullptr && i < count; ++i) {
    const Ability ability = describe_device(devices[i], sink);
    if (ability.registers) ++ran;
    if (ability.carries_messages) ++able;
  }
  if (devices != nullptr) ibv_free_device_list(devices);
  const std::string detail = count == 0 || devices == nullptr
                                 ? std::string("no RDMA device")
                                 : std::to_string(ran) + " of " + std::to_string(count) +
                                       " devices opened and registered memory, " + std::to_string(able) +
                                       " can carry messages";
  sink->say(sink->context, "detail", detail.c_str());
  return ran > 0 ? 0 : 1;
}
