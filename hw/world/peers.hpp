// The other ranks, as the Real world of a rank sees them: what a Program's slots and groups mean to a Messenger. In a
// mixed run some of them are imagined. Read next: hw/world/real_world.hpp, hw/communicator/communicator.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw/communicator/communicator.hpp"
#include "hw/communicator/messenger.hpp"
#include "hw/world/used_memory.hpp"
#include "models/program/program.hpp"

namespace motley {

// Activations and gradients between neighbours of a pipeline. Those of two virtual stages never wait for each other.
struct StageMessage {
  bool gradient = false;
  int lane = 0;  // the sender's chunk
  std::uint64_t tag = 0;
};

// A collective over a group.
struct GroupCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ReduceOp reduce = ReduceOp::sum;
  // Of the payload in the formats of the Program, though fp32 is sent. 0: the call is inside a compute, and plain.
  std::int64_t bytes = 0;
};

// How collectives are done: as they are simulated. Without: by the plain algorithms. Any thread may call it.
struct GroupAlgorithms {
  std::function<int(GroupId)> per_node =
      {};  // members on each node, which stand node by node; 1: they do not
  std::function<CollectiveAlgorithm(GroupId, const GroupCall&)> choose = {};
};

// When the last side of a transfer was ready, and how its bytes went.
struct Moved {
  Posted latest;
  PathSet paths;
};

class Peers {
 public:
  virtual ~Peers() = default;
  // These block until the bytes are where they belong. They throw RunFailure, which names the rank to blame.
  virtual Moved send(Rank to, const StageMessage& message, std::span<const float> values, Posted mine) = 0;
  virtual Moved receive(Rank from, const StageMessage& message, std::span<float> values, Posted mine) = 0;
  // Over all members of the group. In place.
  virtual Moved collect(GroupId group, const GroupCall& call, std::span<float> values, Posted mine) = 0;
  // This rank has failed: the others wait no longer. Any thread may call it.
  virtual void abort(const std::string& why) = 0;
};

// Ranks that are really there. Each group belongs to one stream, and each stream to one thread.
class RealPeers : public Peers {
 public:
  RealPeers(const Program& program, Messenger& messenger, GroupAlgorithms algorithms = {});
  Moved send(Rank to, const StageMessage& message, std::span<const float> values, Posted mine) override;
  Moved receive(Rank from, const StageMessage& message, std::span<float> values, Posted mine) override;
  Moved collect(GroupId group, const GroupCall& call, std::span<float> values, Posted mine) override;
  void abort(const std::string& why) override { messenger_.abort(why); }

 private:
  Messenger& messenger_;
  const GroupAlgorithms algorithms_;
  UsedMemory used_memory_;
  std::map<GroupId, Communicator> groups_;  // those that this rank is in
};

// Members of groups of which some are there and the others are imagined. Those that are there exchange what they have;
// the others add nothing to a sum, and `fill` fills in each part that one of them would have brought. Only collect() is
// there.
class PresentPeers : public Peers {
 public:
  PresentPeers(const Program& program, Messenger& messenger, const std::vector<Rank>& present,
               std::function<void(std::span<float>)> fill);
  Moved send(Rank, const StageMessage&, std::span<const float>, Posted) override;
  Moved receive(Rank, const StageMessage&, std::span<float>, Posted) override;
  Moved collect(GroupId group, const GroupCall& call, std::span<float> values, Posted mine) override;
  void abort(const std::string& why) override { messenger_.abort(why); }

 private:
  const Program& program_;
  Messenger& messenger_;
  const std::function<void(std::span<float>)> fill_;
  std::map<GroupId, Communicator> groups_;
};

// The members of a group that are among `ranks`, in the order of the group.
std::vector<Rank> members_among(const Group& group, const std::vector<Rank>& ranks);

}  // namespace motley
