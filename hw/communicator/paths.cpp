// How a Messenger's messages go: out of memory on one host, over RDMA where both sides have it, else over TCP. What an
// RDMA path did not bring goes again over what is left.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hw/communicator/transfer.hpp"

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

// ---- RDMA

// A receiver begins with it, so that the sender knows before it has something to send.
void Messenger::wire_up(Rank peer, std::size_t bytes) {
  if (verbs_ && bytes >= options_.rdma_bytes && !offers_memory(peer, bytes)) verbs_->wire_up(peer);
}

void Messenger::wiring_came(Rank from, const Frame& frame) {
  if (verbs_) return verbs_->came(from, frame);
  if (frame.kind != FrameKind::wire) return;
  Frame answer;
  answer.kind = FrameKind::unwired;
  answer.endpoint.rail = frame.endpoint.rail;
  transport_->tell(from, answer);
}

void Messenger::put(Transfer& send) {
  Put put;
  put.number = send.number;
  put.frame.kind = FrameKind::data;
  put.frame.transfer = send.other;
  put.frame.bytes = send.moving;
  put.frame.attempt = send.attempt;
  put.frame.posted = send.latest;
  put.pieces = cut(send.sent->pieces, 0, send.moving);
  if (put_over_rdma(send, put)) return;
  send.paths.add(Path::tcp);
  if (options_.on_send) options_.on_send(*send.sent, Path::tcp);
  transport_->put(send.peer, std::move(put));
}

// Returns false if it goes over TCP. It waits where it is not known yet.
bool Messenger::put_over_rdma(Transfer& send, Put& put) {
  using Reach = VerbsTransport::Reach;
  if (!verbs_ || !options_.uses_rdma || send.bytes < options_.rdma_bytes) return false;
  verbs_->wire_up(send.peer);
  const Reach reach = verbs_->reach(send.peer);
  if (reach == Reach::wiring) unwired_sends_[send.peer].push_back(send.number);
  if (reach == Reach::wired) {
    send.paths.add(Path::verbs);
    if (options_.on_send) options_.on_send(*send.sent, Path::verbs);
    verbs_->put(send.peer, std::move(put));
  }
  return reach == Reach::wiring || reach == Reach::wired;
}

void Messenger::reach_changed(Rank peer) {
  const auto waiting = unwired_sends_.find(peer);
  if (waiting == unwired_sends_.end()) return;
  for (const std::uint64_t number : std::exchange(waiting->second, {}))
    if (const auto send = sends_.find(number); send != sends_.end()) put(*send->second);
}

void Messenger::gave_back(std::uint64_t number) {
  const auto entry = sends_.find(number);
  if (entry == sends_.end()) return;
  Transfer& send = *entry->second;
  ++send.attempt;
  send.touch();
  put(send);
}

}  // namespace motley
