#include "models/null_world.hpp"

#include <fmt/format.h>

#include <utility>

#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

NullWorld::NullWorld(const Program& program, const Arrangement& arrangement, const Symmetry& symmetry,
                     Observer posted, Observer ended)
    : program_(program),
      arrangement_(arrangement),
      symmetry_(symmetry),
      posted_(std::move(posted)),
      ended_(std::move(ended)),
      states_(program.ranks.size()),
      sender_(symmetry.lanes.first.size(), -1),
      receiver_(sender_),
      gang_sizes_(gang_sizes(program, symmetry)),
      arrived_(symmetry.groups.first.size()),
      is_ready_(program.ranks.size()) {
  for (Rank rank : symmetry.ranks.first) states_[at(rank)].resize(program.class_of(rank).streams.size());
}

bool NullWorld::passed(Rank rank, const std::vector<After>& after) const {
  for (const After& awaited : after)
    if (states_[at(rank)][at(awaited.stream)].next <= awaited.index) return false;
  return true;
}

void NullWorld::wake(Rank rank) {
  if (is_ready_[at(rank)]) return;
  is_ready_[at(rank)] = true;
  ready_.push_back(rank);
}

void NullWorld::begin(Rank rank, int stream) {
  StreamState& state = states_[at(rank)][at(stream)];
  state.posted = true;
  if (posted_)
    posted_({rank, static_cast<std::int16_t>(stream), state.next}, program_.at(rank, stream, state.next));
}

void NullWorld::end(Rank rank, int stream) {
  StreamState& state = states_[at(rank)][at(stream)];
  if (ended_)
    ended_({rank, static_cast<std::int16_t>(stream), state.next}, program_.at(rank, stream, state.next));
  state.posted = false;
  ++state.next;
}

bool NullWorld::match_transfer(Rank rank, int stream) {
  const Instruction& mine = program_.at(rank, stream, states_[at(rank)][at(stream)].next);
  const bool sends = mine.op == Op::send;
  const int lane =
      sends ? arrangement_.sent_lane(rank, mine.slot) : arrangement_.received_lane(rank, mine.slot);
  if (lane < 0) return false;
  const auto meeting = at(symmetry_.lanes.of[at(lane)]);
  (sends ? sender_ : receiver_)[meeting] = stream;
  int& other = (sends ? receiver_ : sender_)[meeting];
  if (other < 0) return false;
  const Rank peer = symmetry_.ranks.stand_in(program_.ranks[at(rank)].peers[at(mine.slot)]);
  const int other_stream = std::exchange(other, -1);
  (sends ? sender_ : receiver_)[meeting] = -1;
  const int other_index = states_[at(peer)][at(other_stream)].next;
  const Instruction& theirs = program_.at(peer, other_stream, other_index);
  if (theirs.bytes != mine.bytes || theirs.micro_batch != mine.micro_batch)
    throw Refusal(Exit::infeasible, "mismatched-transfer", {},
                  fmt::format("{} moves {} bytes, its other side {} moves {}",
                              describe(program_, rank, stream, states_[at(rank)][at(stream)].next),
                              mine.bytes, describe(program_, peer, other_stream, other_index), theirs.bytes));
  end(peer, other_stream);
  end(rank, stream);
  wake(peer);
  return true;
}

bool NullWorld::match_collective(Rank rank, int stream) {
  const Instruction& mine = program_.at(rank, stream, states_[at(rank)][at(stream)].next);
  const auto gang = at(symmetry_.groups.of[at(program_.ranks[at(rank)].groups[at(mine.slot)])]);
  auto& arrivals = arrived_[gang];
  arrivals.push_back({rank, stream});
  if (arrivals.size() < gang_sizes_[gang]) return false;
  for (const Arrival& arrival : arrivals) {
    const int index = states_[at(arrival.rank)][at(arrival.stream)].next;
    const Instruction& theirs = program_.at(arrival.rank, arrival.stream, index);
    if (theirs.bytes != mine.bytes || theirs.reduce != mine.reduce || theirs.collective != mine.collective)
      throw Refusal(
          Exit::infeasible, "mismatched-collective", {},
          fmt::format("{} brings {} bytes, {} brings {}",
                      describe(program_, rank, stream, states_[at(rank)][at(stream)].next), mine.bytes,
                      describe(program_, arrival.rank, arrival.stream, index), theirs.bytes));
  }
  for (const Arrival& arrival : std::exchange(arrivals, {})) {
    end(arrival.rank, arrival.stream);
    if (arrival.rank != rank) wake(arrival.rank);
  }
  return true;
}

bool NullWorld::advance(Rank rank, int stream) {
  const auto& instructions = program_.class_of(rank).streams[at(stream)].instructions;
  StreamState& state = states_[at(rank)][at(stream)];
  if (state.posted || state.next >= static_cast<int>(instructions.size())) return false;
  const Instruction& instruction = instructions[at(state.next)];
  if (!passed(rank, instruction.after)) return false;
  begin(rank, stream);
  if (instruction.op == Op::send || instruction.op == Op::recv) return match_transfer(rank, stream);
  if (instruction.op == Op::collective) return match_collective(rank, stream);
  end(rank, stream);
  return true;
}

// Communication before computation: receives are posted as early as they may be, as a real rank does while it computes.
void NullWorld::progress(Rank rank) {
  const int streams = static_cast<int>(states_[at(rank)].size());
  for (bool moved = true; moved;) {
    moved = false;
    for (int stream = 1; stream < streams; ++stream)
      while (advance(rank, stream)) moved = true;
    if (!moved) moved = advance(rank, 0);
  }
}

std::string NullWorld::why(Rank rank, int stream) const {
  const StreamState& state = states_[at(rank)][at(stream)];
  const Instruction& instruction = program_.at(rank, stream, state.next);
  for (const After& awaited : instruction.after)
    if (states_[at(rank)][at(awaited.stream)].next <= awaited.index)
      return fmt::format("waits for {}", describe(program_, rank, awaited.stream, awaited.index));
  const RankEntry& entry = program_.ranks[at(rank)];
  if (instruction.op == Op::send || instruction.op == Op::recv)
    return fmt::format("waits for rank {} to {}", entry.peers[at(instruction.slot)],
                       instruction.op == Op::send ? "post its recv" : "send");
  const int group = entry.groups[at(instruction.slot)];
  const auto& arrivals = arrived_[at(symmetry_.groups.of[at(group)])];
  std::vector<Rank> missing;
  for (Rank member : program_.groups[at(group)].ranks) {
    const Rank runs = symmetry_.ranks.stand_in(member);
    bool here = false;
    for (const Arrival& arrival : arrivals) here = here || arrival.rank == runs;
    if (!here) missing.push_back(member);
  }
  return fmt::format("waits for rank {} to join", fmt::join(missing, ", "));
}

std::vector<Blocked> NullWorld::blocked() const {
  std::vector<Blocked> stuck;
  for (Rank rank : symmetry_.ranks.first)
    for (int stream = 0; stream < static_cast<int>(states_[at(rank)].size()); ++stream) {
      const int next = states_[at(rank)][at(stream)].next;
      if (next < static_cast<int>(program_.class_of(rank).streams[at(stream)].instructions.size()))
        stuck.push_back({rank, stream, next, why(rank, stream)});
    }
  return stuck;
}

std::vector<Blocked> NullWorld::run() {
  for (Rank rank : symmetry_.ranks.first) wake(rank);
  while (!ready_.empty()) {
    const Rank rank = ready_.front();
    ready_.pop_front();
    is_ready_[at(rank)] = false;
    progress(rank);
  }
  return blocked();
}

}  // namespace motley
