// A Trace with made-up durations, for tests of functions that read traces: each instruction begins as early as its
// stream, its `after` and its other sides allow. There is no contention. The caller gives the durations.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "models/trace/trace.hpp"
#include "models/world/null_world.hpp"

namespace motley::tests {

using Durations = std::function<double(const Step&, const Instruction&)>;

class TimedRun {
 public:
  TimedRun(const Program& program, Durations durations)
      : program_(program), durations_(std::move(durations)) {}

  Trace run() {
    const Arrangement arrangement = arrange(program_);
    const Symmetry everyone = no_symmetry(program_, arrangement);
    NullWorld world(
        program_, arrangement, everyone, [this](const Step& step, const Instruction& i) { post(step, i); },
        [this](const Step& step, const Instruction& i) { end(step, i); });
    world.run();
    Trace trace;
    trace.strategy_hash = program_.strategy_hash;
    trace.program_hash = program_hash(program_);
    trace.world = "sim";
    for (const auto& [key, event] : events_) trace.events.push_back(event);
    sort_events(trace);
    return trace;
  }

 private:
  using Key = std::tuple<Rank, StreamId, std::int32_t>;
  static Key key_of(const Step& step) { return {step.rank, step.stream, step.index}; }

  GroupId group_of(const Step& step, const Collective& collective) const {
    return program_.ranks[step.rank].groups[collective.slot].value();
  }
  // The two sides of a message meet at the peer slot that receives it.
  std::vector<Step>& meeting(const Step& step, const Instruction& instruction) {
    const PeerSlot slot = instruction.message()->slot;
    if (instruction.op() == Op::recv) return transfers_[{step.rank, slot}];
    const Rank receiver = program_.ranks[step.rank].peers[slot].value();
    return transfers_[{receiver, other_end(program_, step.rank, slot).value()}];
  }

  void post(const Step& step, const Instruction& instruction) {
    TraceEvent event;
    event.step = step;
    if (step.index > 0) event.free_s = events_.at(key_of({step.rank, step.stream, step.index - 1})).end_s;
    event.begin_s = event.free_s;
    for (const After& after : instruction.after) {
      const TraceEvent& awaited = events_.at(key_of({step.rank, after.stream, after.index}));
      if (awaited.end_s <= event.begin_s) continue;
      event.begin_s = awaited.end_s;
      event.waited = Waited::step;
      event.waited_for = awaited.step;
    }
    event.matched_s = event.begin_s;
    event.bytes = payload_bytes(instruction);
    event.flops = instruction.flops;
    event.allocated = instruction.allocated;
    event.freed = instruction.freed;
    event.peak = instruction.peak;
    events_[key_of(step)] = event;
    if (const auto* collective = instruction.as<Collective>()) {
      const GroupId group = group_of(step, *collective);
      meet(step, collectives_[group], program_.groups[group].ranks.size());
    } else if (instruction.message() != nullptr) {
      meet(step, meeting(step, instruction), 2);
    }
  }

  // Matches all sides when the last of the `expected` sides arrives.
  void meet(const Step& step, std::vector<Step>& met, std::size_t expected) {
    met.push_back(step);
    if (met.size() == expected) match(std::exchange(met, {}));
  }

  void match(const std::vector<Step>& met) {
    const Step last = *std::max_element(met.begin(), met.end(), [this](const Step& a, const Step& b) {
      return events_.at(key_of(a)).begin_s < events_.at(key_of(b)).begin_s;
    });
    const double matched_s = events_.at(key_of(last)).begin_s;
    for (const Step& step : met) {
      TraceEvent& event = events_.at(key_of(step));
      event.matched_s = matched_s;
      if (event.begin_s == matched_s) continue;
      event.waited = Waited::peer;
      event.waited_rank = last.rank;
    }
  }

  void end(const Step& step, const Instruction& instruction) {
    TraceEvent& event = events_.at(key_of(step));
    event.end_s = event.matched_s + durations_(step, instruction);
  }

  const Program& program_;
  Durations durations_;
  std::map<Key, TraceEvent> events_;
  std::map<std::pair<Rank, PeerSlot>, std::vector<Step>> transfers_;  // keyed by the receiver and its slot
  std::map<GroupId, std::vector<Step>> collectives_;
};

// A trace with irregular durations that are equal on all sides of a match, which share kind, bytes and micro-batch.
inline Trace timed_trace(const Program& program) {
  return TimedRun(program,
                  [](const Step& step, const Instruction& i) {
                    if (i.op() == Op::compute)
                      return 1e-9 * (i.flops + 1) * (1 + 0.01 * (step.rank.value() % 3));
                    if (i.op() == Op::optimizer) return 1.0 / 3000;
                    return 1.1e-6 + static_cast<double>(payload_bytes(i)) / 7e8 + 1e-8 * i.micro_batch;
                  })
      .run();
}

}  // namespace motley::tests
