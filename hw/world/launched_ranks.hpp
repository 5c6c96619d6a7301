// Real ranks whose processes a launcher has started, perhaps on several hosts: process i of the launch serves the i-th
// real rank in ascending order, and process 0 simulates, too. They meet at the rendezvous. Read next:
// hw/world/real_ranks.hpp, hw/launch/rendezvous.hpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hw/launch/agreement.hpp"
#include "hw/transport/peer_place.hpp"
#include "hw/world/train.hpp"

namespace motley {

// A host as far as another one can know it.
struct RankHost {
  std::string boot;     // host_id(): equal where processes share one host
  std::string machine;  // what tells kinds of machines apart; empty: not told
};

// A process that another one of the launch has met.
struct MetProcess {
  Socket socket;      // carries its questions and answers
  std::string named;  // "process 4711 at 10.0.0.2"
  RankHost host;      // known in process 0
};

struct Meeting {
  Rank rank;                         // the real rank that this process serves
  Socket door;                       // it listens there for other real ranks
  std::map<Rank, PeerPlace> places;  // of all real ranks
  // In process 0: the processes of all other real ranks. In others: process 0, under the rank that it serves.
  std::map<Rank, MetProcess> others;
};

std::vector<Rank> ascending(std::vector<Rank> ranks);  // and each of them once

// The real rank, one of `ranks` in any order, that the process of a launch serves. Throws Refusal("rank-count").
Rank rank_served(const Place& place, std::vector<Rank> ranks);

// `work` is the Program, and `alike` what all processes must agree on besides it. `machine`: RankHost::machine of
// this host. Blocks until all have come, at most for `timeout_s`. Throws the same in every process: what rank_served()
// or Rendezvous throws.
Meeting meet(const Place& place, const std::vector<Rank>& ranks, const std::string& work,
             const Agreement& alike, const std::string& machine, double timeout_s);

}  // namespace motley
