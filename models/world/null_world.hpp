// The Null world: runs a Program in no time. Programs are deterministic dataflow, so if one order of running them
// ends, all orders do. Transfers are rendezvous, collectives gangs; a stream never skips an instruction. All that
// check() knows about progress and memory comes from here. One rank runs for all ranks that must behave alike: see
// models/world/symmetry.hpp. This world knows no durations: see sim/simulate.hpp.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/world/symmetry.hpp"
#include "models/world/world.hpp"

namespace motley {

struct Blocked {
  Rank rank;
  StreamId stream;
  int index = 0;
  std::string why;  // "waits for rank 3 to send activation of micro-batch 2"
};

class NullWorld : public World {
 public:
  using Observer = std::function<void(const Step&, const Instruction&)>;
  // `posted` is called when an instruction begins (a receive takes its buffer), `ended` when it has ended. Both may
  // be empty. Throws Refusal("mismatched-transfer" | "mismatched-collective") when two sides disagree. Keeps
  // references to the first three arguments; `symmetry` decides which ranks run.
  NullWorld(const Program& program, const Arrangement& arrangement, const Symmetry& symmetry, Observer posted,
            Observer ended);
  // Issues every stream, then runs until nothing moves. Returns the ranks that are blocked (empty: the Program
  // ended).
  std::vector<Blocked> run();

  // Notes that the step may begin. It ends in run(), when all streams have been issued.
  void issue(const Step& step, const Instruction& instruction, std::span<const Step> after) override;
  // Returns at once, because run() begins only after every stream has been issued.
  void await(Rank rank, StreamId stream) override;

 private:
  struct StreamState {
    int issued = 0;       // instructions that may begin
    int next = 0;         // index of the first instruction that has not ended
    bool posted = false;  // it has begun and waits for its other side
  };
  StreamState& state(Rank rank, StreamId stream) { return states_[rank][stream]; }
  const StreamState& state(Rank rank, StreamId stream) const { return states_[rank][stream]; }
  const Instruction& current(Rank rank, StreamId stream) const {
    return program_.at(rank, stream, state(rank, stream).next);
  }
  std::string describe_current(Rank rank, StreamId stream) const;

  bool passed(Rank rank, const std::vector<After>& after) const;
  bool advance(Rank rank, StreamId stream);  // performs one instruction, if it can begin and end
  void begin(Rank rank, StreamId stream);
  void end(Rank rank, StreamId stream);
  bool match_transfer(Rank rank, StreamId stream);
  bool match_collective(Rank rank, StreamId stream);
  void progress(Rank rank);
  void wake(Rank rank);
  std::string why(Rank rank, StreamId stream) const;
  std::vector<Blocked> blocked() const;

  const Program& program_;
  const Arrangement& arrangement_;
  const Symmetry& symmetry_;
  Observer posted_, ended_;
  IdTable<Rank, IdTable<StreamId, StreamState>> states_;  // filled only for ranks that run
  std::vector<std::optional<StreamId>> sender_,
      receiver_;                         // by class of lanes: stream whose next instruction is posted there
  std::vector<std::size_t> gang_sizes_;  // by class of groups
  struct Arrival {
    Rank rank;
    StreamId stream;
  };
  std::vector<std::vector<Arrival>> arrived_;  // by class of groups
  std::deque<Rank> ready_;
  IdTable<Rank, bool> is_ready_;
};

}  // namespace motley
