// What a Messenger does when something goes wrong: cancelling, failing, and finding out who is to blame.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hw/communicator/transfer.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr double kAnswer_s = 2;     // within which a rank that waits answers
constexpr double kFailing_s = 0.5;  // for telling the others of a failure

}  // namespace

void Messenger::Transfer::cancel(Messenger& messenger) {
  if (is_send()) {
    const Key waiting{peer, key};
    const auto entry = messenger.waiting_sends_.find(waiting);
    if (entry == messenger.waiting_sends_.end()) return;  // its bytes flow
    auto& numbers = entry->second;
    const auto mine = std::find(numbers.begin(), numbers.end(), number);
    if (mine == numbers.end()) return;
    numbers.erase(mine);
    if (numbers.empty()) messenger.waiting_sends_.erase(entry);
    messenger.end(messenger.sends_.at(number), State::cancelled);
    return;
  }
  if (std::exchange(withdrawn, true)) return;
  Frame withdraw;
  withdraw.kind = FrameKind::withdraw;
  withdraw.transfer = number;
  messenger.transport_->tell(peer, withdraw);
}

void Messenger::fail(Rank culprit, const std::string& why, bool tells) {
  if (failure_) return;
  failure_ = fmt::format("rank {}: {}", options_.rank, why);
  inquiry_.reset();
  transport_->abandon();
  for (Operation* const operation : std::exchange(pending_, {})) operation->state = Operation::State::failed;
  sends_.clear();
  receives_.clear();
  waiting_sends_.clear();
  readies_.clear();
  later_.clear();
  completed_ = true;
  if (!tells) return;
  Frame abort;
  abort.kind = FrameKind::abort;
  abort.rank = culprit;
  abort.text = why;
  for (const Rank peer : spoken_)
    if (!goodbyes_.contains(peer)) transport_->tell(peer, abort);
  transport_->flush(kFailing_s);
}

void Messenger::check(const Call& mine, const Frame& ready, Rank peer) {
  if (ready.call == mine || failure_) return;
  const bool sizes = mine.kind == Call::Kind::message && ready.call.kind == Call::Kind::message;
  if (sizes) return;  // begin() compares them
  fail(peer, fmt::format("rank {} calls {}, and rank {} calls {}", options_.rank, describe(mine), peer,
                         describe(ready.call)));
}

// A collective begins: those who were here first may have called something else.
void Messenger::check_ready_calls(const MessageKey& key, const Call& mine) {
  for (const auto& [whose, frames] : readies_)
    if (whose.second.context == key.context && whose.second.operation == key.operation)
      for (const Frame& frame : frames) check(mine, frame, whose.first);
}

// ---- deadlines

const Messenger::Transfer* Messenger::longest_wait() const {
  const Transfer* longest = nullptr;
  for (const auto* const transfers : {&receives_, &sends_})
    for (const auto& [number, transfer] : *transfers)
      if (longest == nullptr || transfer->moved_s < longest->moved_s) longest = transfer.get();
  return longest;
}

std::string Messenger::waits_for(const Transfer& transfer) const {
  const std::string what = transfer.call.kind == Call::Kind::message
                               ? fmt::format("a message of {} bytes", transfer.bytes)
                               : describe(transfer.call);
  return fmt::format("{} rank {} for {:.1f} s, {}", transfer.is_send() ? "waits to send to" : "waits for",
                     transfer.peer, monotonic_s() - transfer.moved_s, what);
}

void Messenger::check_deadlines() {
  const double now_s = monotonic_s();
  if (failure_ || now_s < checked_s_ + std::min(0.1, options_.timeout_s / 4)) return;
  checked_s_ = now_s;
  if (options_.gives_up)
    if (const auto why = options_.gives_up()) return fail(options_.rank, *why);
  if (inquiry_) {
    if (now_s > inquiry_->until_s)
      blame(inquiry_->chain.back(), fmt::format("rank {} does not answer", inquiry_->chain.back()));
    return;
  }
  const Transfer* const longest = longest_wait();
  if (longest == nullptr || now_s < longest->moved_s + options_.timeout_s) return;
  inquiry_ = Inquiry{waits_for(*longest), {}, 0};
  ask(longest->peer);
}

void Messenger::ask(Rank whom) {
  inquiry_->chain.push_back(whom);
  inquiry_->until_s = monotonic_s() + std::min(kAnswer_s, options_.timeout_s);
  Frame ask;
  ask.kind = FrameKind::ask;
  transport_->tell(whom, ask);
}

// A rank that was asked says for whom it waits itself.
void Messenger::answered(Rank from, const Frame& answer) {
  if (!inquiry_ || inquiry_->chain.back() != from) return;
  const auto& chain = inquiry_->chain;
  if (!answer.rank) return blame(from, fmt::format("rank {} has not called it", from));
  const bool known =
      *answer.rank == options_.rank || std::find(chain.begin(), chain.end(), *answer.rank) != chain.end();
  if (known || !options_.peers.contains(*answer.rank))
    return blame(from, fmt::format("rank {} {}: they wait for each other", from, answer.text));
  ask(*answer.rank);
}

void Messenger::blame(Rank culprit, const std::string& why) {
  const Inquiry inquiry = *std::exchange(inquiry_, std::nullopt);
  std::string links;
  for (std::size_t i = 0; i + 1 < inquiry.chain.size(); ++i)
    links += fmt::format("; rank {} waits for rank {}", inquiry.chain[i], inquiry.chain[i + 1]);
  fail(culprit, fmt::format("{}{}; {}", inquiry.waits, links, why));
}

}  // namespace motley
