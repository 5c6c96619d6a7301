#include "hw/communicator/messenger.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hw/communicator/collective_performer.hpp"
#include "hw/communicator/transfer.hpp"
#include "hw/transport/tcp/transport.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr double kFarewell_s = 1;

std::unique_ptr<Transport> make_transport(MessengerOptions& options, TransportEvents& events) {
  TcpOptions tcp;
  tcp.rank = options.rank;
  tcp.listener = std::move(options.listener);
  for (const auto& [rank, place] : options.peers) tcp.addresses[rank] = place.address;
  tcp.token = options.token;
  tcp.streams = options.streams;
  return std::make_unique<TcpTransport>(std::move(tcp), events);
}

}  // namespace

Messenger::Messenger(MessengerOptions options)
    : options_(std::move(options)), domain_(memory_domain()), transport_(make_transport(options_, *this)) {
  const Nonce nonce = random_nonce();
  std::uint64_t value = 0;
  std::memcpy(&value, nonce.data(), sizeof value);
  mark_value_ = value;
  if (options_.reads_memory) let_siblings_read();
  open_rdma();
}

Messenger::~Messenger() {
  const std::lock_guard lock(mutex_);
  mark_value_ = 0;
  for (Operation* const operation : pending_) operation->state = Operation::State::failed;
  pending_.clear();
  forget_transfers();
  transport_->abandon();
  if (verbs_) verbs_->close();
  Frame goodbye;
  goodbye.kind = FrameKind::goodbye;
  if (!failure_) transport_->tell_all(goodbye);
  failure_ = "the messenger has ended";
  transport_->flush(kFarewell_s);
}

// ---- what callers do

Messenger::Together::Together(Messenger& messenger) : messenger_(messenger) {
  const std::lock_guard lock(messenger_.mutex_);
  messenger_.transport_->hold();
}

Messenger::Together::~Together() {
  const std::lock_guard lock(messenger_.mutex_);
  messenger_.transport_->release();
  messenger_.end_eager();
  messenger_.run_later();
  messenger_.announce(false);
}

Request Messenger::post(SendOrder order) {
  const std::lock_guard lock(mutex_);
  Request request = post_send(std::move(order), nullptr);
  run_later();
  announce(false);
  return request;
}

Request Messenger::post(ReceiveOrder order) {
  const std::lock_guard lock(mutex_);
  Request request = post_receive(std::move(order), nullptr);
  run_later();
  announce(false);
  return request;
}

Request Messenger::post(CollectiveOrder order) {
  const std::lock_guard lock(mutex_);
  const MessageKey key{order.context, order.operation, 0};
  const Call call = order.call;
  const auto run = std::make_shared<CollectivePerformer>(*this, std::move(order));
  track(*run);
  calls_[{key.context, key.operation}] = call;
  check_ready_calls(key, call);
  if (failure_)
    complete(*run, Operation::State::failed);
  else
    run->start();
  run_later();
  announce(false);
  return run;
}

void Messenger::throw_if_failed(const Request& request) const {
  if (request->state == Operation::State::failed) throw RunFailure(failure_.value_or("stopped"));
}

bool Messenger::test(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (!driving_) {
    progress();
    announce(false);
  }
  throw_if_failed(request);
  return request->state != Operation::State::pending;
}

// What comes soon need not wake this thread. After a moment it offers its processor to others between its looks, and
// sleeps at once if one of them has taken it for long: where ranks share processors, those who compute come first.
void Messenger::spin(std::unique_lock<std::mutex>& lock, const Operation& operation) {
  constexpr double kTakenFor_s = 100e-6, kBusy_s = 0.05;
  const double since_s = monotonic_s();
  double now_s = since_s;
  while (operation.state == Operation::State::pending) {
    if (now_s >= since_s + options_.spin_s) {
      if (now_s >= since_s + options_.long_spin_s || now_s < processor_busy_until_s_) return;
      sched_yield();
      const double back_s = monotonic_s();
      if (back_s >= now_s + kTakenFor_s) processor_busy_until_s_ = back_s + kBusy_s;
    }
    announce(true);
    lock.unlock();
    lock.lock();  // others may post in between
    progress();
    now_s = monotonic_s();
  }
}

Posted Messenger::wait(const Request& request) {
  std::unique_lock lock(mutex_);
  const auto pending = [&] { return request->state == Operation::State::pending; };
  ++request->waiters;
  while (pending()) {
    if (driving_) {
      changed_.wait(lock);
      continue;
    }
    driving_ = true;
    progress();
    spin(lock, *request);
    if (pending()) {
      transport_->send_held();
      announce(true);
      lock.unlock();
      transport_->wait(std::min(1.0, options_.timeout_s / 4));
      lock.lock();
    }
    driving_ = false;
  }
  --request->waiters;
  announce(true);
  changed_.notify_all();  // another thread that waits goes on moving messages
  throw_if_failed(request);
  return request->latest;
}

PathSet Messenger::paths_of(const Request& request) const {
  const std::lock_guard lock(mutex_);
  return request->paths;
}

void Messenger::cancel(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (request->state != Operation::State::pending) return;
  request->cancel(*this);
  run_later();
  announce(false);
}

void Messenger::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (const auto& [peer, place] : options_.peers) spoken_.insert(peer);  // all shall know
  fail(options_.rank, why);
  announce(false);
}

void Messenger::announce(bool by_driver) {
  if (!std::exchange(completed_, false)) return;
  changed_.notify_all();
  if (driving_ && !by_driver) transport_->wake();
}

// ---- operations

void Messenger::complete(Operation& operation, Operation::State state) {
  operation.state = state;
  pending_.erase(&operation);
  completed_ = true;
}

// Takes a pointer of its own: that of the caller may be the one which is erased here.
void Messenger::end(std::shared_ptr<Transfer> transfer, Operation::State state) {
  (transfer->is_send() ? sends_ : receives_).erase(transfer->number);
  if (!transfer->is_send() && transfer->bytes <= kEagerMost) drop(small_receives_, *transfer);
  if (!transfer->lands.empty() && state == Operation::State::done)
    memory_.copy(transfer->lands, transfer->copied);
  complete(*transfer, state);
  if (transfer->then) later_.push_back(std::move(transfer->then));
}

bool Messenger::drop(std::map<Key, std::deque<std::uint64_t>>& waiting, const Transfer& transfer) {
  const auto entry = waiting.find({transfer.peer, transfer.key});
  if (entry == waiting.end()) return false;
  auto& numbers = entry->second;
  const auto number = std::find(numbers.begin(), numbers.end(), transfer.number);
  if (number == numbers.end()) return false;
  numbers.erase(number);
  if (numbers.empty()) waiting.erase(entry);
  return true;
}

void Messenger::run_later() {
  while (!later_.empty()) {
    const Then then = std::move(later_.front());
    later_.pop_front();
    if (!failure_) then();
  }
}

std::shared_ptr<Messenger::Transfer> Messenger::post_send(SendOrder order, Then then) {
  auto send = std::make_shared<Transfer>(next_number_++, order.to, order.key, order.call, order.mine);
  send->sent = std::move(order);
  send->bytes = bytes_in(send->sent->pieces);
  stage(*send);
  send->then = std::move(then);
  track(*send);
  if (failure_) {
    send->then = nullptr;
    complete(*send, Operation::State::failed);
    return send;
  }
  sends_[send->number] = send;
  if (lost_.contains(send->peer)) {
    wait_for_reason(send->peer);
    return send;
  }
  spoken_.insert(send->peer);
  const Key key{send->peer, send->key};
  const auto ready = readies_.find(key);
  if (ready == readies_.end()) {
    send_eagerly(*send);
    waiting_sends_[key].push_back(send->number);
    return send;
  }
  const Frame frame = std::move(ready->second.front());
  ready->second.pop_front();
  if (ready->second.empty()) readies_.erase(ready);
  begin(send, frame);
  return send;
}

std::shared_ptr<Messenger::Transfer> Messenger::post_receive(ReceiveOrder order, Then then) {
  auto receive = std::make_shared<Transfer>(next_number_++, order.from, order.key, order.call, order.mine);
  receive->room = std::move(order.room);
  receive->into = order.into;
  receive->bytes = receive->room ? order.bytes : order.into.size();
  stage(*receive);
  receive->then = std::move(then);
  track(*receive);
  if (failure_) {
    receive->then = nullptr;
    complete(*receive, Operation::State::failed);
    return receive;
  }
  receives_[receive->number] = receive;
  if (lost_.contains(receive->peer)) {
    wait_for_reason(receive->peer);
    return receive;
  }
  spoken_.insert(receive->peer);
  Frame ready;
  ready.kind = FrameKind::ready;
  ready.transfer = receive->number;
  ready.key = order.key;
  ready.call = order.call;
  ready.bytes = receive->bytes;
  ready.posted = order.mine;
  if (!accept_early(receive)) {
    wire_up(*receive, ready);
    if (receive->bytes <= kEagerMost)
      small_receives_[{receive->peer, receive->key}].push_back(receive->number);
  }
  transport_->tell(receive->peer, ready);
  end_eager();
  return receive;
}

// Both sides are ready.
void Messenger::begin(const std::shared_ptr<Transfer>& send, const Frame& ready) {
  check(send->call, ready, send->peer);
  if (!failure_ && ready.bytes != send->bytes)
    fail(send->peer, fmt::format("rank {} sends {} bytes, and rank {} expects {}", options_.rank, send->bytes,
                                 send->peer, ready.bytes));
  if (failure_) return;
  send->latest = latest_of(send->latest, ready.posted);
  send->other = ready.transfer;
  send->place = ready.place;
  send->touch();
  if (send->is_eager) {
    --eager_[send->peer].unmatched;
    leaving_.push_back(send);
    return end_eager();
  }
  const Pieces& pieces = send->sent->pieces;
  const bool looks_for_zeros = send->sent->keeps_zeros_back && pieces.size() == 1 && !send->is_staged;
  send->moving = looks_for_zeros ? bytes_before_zeros(pieces[0]) : send->bytes;
  const bool offers = offers_memory(send->peer, send->moving);
  if (!send->is_staged && offers && copies_twice() && staged_.buffers.are_shared())
    send->is_staged = send->is_staged_for_speed = true;
  if (send->is_staged || !offers || pieces.size() > kPiecesMost) return put(*send);
  Frame offer = offer_of(*send);
  offer.sender_number = send->number;
  for (const auto& piece : cut(pieces, 0, send->moving))
    offer.pieces.push_back({reinterpret_cast<std::uint64_t>(piece.data()), piece.size()});
  send->paths.add(Path::shm);
  if (options_.on_send) options_.on_send(*send->sent, Path::shm);
  transport_->tell(send->peer, offer);
}

PeerMemory* Messenger::memory_of(Rank peer, const MemoryMark& mark) {
  auto known = memories_.find(peer);
  if (known == memories_.end() || known->second.first != mark) {
    std::string why;
    known = memories_.insert_or_assign(peer, std::pair(mark, PeerMemory::open(mark, why))).first;
    if (!why.empty())
      noted(unreadable_[peer] =
                fmt::format("rank {} cannot read the memory of rank {}: {}", options_.rank, peer, why));
  }
  return known->second.second ? &*known->second.second : nullptr;
}

void Messenger::take_offer(Rank from, const Frame& offer) {
  const auto entry = receives_.find(offer.transfer);
  std::uint64_t length = 0;
  for (const MemoryPiece& piece : offer.pieces) length += piece.bytes;
  const bool expected = entry != receives_.end() && entry->second->peer == from &&
                        offer.bytes <= entry->second->bytes && offer.offset <= offer.bytes &&
                        length <= offer.bytes - offer.offset;
  if (!expected) return;  // this rank has failed
  Frame answer;
  answer.sender_number = offer.sender_number;
  const auto receive = entry->second;
  receive->open();
  Then then;
  const std::span<std::byte> into = receive->into.subspan(offer.offset, length);
  PeerMemory* const memory = options_.reads_memory ? memory_of(from, offer.mark) : nullptr;
  if (memory != nullptr && read_offered(*memory, offer, *receive, into)) {
    if (!std::exchange(receive->begun, true)) memory_.clear(receive->into.subspan(offer.bytes));
    receive->moving = offer.bytes;
    receive->moved += length;
    receive->touch();
    receive->latest = latest_of(receive->latest, offer.posted);
    receive->paths.add(Path::shm);
    if (receive->moved >= receive->moving) {
      then = std::exchange(receive->then, nullptr);
      end(receive);
    }
    answer.kind = FrameKind::taken;
  } else {
    answer.kind = FrameKind::refused;
  }
  transport_->tell(from, answer);
  if (then && !failure_) then();
}

// ---- what peers say

void Messenger::came(Rank from, const Frame& frame) {
  spoken_.insert(from);
  const auto sent = [&]() -> std::shared_ptr<Transfer> {
    const auto entry = sends_.find(frame.sender_number);
    return entry != sends_.end() && entry->second->peer == from ? entry->second : nullptr;
  };
  switch (frame.kind) {
    case FrameKind::ready: {
      const Key key{from, frame.key};
      eager_[from].seen = frame.transfer;
      const auto waiting = waiting_sends_.find(key);
      if (waiting == waiting_sends_.end()) {
        const auto call = calls_.find({frame.key.context, frame.key.operation});
        if (call != calls_.end()) check(call->second, frame, from);
        readies_[key].push_back(frame);
        return;
      }
      const auto send = sends_.at(waiting->second.front());
      waiting->second.pop_front();
      if (waiting->second.empty()) waiting_sends_.erase(waiting);
      return begin(send, frame);
    }
    case FrameKind::offer:
      // What one offer brings is reduced, while it is near, before the next is taken.
      return later_.push_back([this, from, frame] { take_offer(from, frame); });
    case FrameKind::taken:
      if (const auto send = sent()) return end(send);
      return chunk_left(frame.sender_number);
    case FrameKind::refused:
      cannot_read_.insert(from);
      if (const auto send = sent()) return put(*send);
      return chunk_came_back(frame.sender_number);
    case FrameKind::withdraw:
      return withdraw_ready(from, frame);
    case FrameKind::withdrawn: {
      const auto entry = receives_.find(frame.transfer);
      if (entry != receives_.end() && entry->second->peer == from)
        end(entry->second, Operation::State::cancelled);
      return;
    }
    case FrameKind::eager:
      return take_eager(from, frame);
    case FrameKind::recall:
      return recall(from, frame);
    case FrameKind::recalled:
      if (const auto send = sent(); send && send->is_eager) {
        --eager_[from].unmatched;
        drop(waiting_sends_, *send);
        end(send, Operation::State::cancelled);
      }
      return;
    case FrameKind::abort:
      return fail(frame.rank.value_or(from), frame.text);
    case FrameKind::goodbye:
      goodbyes_.insert(from);
      return;
    case FrameKind::ask:
      return transport_->tell(from, answer_to(frame));
    case FrameKind::answer:
      return answered(from, frame);
    case FrameKind::wire:
    case FrameKind::wired:
    case FrameKind::unwired:
      return wiring_came(from, frame);
    case FrameKind::data:
      return;
  }
}

// The peer cancels its receive: it may use the buffer again once it knows that no bytes will come.
void Messenger::withdraw_ready(Rank from, const Frame& frame) {
  for (auto entry = readies_.begin(); entry != readies_.end(); ++entry) {
    if (entry->first.first != from) continue;
    auto& frames = entry->second;
    const auto ready = std::find_if(frames.begin(), frames.end(),
                                    [&](const Frame& each) { return each.transfer == frame.transfer; });
    if (ready == frames.end()) continue;
    frames.erase(ready);
    if (frames.empty()) readies_.erase(entry);
    Frame answer;
    answer.kind = FrameKind::withdrawn;
    answer.transfer = frame.transfer;
    return transport_->tell(from, answer);
  }
}

std::span<std::byte> Messenger::place_for(Rank from, const Frame& data) {
  const auto entry = receives_.find(data.transfer);
  if (entry == receives_.end() || entry->second->peer != from) return {};
  Transfer& receive = *entry->second;
  if (data.attempt < receive.attempt) return {};
  if (data.attempt > receive.attempt) {  // what came of older ones is sent again
    receive.attempt = data.attempt;
    receive.moved = 0;
    receive.begun = false;
  }
  const bool fits =
      data.bytes <= receive.bytes && data.offset <= data.bytes && data.length <= data.bytes - data.offset;
  if (!fits) {
    fail(from, fmt::format("rank {} sends {} bytes, and rank {} expects {}", from, data.bytes, options_.rank,
                           receive.bytes));
    return {};
  }
  if (receive.moving != data.bytes || !receive.begun) {
    receive.begun = true;
    receive.moving = data.bytes;
    receive.open();
    memory_.clear(receive.into.subspan(data.bytes));
  }
  if (receive.is_staged) return landing_for(receive, data);
  return receive.into.subspan(data.offset, data.length);
}

void Messenger::landed(Rank from, const Frame& data) {
  const auto entry = receives_.find(data.transfer);
  if (entry == receives_.end() || entry->second->peer != from) return;
  const auto receive = entry->second;
  if (receive->is_staged) take_landing(*receive, data);
  if (data.attempt != receive->attempt) return;
  receive->touch();
  receive->moved += data.length;
  receive->paths.add(data.path);
  receive->latest = latest_of(receive->latest, data.posted);
  if (receive->moved >= receive->moving) end(receive);
}

void Messenger::left(std::uint64_t number) {
  if (const auto entry = sends_.find(number); entry != sends_.end()) return end(entry->second);
  chunk_left(number);
}

void Messenger::lost(Rank peer, const std::string& why) {
  if (verbs_) {  // what came over RDMA before
    verbs_->progress();
    verbs_->forget(peer);
  }
  lost_[peer] = why;
  // Nobody is left to answer that a message is cancelled, and no byte of it will come or be taken.
  for (auto* const transfers : {&receives_, &sends_})
    for (auto entry = transfers->begin(); entry != transfers->end();) {
      const std::shared_ptr<Transfer> transfer = (entry++)->second;
      if (transfer->peer != peer || !transfer->withdrawn || transfer->begun) continue;
      drop(waiting_sends_, *transfer);
      end(transfer, Operation::State::cancelled);
    }
  const bool needed = std::any_of(pending_.begin(), pending_.end(), [&](Operation* each) {
    const auto* const transfer = dynamic_cast<Transfer*>(each);
    return transfer != nullptr && transfer->peer == peer;
  });
  if (needed) wait_for_reason(peer);
}

void Messenger::noted(const std::string& what) {
  if (options_.on_note) options_.on_note(what);
}

void Messenger::progress() {
  if (verbs_) verbs_->progress();
  transport_->progress();
  end_eager();
  run_later();
  check_deadlines();
}

}  // namespace motley
