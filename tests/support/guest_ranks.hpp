// Ranks in the guests of tools/rdma-vm: each guest runs the same test, whose ranks there are threads. In another place
// than a guest there are none.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hw/communicator/messenger.hpp"
#include "hw/launch/rendezvous.hpp"
#include "tests/support/loopback.hpp"

namespace motley::tests {

struct Guests {
  int mine = 0, count = 0;
  std::vector<std::string> addresses;
};

inline Guests guests_around() {
  Guests guests;
  const char* const mine = std::getenv("RDMA_VM_RANK");
  const char* const peers = std::getenv("RDMA_VM_PEERS");
  if (mine == nullptr || peers == nullptr) return guests;
  std::istringstream words(peers);
  for (std::string word; words >> word;) guests.addresses.push_back(word);
  guests.mine = std::atoi(mine);
  guests.count = static_cast<int>(guests.addresses.size());
  return guests;
}

// Rank g * per_guest + i is the i-th of guest g. Runs `work` on one thread for each rank of this guest. Each guest
// calls it as often and in the same order. Returns what each thread threw (null: nothing).
inline std::vector<std::exception_ptr> in_guests(int per_guest, const std::function<void(Messenger&)>& work,
                                                 const std::function<void(MessengerOptions&)>& change = {}) {
  static std::uint16_t port = 7000;
  ++port;
  const Guests guests = guests_around();
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(per_guest));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < thrown.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        RendezvousOptions place;
        place.rank = Rank(guests.mine * per_guest + static_cast<int>(i));
        place.rank_count = guests.count * per_guest;
        place.at = {guests.addresses.at(0), port};
        place.token = JobToken("guests");
        Rendezvous rendezvous(place);
        MessengerOptions options;
        options.rank = place.rank;
        options.listener = rendezvous.take_listener();
        options.peers = rendezvous.peers();
        options.token = place.token;
        options.timeout_s = 60;
        if (change) change(options);
        Messenger messenger(std::move(options));
        work(messenger);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace motley::tests
