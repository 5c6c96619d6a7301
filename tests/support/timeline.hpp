// A Trace read from outside, for tests: which instructions met, what crossed which links, and the recurrence that the
// order of the Program gives for chosen durations. It takes only the Trace from the World: the Program pairs transfers,
// and loads follow from the messages of each algorithm (ring: 2(R-1)/R of the payload over each edge).
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>

#include "models/cost/carrier.hpp"
#include "models/cost/collective_cost.hpp"
#include "models/cost/network_cost.hpp"
#include "sim/fold/fold.hpp"

namespace motley::tests {

// A transfer (the send first), a collective (members in the order of their group), or a single instruction.
struct Meeting {
  std::vector<Step> sides;
  std::optional<GroupId> group;  // none: not a collective
};

// Bytes that go from one chip to another between two instants.
struct Flow {
  Route route;
  double bytes = 0, begin_s = 0, end_s = 0;
};

using StepKey = std::tuple<Rank, StreamId, std::int32_t>;

class Timeline {
 public:
  Timeline(const Job& that_job, const Program& that_program, const Trace& that_trace)
      : job(that_job), program(that_program), trace(that_trace), costs_(that_program, that_job.cluster) {
    for (const TraceEvent& event : trace.events) events_[key(event.step)] = &event;
    pair_up();
  }

  static StepKey key(const Step& step) { return {step.rank, step.stream, step.index}; }
  const TraceEvent& event(const Step& step) const { return *events_.at(key(step)); }
  const Instruction& instruction(const Step& step) const {
    return program.at(step.rank, step.stream, step.index);
  }
  int chip(Rank rank) const { return program.ranks[rank].chip; }
  bool is_expanded(const Meeting& meeting) const {
    return meeting.group && level_of(job.fidelity, group(meeting)) == CollectiveLevel::expanded;
  }
  const Group& group(const Meeting& meeting) const { return program.groups[meeting.group.value()]; }

  // The seconds of a compute or optimizer step, which do not depend on the fabric.
  double work_s(const Step& step) {
    const Instruction& work = instruction(step);
    return work.op() == Op::compute || work.op() == Op::optimizer ? costs_.price(step.rank, work).seconds()
                                                                  : 0;
  }
  bool is_copy(const Meeting& meeting) const { return instruction(meeting.sides[0]).op() == Op::copy; }
  Route way_to_host(const Step& step) const {
    return host_route(job.cluster, chip(step.rank),
                      goes_to_host(program.program_of(step.rank), instruction(step)));
  }
  double copy_s(const Step& step) const {
    return message_time_s({}, way_to_host(step), payload_bytes(instruction(step)));
  }
  Carrier carrier(const Meeting& meeting) const {
    return meeting.group
               ? choose_carrier(program, job.cluster, group(meeting)).carrier
               : carrier_between(program, job.cluster, meeting.sides[0].rank, meeting.sides[1].rank);
  }
  Route way(const Meeting& meeting, const Step& from, const Step& to) const {
    return route(job.cluster, chip(from.rank), chip(to.rank), carrier(meeting));
  }
  double message_s(const Meeting& meeting, const Step& from, const Step& to, std::int64_t bytes) {
    MessageCost transport = message_cost_of(job.cluster, chip(from.rank), chip(to.rank), carrier(meeting));
    Route taken = way(meeting, from, to);
    const bool stepped = meeting.group && !is_planned(meeting);
    const bool ring = stepped && algorithm(meeting) == CollectiveAlgorithm::ring;
    if (stepped && algorithm(meeting) == CollectiveAlgorithm::flat) {  // posted together
      const RingCost& pairs = costs_.pairwise(*meeting.group);
      taken.latency_s = (pairs.rank_count - 1) * pairs.latency_s;
      transport.software_latency_s = 0;
    }
    if (ring && costs_.ring(*meeting.group).over_nodes()) {
      taken.latency_s = costs_.ring(*meeting.group).latency_s;
      transport.software_latency_s = 0;
    }
    if (is_pipelined(meeting)) {
      taken.latency_s = costs_.collective(task(meeting), *meeting.group, algorithm(meeting)).latency_s;
      transport.software_latency_s = 0;
    }
    if (meeting.group) transport.message_kappa = 0;
    return message_time_s(transport, taken, bytes) + (meeting.group ? overhead_of_round_s(meeting) : 0);
  }
  // Whether the rounds of a collective follow each other segment by segment, so that each way is one message.
  bool is_pipelined(const Meeting& meeting) {
    return meeting.group && is_planned(meeting) && plan(meeting).pipelined > 0;
  }
  // The kappa term of a collective, spread evenly over its rounds.
  double overhead_of_round_s(const Meeting& meeting) {
    const Collective& done = collective(meeting);
    const GroupId group = meeting.group.value();
    if (is_planned(meeting))
      return costs_.collective(task(meeting), group, algorithm(meeting)).overhead_s(expected_bytes(done)) /
             (is_pipelined(meeting) ? 1 : plan(meeting).rounds);
    if (done.kind == CollectiveKind::all_to_all)
      return collective_overhead_s(done.kind, costs_.pairwise(group), expected_bytes(done));
    return collective_overhead_s(done.kind, costs_.ring(group), expected_bytes(done)) /
           collective_steps(done.kind, static_cast<int>(meeting.sides.size()));
  }
  // The algorithm of a collective, and its seconds if nothing else uses the fabric.
  CollectiveAlgorithm algorithm(const Meeting& meeting) {
    const Collective& done = collective(meeting);
    return costs_.algorithm_of(task(meeting), meeting.group.value(), job.fidelity.algorithm,
                               expected_bytes(done));
  }
  double collective_s_of(const Meeting& meeting) {
    const Collective& done = collective(meeting);
    const GroupId group = meeting.group.value();
    if (is_planned(meeting))
      return costs_.collective(task(meeting), group, algorithm(meeting)).seconds(expected_bytes(done));
    const bool pairs = done.kind == CollectiveKind::all_to_all;
    return collective_s(done.kind, pairs ? costs_.pairwise(group) : costs_.ring(group), expected_bytes(done));
  }
  double setup_s(const Meeting& meeting) {
    return is_planned(meeting) && !is_pipelined(meeting) ? plan(meeting).setup_s : 0;
  }

  // The messages of a collective's members, step by step: in a ring from each member to the next, in an all_to_all to
  // all other members at once, in other algorithms as models/program/collective.hpp lists them.
  struct Message {
    int round = 0;
    Step from, to;
    std::int64_t bytes = 0;
  };
  std::vector<Message> messages(const Meeting& meeting) {
    std::vector<Message> sent;
    const std::size_t count = meeting.sides.size();
    const Collective& done = collective(meeting);
    const std::int64_t payload = expected_bytes(done);
    if (is_planned(meeting)) {
      const CollectiveSteps steps = plan(meeting);
      if (steps.pipelined > 0 && is_expanded(meeting)) return one_for_each_way(meeting, steps, payload);
      const std::int64_t chunk = (payload + steps.chunks - 1) / steps.chunks;
      for (const CollectiveMessage& each : motley::messages(steps))
        sent.push_back({each.round, meeting.sides[at(each.from)], meeting.sides[at(each.to)],
                        std::llround(each.chunks * static_cast<double>(chunk) * steps.stretch)});
      return sent;
    }
    const bool pairs = done.kind == CollectiveKind::all_to_all;
    const RingCost& ring = costs_.ring(meeting.group.value());
    const auto parts = static_cast<std::int64_t>(count) * (pairs ? 1 : ring.rings);
    const std::vector<RingHop> hops = pairs ? std::vector<RingHop>(1) : ring.hops;
    for (int round = 1; round <= collective_steps(done.kind, static_cast<int>(count)); ++round)
      for (std::size_t i = 0; i < count; ++i)
        for (const RingHop& hop : hops)
          sent.push_back({pairs ? 1 : round, meeting.sides[i],
                          meeting.sides[pairs ? (i + at(round)) % count : hop.to(i, count)],
                          hop.parts * ((payload + parts - 1) / parts)});
    return sent;
  }

  std::vector<Message> one_for_each_way(const Meeting& meeting, const CollectiveSteps& steps,
                                        std::int64_t payload) const {
    std::map<std::pair<int, int>, double> share;
    for (const CollectiveMessage& each : motley::messages(steps))
      share[{each.from, each.to}] += steps.share(each.chunks);
    std::vector<Message> sent;
    for (const auto& [ends, part] : share)
      sent.push_back({1, meeting.sides[at(ends.first)], meeting.sides[at(ends.second)],
                      std::llround(part * static_cast<double>(payload) / steps.pipelined)});
    return sent;
  }

  // A transfer is one flow; a collective has one flow from each member to each other member to which it sends.
  std::vector<Flow> flows(const Meeting& meeting) {
    const TraceEvent& first = event(meeting.sides[0]);
    if (is_copy(meeting))
      return {{way_to_host(meeting.sides[0]), static_cast<double>(first.bytes), first.begin_s, first.end_s}};
    if (!meeting.group)
      return {{way(meeting, meeting.sides[0], meeting.sides[1]), static_cast<double>(first.bytes),
               first.matched_s, first.end_s}};
    const bool expanded = is_expanded(meeting);
    std::map<std::pair<StepKey, StepKey>, Flow> by_ends;
    for (const Message& each : messages(meeting)) {
      const auto [entry, is_new] = by_ends.try_emplace({key(each.from), key(each.to)});
      Flow& flow = entry->second;
      // Only chunks that are sent one by one are padded to equal size; the padding is at most one byte each.
      flow.bytes += static_cast<double>(each.bytes) - (expanded ? 0 : 1);
      if (!is_new) continue;
      flow.route = way(meeting, each.from, each.to);
      // In an expanded collective, members begin before all have come.
      flow.begin_s =
          expanded ? std::max(event(each.from).begin_s, event(each.to).begin_s) : event(each.from).matched_s;
      flow.end_s = std::max(event(each.from).end_s, event(each.to).end_s);
    }
    std::vector<Flow> all;
    for (auto& [ends, flow] : by_ends) {
      flow.bytes = std::max(flow.bytes, 0.0);
      all.push_back(flow);
    }
    return all;
  }

  // The recurrence without contention: when each instruction ends if it takes the given seconds after everything that
  // the Program makes it wait for. In a meeting, `seconds` of the first side counts from the last arrival, `own` of
  // each side from its own arrival.
  using Seconds = std::function<double(const Step&)>;
  struct Recurrence {
    std::map<StepKey, double> end_s;
    double last_s = 0;
  };
  Recurrence recurrence(const Seconds& seconds, const Seconds& own) const {
    Recurrence result;
    std::map<StepKey, double> begin_s;
    const auto post = [&](const Step& step) {
      const bool first = step.index == 0;
      const auto before = result.end_s.find(key({step.rank, step.stream, step.index - 1}));
      if (!first && before == result.end_s.end()) return false;
      double at_s = first ? 0 : before->second;
      for (const After& after : instruction(step).after) {
        const auto awaited = result.end_s.find(key({step.rank, after.stream, after.index}));
        if (awaited == result.end_s.end()) return false;
        at_s = std::max(at_s, awaited->second);
      }
      begin_s[key(step)] = at_s;
      return true;
    };
    const auto finish = [&](const Meeting& meeting) {
      double matched_s = 0;
      for (const Step& side : meeting.sides) {
        const auto begun = begin_s.find(key(side));
        if (begun == begin_s.end()) return;
        matched_s = std::max(matched_s, begun->second);
      }
      for (const Step& side : meeting.sides) {
        const double end_s = std::max(matched_s + seconds(meeting.sides[0]), begin_s[key(side)] + own(side));
        result.end_s[key(side)] = end_s;
        result.last_s = std::max(result.last_s, end_s);
      }
    };
    std::map<std::pair<Rank, StreamId>, std::int32_t> next;  // for each stream, what it posts next
    for (const auto& [step, meeting] : meeting_of_) next[{std::get<0>(step), std::get<1>(step)}] = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [stream, index] : next)
        for (Step step{stream.first, stream.second, index}; meeting_of_.count(key(step)) > 0 && post(step);
             step.index = ++index) {
          finish(meetings[meeting_of_.at(key(step))]);
          moved = true;
        }
    }
    REQUIRE(result.end_s.size() == events_.size());
    return result;
  }

  const Job& job;
  const Program& program;
  const Trace& trace;
  std::vector<Meeting> meetings;  // computes, optimizer steps and copies are meetings with one side

 private:
  // The k-th message sent through a slot is the k-th received through its other end. The k-th collectives of all
  // members of a group meet.
  void pair_up() {
    // The messages of each sender and slot.
    std::map<std::pair<Rank, PeerSlot>, std::vector<Step>> sent, received;
    std::map<std::pair<GroupId, int>, std::vector<Step>> joined;  // keyed by group and number in time
    std::map<std::pair<GroupId, Rank>, int> place;
    for (const TraceEvent& each : trace.events) {
      const Instruction& posted = instruction(each.step);
      const Rank rank = each.step.rank;
      const RankEntry& entry = program.ranks[rank];
      if (const auto* send = posted.as<Send>()) {
        sent[{rank, send->slot}].push_back(each.step);
      } else if (const auto* recv = posted.as<Recv>()) {
        received[{entry.peers[recv->slot].value(), other_end(program, rank, recv->slot).value()}].push_back(
            each.step);
      } else if (const auto* collective = posted.as<Collective>()) {
        const GroupId group = entry.groups[collective->slot].value();
        joined[{group, place[{group, rank}]++}].push_back(each.step);
      } else {
        add({{each.step}, std::nullopt});
      }
    }
    REQUIRE(sent.size() == received.size());
    for (const auto& [from, steps_sent] : sent) {
      REQUIRE(steps_sent.size() == received[from].size());
      for (std::size_t i = 0; i < steps_sent.size(); ++i)
        add({{steps_sent[i], received[from][i]}, std::nullopt});
    }
    for (auto& [group_and_place, members] : joined) {
      const auto& ranks = program.groups[group_and_place.first].ranks;
      REQUIRE(members.size() == ranks.size());
      const auto where = [&](const Step& step) { return std::find(ranks.begin(), ranks.end(), step.rank); };
      std::sort(members.begin(), members.end(),
                [&](const Step& a, const Step& b) { return where(a) < where(b); });
      add({members, group_and_place.first});
    }
  }
  void add(Meeting meeting) {
    for (const Step& side : meeting.sides) meeting_of_[key(side)] = meetings.size();
    meetings.push_back(std::move(meeting));
  }

  const Collective& collective(const Meeting& meeting) const {
    return std::get<Collective>(instruction(meeting.sides[0]).body);
  }
  CollectiveTask task(const Meeting& meeting) const { return task_of(collective(meeting)); }
  bool is_planned(const Meeting& meeting) { return needs_steps(task(meeting), algorithm(meeting)); }
  CollectiveSteps plan(const Meeting& meeting) {
    return expand(task(meeting), algorithm(meeting), shape_of(program, job.cluster, group(meeting)));
  }

  CostTable costs_;
  std::map<StepKey, const TraceEvent*> events_;
  std::map<StepKey, std::size_t> meeting_of_;
};

}  // namespace motley::tests
