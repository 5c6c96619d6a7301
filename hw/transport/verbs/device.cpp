#include "hw/transport/verbs/device.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace motley {
namespace {

std::atomic<int> living_objects = 0;

void never_block(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != 0) throw verbs_failure("fcntl", errno);
}

std::optional<VerbsDevice::Event> failure_in(const ibv_async_event& event, std::uint8_t port) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      return VerbsDevice::Event{ibv_event_type_str(event.event_type), event.element.qp->qp_num};
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      return VerbsDevice::Event{ibv_event_type_str(event.event_type), std::nullopt};
    case IBV_EVENT_PORT_ERR:
      if (event.element.port_num != port) return std::nullopt;
      return VerbsDevice::Event{fmt::format("port {} went down", port), std::nullopt};
    default:
      return std::nullopt;
  }
}

}  // namespace

VerbsFailure verbs_failure(const char* call, int error) {
  return VerbsFailure(fmt::format("{}: {}", call, std::strerror(error)));
}

int count_verbs_object(int change) { return living_objects += change; }

VerbsDevice::VerbsDevice(ibv_device* device) : name_(ibv_get_device_name(device)) {
  context_ = own_verbs_object<decltype(context_)>("ibv_open_device", ibv_open_device(device));
  std::string why;
  const std::optional<RdmaPort> port = usable_port(context_.get(), why);
  if (!port) throw VerbsFailure(why);
  port_ = *port;
  domain_ = own_verbs_object<decltype(domain_)>("ibv_alloc_pd", ibv_alloc_pd(context_.get()));
  channel_ = own_verbs_object<decltype(channel_)>("ibv_create_comp_channel",
                                                  ibv_create_comp_channel(context_.get()));
  for (const int descriptor : descriptors()) never_block(descriptor);
}

void VerbsDevice::take_completion_events() const {
  ibv_cq* queue = nullptr;
  void* owner = nullptr;
  while (ibv_get_cq_event(channel_.get(), &queue, &owner) == 0) {
    ibv_ack_cq_events(queue, 1);
    ibv_req_notify_cq(queue,
                      0);  // what comes from now on makes another event; what came before is polled next
  }
}

std::vector<VerbsDevice::Event> VerbsDevice::take_failures() const {
  std::vector<Event> failures;
  ibv_async_event event{};
  while (ibv_get_async_event(context_.get(), &event) == 0) {
    if (auto failure = failure_in(event, port_.number)) failures.push_back(std::move(*failure));
    ibv_ack_async_event(&event);
  }
  return failures;
}

std::vector<std::unique_ptr<VerbsDevice>> open_devices(const std::vector<std::string>& names,
                                                       std::vector<std::string>& complaints) {
  struct FreeList {
    void operator()(ibv_device** list) const { ibv_free_device_list(list); }
  };
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeList> list(ibv_get_device_list(&count));
  const std::span<ibv_device*> all(list.get(), list ? static_cast<std::size_t>(count) : 0);
  std::vector<ibv_device*> chosen(all.begin(), all.end());
  const auto name_of_device = [](ibv_device* device) { return std::string(ibv_get_device_name(device)); };
  std::sort(chosen.begin(), chosen.end(),
            [&](ibv_device* a, ibv_device* b) { return name_of_device(a) < name_of_device(b); });
  if (!names.empty()) {
    chosen.clear();
    for (const std::string& name : names) {
      const auto named = std::find_if(all.begin(), all.end(),
                                      [&](ibv_device* each) { return name_of_device(each) == name; });
      if (named == all.end())
        complaints.push_back(fmt::format("there is no RDMA device {}", name));
      else
        chosen.push_back(*named);
    }
  }
  std::vector<std::unique_ptr<VerbsDevice>> devices;
  for (ibv_device* const device : chosen) try {
      devices.push_back(std::make_unique<VerbsDevice>(device));
    } catch (const VerbsFailure& failure) {
      complaints.push_back(
          fmt::format("the RDMA device {} is not used: {}", name_of_device(device), failure.what()));
    }
  return devices;
}

}  // namespace motley
