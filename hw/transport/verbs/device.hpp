// An opened RDMA device, with what all its queues share. Objects of libibverbs end with their owners, in order; how
// many live is counted. Read next: hw/transport/verbs/queue_pair.hpp.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hw/transport/verbs/port.hpp"

namespace motley {

// A call of libibverbs failed.
struct VerbsFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// "ibv_create_qp: Cannot allocate memory"
VerbsFailure verbs_failure(const char* call, int error);

// Adds to the number of objects that live, and returns what it is then.
int count_verbs_object(int change);

template <auto kDestroy>
struct DestroyVerbsObject {
  template <class Object>
  void operator()(Object* object) const {
    if (kDestroy(object) == 0) count_verbs_object(-1);
  }
};
template <class Object, auto kDestroy>
using VerbsHandle = std::unique_ptr<Object, DestroyVerbsObject<kDestroy>>;

// Takes over what `call` returned. Throws VerbsFailure with errno if that is nothing.
template <class Handle>
Handle own_verbs_object(const char* call, typename Handle::pointer object) {
  if (object == nullptr) throw verbs_failure(call, errno);
  count_verbs_object(1);
  return Handle(object);
}

class VerbsDevice {
 public:
  // Throws VerbsFailure.
  explicit VerbsDevice(ibv_device* device);

  const std::string& name() const { return name_; }
  const RdmaPort& port() const { return port_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }
  // Readable when something has completed, and when something happened to the device.
  std::vector<int> descriptors() const { return {channel_->fd, context_->async_fd}; }

  // Takes what says that something has completed. A queue whose event is taken is armed again.
  void take_completion_events() const;
  // What happened to the device since the last call.
  struct Event {
    std::string what;
    std::optional<std::uint32_t>
        queue;  // the number of the queue pair that it concerns; nothing: all of them
  };
  std::vector<Event> take_failures() const;

 private:
  std::string name_;
  VerbsHandle<ibv_context, ibv_close_device> context_;
  RdmaPort port_;
  VerbsHandle<ibv_pd, ibv_dealloc_pd> domain_;
  VerbsHandle<ibv_comp_channel, ibv_destroy_comp_channel> channel_;
};

using VerbsRegion = VerbsHandle<ibv_mr, ibv_dereg_mr>;

// Opens the devices of these names, in this order; without names, all that can be used. `complaints` says why others
// cannot.
std::vector<std::unique_ptr<VerbsDevice>> open_devices(const std::vector<std::string>& names,
                                                       std::vector<std::string>& complaints);

}  // namespace motley
