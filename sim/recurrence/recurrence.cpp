#include "sim/recurrence/recurrence.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/program/next_step.hpp"
#include "models/world/null_world.hpp"
#include "sim/recurrence/gang_exchanges.hpp"

namespace motley {
namespace {

// Where steps overlap, so many are followed at most, or until all instructions are later by the same time.
constexpr int kMostRounds = 16;
constexpr double kSteady = 1e-9;  // relative

// Instructions of the ranks that run, counted through all their streams.
using EventIndex = std::uint32_t;

// What ends together, or, if it has exchanges, what meets.
struct Meeting {
  EventIndex first = 0, last = 0;  // [first, last) of StepGraph::met
  double seconds = 0;              // after the last of them has begun
  const GangExchanges* exchanges = nullptr;
  bool begins_together = false;  // its exchanges begin when all have come
};

// What follows what in one step, and what follows the step before.
struct StepGraph {
  std::vector<Meeting> meetings;  // each after those that it waits for
  std::vector<EventIndex> met;
  std::vector<EventIndex> first_after, after;  // by event: [first_after[i], first_after[i + 1]) of `after`
  // By stream with instructions: its first event, and what that waits for in the step before.
  std::vector<std::pair<EventIndex, std::vector<EventIndex>>> heads;
};

class GraphBuilder {
 public:
  GraphBuilder(const Job& job, const Program& program, const FoldedFabric& folded, CostTable& costs)
      : job_(job),
        program_(program),
        folded_(folded),
        symmetry_(folded.folding.symmetry),
        costs_(costs),
        gang_sizes_(gang_sizes(program, symmetry_)),
        loads_(folded.fabric.capacities().size()) {}

  // The Null world says in which order instructions can end.
  StepGraph build() {
    lay_out();
    NullWorld world(program_, folded_.folding.arrangement, symmetry_, {},
                    [this](const Step& step, const Instruction& instruction) { add(step, instruction); });
    const std::vector<Blocked> blocked = world.run();
    MOTLEY_CHECK(blocked.empty() && together_.empty());
    return std::move(graph_);
  }

  // Those that the graph refers to.
  std::vector<std::unique_ptr<const GangExchanges>> exchanges() { return std::move(owned_); }

 private:
  EventIndex event_of(Rank rank, StreamId stream, std::int32_t index) const {
    return first_event_[rank][stream] + static_cast<EventIndex>(index);
  }

  void lay_out() {
    first_event_.resize(program_.ranks.size());
    EventIndex events = 0;
    for (const Rank rank : symmetry_.ranks.first)
      for (const Stream& stream : program_.program_of(rank).streams) {
        first_event_[rank].add(events);
        events += static_cast<EventIndex>(stream.instructions.size());
      }
    graph_.met.reserve(events);
    graph_.first_after.reserve(events + 1);
    for (const Rank rank : symmetry_.ranks.first)
      for (const StreamId stream : program_.program_of(rank).streams.ids()) lay_out(rank, stream);
    graph_.first_after.push_back(static_cast<EventIndex>(graph_.after.size()));
  }

  void lay_out(Rank rank, StreamId stream) {
    const RankProgram& rank_program = program_.program_of(rank);
    const std::vector<Instruction>& instructions = rank_program.streams[stream].instructions;
    if (instructions.empty()) return;
    std::vector<EventIndex> of_last_step{
        event_of(rank, stream, static_cast<std::int32_t>(instructions.size()) - 1)};
    if (job_.strategy.steps_overlap())
      for (const After& after : awaited_of_last_step(rank_program, stream))
        of_last_step.push_back(event_of(rank, after.stream, after.index));
    graph_.heads.emplace_back(event_of(rank, stream, 0), std::move(of_last_step));
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      graph_.first_after.push_back(static_cast<EventIndex>(graph_.after.size()));
      if (i > 0) graph_.after.push_back(event_of(rank, stream, static_cast<std::int32_t>(i) - 1));
      for (const After& after : instructions[i].after)
        graph_.after.push_back(event_of(rank, after.stream, after.index));
    }
  }

  // Steps that end together come one after the other.
  void add(const Step& step, const Instruction& instruction) {
    together_.push_back(step);
    std::size_t expected = 1;
    if (instruction.message() != nullptr)
      expected = 2;
    else if (const auto* collective = instruction.as<Collective>())
      expected = gang_sizes_[at(symmetry_.groups.class_of[at(group_of(step.rank, *collective))])];
    if (together_.size() < expected) return;
    std::sort(together_.begin(), together_.end());
    Meeting meeting;
    meeting.first = static_cast<EventIndex>(graph_.met.size());
    for (const Step& each : together_) graph_.met.push_back(event_of(each.rank, each.stream, each.index));
    meeting.last = static_cast<EventIndex>(graph_.met.size());
    price(step, instruction, meeting);
    graph_.meetings.push_back(meeting);
    together_.clear();
  }

  void price(const Step& step, const Instruction& instruction, Meeting& meeting) {
    const Arrangement& arrangement = folded_.folding.arrangement;
    switch (instruction.op()) {
      case Op::compute:
      case Op::optimizer:
        meeting.seconds = costs_.price(step.rank, instruction).seconds();
        break;
      case Op::send:
        meeting.seconds = message_s(arrangement.sent_lane(step.rank, instruction.message()->slot),
                                    payload_bytes(instruction));
        break;
      case Op::recv:
        meeting.seconds = message_s(arrangement.received_lane(step.rank, instruction.message()->slot),
                                    payload_bytes(instruction));
        break;
      case Op::collective:
        price_collective(step.rank, std::get<Collective>(instruction.body), meeting);
        break;
      case Op::copy: {
        const bool down = goes_to_host(program_.program_of(step.rank), instruction);
        const std::int32_t to_host = folded_.folding.first_host[step.rank];
        meeting.seconds = message_s(down ? to_host : to_host + 1, payload_bytes(instruction));
        break;
      }
    }
  }

  double message_s(std::int32_t lane, std::int64_t bytes) const {
    return folded_.fabric.latency_s(lane, bytes) + folded_.fabric.alone_s(lane, bytes);
  }

  GroupId group_of(Rank rank, const Collective& collective) const {
    return program_.ranks[rank].groups[collective.slot].value();
  }

  void price_collective(Rank rank, const Collective& collective, Meeting& meeting) {
    const GroupId group = group_of(rank, collective);
    const CollectiveKey key{symmetry_.groups.class_of[at(group)], task_of(collective),
                            expected_bytes(collective)};
    const auto [priced, is_new] = collectives_.try_emplace(key);
    if (is_new && folded_.traffic.level(group) == CollectiveLevel::expanded) {
      std::vector<MemberExchanges> members;
      for (const Step& each : together_) {
        const auto& its = std::get<Collective>(program_.at(each.rank, each.stream, each.index).body);
        members.push_back(folded_.traffic.exchanges(group_of(each.rank, its), each.rank, its));
      }
      owned_.push_back(std::make_unique<const GangExchanges>(folded_, members));
      priced->second = {0, owned_.back().get(), joins_all(collective.kind)};
    } else if (is_new) {
      const WholeCollective whole = folded_.traffic.whole(group, collective);
      priced->second = {whole.seconds(wire_s(whole.flows)), nullptr, false};
    }
    meeting.seconds = priced->second.seconds;
    meeting.exchanges = priced->second.exchanges;
    meeting.begins_together = !priced->second.joins_all;
  }

  // Seconds in which flows that begin together can all end: none before the bytes of all have crossed each link.
  double wire_s(const std::vector<LaneMessage>& flows) {
    double longest_s = 0;
    std::vector<std::int32_t> used;
    for (const LaneMessage& flow : flows) {
      longest_s = std::max(longest_s, folded_.fabric.alone_s(flow.lane, flow.bytes));
      for (const Fabric::Use& use : folded_.fabric.path(flow.lane).uses) {
        used.push_back(use.link);
        loads_[at(use.link)] += static_cast<double>(flow.bytes) * use.times;
      }
    }
    for (const std::int32_t link : used) {
      longest_s = std::max(longest_s, loads_[at(link)] / folded_.fabric.capacities()[at(link)]);
      loads_[at(link)] = 0;
    }
    return longest_s;
  }

  struct CollectivePrice {
    double seconds = 0;
    const GangExchanges* exchanges = nullptr;
    bool joins_all = false;
  };
  using CollectiveKey = std::tuple<std::int32_t, CollectiveTask, std::int64_t>;  // class of groups, bytes

  const Job& job_;
  const Program& program_;
  const FoldedFabric& folded_;
  const Symmetry& symmetry_;
  CostTable& costs_;
  const std::vector<std::size_t> gang_sizes_;
  std::vector<double> loads_;  // bytes, as Fabric::capacities(); 0 between calls
  IdTable<Rank, IdTable<StreamId, EventIndex>> first_event_;  // filled for ranks that run
  std::vector<Step> together_;  // have ended, and wait for those that end with them
  std::map<CollectiveKey, CollectivePrice> collectives_;
  std::vector<std::unique_ptr<const GangExchanges>> owned_;
  StepGraph graph_;
};

// Follows one step. `ends_s` has the instants of the step before, and gets those of this one.
void follow(const StepGraph& graph, bool is_first, std::vector<double>& begins_s,
            std::vector<double>& ends_s) {
  for (const auto& [head, of_last_step] : graph.heads) {
    begins_s[head] = 0;
    if (is_first) continue;
    for (const EventIndex each : of_last_step) begins_s[head] = std::max(begins_s[head], ends_s[each]);
  }
  std::vector<double> instants_s;
  for (const Meeting& meeting : graph.meetings) {
    instants_s.clear();
    double last_s = 0;
    for (EventIndex i = meeting.first; i < meeting.last; ++i) {
      const EventIndex event = graph.met[i];
      double begin_s = begins_s[event];
      for (EventIndex each = graph.first_after[event]; each < graph.first_after[event + 1]; ++each)
        begin_s = std::max(begin_s, ends_s[graph.after[each]]);
      instants_s.push_back(begin_s);
      last_s = std::max(last_s, begin_s);
    }
    if (meeting.exchanges == nullptr || meeting.begins_together)
      std::fill(instants_s.begin(), instants_s.end(), last_s + meeting.seconds);
    if (meeting.exchanges != nullptr) meeting.exchanges->run(instants_s);
    for (EventIndex i = meeting.first; i < meeting.last; ++i)
      ends_s[graph.met[i]] = instants_s[i - meeting.first];
  }
}

}  // namespace

Recurrence recur(const Job& job, const Program& program, const FoldedFabric& folded, CostTable& costs,
                 double enough_s) {
  GraphBuilder builder(job, program, folded, costs);
  const StepGraph graph = builder.build();
  const auto exchanges = builder.exchanges();
  std::vector<double> begins_s(graph.met.size()), ends_s(graph.met.size());
  follow(graph, true, begins_s, ends_s);
  Recurrence result{0, 1};
  if (ends_s.empty()) return result;
  if (!job.strategy.steps_overlap()) {
    result.step_s = *std::max_element(ends_s.begin(), ends_s.end());
    return result;
  }
  // No instruction of a steady simulation is later by less than the least by which one is later here (Collatz and
  // Wielandt's bound of an eigenvalue, in max-plus).
  std::vector<double> before_s;
  while (result.rounds < kMostRounds && result.step_s < enough_s) {
    before_s = ends_s;
    follow(graph, false, begins_s, ends_s);
    ++result.rounds;
    double least_s = std::numeric_limits<double>::infinity(), most_s = 0;
    for (std::size_t i = 0; i < ends_s.size(); ++i) {
      least_s = std::min(least_s, ends_s[i] - before_s[i]);
      most_s = std::max(most_s, ends_s[i] - before_s[i]);
    }
    result.step_s = std::max(result.step_s, least_s);
    if (most_s - least_s <= kSteady * most_s) break;
  }
  return result;
}

}  // namespace motley
