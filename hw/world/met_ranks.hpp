// Messages between the ranks that have met at a rendezvous. Read next: hw/launch/rendezvous.hpp,
// hw/communicator/messenger.hpp.
#pragma once

#include <string>
#include <vector>

#include "hw/communicator/messenger.hpp"
#include "hw/launch/place.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/transport/host_id.hpp"
#include "models/check/inventory.hpp"

namespace motley {

// For the Messenger of this rank. Takes the listener of the rendezvous away.
inline MessengerOptions messages_after(Rendezvous& rendezvous, const Place& place, double timeout_s) {
  MessengerOptions messages;
  messages.rank = place.rank;
  messages.listener = rendezvous.take_listener();
  messages.peers = rendezvous.peers();
  messages.token = place.token;
  messages.rdma_devices = place.nics;
  messages.timeout_s = timeout_s;
  return messages;
}

// The host_id() of every rank.
inline std::vector<std::string> hosts_of(const Rendezvous& rendezvous) {
  std::vector<std::string> hosts;
  for (const PeerPlace& place : rendezvous.places()) hosts.push_back(host_of(place.domain));
  return hosts;
}

// Where every rank is. Real ranks compute on processor cores.
inline Inventory inventory_of(const Rendezvous& rendezvous) {
  Inventory inventory;
  for (const PeerPlace& place : rendezvous.places())
    inventory.add({.id = host_of(place.domain), .name = place.address.host, .device = "cpu"});
  return inventory;
}

inline std::vector<Rank> all_ranks(const Rendezvous& rendezvous) {
  std::vector<Rank> ranks;
  for (const Rank rank : rendezvous.places().ids()) ranks.push_back(rank);
  return ranks;
}

}  // namespace motley
