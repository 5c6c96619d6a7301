// A Trace read from outside, for tests: who met whom, what crossed which links, and the recurrence that the Program's
// order alone gives for durations of one's choosing. It asks the World for nothing but the Trace: transfers are paired
// by the Program, loads follow from each algorithm's own messages (ring: 2(R-1)/R of the payload over each edge).
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>

#include "models/carrier.hpp"
#include "models/collective_cost.hpp"
#include "models/network_cost.hpp"
#include "sim/fold.hpp"

namespace motley::tests {

// A transfer, send first, or a collective with its members in the order of their group.
struct Meeting {
  std::vector<Step> sides;
  int group = -1;  // of a collective
};

// Bytes that go from one chip to another between two instants.
struct Flow {
  Route route;
  double bytes = 0, begin_s = 0, end_s = 0;
};

using StepKey = std::tuple<Rank, std::int16_t, std::int32_t>;

class Timeline {
 public:
  Timeline(const Job& of_job, const Program& of_program, const Trace& of_trace)
      : job(of_job), program(of_program), trace(of_trace), costs_(of_program, of_job.cluster) {
    for (const TraceEvent& event : trace.events) events_[key(event.step)] = &event;
    pair_up();
  }

  static StepKey key(const Step& step) { return {step.rank, step.stream, step.index}; }
  const TraceEvent& event(const Step& step) const { return *events_.at(key(step)); }
  const Instruction& instruction(const Step& step) const {
    return program.at(step.rank, step.stream, step.index);
  }
  int chip(Rank rank) const { return program.ranks[static_cast<std::size_t>(rank)].chip; }
  bool is_expanded(const Meeting& meeting) const {
    return meeting.group >= 0 && level_of(job.fidelity, group(meeting)) == CollectiveLevel::expanded;
  }
  const Group& group(const Meeting& meeting) const {
    return program.groups[static_cast<std::size_t>(meeting.group)];
  }

  // Seconds that computes and optimizer steps take whatever the fabric does.
  double work_s(const Step& step) {
    const Instruction& of = instruction(step);
    return of.op == Op::compute || of.op == Op::optimizer ? costs_.of(step.rank, of).seconds() : 0;
  }
  bool is_copy(const Meeting& meeting) const { return instruction(meeting.sides[0]).op == Op::copy; }
  Route way_to_host(const Step& step) const {
    return host_route(job.cluster, chip(step.rank),
                      goes_to_host(program.class_of(step.rank), instruction(step)));
  }
  double copy_s(const Step& step) const {
    return message_time_s({}, way_to_host(step), instruction(step).bytes);
  }
  Carrier carrier(const Meeting& meeting) const {
    return meeting.group < 0
               ? carrier_between(program, job.cluster, meeting.sides[0].rank, meeting.sides[1].rank)
               : choose_carrier(program, job.cluster, group(meeting)).carrier;
  }
  Route way(const Meeting& meeting, const Step& from, const Step& to) const {
    return route(job.cluster, chip(from.rank), chip(to.rank), carrier(meeting));
  }
  double message_s(const Meeting& meeting, const Step& from, const Step& to, std::int64_t bytes) {
    Transport transport = transport_of(job.cluster, chip(from.rank), chip(to.rank), carrier(meeting));
    Route taken = way(meeting, from, to);
    const bool ring = meeting.group >= 0 && algorithm(meeting) == CollectiveAlgorithm::ring;
    if (meeting.group >= 0 && algorithm(meeting) == CollectiveAlgorithm::flat) {  // posted together
      taken.latency_s = costs_.pairwise(meeting.group).latency_s;
      transport.software_latency_s = 0;
    }
    if (ring && costs_.ring(meeting.group).over_nodes()) {
      taken.latency_s = costs_.ring(meeting.group).latency_s;
      transport.software_latency_s = 0;
    }
    return message_time_s(transport, taken, bytes);
  }
  // What a collective is done by, and its seconds when nobody else uses the fabric.
  CollectiveAlgorithm algorithm(const Meeting& meeting) {
    const Instruction& of = instruction(meeting.sides[0]);
    return costs_.algorithm_of(of.collective, meeting.group, job.fidelity.algorithm, expected_bytes(of));
  }
  double collective_s_of(const Meeting& meeting) {
    const Instruction& of = instruction(meeting.sides[0]);
    if (is_planned(meeting))
      return costs_.collective(of.collective, meeting.group, algorithm(meeting)).seconds(expected_bytes(of));
    const bool pairs = of.collective == CollectiveKind::all_to_all;
    return collective_s(of.collective, pairs ? costs_.pairwise(meeting.group) : costs_.ring(meeting.group),
                        expected_bytes(of));
  }
  double setup_s(const Meeting& meeting) { return is_planned(meeting) ? plan(meeting).setup_s : 0; }

  // Of a collective, step by step: a ring's chunks from each to the next, an all_to_all's to everyone in turn, else
  // what models/collective.hpp has.
  struct Message {
    int round = 0;
    Step from, to;
    std::int64_t bytes = 0;
  };
  std::vector<Message> messages(const Meeting& meeting) {
    std::vector<Message> made;
    const std::size_t count = meeting.sides.size();
    const Instruction& of = instruction(meeting.sides[0]);
    const std::int64_t payload = expected_bytes(of);
    if (is_planned(meeting)) {
      const CollectiveSteps steps = plan(meeting);
      const std::int64_t chunk = (payload + steps.chunks - 1) / steps.chunks;
      for (const CollectiveMessage& each : motley::messages(steps))
        made.push_back({each.round, meeting.sides[static_cast<std::size_t>(each.from)],
                        meeting.sides[static_cast<std::size_t>(each.to)],
                        std::llround(static_cast<double>(each.chunks * chunk) * steps.stretch)});
      return made;
    }
    const bool pairs = of.collective == CollectiveKind::all_to_all;
    const auto parts = static_cast<std::int64_t>(count) * (pairs ? 1 : costs_.ring(meeting.group).rings);
    const std::vector<RingHop> hops = pairs ? std::vector<RingHop>(1) : costs_.ring(meeting.group).hops;
    for (int round = 1; round <= collective_steps(of.collective, static_cast<int>(count)); ++round)
      for (std::size_t i = 0; i < count; ++i)
        for (const RingHop& hop : hops)
          made.push_back(
              {round, meeting.sides[i],
               meeting.sides[pairs ? (i + static_cast<std::size_t>(round)) % count : hop.to(i, count)],
               hop.parts * ((payload + parts - 1) / parts)});
    return made;
  }

  // Of a transfer one; of a collective one for each two members of whom one sends the other anything.
  std::vector<Flow> flows(const Meeting& meeting) {
    const TraceEvent& first = event(meeting.sides[0]);
    if (is_copy(meeting))
      return {{way_to_host(meeting.sides[0]), static_cast<double>(first.bytes), first.begin_s, first.end_s}};
    if (meeting.group < 0)
      return {{way(meeting, meeting.sides[0], meeting.sides[1]), static_cast<double>(first.bytes),
               first.matched_s, first.end_s}};
    const bool expanded = is_expanded(meeting);
    std::map<std::pair<StepKey, StepKey>, Flow> by_ends;
    for (const Message& each : messages(meeting)) {
      const auto [found, fresh] = by_ends.try_emplace({key(each.from), key(each.to)});
      Flow& flow = found->second;
      // Chunks are padded to equal size where they are sent one by one, else not: at most a byte each of these.
      flow.bytes += static_cast<double>(each.bytes) - (expanded ? 0 : 1);
      if (!fresh) continue;
      flow.route = way(meeting, each.from, each.to);
      // Step by step, members begin before all are there.
      flow.begin_s =
          expanded ? std::max(event(each.from).begin_s, event(each.to).begin_s) : event(each.from).matched_s;
      flow.end_s = std::max(event(each.from).end_s, event(each.to).end_s);
    }
    std::vector<Flow> made;
    for (auto& [ends, flow] : by_ends) {
      flow.bytes = std::max(flow.bytes, 0.0);
      made.push_back(flow);
    }
    return made;
  }

  // When each instruction ends if it takes the seconds given once all that the Program has it wait for are there: the
  // recurrence without contention. Of a meeting, `seconds` of its first side counts from the last arrival, `own` of
  // each side from its own.
  using Seconds = std::function<double(const Step&)>;
  struct Recurrence {
    std::map<StepKey, double> end_s;
    double last_s = 0;
  };
  Recurrence recurrence(const Seconds& seconds, const Seconds& own) const {
    Recurrence made;
    std::map<StepKey, double> begin_s;
    std::map<std::pair<Rank, int>, int> done;
    const auto post = [&](const Step& step) {
      const bool first = step.index == 0;
      const auto before = made.end_s.find(key({step.rank, step.stream, step.index - 1}));
      if (!first && before == made.end_s.end()) return false;
      double at_s = first ? 0 : before->second;
      for (const After& after : instruction(step).after) {
        const auto found = made.end_s.find(key({step.rank, after.stream, after.index}));
        if (found == made.end_s.end()) return false;
        at_s = std::max(at_s, found->second);
      }
      begin_s[key(step)] = at_s;
      return true;
    };
    const auto finish = [&](const Meeting& meeting) {
      double matched_s = 0;
      for (const Step& side : meeting.sides) {
        const auto found = begin_s.find(key(side));
        if (found == begin_s.end()) return;
        matched_s = std::max(matched_s, found->second);
      }
      for (const Step& side : meeting.sides) {
        made.end_s[key(side)] =
            std::max(matched_s + seconds(meeting.sides[0]), begin_s[key(side)] + own(side));
        made.last_s = std::max(made.last_s, made.end_s[key(side)]);
      }
    };
    std::map<std::pair<Rank, std::int16_t>, std::int32_t> next;  // by stream: what it posts next
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
    REQUIRE(made.end_s.size() == events_.size());
    return made;
  }

  const Job& job;
  const Program& program;
  const Trace& trace;
  std::vector<Meeting> meetings;  // computes, optimizer steps and copies too: alone

 private:
  // The k-th sent through a slot is the k-th received through its other end; likewise of a group.
  void pair_up() {
    std::map<std::pair<Rank, int>, std::vector<Step>> sent, received;  // by the sender's rank and slot
    std::map<std::pair<int, int>, std::vector<Step>> joined;           // by group and place in time
    std::map<std::pair<int, Rank>, int> place;
    for (const TraceEvent& each : trace.events) {
      const Instruction& of = instruction(each.step);
      const RankEntry& entry = program.ranks[static_cast<std::size_t>(each.step.rank)];
      const auto slot = static_cast<std::size_t>(of.slot);
      if (of.op == Op::send) sent[{each.step.rank, of.slot}].push_back(each.step);
      if (of.op == Op::recv)
        received[{entry.peers[slot], other_end(program, each.step.rank, of.slot)}].push_back(each.step);
      if (of.op == Op::collective)
        joined[{entry.groups[slot], place[{entry.groups[slot], each.step.rank}]++}].push_back(each.step);
      if (of.op == Op::compute || of.op == Op::optimizer || of.op == Op::copy) add({{each.step}, -1});
    }
    REQUIRE(sent.size() == received.size());
    for (const auto& [from, steps_sent] : sent) {
      REQUIRE(steps_sent.size() == received[from].size());
      for (std::size_t i = 0; i < steps_sent.size(); ++i) add({{steps_sent[i], received[from][i]}, -1});
    }
    for (auto& [group_and_place, members] : joined) {
      const auto& ranks = program.groups[static_cast<std::size_t>(group_and_place.first)].ranks;
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

  bool is_planned(const Meeting& meeting) {
    const CollectiveAlgorithm by = algorithm(meeting);
    return by != CollectiveAlgorithm::ring && by != CollectiveAlgorithm::flat;
  }
  CollectiveSteps plan(const Meeting& meeting) {
    return expand(instruction(meeting.sides[0]).collective, algorithm(meeting),
                  shape_of(program, job.cluster, group(meeting)));
  }

  CostTable costs_;
  std::map<StepKey, const TraceEvent*> events_;
  std::map<StepKey, std::size_t> meeting_of_;
};

}  // namespace motley::tests
