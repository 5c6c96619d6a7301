// Ranks as threads of the test, joined by the TCP transport on the loopback interface.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "hw/transport/tcp/transport.hpp"

namespace motley::tests {

// Every link of a ring over `ranks` ranks, for transfers and for collectives.
inline std::vector<Link> ring_links(int ranks) {
  std::vector<Link> links;
  for (int rank = 0; rank < ranks && ranks > 1; ++rank)
    links.push_back({Rank(rank), Rank((rank + 1) % ranks), Channel::data_group});
  return links;
}

// The links from every rank to every other, for collectives.
inline std::vector<Link> all_links(int ranks) {
  std::vector<Link> links;
  for (Rank from : IdRange<Rank>(at(ranks)))
    for (Rank to : IdRange<Rank>(at(ranks)))
      if (from != to) links.push_back({from, to, Channel::data_group});
  return links;
}

// Runs `work` on one thread for each rank. Returns what each thread threw (null: nothing).
inline std::vector<std::exception_ptr> on_loopback(int ranks, const std::vector<Link>& links,
                                                   const std::function<void(Transport&)>& work,
                                                   double timeout_s = 60) {
  std::vector<Socket> listeners;
  IdTable<Rank, Address> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    listeners.push_back(listen_on({"127.0.0.1", 0}));
    addresses.add({"127.0.0.1", listeners.back().local_port()});
  }
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto transport = make_tcp_transport(listeners[static_cast<std::size_t>(rank)],
                                                  {Rank(rank), links, addresses, timeout_s});
        work(*transport);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

inline void rethrow_first(const std::vector<std::exception_ptr>& thrown) {
  for (const std::exception_ptr& each : thrown)
    if (each) std::rethrow_exception(each);
}

}  // namespace motley::tests
