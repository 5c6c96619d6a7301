// The Null world: a Program run in no time. Programs are deterministic dataflow, so one order of running them decides
// for all whether they end. Transfers are rendezvous, collectives gangs; a stream never skips. Everything check() knows
// about progress and memory comes from here. Of ranks that must behave alike it runs one: see models/symmetry.hpp. It
// knows nothing of durations: see sim/world.hpp.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "models/check.hpp"
#include "models/symmetry.hpp"
#include "models/world.hpp"

namespace motley {

class NullWorld {
 public:
  using Observer = std::function<void(const Step&, const Instruction&)>;
  // `posted` is called when an instruction begins (a receive takes its buffer), `ended` when it has ended. Both may be
  // empty. Throws Refusal("mismatched-transfer" | "mismatched-collective") when two sides disagree.
  // Keeps references to the first three; `symmetry` decides who runs.
  NullWorld(const Program& program, const Arrangement& arrangement, const Symmetry& symmetry, Observer posted,
            Observer ended);
  // Runs until nothing moves; returns who is stuck (empty: the Program ended).
  std::vector<Blocked> run();

 private:
  struct StreamState {
    int next = 0;         // index of the first instruction that has not ended
    bool posted = false;  // it has begun and waits for its other side
  };
  bool passed(Rank rank, const std::vector<After>& after) const;
  bool advance(Rank rank, int stream);  // one instruction, if it can begin and end
  void begin(Rank rank, int stream);
  void end(Rank rank, int stream);
  bool match_transfer(Rank rank, int stream);
  bool match_collective(Rank rank, int stream);
  void progress(Rank rank);
  std::string why(Rank rank, int stream) const;
  std::vector<Blocked> blocked() const;

  const Program& program_;
  const Arrangement& arrangement_;
  const Symmetry& symmetry_;
  Observer posted_, ended_;
  std::vector<std::vector<StreamState>> states_;  // [rank][stream]; only of those that run
  std::vector<int> sender_, receiver_;            // [class of lanes]: stream whose head is posted there; -1
  std::vector<std::size_t> gang_sizes_;           // [class of groups]
  struct Arrival {
    Rank rank;
    int stream;
  };
  std::vector<std::vector<Arrival>> arrived_;  // [class of groups]
  std::deque<Rank> ready_;
  std::vector<bool> is_ready_;
  void wake(Rank rank);
};

}  // namespace motley
