// Messages over RDMA verbs. tests/tools/test_verbs.py runs these in guests of tools/rdma-vm, by their tags; elsewhere
// they are hidden, because a machine needs an RDMA device for them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "hw/communicator/communicator.hpp"
#include "hw/rank/memory.hpp"
#include "hw/world/used_memory.hpp"
#include "models/base/index.hpp"
#include "tests/support/collective_cases.hpp"
#include "tests/support/guest_ranks.hpp"
#include "tests/support/held_bytes.hpp"

namespace motley {
namespace {

using namespace tests;

// What the ranks of this guest tell, from several threads.
class Heard {
 public:
  void listen(MessengerOptions& options) {
    options.on_send = [this, from = options.rank](const SendOrder& order, Path path) {
      const std::lock_guard lock(mutex_);
      paths_[{from, order.to}][path] += 1;
      if (bytes_in(order.pieces) >= kLarge) large_paths_[{from, order.to}].insert(path);
    };
    options.on_note = [this](const std::string& what) {
      const std::lock_guard lock(mutex_);
      notes_ += what + "\n";
    };
  }
  static constexpr std::size_t kLarge = 20'000;  // bytes
  using Pair = std::pair<Rank, Rank>;
  const std::map<Pair, std::map<Path, int>>& paths() const { return paths_; }
  const std::map<Pair, std::set<Path>>& large_paths() const { return large_paths_; }
  const std::string& notes() const { return notes_; }

 private:
  std::mutex mutex_;
  std::map<Pair, std::map<Path, int>> paths_;
  std::map<Pair, std::set<Path>> large_paths_;
  std::string notes_;
};

// The sum of counters of this guest's RDMA devices, by their file names.
long counted(const std::vector<std::string>& names) {
  namespace fs = std::filesystem;
  long sum = 0;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband"))
    for (const std::string& name : names) {
      std::ifstream file(device.path() / "ports/1/hw_counters" / name);
      long value = 0;
      if (file >> value) sum += value;
    }
  return sum;
}
long receivers_were_not_ready() { return counted({"rcvd_rnr_err", "sent_rnr_err"}); }

// This rank's part of a case: every rank knows the values of all.
void perform(Messenger& messenger, std::uint64_t context, const CollectiveCase& test, std::uint64_t seed) {
  const std::size_t me = at(messenger.rank().value());
  std::vector<Bytes> values;
  for (int rank = 0; rank < test.ranks; ++rank)
    values.push_back(small_numbers(test.call.element, test.count, seed + at(rank)));
  std::vector<Bytes> wanted = expected(test, values);
  Communicator group(messenger, context, everyone(test.ranks), test.per_node);
  group.run(test.call, values[me]);
  const auto mine = defined(test, values[me], me), right = defined(test, wanted[me], me);
  demand(std::equal(mine.begin(), mine.end(), right.begin(), right.end()), "wrong bytes");
}

std::vector<std::size_t> counts_around_segments(int ranks) {
  const std::size_t segment = at(ranks) * (std::size_t{64} << 10U) / sizeof(float);
  return {0, 1, 37, segment - 1, segment, segment + 1, std::size_t{1} << 20U};
}

void perform_all(Messenger& messenger, int ranks, int per_node) {
  std::uint64_t context = 1;
  for (const CollectiveKind kind : kKinds)
    for (const std::size_t count : counts_around_segments(ranks)) {
      CollectiveCase test{{.kind = kind}, ranks, per_node, count};
      if (kind == CollectiveKind::all_to_all) test.count = count / at(ranks) * at(ranks);
      ++context;
      perform(messenger, context, test, context * 100);
    }
}

TEST_CASE("collectives of every kind and size are right over verbs", "[.][verbs][collectives]") {
  const Guests guests = guests_around();
  const int per_guest = guests.count == 1 ? 2 : 1, ranks = guests.count * per_guest;
  for (const std::size_t least : {std::size_t{0}, MessengerOptions().rdma_bytes}) {
    Heard heard;
    rethrow_first(in_guests(
        per_guest, [&](Messenger& messenger) { perform_all(messenger, ranks, 1); },
        [&](MessengerOptions& options) {
          options.reads_memory = false;
          options.rdma_bytes = least;
          heard.listen(options);
        }));
    CHECK(heard.notes().empty());
    REQUIRE_FALSE(heard.large_paths().empty());
    for (const auto& [pair, paths] : heard.large_paths()) CHECK(paths == std::set{Path::verbs});
    if (least == 0)
      for (const auto& [pair, paths] : heard.paths()) CHECK(paths.size() == 1);
  }
  CHECK(receivers_were_not_ready() == 0);
  CHECK(living_verbs_objects() == 0);
}

TEST_CASE("one communicator uses memory, verbs and TCP at once", "[.][verbs][mixed]") {
  const Guests guests = guests_around();
  constexpr int kPerGuest = 2;
  const int without = guests.count - 1;  // the guest that has no device
  Heard heard;
  rethrow_first(in_guests(
      kPerGuest, [&](Messenger& messenger) { perform_all(messenger, guests.count * kPerGuest, kPerGuest); },
      [&](MessengerOptions& options) { heard.listen(options); }));
  CHECK(heard.notes().empty());
  std::set<Path> seen;
  for (const auto& [pair, paths] : heard.large_paths()) {
    const int from = pair.first.value() / kPerGuest, to = pair.second.value() / kPerGuest;
    const Path right = from == to ? Path::shm : from == without || to == without ? Path::tcp : Path::verbs;
    CAPTURE(pair.first.value(), pair.second.value());
    CHECK(paths == std::set{right});
    seen.insert(right);
  }
  CHECK(seen.size() == (guests.mine == without ? 2 : 3));
  CHECK(living_verbs_objects() == 0);
}

// ---- failures

// Two ranks, each in a guest of its own, send each other what they fill these bytes with.
void exchange_once(Messenger& messenger, std::span<std::byte> outgoing, std::span<std::byte> incoming,
                   int round) {
  const Rank me = messenger.rank(), other(1 - me.value());
  const auto pattern = [round](std::size_t i, Rank from) {
    return static_cast<std::byte>(i * 31 + i / 251 + 7 * at(round) + 3 * at(from));
  };
  for (std::size_t i = 0; i < outgoing.size(); ++i) outgoing[i] = pattern(i, me);
  SendOrder send;
  send.to = other;
  send.key.part = at(round);
  send.pieces = {outgoing};
  ReceiveOrder receive;
  receive.from = other;
  receive.key.part = at(round);
  receive.into = incoming;
  const Request sent = messenger.post(send), received = messenger.post(receive);
  messenger.wait(received);
  messenger.wait(sent);
  for (std::size_t i = 0; i < incoming.size(); ++i) demand(incoming[i] == pattern(i, other), "wrong byte");
}

// As often as that; `before` is called before each.
constexpr int kRounds = 40;
void exchange(Messenger& messenger, std::size_t bytes, const std::function<void(int)>& before = {},
              bool registers = false) {
  std::vector<std::byte> outgoing(bytes), incoming(bytes);
  const auto kept_out = registers ? messenger.register_memory(outgoing) : nullptr,
             kept_in = registers ? messenger.register_memory(incoming) : nullptr;
  demand(!registers || (kept_out && kept_in), "memory was not registered");
  for (int round = 0; round < kRounds; ++round) {
    if (before) before(round);
    exchange_once(messenger, outgoing, incoming, round);
  }
}

// In guest 0, before round 5, on a thread of its own: so it happens while bytes flow.
class Disturbance {
 public:
  explicit Disturbance(std::string command) : command_(std::move(command)) {}
  void operator()(int round) {
    if (round == 5 && guests_around().mine == 0)
      thread_ = std::thread([this] { demand(std::system(command_.c_str()) == 0); });
  }
  ~Disturbance() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::string command_;
  std::thread thread_;
};

TEST_CASE("packets that are lost are sent again, and no byte is wrong", "[.][verbs][loss]") {
  Heard heard;
  rethrow_first(in_guests(
      1, [&](Messenger& messenger) { exchange(messenger, 50'000); },
      [&](MessengerOptions& options) { heard.listen(options); }));
  for (const auto& [pair, paths] : heard.large_paths()) CHECK(paths == std::set{Path::verbs});
  CHECK(heard.notes().empty());
  CHECK(counted({"out_of_seq_request", "rcvd_seq_err", "duplicate_request"}) > 0);
}

TEST_CASE("bytes out of registered memory and into it are right", "[.][verbs][registered]") {
  for (const bool sender : {false, true})
    for (const bool receiver : {false, true})
      rethrow_first(in_guests(1, [&](Messenger& messenger) {
        const Rank other(1 - messenger.rank().value());
        for (const std::size_t bytes :
             {0U, 1U, 65535U, 65536U, 65537U, 262143U, 262144U, 262145U, 1U << 22U}) {
          Bytes outgoing(bytes + 64), incoming(bytes + 64, std::byte{9});
          const auto kept_out = sender ? messenger.register_memory(outgoing) : nullptr,
                     kept_in = receiver ? messenger.register_memory(incoming) : nullptr;
          for (std::size_t i = 0; i < bytes; ++i) outgoing[i + 32] = static_cast<std::byte>(i * 37 + i / 253);
          SendOrder send;
          send.to = other;
          send.key.part = bytes;
          const std::span<const std::byte> message = std::span(outgoing).subspan(32, bytes);
          send.pieces = {message.first(bytes / 3), message.subspan(bytes / 3)};
          ReceiveOrder receive;
          receive.from = other;
          receive.key.part = bytes;
          receive.into = std::span(incoming).subspan(32, bytes);
          const Request sent = messenger.post(send), received = messenger.post(receive);
          messenger.wait(received);
          messenger.wait(sent);
          demand(std::equal(message.begin(), message.end(), receive.into.begin()), "wrong bytes");
          demand(incoming[31] == std::byte{9} && incoming[32 + bytes] == std::byte{9},
                 "bytes beside the buffer");
        }
      }));
  CHECK(living_verbs_objects() == 0);
}

// Each tensor is freed and made anew, as those of a rank are, so that most lie where another lay before.
TEST_CASE("memory that messages use again and again is registered once", "[.][verbs][registered]") {
  rethrow_first(in_guests(1, [&](Messenger& messenger) {
    UsedMemory used(messenger);
    const auto use_and_exchange = [&](std::size_t bytes, int round) {
      const auto outgoing = std::make_unique<std::byte[]>(bytes),
                 incoming = std::make_unique<std::byte[]>(bytes);
      for (const std::byte* const each : {outgoing.get(), incoming.get()}) used.use({each, bytes});
      exchange_once(messenger, {outgoing.get(), bytes}, {incoming.get(), bytes}, round);
    };
    for (int round = 0; round < 5; ++round) use_and_exchange(1U << 20U, round);
    demand(used.registrations() == 0, "memory was registered that may go back to the system");
    const FreedMemoryKept kept;
    demand(FreedMemoryKept::in_force(), "memory does not stay");
    std::mt19937 random(5);  // the same on both sides
    for (int round = 5; round < 80; ++round) use_and_exchange((64U << 10U) + random() % (400U << 10U), round);
    const std::vector<std::byte> whole(1U << 20U), little(1000);
    for (int i = 0; i < UsedMemory::kUses; ++i) used.use(whole);
    const std::size_t before = used.registrations();
    demand(before > 0, "nothing was registered");
    for (int i = 0; i < UsedMemory::kUses; ++i) {
      used.use(little);
      used.use(std::span(whole).first(whole.size() / 2));
    }
    demand(used.registrations() == before, "a part, or little, was registered as well");
  }));
  CHECK(living_verbs_objects() == 0);
}

// Exchanges while the wire of the only RDMA device that is used fails, and TCP has another wire.
void check_that_tcp_goes_on(const std::string& command, const std::string& reason, bool registers) {
  Heard heard;
  Path last = Path::shm;
  Disturbance disturb(command);
  rethrow_first(in_guests(
      1,
      [&](Messenger& messenger) {
        exchange(
            messenger, std::size_t{1} << 20U, [&](int round) { disturb(round); }, registers);
        last = messenger.path_to(Rank(1 - guests_around().mine), 1U << 20U);
      },
      [&](MessengerOptions& options) {
        options.rdma_devices = {"rxe1"};
        heard.listen(options);
      }));
  for (const auto& [pair, paths] : heard.large_paths()) CHECK(paths == std::set{Path::tcp, Path::verbs});
  CHECK(last == Path::tcp);
  CHECK_THAT(heard.notes(), Catch::Contains("no longer use RDMA over rxe1: ") && Catch::Contains(reason));
  CHECK(std::count(heard.notes().begin(), heard.notes().end(), '\n') == 1);
  CHECK(living_verbs_objects() == 0);
}

TEST_CASE("messages go on over TCP when a device's link goes down", "[.][verbs][link]") {
  check_that_tcp_goes_on("rdma-vm-link down 1", "port 1 went down", false);
}

TEST_CASE("messages go on over TCP when no packet comes through any more", "[.][verbs][silence]") {
  check_that_tcp_goes_on("tc qdisc add dev eth1 root netem loss 100%", "transport retry counter exceeded",
                         true);
}

// ---- guarded memory

// Both ranks send each other a message of each size, out of memory of this rank's kind and into the other kind.
void exchange_guarded(Messenger& messenger, const std::vector<std::size_t>& sizes,
                      const std::function<void(int)>& before = {}) {
  const Rank me = messenger.rank(), other(1 - me.value());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (before) before(static_cast<int>(i));
    for (const auto& [from, into] : {std::pair(MemoryKind::guarded, MemoryKind::guarded),
                                     std::pair(MemoryKind::guarded, MemoryKind::host),
                                     std::pair(MemoryKind::host, MemoryKind::guarded)}) {
      const auto message = [&, size = sizes[i]](Rank rank) {
        Bytes bytes(size);
        for (std::size_t j = 0; j < size; ++j)
          bytes[j] = static_cast<std::byte>(j * 37 + j / 253 + 5 * i + at(rank.value()));
        return bytes;
      };
      const HeldBytes outgoing(messenger, from, message(me)),
          incoming(messenger, into, Bytes(sizes[i], std::byte{9}));
      const Request sent = messenger.post(send_to(other, i, outgoing.payload())),
                    received = messenger.post(receive_from(other, i, incoming.payload()));
      messenger.wait(received);
      messenger.wait(sent);
      demand(incoming.contents() == message(other), "wrong bytes");
      demand(messenger.staging_buffers() == 0, "a buffer is not free again");
    }
  }
}

TEST_CASE("bytes out of guarded memory and into it are right over verbs", "[.][verbs][guarded]") {
  Heard heard;
  rethrow_first(in_guests(
      1,
      [&](Messenger& messenger) {
        exchange_guarded(messenger, {0, 1, 4'096, 4'097, 65'537, 524'287, 524'288, 524'289, 3'000'001});
        CollectiveCase test{{.algorithm = CollectiveAlgorithm::ring}, 2, 1, 300'001};
        std::vector<Bytes> values;
        for (const std::uint64_t seed : {1U, 2U})
          values.push_back(small_numbers(test.call.element, test.count, seed));
        const std::size_t me = at(messenger.rank().value());
        const HeldBytes held(messenger, MemoryKind::guarded, values[me]);
        Communicator(messenger, 9, everyone(2)).run(test.call, held.payload());
        demand(held.contents() == expected(test, values)[me], "wrong sums");
      },
      [&](MessengerOptions& options) { heard.listen(options); }));
  CHECK(heard.notes().empty());
  for (const auto& [pair, paths] : heard.large_paths()) CHECK(paths == std::set{Path::verbs});
  CHECK(living_verbs_objects() == 0);
}

TEST_CASE("chunks of guarded memory go again over TCP when a link goes down", "[.][verbs][guarded]") {
  Heard heard;
  Disturbance disturb("rdma-vm-link down 1");
  rethrow_first(in_guests(
      1,
      [&](Messenger& messenger) {
        exchange_guarded(messenger, std::vector<std::size_t>(20, std::size_t{1} << 20U),
                         [&](int round) { disturb(round); });
      },
      [&](MessengerOptions& options) {
        options.rdma_devices = {"rxe1"};
        heard.listen(options);
      }));
  for (const auto& [pair, paths] : heard.large_paths()) CHECK(paths == std::set{Path::tcp, Path::verbs});
  CHECK_THAT(heard.notes(), Catch::Contains("no longer use RDMA over rxe1: "));
  CHECK(living_verbs_objects() == 0);
}

TEST_CASE("of two rails, one that is left carries all", "[.][verbs][rails]") {
  Heard heard;
  Disturbance disturb("rdma-vm-link down 1");
  rethrow_first(in_guests(
      1,
      [&](Messenger& messenger) {
        exchange(
            messenger, std::size_t{1} << 20U, [&](int round) { disturb(round); }, true);
      },
      [&](MessengerOptions& options) { heard.listen(options); }));
  for (const auto& [pair, paths] : heard.large_paths()) CHECK(paths == std::set{Path::verbs});
  CHECK_THAT(heard.notes(), Catch::Contains("no longer use RDMA over rxe1: port 1 went down"));
  CHECK(living_verbs_objects() == 0);
}

TEST_CASE("when no wire is left, every rank fails in time and names who does not answer", "[.][verbs][cut]") {
  constexpr double kTimeout_s = 5;
  Disturbance disturb("rdma-vm-link down 0");
  const double begin_s = monotonic_s();
  const auto thrown = in_guests(
      1,
      [&](Messenger& messenger) {
        exchange(messenger, std::size_t{1} << 20U, [&](int round) { disturb(round); });
      },
      [&](MessengerOptions& options) { options.timeout_s = kTimeout_s; });
  CHECK_THAT(text_of(thrown[0]), Catch::Contains(guests_around().mine == 0 ? "rank 1 does not answer"
                                                                           : "rank 0 does not answer"));
  CHECK(monotonic_s() < begin_s + 40);
  CHECK(living_verbs_objects() == 0);
}

TEST_CASE("a rank that is killed is named", "[.][verbs][kill]") {
  const auto thrown = in_guests(1, [&](Messenger& messenger) {
    exchange(messenger, std::size_t{1} << 20U, [&](int round) {
      if (round == 5 && messenger.rank() == Rank(1)) std::thread([] { std::raise(SIGKILL); }).detach();
    });
  });
  CHECK_THAT(text_of(thrown[0]), Catch::Contains("rank 1 is gone"));
  CHECK(living_verbs_objects() == 0);
}

}  // namespace
}  // namespace motley
