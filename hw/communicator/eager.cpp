// Small messages, which do not wait for their receivers: their bytes go at once, and are kept where no receive is
// posted yet. As any other, such a send is done once its receive is posted. Read next: hw/transport/frame.hpp.
#include <algorithm>

#include "hw/communicator/transfer.hpp"

namespace motley {
namespace {

constexpr std::size_t kUnmatchedMost = 64;  // of one rank to another: what the other keeps must have a limit

}  // namespace

// A message that waits for its receiver goes before those of its key which come after it, so they wait, too.
void Messenger::send_eagerly(Transfer& send) {
  EagerCount& count = eager_[send.peer];
  const auto before = waiting_sends_.find({send.peer, send.key});
  const bool waits = before != waiting_sends_.end() && !sends_.at(before->second.back())->is_eager;
  const bool takes_rdma = verbs_ && options_.uses_rdma && send.bytes >= options_.rdma_bytes;
  if (waits || takes_rdma || send.bytes > kEagerMost || count.unmatched >= kUnmatchedMost) return;
  ++count.unmatched;
  send.is_eager = true;
  Frame eager;
  eager.kind = FrameKind::eager;
  eager.transfer = count.seen;
  eager.sender_number = send.number;
  eager.key = send.key;
  eager.call = send.call;
  eager.bytes = send.bytes;
  eager.posted = send.latest;
  eager.body.reserve(send.bytes);
  for (const auto& piece : send.sent->pieces) eager.body.insert(eager.body.end(), piece.begin(), piece.end());
  send.paths.add(Path::tcp);
  if (options_.on_send) options_.on_send(*send.sent, Path::tcp);
  transport_->tell(send.peer, eager);
}

// A caller who knows that a message is done may do something else for long: until then nothing would leave.
void Messenger::end_eager() {
  const auto told = std::stable_partition(
      leaving_.begin(), leaving_.end(),
      [&](const std::shared_ptr<Transfer>& each) { return !transport_->has_told(each->peer); });
  for (auto each = told; each != leaving_.end(); ++each)
    if ((*each)->state == Operation::State::pending) end(*each);
  leaving_.erase(told, leaving_.end());
}

// The receives that the sender had seen are those of other messages.
void Messenger::take_eager(Rank from, const Frame& eager) {
  const auto call = calls_.find({eager.key.context, eager.key.operation});
  if (call != calls_.end()) check(call->second, eager, from);
  if (failure_) return;
  const Key key{from, eager.key};
  if (const auto posted = small_receives_.find(key); posted != small_receives_.end()) {
    const auto& numbers = posted->second;
    const auto number = std::upper_bound(numbers.begin(), numbers.end(), eager.transfer);
    if (number != numbers.end()) {
      accept(receives_.at(*number), eager);
      return end_eager();
    }
  }
  early_[key].push_back(eager);
}

// Where the two sides differ, the sender says so once it hears of this receive.
void Messenger::accept(const std::shared_ptr<Transfer>& receive, const Frame& eager) {
  if (eager.body.size() != receive->bytes || eager.call != receive->call) return;
  receive->open();
  std::copy(eager.body.begin(), eager.body.end(), receive->into.begin());
  receive->latest = latest_of(receive->latest, eager.posted);
  receive->paths.add(Path::tcp);
  receive->begun = true;
  drop(small_receives_, *receive);
  leaving_.push_back(receive);
}

// Returns whether a message that had come before was meant for this receive.
bool Messenger::accept_early(const std::shared_ptr<Transfer>& receive) {
  const auto entry = early_.find({receive->peer, receive->key});
  if (entry == early_.end()) return false;
  const Frame eager = std::move(entry->second.front());
  entry->second.pop_front();
  if (entry->second.empty()) early_.erase(entry);
  accept(receive, eager);
  return true;
}

void Messenger::recall(Rank from, const Frame& frame) {
  const auto entry = early_.find({from, frame.key});
  if (entry == early_.end()) return;  // a receive has taken it
  auto& frames = entry->second;
  const auto same = [&](const Frame& each) { return each.sender_number == frame.sender_number; };
  const auto recalled = std::find_if(frames.begin(), frames.end(), same);
  if (recalled == frames.end()) return;
  frames.erase(recalled);
  if (frames.empty()) early_.erase(entry);
  Frame answer;
  answer.kind = FrameKind::recalled;
  answer.sender_number = frame.sender_number;
  transport_->tell(from, answer);
}

}  // namespace motley
