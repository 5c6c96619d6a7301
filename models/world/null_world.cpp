#include "models/world/null_world.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {

NullWorld::NullWorld(const Program& program, const Arrangement& arrangement, const Symmetry& symmetry,
                     Observer posted, Observer ended)
    : program_(program),
      arrangement_(arrangement),
      symmetry_(symmetry),
      posted_(std::move(posted)),
      ended_(std::move(ended)),
      states_(program.ranks.size()),
      sender_(symmetry.lanes.first.size()),
      receiver_(sender_),
      gang_sizes_(gang_sizes(program, symmetry)),
      arrived_(symmetry.groups.first.size()),
      is_ready_(program.ranks.size()) {
  for (Rank rank : symmetry.ranks.first) states_[rank].resize(program.program_of(rank).streams.size());
}

void NullWorld::issue(const Step& step, const Instruction&, std::span<const Step>) {
  state(step.rank, step.stream).issued = step.index + 1;
}

void NullWorld::await(Rank, StreamId) {}

std::string NullWorld::describe_current(Rank rank, StreamId stream) const {
  return describe(program_, rank, stream, state(rank, stream).next);
}

bool NullWorld::passed(Rank rank, const std::vector<After>& after) const {
  return std::all_of(after.begin(), after.end(),
                     [&](const After& awaited) { return state(rank, awaited.stream).next > awaited.index; });
}

void NullWorld::wake(Rank rank) {
  if (is_ready_[rank]) return;
  is_ready_[rank] = true;
  ready_.push_back(rank);
}

void NullWorld::begin(Rank rank, StreamId stream) {
  state(rank, stream).posted = true;
  if (posted_) posted_({rank, stream, state(rank, stream).next}, current(rank, stream));
}

void NullWorld::end(Rank rank, StreamId stream) {
  if (ended_) ended_({rank, stream, state(rank, stream).next}, current(rank, stream));
  state(rank, stream).posted = false;
  ++state(rank, stream).next;
}

bool NullWorld::match_transfer(Rank rank, StreamId stream) {
  const Instruction& mine = current(rank, stream);
  const PeerMessage& message = *mine.message();
  const bool sends = mine.op() == Op::send;
  const int lane =
      sends ? arrangement_.sent_lane(rank, message.slot) : arrangement_.received_lane(rank, message.slot);
  if (lane < 0) return false;
  const auto meeting = at(symmetry_.lanes.class_of[at(lane)]);
  std::optional<StreamId>& here = (sends ? sender_ : receiver_)[meeting];
  std::optional<StreamId>& there = (sends ? receiver_ : sender_)[meeting];
  here = stream;
  if (!there) return false;
  const Rank peer = symmetry_.ranks.stand_in(program_.ranks[rank].peers[message.slot].value());
  const StreamId other_stream = *std::exchange(there, std::nullopt);
  here.reset();
  const Instruction& theirs = current(peer, other_stream);
  if (payload_bytes(theirs) != message.bytes || theirs.micro_batch != mine.micro_batch)
    throw Refusal(Exit::infeasible, "mismatched-transfer", {},
                  fmt::format("{} moves {} bytes, its other side {} moves {}", describe_current(rank, stream),
                              message.bytes, describe_current(peer, other_stream), payload_bytes(theirs)));
  end(peer, other_stream);
  end(rank, stream);
  wake(peer);
  return true;
}

bool NullWorld::match_collective(Rank rank, StreamId stream) {
  const auto& mine = std::get<Collective>(current(rank, stream).body);
  const auto gang = at(symmetry_.groups.class_of[at(program_.ranks[rank].groups[mine.slot].value())]);
  auto& arrivals = arrived_[gang];
  arrivals.push_back({rank, stream});
  if (arrivals.size() < gang_sizes_[gang]) return false;
  for (const Arrival& arrival : arrivals) {
    const auto& theirs = std::get<Collective>(current(arrival.rank, arrival.stream).body);
    if (theirs.bytes != mine.bytes || theirs.reduce != mine.reduce || theirs.kind != mine.kind ||
        theirs.root != mine.root || theirs.part_bytes != mine.part_bytes)
      throw Refusal(Exit::infeasible, "mismatched-collective", {},
                    fmt::format("{} brings {} bytes, {} brings {}{}{}", describe_current(rank, stream),
                                mine.bytes, describe_current(arrival.rank, arrival.stream), theirs.bytes,
                                theirs.root == mine.root ? "" : ", and they name unlike roots",
                                theirs.part_bytes == mine.part_bytes ? "" : ", and they name unlike parts"));
  }
  for (const Arrival& arrival : std::exchange(arrivals, {})) {
    end(arrival.rank, arrival.stream);
    if (arrival.rank != rank) wake(arrival.rank);
  }
  return true;
}

bool NullWorld::advance(Rank rank, StreamId stream) {
  const StreamState& here = state(rank, stream);
  if (here.posted || here.next >= here.issued) return false;
  const Instruction& instruction = current(rank, stream);
  if (!passed(rank, instruction.after)) return false;
  begin(rank, stream);
  if (instruction.message() != nullptr) return match_transfer(rank, stream);
  if (instruction.op() == Op::collective) return match_collective(rank, stream);
  end(rank, stream);
  return true;
}

// Runs communication before computation, so that receives are posted as early as possible, as on a real rank that
// computes meanwhile.
void NullWorld::progress(Rank rank) {
  for (bool moved = true; moved;) {
    moved = false;
    for (StreamId stream : states_[rank].ids())
      while (stream != kComputeStream && advance(rank, stream)) moved = true;
    if (!moved) moved = advance(rank, kComputeStream);
  }
}

std::string NullWorld::why(Rank rank, StreamId stream) const {
  const Instruction& instruction = current(rank, stream);
  for (const After& awaited : instruction.after)
    if (state(rank, awaited.stream).next <= awaited.index)
      return fmt::format("waits for {}", describe(program_, rank, awaited.stream, awaited.index));
  const RankEntry& entry = program_.ranks[rank];
  if (const PeerMessage* message = instruction.message())
    return fmt::format("waits for rank {} to {}", entry.peers[message->slot].value(),
                       instruction.op() == Op::send ? "post its recv" : "send");
  const GroupId group = entry.groups[std::get<Collective>(instruction.body).slot].value();
  const auto& arrivals = arrived_[at(symmetry_.groups.class_of[at(group)])];
  std::vector<Rank> missing;
  for (Rank member : program_.groups[group].ranks) {
    const Rank runs = symmetry_.ranks.stand_in(member);
    const bool is_here = std::any_of(arrivals.begin(), arrivals.end(),
                                     [runs](const Arrival& arrival) { return arrival.rank == runs; });
    if (!is_here) missing.push_back(member);
  }
  return fmt::format("waits for rank {} to join", fmt::join(missing, ", "));
}

std::vector<Blocked> NullWorld::blocked() const {
  std::vector<Blocked> stuck;
  for (Rank rank : symmetry_.ranks.first)
    for (StreamId stream : states_[rank].ids())
      if (const StreamState& here = state(rank, stream); here.next < here.issued)
        stuck.push_back({rank, stream, here.next, why(rank, stream)});
  return stuck;
}

std::vector<Blocked> NullWorld::run() {
  for (Rank rank : symmetry_.ranks.first) {
    for (StreamId stream : states_[rank].ids()) run_stream(program_, rank, stream, *this);
    wake(rank);
  }
  while (!ready_.empty()) {
    const Rank rank = ready_.front();
    ready_.pop_front();
    is_ready_[rank] = false;
    progress(rank);
  }
  return blocked();
}

}  // namespace motley
