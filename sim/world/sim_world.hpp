// The Sim world's state while it runs: streams, meetings of transfers, gangs of collectives. A stream is one coroutine,
// which waits in virtual time. Private to
// sim/simulate.cpp and sim/world/sim_world.cpp; sim/simulate.hpp is the way in.
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/world/world.hpp"
#include "sim/clock/clock.hpp"
#include "sim/fabric/flows.hpp"
#include "sim/fold/traffic.hpp"
#include "sim/world/durations.hpp"
#include "sim/world/overlap.hpp"

namespace motley {

class SimWorld : public World {
 public:
  // All arguments must outlive the world.
  SimWorld(const Job& job, const Program& program, const SimOptions& options, Durations& durations,
           const FoldedFabric& folded);
  // Runs every stream to its end. Throws RunFailure on a deadlock, and whatever a stream threw.
  Trace run();

  // Notes that the step may begin. It ends in run(), when all streams have been issued.
  void issue(const Step& step, const Instruction& instruction, std::span<const Step> after) override;
  void await(Rank, StreamId) override {}  // returns at once, because time passes in run()

 private:
  enum class Blocked : std::uint8_t { no, after, other_side };
  struct StreamState;
  struct Waiter {
    std::int32_t index;  // the instruction for whose end the stream waits, counted over all steps
    StreamState* stream;
  };
  struct StreamState {
    std::size_t first_event = 0;  // index into trace_.events
    std::int32_t ended = 0;       // how many instructions have ended, over all steps
    std::int32_t count = 0;       // how many instructions have been issued; every step has as many
    Blocked blocked = Blocked::no;
    bool released = false;  // the other side has come
    Step waits_for;         // the step it waits for while blocked == after
    std::vector<Waiter> waiters;
    Parking parking;
    Task task;
  };
  struct Posted {  // one side of a transfer or a collective that has arrived and waits
    StreamState* stream = nullptr;
    TraceEvent* event = nullptr;
    bool sends = false;
  };
  struct Gang {
    std::vector<Posted> here;  // the members that have arrived
    std::size_t expected = 0;  // how many members must arrive
  };
  // One message of an expanded step: the stream that comes second starts it, both wait for its end.
  struct Handshake {
    StreamState *first = nullptr, *second = nullptr;
    std::shared_ptr<Flow> message;
  };

  // One of the steps that follow each other.
  struct Round {
    std::vector<TraceEvent> events;
    std::size_t streams_left = 0;  // how many streams have not ended it yet
  };

  StreamState& state(Rank rank, StreamId stream) { return streams_[first_stream_[rank] + at(stream)]; }
  TraceEvent& event_of(const Step& step, int round) {
    const std::size_t first = state(step.rank, step.stream).first_event;
    return rounds_[at(round - first_round_)].events[first + static_cast<std::size_t>(step.index)];
  }
  Gang& gang_of(GroupId group) { return gangs_[at(folding_.symmetry.groups.class_of[at(group)])]; }

  void lay_out_streams();
  void lay_out_gangs();
  Task run_to_end(Rank rank, StreamId stream);
  Task perform(Step step, int round);
  Task await_last_round(Step step, int round);
  void begin_round(int round);
  void end_round(int round);
  bool is_steady(const Round& before, const Round& last) const;
  void keep_steady(int round);

  double now_s() const { return clock_.now_s(); }
  Clock::Sleep sleep(double seconds) { return clock_.sleep(seconds); }
  bool must_wait(StreamState& stream, Step step, int round);  // for the end of the step, of the same rank
  void note_wait(TraceEvent& event, const Instruction& instruction, int round);
  void end(StreamState& stream, TraceEvent& event);
  Task block(StreamState& stream);     // waits for release()
  void release(const Posted& posted);  // wakes a stream that is in block()
  void release_others(const std::vector<Posted>& met, const StreamState& stream);
  // Fills matched_s, waited, waited_rank. Returns the seconds of what is timed; nothing: it is priced.
  std::optional<double> match(const std::vector<Posted>& met, double now_s);
  Task run_compute(Step step, const Instruction& instruction);
  Rank last_there(const TraceEvent& event, const std::vector<Rank>& last) const;

  Task copy(Step step, const Instruction& instruction);
  Task transfer(StreamState& stream, TraceEvent& event, const PeerMessage& message, bool sends);
  Task collective(StreamState& stream, TraceEvent& event, const Collective& collective);
  Task run_whole(const WholeCollective& whole);
  Task run_expanded(StreamState& stream, const MemberExchanges& exchanges);
  // Takes part in messages that are posted together, as their sender or receiver.
  Task exchange(StreamState& stream, const std::vector<LaneMessage>& messages);
  std::shared_ptr<Handshake> shake(std::int32_t lane, StreamState* stream);
  std::string describe_deadlock();
  std::string why(Rank rank, StreamId stream);

  const Program& program_;
  const SimOptions& options_;
  Durations& durations_;
  const FoldedFabric& folded_;
  const Folding& folding_;
  const Fabric& fabric_;
  Clock clock_;
  Flows flows_;
  Overlap overlap_;
  IdTable<Rank, std::size_t> first_stream_;             // index into streams_
  std::vector<Posted> meetings_;                        // indexed by class of lanes
  std::vector<std::shared_ptr<Handshake>> handshakes_;  // indexed by class of lanes
  std::vector<Gang> gangs_;                             // indexed by class of groups
  const int most_rounds_;     // how many steps are run at most; 1: ranks end a step together
  std::deque<Round> rounds_;  // those that are under way, and the last one that ended
  int first_round_ = 0;       // the number of the first of them
  std::size_t events_of_round_ = 0;
  std::vector<double> ends_s_;  // the end of each round
  Trace trace_;
  std::exception_ptr failure_;
  std::vector<StreamState> streams_;  // the streams of the ranks that run
};

}  // namespace motley
