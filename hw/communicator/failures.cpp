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
  if (is_send() && !is_eager) {  // else its bytes flow, or it waits for its receiver
    if (drop(messenger.waiting_sends_, *this)) messenger.end(messenger.sends_.at(number), State::cancelled);
    return;
  }
  if (std::exchange(withdrawn, true)) return;
  Frame frame;
  frame.kind = is_send() ? FrameKind::recall : FrameKind::withdraw;
  frame.key = key;
  (is_send() ? frame.sender_number : frame.transfer) = number;
  messenger.transport_->tell(peer, frame);
}

// What waits for a transfer holds it, too: a collective and its messages would keep each other for ever.
void Messenger::forget_transfers() {
  for (auto* const transfers : {&sends_, &receives_}) {
    for (const auto& [number, transfer] : *transfers) transfer->then = nullptr;
    transfers->clear();
  }
  leaving_.clear();
  later_.clear();
  staged_.forget();
}

void Messenger::fail(Rank culprit, const std::string& why, bool tells) {
  if (failure_) return;
  failure_ = fmt::format("rank {}: {}", options_.rank, why);
  inquiry_.reset();
  mark_value_ = 0;  // callers may use again what was offered
  transport_->abandon();
  if (verbs_) verbs_->close();
  for (Operation* const operation : std::exchange(pending_, {})) operation->state = Operation::State::failed;
  forget_transfers();
  waiting_sends_.clear();
  unwired_sends_.clear();
  readies_.clear();
  small_receives_.clear();
  early_.clear();
  completed_ = true;
  if (!tells) return;
  Frame abort;
  abort.kind = FrameKind::abort;
  abort.rank = culprit;
  abort.text = why;
  transport_->tell_callers(abort);
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
  for (const auto* const unmatched : {&readies_, &early_})
    for (const auto& [whose, frames] : *unmatched) {
      if (whose.second.context != key.context || whose.second.operation != key.operation) continue;
      for (const Frame& frame : frames) {
        check(mine, frame, whose.first);
        if (failure_) return;  // nothing of these is there any more
      }
    }
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

// A rank that ends because another has failed may be gone before that one has told everybody.
void Messenger::wait_for_reason(Rank gone) {
  if (!gone_) gone_ = {gone, monotonic_s() + std::min(options_.reason_s, options_.timeout_s / 4)};
}

void Messenger::check_deadlines() {
  const double now_s = recent_s();
  if (failure_ || now_s < checked_s_ + std::min(0.1, options_.timeout_s / 4)) return;
  checked_s_ = now_s;
  if (options_.gives_up)
    if (const auto why = options_.gives_up()) return fail(options_.rank, *why);
  if (gone_ && now_s >= gone_->second) {
    const Rank gone = gone_->first;
    return fail(gone, fmt::format("rank {} is gone ({})", gone, lost_[gone]));
  }
  if (inquiry_) return conclude();
  const Transfer* const longest = longest_wait();
  if (longest == nullptr || now_s < longest->moved_s + options_.timeout_s) return;
  inquiry_ = Inquiry{longest->number, longest->moved_s, waits_for(*longest), {}};
  ask({longest->peer, longest->key.context, longest->key.operation}, std::nullopt);
}

void Messenger::ask(const Awaited& whom, std::optional<std::size_t> waiter) {
  inquiry_->asked.push_back({whom, waiter, monotonic_s() + std::min(kAnswer_s, options_.timeout_s)});
  Frame ask;
  ask.kind = FrameKind::ask;
  ask.key = {whom.context, whom.operation, 0};
  transport_->tell(whom.rank, ask);
}

// What is waited for here before that operation can go on: its own messages, where it has begun; else what threads
// wait for, or, where they only look now and then, all that is posted.
std::vector<const Messenger::Transfer*> Messenger::awaited_in(const MessageKey& key) const {
  std::vector<const Transfer*> all, blocking, same;
  for (const auto* const transfers : {&receives_, &sends_})
    for (const auto& [number, transfer] : *transfers) {
      all.push_back(transfer.get());
      const bool blocks =
          transfer->waiters > 0 || (transfer->owner != nullptr && transfer->owner->waiters > 0);
      if (blocks) blocking.push_back(transfer.get());
      if (transfer->key.context == key.context && transfer->key.operation == key.operation)
        same.push_back(transfer.get());
    }
  if (!same.empty()) return same;
  return blocking.empty() ? all : blocking;
}

Frame Messenger::answer_to(const Frame& ask) const {
  Frame answer;
  answer.kind = FrameKind::answer;
  answer.key = ask.key;
  const Transfer* longest = nullptr;
  std::set<Awaited> awaited;
  for (const Transfer* const each : awaited_in(ask.key)) {
    awaited.insert({each->peer, each->key.context, each->key.operation});
    if (longest == nullptr || each->moved_s < longest->moved_s) longest = each;
  }
  answer.awaited.assign(awaited.begin(), awaited.end());
  if (longest != nullptr) answer.text = waits_for(*longest);
  return answer;
}

// A rank that was asked says for whom it waits itself. This rank may be among those: it need not ask itself.
void Messenger::answered(Rank from, const Frame& answer) {
  if (!inquiry_) return;
  auto& asked = inquiry_->asked;
  const auto place_of = [&](const Awaited& whom) {
    const auto same = [&](const Inquiry::Asked& each) { return each.whom == whom; };
    return static_cast<std::size_t>(std::find_if(asked.begin(), asked.end(), same) - asked.begin());
  };
  const std::size_t place = place_of({from, answer.key.context, answer.key.operation});
  if (place == asked.size() || asked[place].answer) return;
  asked[place].answer = std::make_shared<const Frame>(answer);
  for (std::deque<std::size_t> answers = {place}; !answers.empty(); answers.pop_front()) {
    const std::size_t waiter = answers.front();
    const std::vector<Awaited> all = asked[waiter].answer->awaited;
    for (const Awaited& next : all) {
      if (place_of(next) < asked.size()) continue;
      if (options_.peers.contains(next.rank)) ask(next, waiter);
      if (next.rank != options_.rank) continue;
      Frame to_itself;
      to_itself.key = {next.context, next.operation, 0};
      answers.push_back(asked.size());
      asked.push_back({next, waiter, 0, std::make_shared<const Frame>(answer_to(to_itself))});
    }
  }
  conclude();
}

// One who does not answer is to blame; if all do, one who waits for nobody; if all wait, they do for each other.
void Messenger::conclude() {
  const auto here = [&](const auto& transfers) {
    const auto entry = transfers.find(inquiry_->number);
    return entry != transfers.end() && entry->second->moved_s == inquiry_->moved_s;
  };
  if (!here(receives_) && !here(sends_)) return inquiry_.reset();  // it goes on
  const auto& asked = inquiry_->asked;
  std::optional<std::size_t> idle;
  bool all = true;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Rank rank = asked[i].whom.rank;
    if (asked[i].answer) {
      if (asked[i].answer->awaited.empty() && !idle) idle = i;
      continue;
    }
    const auto gone = lost_.find(rank);
    if (gone != lost_.end()) return blame(i, fmt::format("rank {} is gone ({})", rank, gone->second));
    if (monotonic_s() > asked[i].until_s) return blame(i, fmt::format("rank {} does not answer", rank));
    all = false;
  }
  if (!all) return;
  if (idle) return blame(*idle, fmt::format("rank {} has not called it", asked[*idle].whom.rank));
  blame(0, fmt::format("rank {} {}: they wait for each other", asked[0].whom.rank, asked[0].answer->text));
}

void Messenger::blame(std::size_t asked, const std::string& why) {
  const Inquiry inquiry = *std::exchange(inquiry_, std::nullopt);
  const auto rank = [&](std::size_t place) { return inquiry.asked[place].whom.rank; };
  std::string links;
  for (std::size_t each = asked; inquiry.asked[each].waiter; each = *inquiry.asked[each].waiter)
    links = fmt::format("; rank {} waits for rank {}", rank(*inquiry.asked[each].waiter), rank(each)) + links;
  fail(rank(asked), fmt::format("{}{}; {}", inquiry.waits, links, why));
}

}  // namespace motley
