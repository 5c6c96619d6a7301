// Payloads over RDMA verbs: reliable connected queues between the RDMA devices of two ranks, one pair for each device,
// which are wired up when two ranks first have a large message for each other. All else that ranks tell each other, the
// wiring included, goes over another transport, as frames. A pair that fails is not used again, and what was on its way
// is given back: the owner sends it another way.
// Assumes: devices of one number can reach each other. Refuses to be a transport of its own: it has no tell().
// Read next: hw/transport/verbs/queue_pair.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hw/transport/transport.hpp"

namespace motley {

struct VerbsOptions {
  Rank rank;
  std::vector<std::string> devices;  // that are used, in this order; empty: all that can be
};

class VerbsEvents {
 public:
  virtual ~VerbsEvents() = default;
  // This frame goes to the peer, behind those that went before.
  virtual void tells(Rank peer, const Frame& frame) = 0;
  // The peer can be reached now, or cannot be reached any more.
  virtual void reach_changed(Rank peer) = 0;
  // A Put did not get through. Some of its bytes may have come.
  virtual void gave_back(std::uint64_t number) = 0;
};

class VerbsTransport {
 public:
  // unknown: nobody has asked. none: there is no way, or none any more.
  enum class Reach : std::uint8_t { unknown, wiring, wired, none };

  virtual ~VerbsTransport() = default;
  virtual Reach reach(Rank peer) const = 0;
  // Begins to wire up with a peer that is unknown.
  virtual void wire_up(Rank peer) = 0;
  // Takes a frame of the kinds wire, wired and unwired.
  virtual void came(Rank from, const Frame& frame) = 0;
  // As Transport::put(), for a peer that is wired.
  virtual void put(Rank peer, Put put) = 0;
  virtual void progress() = 0;
  // What wait() of another transport also waits for.
  virtual std::vector<int> descriptors() const = 0;
  // Forgets every Put, sends and receives nothing any more, and tells the peers what came.
  virtual void close() = 0;
  // The peer is gone.
  virtual void forget(Rank peer) = 0;
  // Registers memory for all devices, so that bytes out of it and into it are not copied. 0: it cannot be, which is
  // noted.
  virtual std::uint64_t register_memory(std::span<std::byte> bytes) = 0;
  virtual void unregister_memory(std::uint64_t number) = 0;
  // How peers write these bytes, if they lie in registered memory.
  virtual RemoteMemory place_of(std::span<const std::byte> bytes) const = 0;
};

// Nothing where no device can be used. The reasons are noted; that there is no device is none.
std::unique_ptr<VerbsTransport> open_verbs(const VerbsOptions& options, TransportEvents& events,
                                           VerbsEvents& owner);

// How many objects of libibverbs live in this process.
int living_verbs_objects();

}  // namespace motley
