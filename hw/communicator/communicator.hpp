// A group of ranks that call the same operations in the same order. A Communicator knows no Program: whoever has one
// gives it groups and payloads. Operations are begun and awaited later; several may be under way at once. All
// collectives work in place. Read next: hw/communicator/messenger.hpp, models/program/collective.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "hw/communicator/element.hpp"
#include "hw/communicator/messenger.hpp"
#include "models/program/collective.hpp"

namespace motley {

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ElementType element = ElementType::fp32;
  ReduceOp reduce = ReduceOp::sum;  // matters only where something is reduced
  int root = 0;                     // a place; matters only to the kinds that have one
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;
  // Whether zeros at the end of a message stay behind (see SendOrder): for parts that are not full.
  bool keeps_zeros_back = false;
};

// Which algorithm does a kind with a payload of so many bytes best.
using ChooseAlgorithm = std::function<CollectiveAlgorithm(CollectiveKind, std::size_t bytes)>;

class Communicator {
 public:
  // `context`: a number that no other communicator of the run has. `members`: this rank is among them, and those of a
  // node stand together where `per_node` is above 1. `choose`: for `automatic`; none: the plain algorithm.
  Communicator(Messenger& messenger, std::uint64_t context, std::vector<Rank> members, int per_node = 1,
               ChooseAlgorithm choose = {});

  int size() const { return static_cast<int>(members_.size()); }
  int place() const { return place_; }
  const std::vector<Rank>& members() const { return members_; }
  Messenger& messenger() { return *messenger_; }

  // Whether messages of this group can do the kind by the algorithm.
  bool does(CollectiveAlgorithm algorithm, CollectiveKind kind) const;

  // By which algorithm a call of so many bytes is done that asks for `wanted`: `automatic` and `fastest` become one
  // that the group can do; another algorithm stays as it is.
  CollectiveAlgorithm algorithm_for(CollectiveAlgorithm wanted, CollectiveKind kind, std::size_t bytes) const;

  // `values`: S of CollectiveKind, whole elements; for all_to_all a multiple of the members, for barrier none. All
  // members call it with the same call and size. An algorithm that does not do the kind on this group is not tried.
  Request start(const CollectiveCall& call, std::span<std::byte> values, Posted mine = {});
  Posted run(const CollectiveCall& call, std::span<std::byte> values, Posted mine = {}) {
    return messenger_->wait(start(call, values, mine));
  }
  // The same over some members' parts of a larger group's payload: `parts` gives the part of each member of this one.
  // Only all_gather, reduce_scatter and all_to_all.
  Request start_parts(const CollectiveCall& call, const std::vector<std::span<std::byte>>& parts,
                      Posted mine = {});
  // An all_to_all of parts of any size. outgoing[i] goes to member i, incoming[i] comes from it.
  Request start_exchange(const std::vector<std::span<const std::byte>>& outgoing,
                         const std::vector<std::span<std::byte>>& incoming, Posted mine = {});

  // Messages to and from the member at a place. `tag`: both sides give the same.
  Request send(int to, std::uint64_t tag, std::span<const std::byte> bytes, Posted mine = {});
  Request receive(int from, std::uint64_t tag, std::span<std::byte> bytes, Posted mine = {});
  Posted wait(const Request& request) { return messenger_->wait(request); }

  // All members call it. Those of one colour form a group, ordered by key and then by place; a negative colour is of no
  // group.
  std::unique_ptr<Communicator> split(int colour, int key);

 private:
  CollectiveAlgorithm algorithm_of(const CollectiveCall& call, std::size_t bytes) const;
  std::shared_ptr<const CollectiveSteps> steps_of(const CollectiveCall& call, CollectiveAlgorithm algorithm);
  Request begin(const CollectiveCall& call, CollectiveAlgorithm algorithm, std::size_t count,
                std::vector<std::span<std::byte>> chunks, std::vector<std::vector<std::byte>> kept,
                Posted mine);

  Messenger* messenger_;
  std::uint64_t context_;
  std::vector<Rank> members_;
  int place_ = 0;
  GroupShape shape_;
  ChooseAlgorithm choose_;
  std::uint64_t operations_ = 0, splits_ = 0;
  using StepsKey = std::tuple<CollectiveKind, int, CollectiveAlgorithm>;  // and the root
  std::map<StepsKey, std::shared_ptr<const CollectiveSteps>> steps_;
};

// Part i of R of a payload of whole elements, as CollectiveKind cuts it.
std::span<std::byte> part_of(std::span<std::byte> values, std::size_t width, std::size_t i, std::size_t R);

}  // namespace motley
