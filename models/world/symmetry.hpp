// Which ranks must behave alike, so that one of each class can stand for all: colour refinement (Weisfeiler & Leman
// 1968) over ranks, groups, lanes and links until the partition is equitable. It knows nothing of tensor, data or
// pipeline parallelism, only who moves bytes to whom through which slot and over which links. What it does not do:
// search for symmetries of the whole; two ranks that some automorphism would exchange are always in one class, but a
// class may hold more, whose neighbourhoods no World can tell apart. Read next: models/check/check.cpp,
// sim/fabric/fold.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"

namespace motley {

// One way of bytes: what a rank sends through one slot, or an edge of a collective.
struct Lane {
  Rank from = 0, to = 0;
  std::optional<PeerSlot> out, in;  // transfers: slots at the two ends
  std::optional<GroupId> group;     // edges of a collective: whose
  // Copies: between a rank and its host, to it (1) or from it (2); `from` and `to` are the rank. 0: neither.
  std::int32_t host = 0;
  Carrier carrier = {};  // between nodes
  // Its ends post it on their own: transfers, and edges of collectives that run step by step. Else the group does.
  bool by_ranks = true;
  double cap = 0;         // bytes/s that each of its flows never exceeds, beyond what its links give; 0: none
  int parts = 1;          // edges of rings: of what a member sends (RingHop)
  double latency_s = -1;  // instead of its route's and its software's; -1: those
  std::uint64_t traits = 0;                     // equal only where it costs the same on an idle fabric
  std::uint32_t first_link = 0, last_link = 0;  // [first, last) of Arrangement::links
};

// What is known beforehand. Traits are equal only where nothing tells two of a kind apart but their neighbours.
struct Arrangement {
  std::vector<std::uint64_t> rank_traits, group_traits;  // by rank, by group
  std::vector<std::uint64_t> link_traits;                // by link id
  std::vector<Lane> lanes;
  std::vector<std::int32_t> links;  // ids, in the order a lane crosses them
  // By rank and peer slot: index into `lanes`, -1: its class never sends (receives) through it.
  std::vector<std::size_t> first_slot;
  std::vector<std::int32_t> sent, received;

  std::int32_t sent_lane(Rank rank, PeerSlot slot) const { return sent[slot_of(rank, slot)]; }
  std::int32_t received_lane(Rank rank, PeerSlot slot) const { return received[slot_of(rank, slot)]; }
  std::size_t slot_of(Rank rank, PeerSlot slot) const {
    return first_slot[static_cast<std::size_t>(rank)] + at(slot);
  }
};

// Group slots through which the program's instructions run collectives, ascending.
std::vector<GroupSlot> collective_slots(const RankProgram& rank_program);

// Ranks with their class, stage and chips_traits; groups with kind and size; every transfer a lane, without links.
Arrangement arrange(const Program& program);

struct Partition {
  std::vector<std::int32_t> class_of;  // class of each member
  std::vector<std::int32_t> first;     // lowest member of each class
  std::int32_t stand_in(std::int64_t member) const {
    return first[static_cast<std::size_t>(class_of[static_cast<std::size_t>(member)])];
  }
  std::vector<std::int64_t> counts() const;  // members of each class
};

struct Symmetry {
  Partition ranks, groups, lanes, links;
};

// The coarsest equitable partition finer than the traits.
Symmetry find_symmetry(const Program& program, const Arrangement& arrangement);
// Everyone in a class of its own.
Symmetry no_symmetry(const Program& program, const Arrangement& arrangement);

// By class of groups: how many arrivals at it make a collective complete, when one of each class of ranks runs. A group
// of which some member never joins is never complete.
std::vector<std::size_t> gang_sizes(const Program& program, const Symmetry& symmetry);

}  // namespace motley
