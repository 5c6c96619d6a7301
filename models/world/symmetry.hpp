// Which ranks must behave alike, so that one of each class can stand for all: colour refinement (Weisfeiler & Leman
// 1968) over ranks, groups, lanes and links until the partition is equitable. It knows nothing of tensor, data or
// pipeline parallelism, only which rank moves bytes to which through which slot and over which links. It does not
// search for symmetries of the whole: two ranks that some automorphism would exchange are always in one class, but a
// class may hold more ranks, whose neighbourhoods no World can tell apart. Read next: models/check/check.cpp,
// sim/fold/fold.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

// One path of bytes: the messages that a rank sends through one slot, or an edge of a collective.
struct Lane {
  Rank from, to;
  std::optional<PeerSlot> out, in;  // transfers: slots at the two ends
  std::optional<GroupId> group;     // edges of a collective: its group
  // 1: copies from a rank to its host; 2: copies from the host to it; `from` and `to` are the rank. 0: neither.
  std::int32_t host = 0;
  Carrier carrier = {};  // carrier between nodes
  // True: the ends post the lane themselves (transfers, and edges of collectives that run step by step). False: the
  // group does.
  bool by_ranks = true;
  double cap = 0;            // most bytes/s of each of its flows, beside the limits of its links; 0: no limit
  int parts = 1;             // edges of rings: RingHop::parts
  double latency_s = -1;     // latency in place of that of its route and software; -1: no replacement
  std::uint64_t traits = 0;  // equal only for lanes that cost the same on an idle fabric
  std::uint32_t first_link = 0, last_link = 0;  // [first, last) of Arrangement::links
};

// The initial knowledge. Traits are equal only for members that differ at most in their neighbours.
struct Arrangement {
  IdTable<Rank, std::uint64_t> rank_traits;
  IdTable<GroupId, std::uint64_t> group_traits;
  std::vector<std::uint64_t> link_traits;  // by link id
  std::vector<Lane> lanes;
  std::vector<std::int32_t> links;  // ids, in the order in which a lane crosses them
  // By rank and peer slot: index into `lanes`; -1: ranks of this program never send (receive) through the slot.
  IdTable<Rank, std::size_t> first_slot;
  std::vector<std::int32_t> sent, received;

  std::int32_t sent_lane(Rank rank, PeerSlot slot) const { return sent[slot_of(rank, slot)]; }
  std::int32_t received_lane(Rank rank, PeerSlot slot) const { return received[slot_of(rank, slot)]; }
  std::size_t slot_of(Rank rank, PeerSlot slot) const { return first_slot[rank] + at(slot); }
};

// Slots of groups through which the program's instructions run collectives, ascending.
std::vector<GroupSlot> collective_slots(const RankProgram& rank_program);

// Ranks with traits of their rank program and stage; groups with kind and size; a lane for every transfer, without
// links.
Arrangement arrange(const Program& program);

// Members are named by their id, or by their index where they have none.
template <class Member>
struct Partition {
  std::vector<std::int32_t> class_of;  // class of each member
  std::vector<Member> first;           // lowest member of each class
  Member stand_in(Member member) const { return first[at(class_of[at(member)])]; }
  std::vector<std::int64_t> counts() const {  // members of each class
    std::vector<std::int64_t> counts(first.size());
    for (std::int32_t each : class_of) ++counts[at(each)];
    return counts;
  }
};

struct Symmetry {
  Partition<Rank> ranks;
  Partition<GroupId> groups;
  Partition<std::int32_t> lanes, links;
};

// Finds the coarsest equitable partition that is finer than the traits.
Symmetry find_symmetry(const Program& program, const Arrangement& arrangement);
// A partition in which every member has a class of its own.
Symmetry no_symmetry(const Program& program, const Arrangement& arrangement);

// By class of groups: the number of arrivals that completes a collective when one rank of each class runs. A group
// with a member that never joins is never complete.
std::vector<std::size_t> gang_sizes(const Program& program, const Symmetry& symmetry);

}  // namespace motley
