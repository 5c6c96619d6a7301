#include "hw/communicator/collective_performer.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "hw/communicator/transfer.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr std::size_t kScratchMost = std::size_t{8} << 20U;
// Chunks that are larger go in several segments, so that what comes is reduced while more is on its way.
constexpr std::size_t kSegment = std::size_t{512} << 10U;
// The segments of a pipeline: so many, but none below so many bytes, which a message costs about as much as.
constexpr std::size_t kPipelined = 8, kPipelinedBytes = std::size_t{64} << 10U;

// What a member is ready for and what it sends leave together.
class Held {
 public:
  explicit Held(Transport& transport) : transport_(transport) { transport_.hold(); }
  ~Held() { transport_.release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Transport& transport_;
};

}  // namespace

CollectivePerformer::CollectivePerformer(Messenger& messenger, CollectiveOrder order)
    : messenger_(messenger), order_(std::move(order)) {
  latest = order_.mine;
  std::size_t largest = 0;
  for (const auto& chunk : order_.chunks) largest = std::max(largest, chunk.size());
  // Every member finds the same number, as the payload is the same; parts of an exchange are used once and stay whole.
  const bool exchanges = order_.call.collective == static_cast<std::uint8_t>(CollectiveKind::all_to_all);
  if (!exchanges) segments_ = std::max<std::size_t>(1, (largest + kSegment - 1) / kSegment);
  // The rounds of trees over nodes are to follow each other segment by segment, but their chunks are not cut for that.
  const bool is_tree =
      order_.call.algorithm == static_cast<std::uint8_t>(CollectiveAlgorithm::double_binary_tree);
  if (is_tree && order_.steps->pipelined > 0)
    segments_ = std::max(segments_, std::min(kPipelined, largest / kPipelinedBytes));
  list_messages();
  find_order();
  list_items();
}

void CollectivePerformer::list_messages() {
  std::map<std::tuple<int, int, int>, std::size_t> numbers;  // by round, sender and receiver
  for (const CollectiveStep& step : order_.steps->steps) {
    if (step.from != order_.place && step.to != order_.place) continue;
    MOTLEY_CHECK(step.chunk >= 0 || step.times == 0);
    const bool sends = step.from == order_.place;
    const auto [known, is_new] = numbers.try_emplace({step.round, step.from, step.to}, messages_.size());
    if (is_new) messages_.push_back({step.round, sends ? step.to : step.from, sends, {}, {}, 0});
    messages_[known->second].steps.push_back(step);
  }
  // In a round, what is sent is read before what comes is written, and contributions come in the order of places.
  std::stable_sort(messages_.begin(), messages_.end(), [](const Message& a, const Message& b) {
    return std::tuple(a.round, !a.sends, a.peer) < std::tuple(b.round, !b.sends, b.peer);
  });
}

// A message waits for those before it that touch one of its chunks, unless both only read it. A message without bytes
// waits for what came in all rounds before.
void CollectivePerformer::find_order() {
  struct Touched {
    std::optional<std::size_t> writer;
    std::vector<std::size_t> readers;  // since then
  };
  std::map<int, Touched> touched;  // by chunk
  std::vector<std::vector<std::size_t>> before(messages_.size());
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    const Message& message = messages_[i];
    for (const CollectiveStep& step : message.steps) {
      if (step.chunk < 0) {
        for (std::size_t j = 0; j < i; ++j)
          if (messages_[j].round < message.round && !messages_[j].sends) before[i].push_back(j);
        continue;
      }
      Touched& chunk = touched[step.chunk];
      if (chunk.writer) before[i].push_back(*chunk.writer);
      if (message.sends) {
        chunk.readers.push_back(i);
        continue;
      }
      before[i].insert(before[i].end(), chunk.readers.begin(), chunk.readers.end());
      chunk = {i, {}};
    }
  }
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    std::sort(before[i].begin(), before[i].end());
    before[i].erase(std::unique(before[i].begin(), before[i].end()), before[i].end());
    before[i].erase(std::remove(before[i].begin(), before[i].end(), i), before[i].end());
    messages_[i].waits_for = before[i].size();
    for (const std::size_t j : before[i]) messages_[j].followers.push_back(i);
  }
}

std::span<std::byte> CollectivePerformer::segment_of(int chunk, std::size_t segment) const {
  if (chunk < 0) return {};
  const std::span<std::byte> whole = order_.chunks[at(chunk)];
  const std::size_t width = element_bytes(order_.element), count = whole.size() / width;
  const std::size_t begin = count * segment / segments_, end = count * (segment + 1) / segments_;
  return whole.subspan(begin * width, (end - begin) * width);
}

std::vector<std::span<std::byte>> CollectivePerformer::runs_of(const Message& message,
                                                               std::size_t segment) const {
  std::vector<std::span<std::byte>> runs;
  for (const CollectiveStep& step : message.steps) {
    const std::span<std::byte> bytes = segment_of(step.chunk, segment);
    if (bytes.empty()) continue;
    if (!runs.empty() && runs.back().data() + runs.back().size() == bytes.data())
      runs.back() = {runs.back().data(), runs.back().size() + bytes.size()};
    else
      runs.push_back(bytes);
  }
  return runs;
}

bool CollectivePerformer::lands_in_place(const Message& message, std::size_t segment) const {
  const bool reduces = std::any_of(message.steps.begin(), message.steps.end(),
                                   [](const CollectiveStep& step) { return step.reduce; });
  return !reduces && runs_of(message, segment).size() <= 1;
}

void CollectivePerformer::list_items() {
  items_.resize(messages_.size() * segments_);
  left_ = items_.size();
  for (std::size_t i = 0; i < messages_.size(); ++i)
    for (std::size_t s = 0; s < segments_; ++s) {
      item(i, s).waits_for = messages_[i].waits_for;
      if (!messages_[i].sends && !lands_in_place(messages_[i], s)) window_.emplace_back(i, s);
    }
  std::stable_sort(window_.begin(), window_.end(), [&](const auto& a, const auto& b) {
    const auto wave = [&](const auto& each) { return at(messages_[each.first].round) + each.second; };
    return wave(a) < wave(b);
  });
}

void CollectivePerformer::start() {
  const auto self = shared_from_this();
  const Held held(*messenger_.transport_);
  fill_window();
  // Receives first: what tells a peer to begin would wait on the connection behind the bytes that this member sends.
  for (const bool sends : {false, true})
    for (std::size_t s = 0; s < segments_; ++s)
      for (std::size_t i = 0; i < messages_.size(); ++i)
        if (messages_[i].sends == sends && messages_[i].waits_for == 0) go_on(i, s);
  if (left_ == 0) finish();
}

// What a message does once nothing before it is left.
void CollectivePerformer::go_on(std::size_t message, std::size_t segment) {
  Item& mine = item(message, segment);
  if (mine.progress == Progress::arrived) return apply(message, segment);
  if (mine.progress != Progress::idle) return;
  if (messages_[message].sends || lands_in_place(messages_[message], segment)) post(message, segment);
}

void CollectivePerformer::post(std::size_t message, std::size_t segment) {
  const Message& what = messages_[message];
  const auto runs = runs_of(what, segment);
  item(message, segment).progress = Progress::posted;
  if (!what.sends) return receive_in_place(message, segment, runs.empty() ? std::span<std::byte>() : runs[0]);
  SendOrder send;
  send.to = order_.members[at(what.peer)];
  send.key = {order_.context, order_.operation, at(what.round) * segments_ + segment};
  send.call = order_.call;
  send.pieces.assign(runs.begin(), runs.end());
  send.keeps_zeros_back = order_.keeps_zeros_back;
  send.mine = latest;
  const auto transfer = messenger_.post_send(
      std::move(send), [self = shared_from_this(), message, segment] { self->end(message, segment); });
  transfer->owner = this;
  item(message, segment).transfer = transfer;
}

void CollectivePerformer::receive_in_place(std::size_t message, std::size_t segment,
                                           std::span<std::byte> into) {
  ReceiveOrder receive;
  receive.into = into;
  post_receive(message, segment, std::move(receive));
}

void CollectivePerformer::receive_aside(std::size_t message, std::size_t segment, std::size_t bytes) {
  ReceiveOrder receive;
  receive.bytes = bytes;
  receive.room = [this, message, segment, bytes] {
    Scratch& scratch = item(message, segment).scratch;
    scratch = messenger_.scratch_.take(bytes);
    return scratch.span();
  };
  post_receive(message, segment, std::move(receive));
}

void CollectivePerformer::post_receive(std::size_t message, std::size_t segment, ReceiveOrder receive) {
  const Message& what = messages_[message];
  receive.from = order_.members[at(what.peer)];
  receive.key = {order_.context, order_.operation, at(what.round) * segments_ + segment};
  receive.call = order_.call;
  receive.mine = latest;
  const auto transfer = messenger_.post_receive(
      std::move(receive), [self = shared_from_this(), message, segment] { self->arrived(message, segment); });
  transfer->owner = this;
  item(message, segment).transfer = transfer;
}

void CollectivePerformer::finish() {
  if (state != State::pending) return;
  messenger_.calls_.erase({order_.context, order_.operation});
  messenger_.complete(*this);
}

void CollectivePerformer::fill_window() {
  while (next_in_window_ < window_.size()) {
    const auto [message, segment] = window_[next_in_window_];
    std::size_t bytes = 0;
    for (const auto& run : runs_of(messages_[message], segment)) bytes += run.size();
    if (scratch_bytes_ > 0 && scratch_bytes_ + bytes > kScratchMost) return;
    ++next_in_window_;
    scratch_bytes_ += bytes;
    item(message, segment).progress = Progress::posted;
    receive_aside(message, segment, bytes);
  }
}

void CollectivePerformer::arrived(std::size_t message, std::size_t segment) {
  Item& mine = item(message, segment);
  if (mine.transfer) latest = latest_of(latest, mine.transfer->latest);
  if (lands_in_place(messages_[message], segment)) return end(message, segment);
  mine.progress = Progress::arrived;
  if (mine.waits_for == 0) apply(message, segment);
}

// Reduces what has come, or puts it where it belongs.
void CollectivePerformer::apply(std::size_t message, std::size_t segment) {
  Item& mine = item(message, segment);
  std::span<const std::byte> left = mine.scratch.span();
  for (const CollectiveStep& step : messages_[message].steps) {
    const std::span<std::byte> into = segment_of(step.chunk, segment);
    const auto from = left.first(into.size());
    left = left.subspan(into.size());
    if (step.reduce)
      messenger_.memory_.reduce(order_.element, order_.reduce, into, from);
    else
      messenger_.memory_.copy(into, from);
  }
  const Held held(*messenger_.transport_);
  scratch_bytes_ -= mine.scratch.bytes;
  messenger_.scratch_.give_back(std::exchange(mine.scratch, {}));
  end(message, segment);
  fill_window();
}

void CollectivePerformer::end(std::size_t message, std::size_t segment) {
  Item& mine = item(message, segment);
  if (mine.transfer) {
    latest = latest_of(latest, mine.transfer->latest);
    paths.add(mine.transfer->paths);
  }
  mine.transfer.reset();
  mine.progress = Progress::done;
  --left_;
  for (const std::size_t follower : messages_[message].followers)
    if (--item(follower, segment).waits_for == 0) go_on(follower, segment);
  if (left_ == 0) finish();
}

}  // namespace motley
