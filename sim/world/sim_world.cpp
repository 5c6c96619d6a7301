#include "sim/world/sim_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/program/next_step.hpp"

namespace motley {

namespace {

// Steps follow each other until two of them differ by their time alone, or so many have run.
constexpr int kMostRounds = 16;
constexpr double kSteady = 1e-6;  // relative

}  // namespace

SimWorld::SimWorld(const Job& job, const Program& program, const SimOptions& options, Durations& durations,
                   const FoldedFabric& folded)
    : program_(program),
      options_(options),
      durations_(durations),
      folded_(folded),
      folding_(folded.folding),
      fabric_(folded.fabric),
      flows_(clock_, fabric_, options.all_shared),
      overlap_(program, job.cluster, clock_),
      most_rounds_(job.strategy.steps_overlap() && !options.null ? kMostRounds : 1) {
  lay_out_streams();
  lay_out_gangs();
}

void SimWorld::lay_out_streams() {
  trace_.strategy_hash = program_.strategy_hash;
  if (options_.hashes_program) trace_.program_hash = program_hash(program_);
  trace_.world = "sim";
  trace_.measured_ranks = durations_.measured_ranks();
  trace_.measured_for_class = !trace_.measured_ranks.empty() && durations_.for_class();
  trace_.measured_transfers = !trace_.measured_ranks.empty() && durations_.measured_transfers();
  std::size_t events = 0;
  first_stream_.resize(program_.ranks.size());
  for (Rank rank : folding_.symmetry.ranks.first) {
    first_stream_[rank] = streams_.size();
    for (const Stream& stream : program_.program_of(rank).streams) {
      StreamState fresh;
      fresh.first_event = events;
      events += stream.instructions.size();
      streams_.push_back(std::move(fresh));
    }
  }
  events_of_round_ = events;
  if (folding_.symmetry.ranks.first.size() == program_.ranks.size()) return;
  const std::vector<std::int64_t> counts = folding_.symmetry.ranks.counts();
  for (std::size_t i = 0; i < counts.size(); ++i)
    trace_.stand_ins.push_back({folding_.symmetry.ranks.first[i], counts[i]});
}

void SimWorld::lay_out_gangs() {
  meetings_.resize(folding_.symmetry.lanes.first.size());
  handshakes_.resize(meetings_.size());
  const std::vector<std::size_t> sizes = gang_sizes(program_, folding_.symmetry);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Gang gang;
    gang.expected = sizes[i];
    gangs_.push_back(std::move(gang));
  }
}

void SimWorld::issue(const Step& step, const Instruction&, std::span<const Step>) {
  state(step.rank, step.stream).count = step.index + 1;
}

Trace SimWorld::run() {
  for (Rank rank : folding_.symmetry.ranks.first)
    for (StreamId stream : program_.program_of(rank).streams.ids()) run_stream(program_, rank, stream, *this);
  for (Rank rank : folding_.symmetry.ranks.first)
    for (StreamId stream : program_.program_of(rank).streams.ids())
      state(rank, stream).task = run_to_end(rank, stream);
  flows_.run();
  if (failure_) std::rethrow_exception(failure_);
  const std::string deadlock = describe_deadlock();
  if (!deadlock.empty()) throw RunFailure(deadlock);
  if (trace_.events.empty() && !rounds_.empty()) trace_.events = std::move(rounds_.front().events);
  return std::move(trace_);
}

Task SimWorld::run_to_end(Rank rank, StreamId stream) {
  StreamState& here = state(rank, stream);
  try {
    for (int round = 0; here.count > 0 && round < most_rounds_ && !clock_.stopped(); ++round) {
      begin_round(round);
      for (std::int32_t index = 0; index < here.count && !clock_.stopped(); ++index)
        co_await perform({rank, stream, index}, round);
      if (!clock_.stopped()) end_round(round);
    }
  } catch (const std::exception&) {
    failure_ = std::current_exception();
    clock_.stop();
  }
}

void SimWorld::begin_round(int round) {
  if (at(round - first_round_) < rounds_.size()) return;
  Round& fresh = rounds_.emplace_back();
  fresh.events.resize(events_of_round_);
  fresh.streams_left = static_cast<std::size_t>(std::count_if(
      streams_.begin(), streams_.end(), [](const StreamState& each) { return each.count > 0; }));
}

void SimWorld::end_round(int round) {
  Round& ended = rounds_[at(round - first_round_)];
  if (--ended.streams_left > 0) return;
  ends_s_.push_back(0);
  for (const TraceEvent& event : ended.events) ends_s_.back() = std::max(ends_s_.back(), event.end_s);
  if (round == 0) return;
  if (round + 1 == most_rounds_ || is_steady(rounds_.front(), ended)) return keep_steady(round);
  rounds_.pop_front();
  ++first_round_;
}

bool SimWorld::is_steady(const Round& before, const Round& last) const {
  double least_s = std::numeric_limits<double>::infinity(), most_s = 0;
  for (std::size_t i = 0; i < last.events.size(); ++i) {
    const double later_s = last.events[i].end_s - before.events[i].end_s;
    least_s = std::min(least_s, later_s);
    most_s = std::max(most_s, later_s);
  }
  return most_s - least_s <= kSteady * most_s;
}

// The last round is the step that is kept, from the instant when its first stream was free.
// Assumes: steps that never become alike (transfers that share links, in turns) take the mean of the last half of them.
void SimWorld::keep_steady(int round) {
  clock_.stop();
  const int over = is_steady(rounds_.front(), rounds_[1]) ? 1 : round / 2;
  trace_.period_s = (ends_s_[at(round)] - ends_s_[at(round - over)]) / over;
  trace_.events = std::move(rounds_[1].events);
  double begin_s = std::numeric_limits<double>::infinity();
  for (const TraceEvent& event : trace_.events) begin_s = std::min(begin_s, event.free_s);
  for (TraceEvent& event : trace_.events)
    for (double* const time_s : {&event.free_s, &event.begin_s, &event.matched_s, &event.end_s})
      *time_s -= begin_s;
}

Task SimWorld::await_last_round(Step step, int round) {
  for (const After& after : awaited_of_last_step(program_.program_of(step.rank), step.stream))
    while (must_wait(state(step.rank, step.stream), {step.rank, after.stream, after.index}, round - 1))
      co_await state(step.rank, step.stream).parking.wait();
}

Task SimWorld::perform(Step step, int round) {
  StreamState& stream = state(step.rank, step.stream);
  const Instruction& instruction = program_.at(step.rank, step.stream, step.index);
  TraceEvent& event = event_of(step, round);
  event.step = step;
  event.free_s = now_s();
  event.bytes = payload_bytes(instruction);
  event.flops = instruction.flops;
  event.allocated = instruction.allocated;
  event.freed = instruction.freed;
  event.peak = instruction.peak;
  if (round > 0 && step.index == 0) co_await await_last_round(step, round);
  for (const After& after : instruction.after)
    while (must_wait(stream, {step.rank, after.stream, after.index}, round)) co_await stream.parking.wait();
  note_wait(event, instruction, round);
  event.begin_s = event.matched_s = now_s();
  switch (instruction.op()) {
    case Op::compute:
    case Op::optimizer:
      co_await run_compute(step, instruction);
      break;
    case Op::send:
    case Op::recv:
      co_await transfer(stream, event, *instruction.message(), instruction.op() == Op::send);
      overlap_.end(step.rank);
      break;
    case Op::collective:
      co_await collective(stream, event, std::get<Collective>(instruction.body));
      overlap_.end(step.rank);
      break;
    case Op::copy:
      co_await copy(step, instruction);
      break;
  }
  end(stream, event);
}

Task SimWorld::run_compute(Step step, const Instruction& instruction) {
  const double seconds = durations_.seconds(step, instruction);
  if (durations_.is_measured(step.rank))
    co_await sleep(seconds);  // it was measured with whatever ran beside it
  else
    co_await overlap_.compute(step.rank, seconds);
}

// Assumes: a chip's copy engines work beside its computes without slowing them.
Task SimWorld::copy(Step step, const Instruction& instruction) {
  durations_.communicate({step});
  if (options_.null) co_return;
  const bool down = goes_to_host(program_.program_of(step.rank), instruction);
  const std::int32_t lane = folding_.first_host[step.rank] + (down ? 0 : 1);
  const std::int64_t bytes = payload_bytes(instruction);
  co_await sleep(fabric_.latency_s(lane, bytes));
  const std::shared_ptr<Flow> flow = flows_.start(lane, bytes);
  co_await flow->arrival();
}

bool SimWorld::must_wait(StreamState& stream, Step step, int round) {
  StreamState& awaited = state(step.rank, step.stream);
  const std::int32_t index = round * awaited.count + step.index;
  if (awaited.ended > index) {
    stream.blocked = Blocked::no;
    return false;
  }
  awaited.waiters.push_back({index, &stream});
  stream.blocked = Blocked::after;
  stream.waits_for = step;
  return true;
}

void SimWorld::note_wait(TraceEvent& event, const Instruction& instruction, int round) {
  double latest_s = event.free_s;
  const auto note = [&](const After& after, int of_round) {
    const Step step{event.step.rank, after.stream, after.index};
    const double end_s = event_of(step, of_round).end_s;
    if (end_s <= latest_s) return;
    latest_s = end_s;
    event.waited = Waited::step;
    event.waited_for = step;
  };
  if (round > 0 && event.step.index == 0)
    for (const After& after : awaited_of_last_step(program_.program_of(event.step.rank), event.step.stream))
      note(after, round - 1);
  for (const After& after : instruction.after) note(after, round);
}

void SimWorld::end(StreamState& stream, TraceEvent& event) {
  event.end_s = now_s();
  ++stream.ended;
  std::vector<Waiter>& waiters = stream.waiters;
  const auto woken = std::stable_partition(
      waiters.begin(), waiters.end(), [&](const Waiter& waiter) { return waiter.index >= stream.ended; });
  for (auto waiter = woken; waiter != waiters.end(); ++waiter) waiter->stream->parking.wake(clock_);
  waiters.erase(woken, waiters.end());
}

Task SimWorld::block(StreamState& stream) {
  stream.blocked = Blocked::other_side;
  while (!stream.released) co_await stream.parking.wait();
  stream.released = false;
  stream.blocked = Blocked::no;
}

void SimWorld::release(const Posted& posted) {
  posted.stream->released = true;
  posted.stream->parking.wake(clock_);
}

void SimWorld::release_others(const std::vector<Posted>& met, const StreamState& stream) {
  for (const Posted& posted : met)
    if (posted.stream != &stream) release(posted);
}

// The lowest rank among those that came last and that `event` had to wait for. When ranks stand for others, `last`
// holds the stand-ins of the peers, and this function returns the peer itself.
Rank SimWorld::last_there(const TraceEvent& event, const std::vector<Rank>& last) const {
  const Instruction& instruction = program_.at(event.step.rank, event.step.stream, event.step.index);
  const RankEntry& entry = program_.ranks[event.step.rank];
  if (const PeerMessage* message = instruction.message()) return entry.peers[message->slot].value();
  if (trace_.stand_ins.empty()) return *std::min_element(last.begin(), last.end());
  std::optional<Rank> lowest;
  for (Rank member :
       program_.groups[entry.groups[std::get<Collective>(instruction.body).slot].value()].ranks) {
    const bool came_last =
        std::find(last.begin(), last.end(), folding_.symmetry.ranks.stand_in(member)) != last.end();
    if (came_last && (!lowest || member < *lowest)) lowest = member;
  }
  return lowest.value();
}

std::optional<double> SimWorld::match(const std::vector<Posted>& met, double matched_s) {
  std::optional<double> timed_s;
  if (durations_.any_measured()) {
    std::vector<Step> steps;
    for (const Posted& posted : met) steps.push_back(posted.event->step);
    timed_s = durations_.communicate(steps);
    for (const Posted& posted : met) posted.event->paths = durations_.paths(posted.event->step);
  }
  std::vector<Rank> last;
  for (const Posted& posted : met)
    if (posted.event->begin_s == matched_s) last.push_back(posted.event->step.rank);
  for (const Posted& posted : met) overlap_.begin(posted.event->step.rank);
  for (const Posted& posted : met) {
    posted.event->matched_s = matched_s;
    if (posted.event->begin_s == matched_s) continue;
    posted.event->waited = Waited::peer;
    posted.event->waited_rank = last_there(*posted.event, last);
  }
  return timed_s;
}

// The side that comes second starts the message and waits for its end; the first is blocked until then.
Task SimWorld::transfer(StreamState& stream, TraceEvent& event, const PeerMessage& message, bool sends) {
  const Rank rank = event.step.rank;
  const Arrangement& arrangement = folding_.arrangement;
  const std::int32_t lane =
      sends ? arrangement.sent_lane(rank, message.slot) : arrangement.received_lane(rank, message.slot);
  const Posted me{&stream, &event, sends};
  if (lane < 0) co_await block(stream);  // for ever: no rank comes to the other side
  Posted& meeting = meetings_[at(folding_.lane_class(lane))];
  if (meeting.stream == nullptr) {
    meeting = me;
    co_await block(stream);
    co_return;
  }
  const Posted other = std::exchange(meeting, {});
  MOTLEY_CHECK(other.sends != sends);
  if (const std::optional<double> timed_s = match({other, me}, now_s())) {
    co_await sleep(*timed_s);
  } else if (!options_.null) {
    co_await sleep(fabric_.latency_s(lane, message.bytes));
    const std::shared_ptr<Flow> flow = flows_.start(lane, message.bytes);
    co_await flow->arrival();
  }
  release(other);
}

// At levels formula and fluid, and if it is timed, the member that comes last runs the whole collective. At level
// expanded every member sends and receives its own messages.
// Assumes: bytes that move in measured seconds load no link of the fabric. A collective with a root begins when all
// members have come, although some could begin, and end, before others come.
Task SimWorld::collective(StreamState& stream, TraceEvent& event, const Collective& collective) {
  const Rank rank = event.step.rank;
  const GroupId index = program_.ranks[rank].groups[collective.slot].value();
  Gang& gang = gang_of(index);
  const bool each_works = folded_.traffic.level(index) == CollectiveLevel::expanded && !options_.null &&
                          !durations_.is_timed(event.step);
  gang.here.push_back({&stream, &event, false});
  const bool complete = gang.here.size() == gang.expected;
  std::vector<Posted> met;
  std::optional<double> timed_s;
  if (complete) {
    met = std::exchange(gang.here, {});
    timed_s = match(met, now_s());
  }
  if (each_works) {
    if (!joins_all(collective.kind)) {
      release_others(met, stream);
      if (!complete) co_await block(stream);
    }
    stream.blocked = Blocked::other_side;
    const MemberExchanges exchanges = folded_.traffic.exchanges(index, rank, collective);
    co_await run_expanded(stream, exchanges);
    stream.blocked = Blocked::no;
    co_return;
  }
  if (!complete) {
    co_await block(stream);
    co_return;
  }
  if (timed_s) {
    co_await sleep(*timed_s);
  } else if (!options_.null) {
    const WholeCollective whole = folded_.traffic.whole(index, collective);
    co_await run_whole(whole);
  }
  release_others(met, stream);
}

// Runs a collective by formula, or moves the bytes of all its lanes at once.
Task SimWorld::run_whole(const WholeCollective& whole) {
  if (whole.flows.empty()) co_return co_await sleep(whole.whole_s);
  const double begin_s = now_s();
  std::vector<std::shared_ptr<Flow>> under_way;
  for (const LaneMessage& flow : whole.flows)
    if (flow.bytes > 0) under_way.push_back(flows_.start(flow.lane, flow.bytes));
  for (const std::shared_ptr<Flow>& flow : under_way) co_await flow->arrival();
  co_await sleep(begin_s + whole.seconds(now_s() - begin_s) - now_s());
}

std::shared_ptr<SimWorld::Handshake> SimWorld::shake(std::int32_t lane, StreamState* stream) {
  auto& open = handshakes_[at(folding_.lane_class(lane))];
  if (open == nullptr) return open = std::make_shared<Handshake>(Handshake{stream, nullptr, nullptr});
  open->second = stream;
  return std::exchange(open, nullptr);
}

Task SimWorld::run_expanded(StreamState& stream, const MemberExchanges& exchanges) {
  co_await sleep(exchanges.setup_s);
  for (const MemberExchange& each : exchanges.list)
    for (int i = 0; i < each.times; ++i) co_await exchange(stream, each.messages);
}

Task SimWorld::exchange(StreamState& stream, const std::vector<LaneMessage>& messages) {
  std::vector<std::shared_ptr<Handshake>> met;
  std::vector<std::pair<double, std::size_t>>
      in_turn;  // latency, index into messages: the least begins first
  for (std::size_t i = 0; i < messages.size(); ++i) {
    met.push_back(shake(messages[i].lane, &stream));
    in_turn.emplace_back(messages[i].latency_s, i);
  }
  const double begin_s = now_s();
  std::sort(in_turn.begin(), in_turn.end());
  for (const auto& [latency_s, i] : in_turn) {
    if (met[i]->second != &stream || met[i]->message != nullptr) continue;
    co_await sleep(begin_s + latency_s - now_s());
    met[i]->message = flows_.start(messages[i].lane, messages[i].bytes);
    if (met[i]->first != &stream) met[i]->first->parking.wake(clock_);
  }
  for (const auto& message : met) {
    while (message->message == nullptr) co_await stream.parking.wait();
    co_await message->message->arrival();
  }
}

}  // namespace motley
