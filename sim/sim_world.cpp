#include "sim/sim_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/refusal.hpp"
#include "sim/fold.hpp"

namespace motley {

namespace sg = simgrid::s4u;

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
double now_s() { return sg::Engine::get_clock(); }

// Real kernels want a real stack.
constexpr unsigned kExecutorStack = 8192;  // KiB: that of a Linux thread

}  // namespace

SimWorld::SimWorld(const Job& job, const Program& program, const SimOptions& options, Durations& durations,
                   sg::Engine& engine)
    : job_(job),
      program_(program),
      options_(options),
      durations_(durations),
      engine_(engine),
      fabric_(
          program, job.cluster,
          job.fidelity.fold_tensor_parallel ? fold_tensor_parallel(program, job.cluster) : Fabric::Shares{}) {
  lay_out_streams();
  lay_out_fabric();
  start_actors(engine);
}

CollectiveLevel SimWorld::level_of(const Group& group) const {
  return group.kind == GroupKind::tensor ? job_.fidelity.tensor_parallel : job_.fidelity.data_parallel;
}

void SimWorld::lay_out_streams() {
  trace_.strategy_hash = program_.strategy_hash;
  trace_.program_hash = program_hash(program_);
  trace_.world = "sim";
  trace_.measured_ranks = durations_.measured_ranks();
  std::size_t events = 0;
  for (Rank rank = 0; rank < program_.rank_count(); ++rank) {
    simulated_.push_back(!job_.fidelity.fold_tensor_parallel || stands_for_peers(program_, rank));
    first_stream_.push_back(streams_.size());
    meetings_.emplace_back(program_.ranks[at(rank)].peers.size());
    for (const Stream& stream : program_.class_of(rank).streams) {
      StreamState made;
      made.first_event = events;
      made.count = simulated(rank) ? static_cast<std::int32_t>(stream.instructions.size()) : 0;
      events += at(made.count);
      streams_.push_back(std::move(made));
    }
  }
  trace_.events.resize(events);
}

void SimWorld::lay_out_fabric() {
  for (Rank rank = 0; rank < program_.rank_count(); ++rank)
    if (simulated(rank))
      for (Rank peer : program_.ranks[at(rank)].peers)
        if (peer >= 0) fabric_.add_route(rank, peer);
  gangs_.resize(program_.groups.size());
  for (std::size_t i = 0; i < program_.groups.size(); ++i) {
    const Group& group = program_.groups[i];
    Gang& gang = gangs_[i];
    gang.expected = at(
        std::count_if(group.ranks.begin(), group.ranks.end(), [this](Rank rank) { return simulated(rank); }));
    if (gang.expected == 0 || group.ranks.size() < 2) continue;
    const CollectiveLevel level = level_of(group);
    const int index = static_cast<int>(i);
    if (level == CollectiveLevel::fluid)
      fabric_.add_ring(index, group.ranks, durations_.ring(index).bandwidth);
    for (std::size_t member = 0; level == CollectiveLevel::expanded && member < group.ranks.size();
         ++member) {
      fabric_.add_route(group.ranks[member], group.ranks[(member + 1) % group.ranks.size()]);
      gang.edges.push_back(sg::Mailbox::by_name(fmt::format("{}.{}", i, member)));
    }
  }
  fabric_.seal();
}

void SimWorld::start_actors(sg::Engine&) {
  for (Rank rank = 0; rank < program_.rank_count(); ++rank)
    for (int stream = 0; stream < static_cast<int>(program_.class_of(rank).streams.size()); ++stream) {
      StreamState& of = state(rank, stream);
      if (of.count == 0) continue;
      auto actor = sg::Actor::init(fmt::format("{}.{}", rank, stream), fabric_.host_of(rank));
      if (stream == 0 && durations_.executes(rank)) actor->set_stacksize(kExecutorStack);
      actor->start([this, rank, stream] { run_actor(rank, stream); });
      of.actor = actor.get();
    }
}

void SimWorld::run_actor(Rank rank, int stream) {
  try {
    run_stream(program_, rank, stream, *this);
  } catch (const std::exception&) {
    failure_ = std::current_exception();
    sg::Actor::kill_all();
  }
}

Trace SimWorld::run() {
  sg::Engine::on_deadlock_cb([this] { deadlock_ = describe_deadlock(); });
  engine_.run();
  if (failure_) std::rethrow_exception(failure_);
  if (!deadlock_.empty()) throw RunFailure(deadlock_);
  return std::move(trace_);
}

void SimWorld::issue(const Step& step, const Instruction& instruction, std::span<const Step> after) {
  StreamState& stream = state(step.rank, step.stream);
  TraceEvent& event = event_of(step);
  event.step = step;
  event.free_s = now_s();
  event.bytes = instruction.bytes;
  event.flops = instruction.flops;
  event.allocated = instruction.allocated;
  event.freed = instruction.freed;
  event.peak = instruction.peak;
  wait_for_after(stream, event, after);
  event.begin_s = event.matched_s = now_s();
  switch (instruction.op) {
    case Op::compute:
    case Op::optimizer:
      if (const double seconds = durations_.of(step, instruction); seconds > 0)
        sg::this_actor::sleep_for(seconds);
      break;
    case Op::send:
    case Op::recv:
      transfer(stream, event, instruction);
      break;
    case Op::collective:
      collective(stream, event, instruction);
      break;
  }
  end(stream, event);
}

void SimWorld::wait_for_after(StreamState& stream, TraceEvent& event, std::span<const Step> after) {
  for (const Step& step : after) {
    StreamState& awaited = state(step.rank, step.stream);
    while (awaited.ended <= step.index) {
      awaited.waiters.push_back({step.index, stream.actor});
      stream.blocked = Blocked::after;
      stream.waits_for = step;
      sg::this_actor::suspend();
    }
  }
  stream.blocked = Blocked::no;
  double latest_s = event.free_s;
  for (const Step& step : after) {
    const double end_s = event_of(step).end_s;
    if (end_s <= latest_s) continue;
    latest_s = end_s;
    event.waited = Waited::step;
    event.waited_for = step;
  }
}

void SimWorld::end(StreamState& stream, TraceEvent& event) {
  event.end_s = now_s();
  ++stream.ended;
  auto& waiters = stream.waiters;
  for (std::size_t i = 0; i < waiters.size();) {
    if (waiters[i].index >= stream.ended) {
      ++i;
      continue;
    }
    sg::Actor* woken = waiters[i].actor;
    waiters.erase(waiters.begin() + static_cast<std::ptrdiff_t>(i));
    woken->resume();
    i = 0;  // others may have come while this actor was away
  }
}

void SimWorld::block(StreamState& stream) {
  stream.blocked = Blocked::other_side;
  while (!stream.released) sg::this_actor::suspend();
  stream.released = false;
  stream.blocked = Blocked::no;
}

void SimWorld::release(const Posted& posted) {
  posted.stream->released = true;
  posted.stream->actor->resume();
}

void SimWorld::match(const std::vector<Posted>& met, double matched_s) {
  const auto is_last = [&](const Posted& posted) { return posted.event->begin_s == matched_s; };
  Rank last = -1;
  for (const Posted& posted : met)
    if (is_last(posted) && (last < 0 || posted.event->step.rank < last)) last = posted.event->step.rank;
  for (const Posted& posted : met) {
    posted.event->matched_s = matched_s;
    if (is_last(posted)) continue;
    posted.event->waited = Waited::peer;
    posted.event->waited_rank = last;
  }
}

// Whoever comes second carries the message.
void SimWorld::transfer(StreamState& stream, TraceEvent& event, const Instruction& instruction) {
  const Rank rank = event.step.rank;
  const Rank peer = program_.ranks[at(rank)].peers[at(instruction.slot)];
  const bool sends = instruction.op == Op::send;
  const Rank from = sends ? rank : peer, to = sends ? peer : rank;
  Posted& meeting =
      meetings_[at(from)][at(sends ? instruction.slot : other_end(program_, rank, instruction.slot))];
  const Posted me{&stream, &event, sends};
  if (meeting.stream == nullptr) {
    meeting = me;
    block(stream);
    return;
  }
  const Posted other = std::exchange(meeting, {});
  MOTLEY_CHECK(other.sends != sends);
  match({other, me}, now_s());
  if (!options_.null) fabric_.message(from, to, instruction.bytes)->wait();
  release(other);
}

// Formula and fluid: whoever comes last carries the collective. Expanded: every member sends and receives.
void SimWorld::collective(StreamState& stream, TraceEvent& event, const Instruction& instruction) {
  const Rank rank = event.step.rank;
  const int index = program_.ranks[at(rank)].groups[at(instruction.slot)];
  Gang& gang = gangs_[at(index)];
  const CollectiveLevel level = level_of(program_.groups[at(index)]);
  const bool each_works = level == CollectiveLevel::expanded && !options_.null;
  gang.here.push_back({&stream, &event, false});
  const bool complete = gang.here.size() == gang.expected;
  std::vector<Posted> met;
  if (complete) {
    met = std::exchange(gang.here, {});
    match(met, now_s());
  }
  if (each_works) {
    stream.blocked = Blocked::other_side;
    run_expanded(index, rank, instruction.bytes);
    stream.blocked = Blocked::no;
    return;
  }
  if (!complete) {
    block(stream);
    return;
  }
  if (!options_.null) run_whole(index, instruction.bytes, level);
  for (const Posted& posted : met)
    if (posted.stream != &stream) release(posted);
}

// Ring all-reduce: formula, or a delay and then a flow an edge with all its wire bytes. On an idle fabric the two
// agree: the delay is what the formula has beyond the wire time of the slowest edge.
void SimWorld::run_whole(int group, std::int64_t bytes, CollectiveLevel level) {
  const RingCost& ring = durations_.ring(group);
  const double seconds = ring_all_reduce_s(ring, bytes);
  if (level == CollectiveLevel::formula) {
    if (seconds > 0) sg::this_actor::sleep_for(seconds);
    return;
  }
  const double count = ring.rank_count;
  const auto wire_bytes = static_cast<std::int64_t>(2 * (count - 1) / count * static_cast<double>(bytes));
  const double delay_s = seconds - static_cast<double>(wire_bytes) / ring.bandwidth;
  if (delay_s > 0) sg::this_actor::sleep_for(delay_s);
  if (wire_bytes == 0) return;
  std::vector<sg::CommPtr> flows;
  const auto& ranks = program_.groups[at(group)].ranks;
  for (std::size_t edge = 0; edge < ranks.size(); ++edge)
    if (simulated(ranks[edge])) flows.push_back(fabric_.ring_flow(group, static_cast<int>(edge), wire_bytes));
  for (const sg::CommPtr& flow : flows) flow->wait();
}

// Assumes: the R chunks are padded to equal size, less than R bytes in all.
void SimWorld::run_expanded(int group, Rank rank, std::int64_t bytes) {
  const auto& ranks = program_.groups[at(group)].ranks;
  const std::size_t count = ranks.size();
  const auto member = at(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const auto chunk = (bytes + static_cast<std::int64_t>(count) - 1) / static_cast<std::int64_t>(count);
  const bool alone = gangs_[at(group)].expected == 1;  // folded: its peers do the same at the same time
  auto& edges = gangs_[at(group)].edges;
  for (std::size_t step = 0; step < 2 * (count - 1); ++step) {
    if (alone) {
      fabric_.message(rank, ranks[(member + 1) % count], chunk)->wait();
      continue;
    }
    char sent = 0;
    char* received = nullptr;
    const auto sending = edges[member]->put_async(&sent, static_cast<std::uint64_t>(chunk));
    const auto receiving = edges[(member + count - 1) % count]->get_async<char>(&received);
    sending->wait();
    receiving->wait();
  }
}

std::string SimWorld::why(Rank rank, int stream) {
  const StreamState& of = state(rank, stream);
  if (of.blocked == Blocked::after)
    return "waits for " + describe(program_, of.waits_for.rank, of.waits_for.stream, of.waits_for.index);
  const Instruction& instruction = program_.at(rank, stream, of.ended);
  const RankEntry& entry = program_.ranks[at(rank)];
  if (instruction.op == Op::send)
    return fmt::format("waits for rank {} to post its recv", entry.peers[at(instruction.slot)]);
  if (instruction.op == Op::recv)
    return fmt::format("waits for rank {} to send", entry.peers[at(instruction.slot)]);
  const int group = entry.groups[at(instruction.slot)];
  std::vector<Rank> missing;
  for (Rank member : program_.groups[at(group)].ranks) {
    const auto& here = gangs_[at(group)].here;
    const bool arrived = std::any_of(here.begin(), here.end(),
                                     [&](const Posted& posted) { return posted.event->step.rank == member; });
    if (!arrived && simulated(member)) missing.push_back(member);
  }
  return fmt::format("waits for rank {} to join", fmt::join(missing, ", "));
}

std::string SimWorld::describe_deadlock() {
  constexpr int kShown = 16;
  std::string lines;
  int waiting = 0;
  for (Rank rank = 0; rank < program_.rank_count(); ++rank)
    for (int stream = 0; stream < static_cast<int>(program_.class_of(rank).streams.size()); ++stream) {
      const StreamState& of = state(rank, stream);
      if (of.ended == of.count || ++waiting > kShown) continue;
      lines += fmt::format("\n  {} {}", describe(program_, rank, stream, of.ended), why(rank, stream));
    }
  if (waiting > kShown) lines += fmt::format("\n  and {} more", waiting - kShown);
  return fmt::format("deadlock at {} s of virtual time, {} streams wait:{}", now_s(), waiting, lines);
}

}  // namespace motley
