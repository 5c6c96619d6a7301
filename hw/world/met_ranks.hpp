// Messages between the ranks that have met at a rendezvous. Read next: hw/launch/rendezvous.hpp,
// hw/communicator/messenger.hpp.
#pragma once

#include <vector>

#include "hw/communicator/messenger.hpp"
#include "hw/launch/place.hpp"
#include "hw/launch/rendezvous.hpp"

namespace motley {

// For the Messenger of this rank. Takes the listener of the rendezvous away.
inline MessengerOptions messages_after(Rendezvous& rendezvous, const Place& place, double timeout_s) {
  MessengerOptions messages;
  messages.rank = place.rank;
  messages.listener = rendezvous.take_listener();
  messages.peers = rendezvous.peers();
  messages.token = place.token;
  messages.timeout_s = timeout_s;
  return messages;
}

inline std::vector<Rank> all_ranks(const Rendezvous& rendezvous) {
  std::vector<Rank> ranks;
  for (const Rank rank : rendezvous.places().ids()) ranks.push_back(rank);
  return ranks;
}

}  // namespace motley
