#include "hw/launch/connections.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "hw/transport/wire.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr std::size_t kHeadBytes = 1 + sizeof(std::uint32_t);
constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;  // by which the place of a message grows
constexpr double kBeatsInLimit = 8, kBetweenBeats_s = 5;
constexpr double kReason_s = 5;       // within which it is told why a rank has gone
constexpr double kFarewell_s = 1;     // for telling the others of an end
constexpr double kOverdue_s = 4;      // after a failure, the owner has ended
constexpr double kMessage_s = 86400;  // Assumes: no rank that runs is a whole day behind
constexpr double kGlance_s = 0.1;     // between two looks whether the job has failed

int milliseconds(double seconds) { return static_cast<int>(std::ceil(std::max(0.0, seconds) * 1000)); }

}  // namespace

Connections::Connections(ConnectionsOptions options)
    : options_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MOTLEY_CHECK(wake_.open());
  if (options_.silence_s > 0) thread_ = std::thread([this] { run(); });
}

Connections::~Connections() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  const std::uint64_t once = 1;
  [[maybe_unused]] const ssize_t bytes = ::write(wake_.descriptor(), &once, sizeof once);
  if (thread_.joinable()) thread_.join();
  if (std::uncaught_exceptions() > 0 && !failure_ && !is_leaving_)
    failure_ = fmt::format("{} failed", name_of(options_.rank));
  for (const auto& [rank, peer] : peers_) try {
      if (!peer->socket.open() || !peer->ending.empty() || options_.silence_s <= 0) continue;
      if (failure_ && !peer->is_told && !is_leaving_) write(*peer, Kind::failure, *failure_, kFarewell_s);
      write(*peer, Kind::farewell, "", kFarewell_s);
    } catch (const std::exception&) {  // it has gone
    }
}

void Connections::add(Rank rank, Socket socket) {
  auto peer = std::make_unique<Peer>();
  peer->rank = rank;
  peer->socket = std::move(socket);
  {
    const std::lock_guard lock(mutex_);
    peers_[rank] = std::move(peer);
  }
  const std::uint64_t once = 1;
  [[maybe_unused]] const ssize_t bytes = ::write(wake_.descriptor(), &once, sizeof once);
}

bool Connections::has(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return peers_.contains(rank);
}

std::vector<Connections::Peer*> Connections::peers() const {
  const std::lock_guard lock(mutex_);
  std::vector<Peer*> all;
  for (const auto& [rank, peer] : peers_)
    if (peer->ending.empty()) all.push_back(peer.get());
  return all;
}

Connections::Peer& Connections::peer(Rank rank) const {
  const std::lock_guard lock(mutex_);
  return *peers_.at(rank);
}

std::map<Rank, Socket> Connections::take() {
  MOTLEY_CHECK(options_.silence_s <= 0);
  std::map<Rank, Socket> sockets;
  for (auto& [rank, peer] : peers_) sockets[rank] = std::move(peer->socket);
  peers_.clear();
  return sockets;
}

// ---- what fails

std::optional<std::string> Connections::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Connections::set_failure(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = why;
  failed_at_s_ = monotonic_s();
  changed_.notify_all();
}

void Connections::end(Peer& peer, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (peer.ending.empty()) peer.ending = why;
  changed_.notify_all();
}

void Connections::throw_failed(const std::string& why) const {
  throw RunFailure(fmt::format("{}: {}", name_of(options_.rank), why));
}

std::string Connections::name_of(Rank rank) const {
  return options_.name ? options_.name(rank) : fmt::format("rank {}", rank);
}

// One that has gone may have been ended by the failure of another one, of which it is told soon.
void Connections::throw_gone(const Peer& peer, const std::string& why) {
  std::unique_lock lock(mutex_);
  if (options_.silence_s > 0)
    changed_.wait_for(lock, std::chrono::duration<double>(kReason_s), [&] { return failure_.has_value(); });
  throw_failed(failure_.value_or(fmt::format("{} is gone ({})", name_of(peer.rank), why)));
}

void Connections::fail(const std::string& what) {
  const std::string own = name_of(options_.rank) + ": ";
  const std::string why = what.starts_with(own) ? what.substr(own.size())
                                                : fmt::format("{} failed: {}", name_of(options_.rank), what);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
  }
  set_failure(why);
  if (options_.silence_s <= 0) return;
  for (Peer* const each : peers()) try {
      write(*each, Kind::failure, why, kFarewell_s);
    } catch (const std::exception&) {  // it has gone
    }
}

// ---- the thread

void Connections::run() {
  const double between_s = std::min(options_.silence_s / kBeatsInLimit, kBetweenBeats_s);
  double looked_s = monotonic_s(), beat_s = looked_s;
  for (;;) {
    std::vector<pollfd> waiting = {{wake_.descriptor(), POLLIN, 0}};
    const std::vector<Peer*> all = peers();
    for (const Peer* const each : all) waiting.push_back({each->socket.descriptor(), POLLIN, 0});
    const bool is_told = tell_failure();
    const double wait_s = is_told ? beat_s + between_s - monotonic_s() : 0.02;
    poll(waiting.data(), waiting.size(), milliseconds(wait_s));
    std::uint64_t times = 0;
    if (waiting[0].revents != 0) [[maybe_unused]]
      const ssize_t bytes = read(wake_.descriptor(), &times, sizeof times);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (waiting[i + 1].revents != 0) read_from(*all[i]);
    const double now_s = monotonic_s();
    // Where this process itself did not run, silence is no sign of anything.
    look_for_silence(std::min(now_s - looked_s, 2 * between_s));
    looked_s = now_s;
    if (now_s >= beat_s + between_s) {
      for (Peer* const each : all) beat(*each);
      beat_s = now_s;
    }
    std::unique_lock lock(mutex_);
    if (stops_) return;
    if (!failure_ || is_overdue_ || now_s < failed_at_s_ + kOverdue_s) continue;
    is_overdue_ = true;
    const std::string why = fmt::format("{}: {}", name_of(options_.rank), *failure_);
    lock.unlock();
    if (options_.on_overdue) options_.on_overdue(why);
  }
}

void Connections::look_for_silence(double passed_s) {
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [rank, peer] : peers_) {
      if (!peer->ending.empty()) continue;
      peer->silent_s += passed_s;
      if (peer->silent_s > options_.silence_s && why.empty())
        why = fmt::format("{} has given no sign of life for {:.3g} s: it is stopped, or its host is gone",
                          name_of(rank), options_.silence_s);
    }
  }
  if (!why.empty()) set_failure(why);
}

void Connections::beat(Peer& peer) {
  const std::unique_lock writing(peer.writing, std::try_to_lock);
  if (!writing.owns_lock()) return;  // a message is being written, which is as good
  if (peer.unsent.empty()) {
    peer.unsent.resize(kHeadBytes);
    peer.unsent[0] = static_cast<std::byte>(Kind::heartbeat);
  }
  write_what_goes(peer);
}

// Rank 0 tells all others. Returns whether nothing is left to tell.
bool Connections::tell_failure() {
  const std::optional<std::string> why = failure();
  if (!why || options_.rank != kLeader) return true;
  bool all = true;
  for (Peer* const each : peers()) {
    if (each->is_told) continue;
    const std::unique_lock writing(each->writing, std::try_to_lock);
    if (!writing.owns_lock()) {
      all = false;
      continue;
    }
    WireWriter frame;
    frame.add(static_cast<std::uint8_t>(Kind::failure));
    frame.add(static_cast<std::uint32_t>(why->size()));
    const std::vector<std::byte> head = frame.take();
    each->unsent.insert(each->unsent.end(), head.begin(), head.end());
    const auto text = std::as_bytes(std::span(*why));
    each->unsent.insert(each->unsent.end(), text.begin(), text.end());
    each->is_told = true;
    write_what_goes(*each);
  }
  return all;
}

// ---- reading

void Connections::read_from(Peer& peer) {
  try {
    while (peer.ending.empty() && read_frame(peer)) {
    }
  } catch (const SocketFailure& failure) {
    const bool expected = !peer.ending.empty();
    end(peer, failure.what());
    if (!expected && options_.silence_s > 0)
      set_failure(fmt::format("{} is gone ({})", name_of(peer.rank), failure.what()));
  }
}

// Reads what there is of a frame. Returns whether it is complete.
bool Connections::read_frame(Peer& peer) {
  const auto note = [&](std::size_t bytes) {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    peer.silent_s = 0;
  };
  peer.head.resize(kHeadBytes);
  while (peer.came < kHeadBytes) {
    const std::size_t bytes = peer.socket.read_some(std::span(peer.head).subspan(peer.came));
    note(bytes);
    if (bytes == 0) return false;
    peer.came += bytes;
    if (peer.came < kHeadBytes) continue;
    WireReader reader(peer.head);
    reader.number<std::uint8_t>();
    peer.length = reader.number<std::uint32_t>();
    if (peer.length > kMessageBytesMax) throw SocketFailure(SocketEnd::closed, "it sends no message of ours");
    peer.until_s = monotonic_s() + limit_s() + seconds_for(peer.length);
    peer.body.clear();
  }
  while (peer.came < kHeadBytes + peer.length) {
    const std::size_t begun = peer.came - kHeadBytes;
    if (begun == peer.body.size()) peer.body.resize(std::min(peer.length, begun + kPieceBytes));
    const std::size_t bytes = peer.socket.read_some(std::span(peer.body).subspan(begun));
    note(bytes);
    if (monotonic_s() > peer.until_s)
      throw SocketFailure(SocketEnd::timed_out,
                          fmt::format("a message of {} bytes was not complete after {:.3g} s", peer.length,
                                      limit_s() + seconds_for(peer.length)));
    if (bytes == 0) return false;
    peer.came += bytes;
  }
  const auto kind = static_cast<Kind>(peer.head[0]);
  peer.came = 0;
  take(peer, kind, {reinterpret_cast<const char*>(peer.body.data()), peer.length});
  return true;
}

void Connections::take(Peer& peer, Kind kind, std::string text) {
  if (kind == Kind::failure) set_failure(text);
  if (kind == Kind::farewell) end(peer, "it has ended");
  if (kind != Kind::message) return;
  const std::lock_guard lock(mutex_);
  peer.inbox.push_back(std::move(text));
  changed_.notify_all();
}

// ---- messages

// Returns false when the time is over.
bool Connections::await_message(Peer& peer, std::unique_lock<std::mutex>& lock, double until_s) {
  while (peer.inbox.empty() && !failure_ && peer.ending.empty()) {
    const double left_s = until_s - monotonic_s();
    if (left_s <= 0) return false;
    if (options_.silence_s > 0) {
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(left_s, 1.0)));
      continue;
    }
    lock.unlock();
    pollfd waiting{peer.socket.descriptor(), POLLIN, 0};
    poll(&waiting, 1, milliseconds(std::min(left_s, 1.0)));
    read_from(peer);
    lock.lock();
  }
  return true;
}

std::string Connections::receive(Rank rank) {
  Peer& from = peer(rank);
  const double limit_s = options_.silence_s > 0 ? kMessage_s : options_.timeout_s;
  std::unique_lock lock(mutex_);
  const bool in_time = await_message(from, lock, monotonic_s() + limit_s);
  if (!from.inbox.empty()) {
    std::string message = std::move(from.inbox.front());
    from.inbox.pop_front();
    return message;
  }
  if (failure_) throw_failed(*failure_);
  if (!in_time) throw_failed(fmt::format("{} has sent nothing for {} s", name_of(rank), limit_s));
  lock.unlock();
  throw_gone(from, from.ending);
}

bool Connections::wait_for_message(Rank rank, double seconds) {
  Peer& from = peer(rank);
  std::unique_lock lock(mutex_);
  return await_message(from, lock, monotonic_s() + seconds);
}

std::optional<std::string> Connections::ending(Rank rank) const {
  const std::lock_guard lock(mutex_);
  const std::string& ending = peers_.at(rank)->ending;
  if (failure_ || ending.empty()) return failure_;
  return fmt::format("{} is gone ({})", name_of(rank), ending);
}

void Connections::send(Rank rank, const std::string& message) {
  Peer& to = peer(rank);
  try {
    write(to, Kind::message, message, limit_s());
  } catch (const SocketFailure& failure) {
    throw_gone(to, failure.what());
  }
}

// Throws SocketFailure, or RunFailure where the job has failed meanwhile.
void Connections::write(Peer& peer, Kind kind, const std::string& text, double limit_s) {
  const std::lock_guard writing(peer.writing);
  MOTLEY_CHECK(text.size() <= kMessageBytesMax);
  WireWriter frame;
  frame.add(static_cast<std::uint8_t>(kind));
  frame.add(static_cast<std::uint32_t>(text.size()));
  const std::vector<std::byte> head = frame.take();
  const std::vector<std::byte> before = std::exchange(peer.unsent, {});  // nothing of which may be lost
  const double until_s = monotonic_s() + limit_s + seconds_for(text.size());
  for (std::span<const std::byte> bytes :
       {std::span<const std::byte>(before), std::span<const std::byte>(head), std::as_bytes(std::span(text))})
    while (!bytes.empty()) {
      if (kind == Kind::message &&
          bytes.data() == head.data())  // what is begun is ended, else nothing could follow
        if (const auto why = failure()) throw_failed(*why);
      const std::size_t written = peer.socket.write_some(bytes);
      bytes = bytes.subspan(written);
      if (written > 0) continue;
      pollfd waiting{peer.socket.descriptor(), POLLOUT, 0};
      poll(&waiting, 1, milliseconds(std::min(kGlance_s, std::max(0.0, until_s - monotonic_s()))));
      if (monotonic_s() > until_s)
        throw SocketFailure(SocketEnd::timed_out, fmt::format("it takes nothing for {:.3g} s", limit_s));
    }
}

void Connections::write_what_goes(Peer& peer) {
  try {
    const std::size_t written = peer.socket.write_some(peer.unsent);
    peer.unsent.erase(peer.unsent.begin(), peer.unsent.begin() + static_cast<std::ptrdiff_t>(written));
  } catch (const SocketFailure&) {  // it has gone, and reading tells so
    peer.unsent.clear();
  }
}

}  // namespace motley
