// Ranks as threads of the test, joined by messengers on the loopback interface.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "hw/communicator/messenger.hpp"

namespace motley::tests {

struct Loopback {
  double timeout_s = 60;
  bool reads_memory = false;              // large messages go from memory to memory
  std::optional<bool> copies_twice = {};  // and so: see MessengerOptions
  int streams = 1;
  std::string host = "127.0.0.1";
  // Each with the rank's number.
  std::function<void(Rank, const SendOrder&, Path)> on_send = {};
  std::function<void(Rank, const std::string&)> on_note = {};
  std::function<void(MessengerOptions&)> change = {};  // the options of each rank
};

// How large messages go: over TCP, out of memory, through a file.
inline std::vector<Loopback> every_way() {
  std::vector<Loopback> ways(3);
  ways[1].reads_memory = ways[2].reads_memory = true;
  ways[1].copies_twice = false;
  ways[2].copies_twice = true;
  return ways;
}

inline std::vector<MessengerOptions> loopback_options(int ranks, const Loopback& how) {
  std::vector<MessengerOptions> all(static_cast<std::size_t>(ranks));
  std::vector<PeerPlace> places;
  for (MessengerOptions& each : all) {
    each.listener = listen_on({how.host, 0});
    places.push_back({{how.host, each.listener.local_port()}, memory_domain()});
  }
  for (int i = 0; i < ranks; ++i) {
    MessengerOptions& mine = all[static_cast<std::size_t>(i)];
    mine.rank = Rank(i);
    for (int j = 0; j < ranks; ++j)
      if (i != j) mine.peers[Rank(j)] = places[static_cast<std::size_t>(j)];
    mine.token = JobToken("loopback");
    mine.timeout_s = how.timeout_s;
    mine.reads_memory = how.reads_memory;
    mine.copies_twice = how.copies_twice;
    mine.streams = how.streams;
    if (how.on_send)
      mine.on_send = [&how, i](const SendOrder& order, Path path) { how.on_send(Rank(i), order, path); };
    if (how.on_note) mine.on_note = [&how, i](const std::string& what) { how.on_note(Rank(i), what); };
    if (how.change) how.change(mine);
  }
  return all;
}

// Runs `work` on one thread for each rank. Returns what each thread threw (null: nothing).
inline std::vector<std::exception_ptr> on_loopback(int ranks, const std::function<void(Messenger&)>& work,
                                                   const Loopback& how = {}) {
  std::vector<MessengerOptions> options = loopback_options(ranks, how);
  std::vector<std::exception_ptr> thrown(options.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < options.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        Messenger messenger(std::move(options[i]));
        work(messenger);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

inline void rethrow_first(const std::vector<std::exception_ptr>& thrown) {
  for (const std::exception_ptr& each : thrown)
    if (each) std::rethrow_exception(each);
}

// For the threads of ranks, where Catch's assertions may not be used.
inline void demand(bool holds, const char* what = "a demand of a rank does not hold") {
  if (!holds) throw std::logic_error(what);
}

// What the thread of a rank threw, as text; empty: nothing.
inline std::string text_of(const std::exception_ptr& thrown) {
  if (!thrown) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

inline SendOrder send_to(Rank to, std::uint64_t tag, std::span<const std::byte> bytes, Posted mine = {}) {
  SendOrder order;
  order.to = to;
  order.key.operation = tag;
  order.pieces = {bytes};
  order.mine = mine;
  return order;
}
inline ReceiveOrder receive_from(Rank from, std::uint64_t tag, std::span<std::byte> bytes, Posted mine = {}) {
  ReceiveOrder order;
  order.from = from;
  order.key.operation = tag;
  order.into = bytes;
  order.mine = mine;
  return order;
}

inline Loopback impatient(double timeout_s) {
  Loopback how;
  how.timeout_s = timeout_s;
  return how;
}

}  // namespace motley::tests
