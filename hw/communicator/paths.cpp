// How a Messenger's messages go: out of memory on one host, over RDMA where both sides have it, else over TCP. What an
// RDMA path did not bring goes again over what is left.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "hw/communicator/transfer.hpp"
#include "hw/transport/shm/copy_speed.hpp"

namespace motley {
namespace {

// Smaller messages go through the connection: to take them from memory needs one more message.
constexpr std::size_t kOfferBytes = std::size_t{16} << 10U;

}  // namespace

void Messenger::open_rdma() {
  const bool has_far_peers = std::any_of(options_.peers.begin(), options_.peers.end(),
                                         [&](const auto& peer) { return !is_near(peer.second); });
  if (!options_.uses_rdma || !has_far_peers) return;
  verbs_ = open_verbs({options_.rank, options_.rdma_devices}, *this, *this);
  if (!verbs_) return;
  for (const int descriptor : verbs_->descriptors()) transport_->wait_also_for(descriptor);
}

Path Messenger::path_to(Rank peer, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (offers_memory(peer, bytes)) return Path::shm;
  const bool rdma = verbs_ && options_.uses_rdma && bytes >= options_.rdma_bytes &&
                    verbs_->reach(peer) == VerbsTransport::Reach::wired;
  return rdma ? Path::verbs : Path::tcp;
}

std::string Messenger::why_not_memory(Rank peer) const {
  const std::lock_guard lock(mutex_);
  if (!options_.reads_memory) return "memory is not to be read";
  if (const auto tried = unreadable_.find(peer); tried != unreadable_.end()) return tried->second;
  return why_apart(domain_, options_.peers.at(peer).domain);
}

void Messenger::allow(Path path) {
  const std::lock_guard lock(mutex_);
  options_.reads_memory = path == Path::shm;
  options_.uses_rdma = path == Path::verbs;
  if (options_.reads_memory) let_siblings_read();
}

bool Messenger::is_near(const PeerPlace& place) const {
  return options_.reads_memory && !domain_.empty() && place.domain == domain_;
}

bool Messenger::offers_memory(Rank peer, std::size_t bytes) const {
  const auto place = options_.peers.find(peer);
  return place != options_.peers.end() && is_near(place->second) && bytes >= kOfferBytes &&
         !cannot_read_.contains(peer);
}

bool Messenger::copies_twice() const {
  return options_.copies_twice ? *options_.copies_twice : two_copies_are_faster();
}

Frame Messenger::data_of(const Transfer& send) {
  Frame frame;
  frame.kind = FrameKind::data;
  frame.transfer = send.other;
  frame.bytes = send.moving;
  frame.attempt = send.attempt;
  frame.posted = send.latest;
  return frame;
}

Frame Messenger::offer_of(const Transfer& send) const {
  Frame frame;
  frame.kind = FrameKind::offer;
  frame.transfer = send.other;
  frame.bytes = send.moving;
  frame.posted = send.latest;
  frame.mark = {static_cast<std::uint64_t>(getpid()), reinterpret_cast<std::uint64_t>(&mark_value_),
                mark_value_};
  return frame;
}

// ---- RDMA

// A receiver begins with it, so that the sender knows before it has something to send.
void Messenger::wire_up(const Transfer& receive, Frame& ready) {
  const bool large = options_.uses_rdma && receive.bytes >= options_.rdma_bytes;
  if (!verbs_ || !large || offers_memory(receive.peer, receive.bytes)) return;
  verbs_->wire_up(receive.peer);
  ready.place = verbs_->place_of(receive.into);
}

std::shared_ptr<void> Messenger::register_memory(std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = verbs_ ? verbs_->register_memory(bytes) : 0;
  if (number == 0) return nullptr;
  return {static_cast<void*>(bytes.data()), [this, number](void*) {
            const std::lock_guard its_lock(mutex_);
            verbs_->unregister_memory(number);
          }};
}

void Messenger::wiring_came(Rank from, const Frame& frame) {
  if (verbs_) return verbs_->came(from, frame);
  if (frame.kind != FrameKind::wire) return;
  Frame answer;
  answer.kind = FrameKind::unwired;
  answer.endpoint.rail = frame.endpoint.rail;
  transport_->tell(from, answer);
}

// Nothing where it is not known yet: then put() is called again.
std::optional<Path> Messenger::choose_path(const Transfer& send) {
  using Reach = VerbsTransport::Reach;
  if (!verbs_ || !options_.uses_rdma || send.bytes < options_.rdma_bytes) return Path::tcp;
  verbs_->wire_up(send.peer);
  const Reach reach = verbs_->reach(send.peer);
  if (reach == Reach::wired) return Path::verbs;
  if (reach != Reach::wiring) return Path::tcp;
  unwired_sends_[send.peer].push_back(send.number);
  return std::nullopt;
}

void Messenger::put(Transfer& send) {
  if (send.is_staged) return put_chunks(send);
  const std::optional<Path> path = choose_path(send);
  if (!path) return;
  Put put;
  put.number = send.number;
  put.frame = data_of(send);
  put.pieces = cut(send.sent->pieces, 0, send.moving);
  put.place = send.place;
  send.paths.add(*path);
  if (options_.on_send) options_.on_send(*send.sent, *path);
  if (*path == Path::verbs)
    verbs_->put(send.peer, std::move(put));
  else
    transport_->put(send.peer, std::move(put));
}

void Messenger::reach_changed(Rank peer) {
  const auto waiting = unwired_sends_.find(peer);
  if (waiting == unwired_sends_.end()) return;
  for (const std::uint64_t number : std::exchange(waiting->second, {}))
    if (const auto send = sends_.find(number); send != sends_.end()) put(*send->second);
}

void Messenger::gave_back(std::uint64_t number) {
  const auto entry = sends_.find(number);
  if (entry == sends_.end()) return chunk_came_back(number);
  Transfer& send = *entry->second;
  ++send.attempt;
  send.touch();
  put(send);
}

}  // namespace motley
