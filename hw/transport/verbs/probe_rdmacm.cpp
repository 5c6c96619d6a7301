// Asks librdmacm for an event channel and an identifier. Without an RDMA device it answers "no such
// device", and a transport can fall back. It is compiled into libmotley_rdmacm.so.
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>

#include "hw/device/probe_module.hpp"

extern "C" int motley_probe(const MotleyProbeSink* sink) {
  sink->say(sink->context, "version", MOTLEY_PART_VERSION);
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) {
    sink->say(sink->context, "detail", std::strerror(errno));
    return 1;
  }
  rdma_cm_id* identifier = nullptr;
  const int status = rdma_create_id(channel, &identifier, nullptr, RDMA_PS_TCP);
  sink->say(sink->context, "detail",
            status == 0 ? "an event channel and an identifier were had" : std::strerror(errno));
  if (status == 0) rdma_destroy_id(identifier);
  rdma_destroy_event_channel(channel);
  return status == 0 ? 0 : 1;
}
