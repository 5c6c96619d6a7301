// What stands for the RDMA transport in a build without libibverbs.
#include "hw/transport/verbs/transport.hpp"

namespace motley {

std::unique_ptr<VerbsTransport> open_verbs(const VerbsOptions& options, TransportEvents& events,
                                           VerbsEvents&) {
  for (const std::string& name : options.devices)
    events.noted("the RDMA device " + name + " is not used: this program was built without libibverbs");
  return nullptr;
}

int living_verbs_objects() { return 0; }

}  // namespace motley
