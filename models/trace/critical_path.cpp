// Walks a Trace back from its last end. The Program (stream, `after`, other sides) and the Trace's times tell what an
// event waited for; `waited` only tells which side of a transfer or collective came last.
#include "models/trace/critical_path.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>

#include "models/base/index.hpp"
#include "models/program/next_step.hpp"

namespace motley {
namespace {

// The slot through which a side of a transfer or collective takes part.
using Slot = std::variant<std::monostate, PeerSlot, GroupSlot>;  // monostate: the program has no such slot

Slot slot_of(const Instruction& instruction) {
  if (const PeerMessage* message = instruction.message()) return message->slot;
  if (const auto* collective = instruction.as<Collective>()) return collective->slot;
  return {};
}

// How to find the other side of a transfer or collective in that side's rank.
struct Meeting {
  Op op = Op::collective;  // op of the other side
  Slot slot;               // slot of the other side's rank
  std::size_t ordinal = 0;
};

class PathFinder {
 public:
  PathFinder(const Program& program, const Trace& trace) : program_(program), trace_(trace) {
    for (const TraceEvent& event : trace.events)
      if (representatives_.empty() || representatives_.back() != event.step.rank)
        representatives_.push_back(event.step.rank);
  }

  CriticalPath find() {
    CriticalPath path;
    if (trace_.events.empty()) return path;
    Node node{&trace_.events[0], 0};
    double first_s = node.event->free_s;
    for (const TraceEvent& other : trace_.events) {
      if (other.end_s > node.event->end_s) node.event = &other;
      first_s = std::min(first_s, other.free_s);
    }
    const double end_s = node.event->end_s, period_s = trace_.period_s;
    const double begin_s = period_s > 0 ? end_s - kTurns * period_s : first_s;
    const std::size_t most = trace_.events.size() * (period_s > 0 ? kTurns : 1);
    for (double reached_s = end_s; node.event != nullptr && path.links.size() < most;) {
      const TraceEvent& event = *node.event;
      CriticalLink link;
      link.step = event.step;
      link.end_s = std::min(event.end_s - node.back * period_s, reached_s);
      link.begin_s = std::clamp(event.matched_s - node.back * period_s, begin_s, link.end_s);
      const TraceEvent* last = last_side(event);
      link.joined = last->step;
      const auto [before, joint] = before_of({last, node.back});
      link.joint = joint;
      if (last != &event && joint != Joint::first)
        link.joint = joint == Joint::stream ? Joint::peer_stream : Joint::peer_after;
      reached_s = link.begin_s;
      const double before_s =
          before.event == nullptr ? begin_s : std::max(begin_s, before.event->end_s - before.back * period_s);
      link.gap_s = std::max(0.0, link.begin_s - before_s);
      path.links.push_back(link);
      if (period_s > 0 && reached_s <= begin_s) break;
      node = before;
    }
    std::reverse(path.links.begin(), path.links.end());
    if (period_s > 0) keep_one_turn(path, begin_s);
    return path;
  }

 private:
  // An event of the Trace, or the same event some steps before.
  struct Node {
    const TraceEvent* event = nullptr;
    int back = 0;  // how many steps
  };
  // Where steps overlap, the chain goes back through this many of them, and its first turn counts: far enough from the
  // last end, it only goes round what repeats in every step.
  static constexpr int kTurns = 4;

  void keep_one_turn(CriticalPath& path, double begin_s) const {
    const double end_s = begin_s + trace_.period_s, later_s = (kTurns - 1) * trace_.period_s;
    std::vector<CriticalLink> links;
    for (CriticalLink link : path.links) {
      const double from_s = link.begin_s - link.gap_s;
      if (from_s >= end_s) break;
      link.begin_s = std::min(link.begin_s, end_s);
      link.gap_s = link.begin_s - from_s;
      link.end_s = std::min(link.end_s, end_s) + later_s;
      link.begin_s += later_s;
      links.push_back(link);
    }
    path.links = std::move(links);
  }

  const Instruction& instruction_of(const Step& step) const {
    return program_.at(step.rank, step.stream, step.index);
  }
  const TraceEvent* find_event(const Step& step) const {
    const auto event = std::lower_bound(trace_.events.begin(), trace_.events.end(), step,
                                        [](const TraceEvent& each, const Step& s) { return each.step < s; });
    return event != trace_.events.end() && event->step == step ? &*event : nullptr;
  }

  // Returns the event itself, or the other side of its transfer or collective if that came later.
  const TraceEvent* last_side(const TraceEvent& event) {
    if (event.waited != Waited::peer || !event.waited_rank) return &event;
    const Rank other = *event.waited_rank;
    const auto place = place_of(other, meeting_of(event.step, other));
    if (!place) return &event;
    if (const TraceEvent* there = find_event({other, place->stream, place->index})) return there;
    // In a folded trace a rank that stands for the other side came at the same instant.
    for (const Rank rank : representatives_) {
      if (program_.ranks[rank].rank_program != program_.ranks[other].rank_program) continue;
      const TraceEvent* there = find_event({rank, place->stream, place->index});
      if (there != nullptr && there->begin_s == event.matched_s) return there;
    }
    return &event;
  }

  Meeting meeting_of(const Step& step, Rank other) {
    const Instruction& mine = instruction_of(step);
    const RankEntry& entry = program_.ranks[step.rank];
    Meeting meeting;
    if (const auto* collective = mine.as<Collective>()) {
      const auto& groups = program_.ranks[other].groups;
      const std::optional<GroupId> group = entry.groups[collective->slot];
      const auto first = std::find(groups.begin(), groups.end(), group);
      if (groups.has(collective->slot) && groups[collective->slot] == group)
        meeting.slot = collective->slot;
      else if (first != groups.end())
        meeting.slot = GroupSlot(first - groups.begin());
    } else if (const PeerMessage* message = mine.message()) {
      meeting.op = mine.op() == Op::send ? Op::recv : Op::send;
      if (const auto slot = other_end(program_, step.rank, message->slot)) meeting.slot = *slot;
    }
    const auto& alike = places(entry.rank_program, mine.op(), slot_of(mine));
    meeting.ordinal =
        at(std::find(alike.begin(), alike.end(), After{step.stream, step.index}) - alike.begin());
    return meeting;
  }
  std::optional<After> place_of(Rank rank, const Meeting& meeting) {
    const auto& alike = places(program_.ranks[rank].rank_program, meeting.op, meeting.slot);
    return meeting.ordinal < alike.size() ? std::optional(alike[meeting.ordinal]) : std::nullopt;
  }
  // The program's sends, recvs or collectives of a slot, in their order.
  const std::vector<After>& places(RankProgramId rank_program, Op op, Slot slot) {
    const auto [entry, is_new] = places_.try_emplace({rank_program, op, slot});
    if (!is_new) return entry->second;
    const auto& streams = program_.rank_programs[rank_program].streams;
    for (StreamId stream : streams.ids())
      for (std::size_t i = 0; i < streams[stream].instructions.size(); ++i) {
        const Instruction& instruction = streams[stream].instructions[i];
        if (instruction.op() == op && slot_of(instruction) == slot)
          entry->second.push_back({stream, static_cast<std::int32_t>(i)});
      }
    return entry->second;
  }

  // The event on the same rank for which the event had to wait, and that ended last.
  std::pair<Node, Joint> before_of(const Node& node) const {
    const Step& step = node.event->step;
    const RankProgram& rank_program = program_.program_of(step.rank);
    const bool is_first = step.index == 0, goes_on = is_first && trace_.period_s > 0;
    const auto& stream = rank_program.streams[step.stream].instructions;
    Node before;
    Joint joint = Joint::first;
    double before_s = 0;
    const auto take = [&](const After& after, int back, Joint as) {
      const TraceEvent* awaited = find_event({step.rank, after.stream, after.index});
      if (awaited == nullptr) return;
      const double end_s = awaited->end_s - (back - node.back) * trace_.period_s;
      if (before.event != nullptr && end_s <= before_s) return;
      before = {awaited, back};
      before_s = end_s;
      joint = as;
    };
    if (!is_first) take({step.stream, step.index - 1}, node.back, Joint::stream);
    if (goes_on) {
      take({step.stream, static_cast<std::int32_t>(stream.size()) - 1}, node.back + 1, Joint::stream);
      for (const After& after : awaited_of_last_step(rank_program, step.stream))
        take(after, node.back + 1, Joint::after);
    }
    for (const After& after : instruction_of(step).after) take(after, node.back, Joint::after);
    return {before, joint};
  }

  const Program& program_;
  const Trace& trace_;
  std::vector<Rank> representatives_;
  std::map<std::tuple<RankProgramId, Op, Slot>, std::vector<After>> places_;
};

}  // namespace

double CriticalPath::duration_s() const {
  double sum_s = 0;
  for (const CriticalLink& link : links) sum_s += link.end_s - link.begin_s;
  return sum_s;
}

double CriticalPath::gap_s() const {
  double sum_s = 0;
  for (const CriticalLink& link : links) sum_s += link.gap_s;
  return sum_s;
}

CriticalPath find_critical_path(const Program& program, const Trace& trace) {
  return PathFinder(program, trace).find();
}

}  // namespace motley
