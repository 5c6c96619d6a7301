// A collective's algorithm as the Sim world performs it: which members send to which, and what each member does in each
// round. Groups of one shape share one plan. Where needs_steps() is false there is none: the World steps through those
// itself. Private to sim/fold/fold.cpp and sim/world/sim_world.cpp. Read next: models/program/collective.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/program/collective.hpp"

namespace motley {

struct CollectivePlan {
  struct Way {                 // all messages from one member to another
    int from = 0, to = 0;      // places in the group
    double share = 0;          // wire bytes of all rounds together, for each byte of payload
    std::uint64_t rounds = 0;  // hash: equal for ways that carry as much in the same rounds
  };
  struct Part {  // one message of a member in one round
    int round = 0;
    int way = 0;  // index into `ways`
    bool sends = false;
    double chunks = 0;  // size of its chunks, in equal chunks
  };
  int chunks = 1, rounds = 0;
  double stretch = 1, setup_s = 0, pipelined = 0;  // see CollectiveSteps
  std::vector<Way> ways;                           // sorted by `from`, then by `to`
  std::vector<std::vector<Part>> of_member;        // each member's parts, in the order of rounds

  // Assumes: the chunks are padded to equal size.
  std::int64_t wire_bytes(double of_chunks, std::int64_t payload) const;
};

CollectivePlan make_plan(const CollectiveSteps& steps);

}  // namespace motley
