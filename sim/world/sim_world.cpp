#include "sim/world/sim_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/program/next_step.hpp"

namespace motley {

namespace {

// Steps follow each other until two of them differ by their time alone, or so many have run.
constexpr int kMostRounds = 16;
constexpr double kSteady = 1e-6;  // relative

Folding fold_and_announce(const Job& job, const Program& program, const SimOptions& options,
                          Durations& durations) {
  FoldOptions how{job.fidelity.fold.value_or(false), {}};
  if (!durations.for_class()) how.apart = durations.measured_ranks();
  if (options.announce)
    how.counted = [&](std::int64_t lanes) { options.announce(least_memory_need(job, program, lanes)); };
  Folding folding = fold(job, program, durations.costs(), how);
  durations.use_classes(folding.symmetry.ranks);
  if (options.announce) options.announce(memory_need(job, program, folding));
  return folding;
}

}  // namespace

SimWorld::SimWorld(const Job& job, const Program& program, const SimOptions& options, Durations& durations)
    : job_(job),
      program_(program),
      options_(options),
      durations_(durations),
      folding_(fold_and_announce(job, program, options, durations)),
      fabric_(program, job.cluster, folding_),
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
    const GroupId group(folding_.symmetry.groups.first[i]);
    const std::size_t members = program_.groups[group].ranks.size();
    if (folding_.first_edge[group] >= 0)
      gang.edges =
          one_of_each(folding_.first_edge[group], members * durations_.costs().ring(group).hops.size());
    gang.pairs = one_of_each(folding_.first_pair[group], members * (members - 1));
    for (const PlannedLanes& each : folding_.planned[group])
      gang.planned.push_back(one_of_each(each.first_lane, each.plan->ways.size()));
    gangs_.push_back(std::move(gang));
  }
}

// Returns one lane of each class among the `count` lanes from `first` on. `first` < 0: none.
std::vector<std::int32_t> SimWorld::one_of_each(std::int32_t first, std::size_t count) const {
  std::vector<std::int32_t> lanes;
  std::set<std::int32_t> classes;
  for (std::size_t i = 0; first >= 0 && i < count; ++i) {
    const std::int32_t lane = first + static_cast<std::int32_t>(i);
    if (classes.insert(folding_.lane_class(lane)).second) lanes.push_back(lane);
  }
  return lanes;
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
  const CollectiveLevel level = level_of(job_.fidelity, program_.groups[index]);
  const bool each_works =
      level == CollectiveLevel::expanded && !options_.null && !durations_.is_timed(event.step);
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
    co_await run_expanded(index, stream, rank, collective);
    stream.blocked = Blocked::no;
    co_return;
  }
  if (!complete) {
    co_await block(stream);
    co_return;
  }
  if (timed_s)
    co_await sleep(*timed_s);
  else if (!options_.null)
    co_await run_whole(index, collective, level);
  release_others(met, stream);
}

// Runs a collective by formula, or as one flow for each edge (for each pair in an all_to_all) with all its wire bytes.
// Assumes: of several rings inside a mesh, only the flows of the first ring load the fabric.
Task SimWorld::run_whole(GroupId group, const Collective& collective, CollectiveLevel level) {
  const CollectiveKind kind = collective.kind;
  const CollectiveTask task = task_of(collective);
  const std::int64_t bytes = expected_bytes(collective);
  const CollectiveAlgorithm algorithm = durations_.algorithm_of(task, group, job_.fidelity.algorithm, bytes);
  if (needs_steps(task, algorithm)) co_return co_await run_planned(group, task, bytes, algorithm, level);
  const RingCost& cost = durations_.cost(kind, group);
  const double seconds = collective_s(kind, cost, bytes);
  if (level == CollectiveLevel::formula) {
    co_await sleep(seconds);
    co_return;
  }
  const double count = cost.rank_count;
  const double steps = collective_steps(kind, cost.rank_count);
  // Bytes that a member sends, over all its rings or to all other members of an all_to_all.
  const auto wire_bytes = static_cast<std::int64_t>(steps / count * static_cast<double>(bytes));
  const bool pairwise = kind == CollectiveKind::all_to_all;
  const std::int64_t parts = pairwise ? cost.rank_count - 1 : cost.rings;
  const std::int64_t part_bytes = wire_bytes / parts;
  const Gang& gang = gang_of(group);
  std::vector<Message> flows;
  for (std::int32_t lane : pairwise ? gang.pairs : gang.edges)
    flows.push_back({lane, part_bytes * folding_.arrangement.lanes[at(lane)].parts});
  const GroupId first(folding_.symmetry.groups.first[at(folding_.symmetry.groups.class_of[at(group)])]);
  const double crowding = (pairwise ? folding_.pair_crowding : folding_.ring_crowding)[first];
  co_await run_flows(flows, {seconds, static_cast<double>(part_bytes * parts) / cost.bandwidth, crowding});
}

// Moves the bytes of all lanes at once and returns when the collective has ended: on an idle fabric after its closed
// form, where links are shared later.
// Assumes: where unlike collectives share links, the bytes of one move while the other waits for its latencies. Those
// of groups that do the same at the same time wait for their latencies together, and then share the links.
Task SimWorld::run_flows(const std::vector<Message>& flows, FlowTimes idle) {
  const double begin_s = now_s();
  std::vector<std::shared_ptr<Flow>> under_way;
  for (const Message& flow : flows)
    if (flow.bytes > 0) under_way.push_back(flows_.start(flow.lane, flow.bytes));
  for (const std::shared_ptr<Flow>& flow : under_way) co_await flow->arrival();
  const double shared_s = now_s() - begin_s, beside_wire_s = idle.whole_s - idle.wire_s;
  const double together_s = beside_wire_s + idle.wire_s * idle.crowding;
  const double end_s = std::max(idle.whole_s, std::min(beside_wire_s + shared_s, together_s));
  co_await sleep(begin_s + end_s - now_s());
}

// The same for an algorithm with a plan: one flow for each way of the plan that carries bytes.
Task SimWorld::run_planned(GroupId group, CollectiveTask task, std::int64_t payload,
                           CollectiveAlgorithm algorithm, CollectiveLevel level) {
  if (program_.groups[group].ranks.size() < 2) co_return;
  const CollectiveCost& cost = durations_.costs().collective(task, group, algorithm);
  const auto bytes = static_cast<double>(payload);
  const double seconds = cost.seconds(payload);
  if (level == CollectiveLevel::formula) co_return co_await sleep(seconds);
  const auto group_class = at(folding_.symmetry.groups.class_of[at(group)]);
  const GroupId first(folding_.symmetry.groups.first[group_class]);
  const PlannedLanes& lanes = folding_.planned_for(first, task, algorithm);
  std::vector<Message> flows;
  for (std::int32_t lane : gangs_[group_class].planned[at(&lanes - folding_.planned[first].data())])
    flows.push_back({lane, std::llround(lanes.plan->ways[at(lane - lanes.first_lane)].share * bytes)});
  co_await run_flows(flows, {seconds, cost.least_s_per_byte * bytes, lanes.crowding});
}

std::shared_ptr<SimWorld::Handshake> SimWorld::shake(std::int32_t lane, StreamState* stream) {
  auto& open = handshakes_[at(folding_.lane_class(lane))];
  if (open == nullptr) return open = std::make_shared<Handshake>(Handshake{stream, nullptr, nullptr});
  open->second = stream;
  return std::exchange(open, nullptr);
}

// A ring uses the same two edges of each hop in every step.
// Assumes: the R chunks are padded to equal size, less than R bytes in all.
Task SimWorld::run_expanded(GroupId group, StreamState& stream, Rank rank, const Collective& collective) {
  const auto& ranks = program_.groups[group].ranks;
  const std::size_t count = ranks.size();
  if (count < 2) co_return;
  const CollectiveKind kind = collective.kind;
  const std::int64_t bytes = expected_bytes(collective);
  const auto member = at(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const CollectiveTask task = task_of(collective);
  const CollectiveAlgorithm algorithm = durations_.algorithm_of(task, group, job_.fidelity.algorithm, bytes);
  if (needs_steps(task, algorithm))
    co_return co_await run_plan(group, stream, member, task, bytes, algorithm);
  if (kind == CollectiveKind::all_to_all) co_return co_await run_pairs(group, stream, member, bytes);
  const RingCost& cost = durations_.cost(kind, group);
  const std::int64_t parts = static_cast<std::int64_t>(count) * cost.rings;
  const std::int64_t chunk = (bytes + parts - 1) / parts;
  const int steps = collective_steps(kind, static_cast<int>(count));
  const double overhead_s = collective_overhead_s(kind, cost, bytes) / steps;
  std::vector<Message> messages;
  for (int step = 0; step < steps; ++step) {
    messages.clear();
    std::size_t hop_lanes = at(folding_.first_edge[group]);
    std::set<LaneEnd> seen;
    for (const RingHop& hop : cost.hops) {
      for (const std::size_t sender : {member, hop.from(member, count)}) {
        const auto lane = static_cast<std::int32_t>(hop_lanes + sender);
        if (seen.insert(end_of(lane, sender == member)).second)
          messages.push_back({lane, hop.parts * chunk, fabric_.latency_s(lane, 0) + overhead_s});
      }
      hop_lanes += count;
    }
    co_await exchange(stream, messages);
  }
}

// Posts the messages of an all_to_all together, as its closed form does.
Task SimWorld::run_pairs(GroupId group, StreamState& stream, std::size_t member, std::int64_t bytes) {
  const std::size_t count = program_.groups[group].ranks.size();
  const RingCost& cost = durations_.cost(CollectiveKind::all_to_all, group);
  const std::int64_t part = (bytes + cost.rank_count - 1) / cost.rank_count;
  const double latency_s = collective_steps(CollectiveKind::all_to_all, cost.rank_count) * cost.latency_s +
                           collective_overhead_s(CollectiveKind::all_to_all, cost, bytes);
  std::vector<Message> messages;
  std::set<LaneEnd> seen;
  for (std::size_t other = 0; other < count; ++other) {
    if (other == member) continue;
    const std::int32_t out = folding_.pair_lane(group, member, other, count);
    const std::int32_t in = folding_.pair_lane(group, other, member, count);
    if (seen.insert(end_of(out, true)).second) messages.push_back({out, part, latency_s});
    if (seen.insert(end_of(in, false)).second) messages.push_back({in, part, latency_s});
  }
  co_await exchange(stream, messages);
}

// Posts all messages of a member in a round at once, then goes to the next round.
Task SimWorld::run_plan(GroupId group, StreamState& stream, std::size_t member, CollectiveTask task,
                        std::int64_t bytes, CollectiveAlgorithm algorithm) {
  const PlannedLanes& lanes = folding_.planned_for(group, task, algorithm);
  const CollectivePlan& plan = *lanes.plan;
  const CollectiveCost& cost = durations_.costs().collective(task, group, algorithm);
  if (plan.pipelined > 0) co_return co_await run_pipelined(stream, member, lanes, cost, bytes);
  co_await sleep(plan.setup_s);
  const double overhead_s = cost.overhead_s(bytes) / plan.rounds;
  const std::vector<CollectivePlan::Part>& parts = plan.of_member[member];
  std::vector<Message> messages;
  std::set<LaneEnd> seen;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int32_t lane = lanes.first_lane + parts[i].way;
    if (seen.insert(end_of(lane, parts[i].sends)).second)
      messages.push_back(
          {lane, plan.wire_bytes(parts[i].chunks, bytes), fabric_.latency_s(lane, 0) + overhead_s});
    if (i + 1 < parts.size() && parts[i + 1].round == parts[i].round) continue;
    co_await exchange(stream, messages);
    messages.clear();
    seen.clear();
  }
}

// Rounds that follow each other segment by segment are one message over each way, after the latencies of all rounds.
Task SimWorld::run_pipelined(StreamState& stream, std::size_t member, const PlannedLanes& lanes,
                             const CollectiveCost& cost, std::int64_t bytes) {
  const CollectivePlan& plan = *lanes.plan;
  const double latency_s = cost.latency_s + cost.overhead_s(bytes);
  std::vector<Message> messages;
  std::set<LaneEnd> seen;
  for (const CollectivePlan::Part& part : plan.of_member[member]) {
    const std::int32_t lane = lanes.first_lane + part.way;
    const double wire_bytes = plan.ways[at(part.way)].share * static_cast<double>(bytes) / plan.pipelined;
    if (seen.insert(end_of(lane, part.sends)).second)
      messages.push_back({lane, std::llround(wire_bytes), latency_s});
  }
  co_await exchange(stream, messages);
}

Task SimWorld::exchange(StreamState& stream, const std::vector<Message>& messages) {
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
