#include "hw/communicator/communicator.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hw/communicator/collective_performer.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Whether messages can do it: a switch that reduces cannot be told to.
bool performable(CollectiveAlgorithm algorithm) {
  return algorithm != CollectiveAlgorithm::in_switch && algorithm != CollectiveAlgorithm::once_a_node;
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::reduce;
}

template <class E>
std::uint8_t number_of(E value) {
  return static_cast<std::uint8_t>(value);
}

}  // namespace

std::string describe(const Call& call) {
  if (call.kind == Call::Kind::message) return fmt::format("a message of {} bytes", call.count);
  const auto kind = static_cast<CollectiveKind>(call.collective);
  const std::string root = is_rooted(kind) ? fmt::format(" at place {}", call.root) : "";
  if (kind == CollectiveKind::barrier) return fmt::format("barrier among {}", call.members);
  return fmt::format("{}{} ({}{}) of {} {} among {}", name_of(kind), root,
                     name_of(static_cast<CollectiveAlgorithm>(call.algorithm)),
                     reduces(kind) ? fmt::format(", {}", name_of(static_cast<ReduceOp>(call.reduce))) : "",
                     call.count, name_of(static_cast<ElementType>(call.element)), call.members);
}

std::span<std::byte> part_of(std::span<std::byte> values, std::size_t width, std::size_t i, std::size_t R) {
  const std::size_t count = values.size() / width, size = (count + R - 1) / R;
  const std::size_t first = std::min(count, size * i);
  return values.subspan(first * width, std::min(size, count - first) * width);
}

Communicator::Communicator(Messenger& messenger, std::uint64_t context, std::vector<Rank> members,
                           int per_node, ChooseAlgorithm choose)
    : messenger_(&messenger), context_(context), members_(std::move(members)), choose_(std::move(choose)) {
  const auto mine = std::find(members_.begin(), members_.end(), messenger.rank());
  MOTLEY_CHECK(mine != members_.end());
  place_ = static_cast<int>(mine - members_.begin());
  shape_.rank_count = size();
  shape_.per_node = per_node;
}

bool Communicator::does(CollectiveAlgorithm algorithm, CollectiveKind kind) const {
  return performable(algorithm) && motley::does(algorithm, kind, shape_);
}

CollectiveAlgorithm Communicator::algorithm_for(CollectiveAlgorithm wanted, CollectiveKind kind,
                                                std::size_t bytes) const {
  const bool open = wanted == CollectiveAlgorithm::automatic || wanted == CollectiveAlgorithm::fastest;
  if (!open) return wanted;
  const CollectiveAlgorithm chosen = choose_ ? choose_(kind, bytes) : plain_algorithm(kind);
  return does(chosen, kind) ? chosen : plain_algorithm(kind);
}

CollectiveAlgorithm Communicator::algorithm_of(const CollectiveCall& call, std::size_t bytes) const {
  const CollectiveAlgorithm algorithm = algorithm_for(call.algorithm, call.kind, bytes);
  return does(algorithm, call.kind) ? algorithm : plain_algorithm(call.kind);
}

std::shared_ptr<const CollectiveSteps> Communicator::steps_of(const CollectiveCall& call,
                                                              CollectiveAlgorithm algorithm) {
  auto& steps = steps_[{call.kind, call.root, algorithm}];
  if (!steps)
    steps = std::make_shared<const CollectiveSteps>(
        expand(CollectiveTask(call.kind, call.root), algorithm, shape_));
  return steps;
}

Request Communicator::begin(const CollectiveCall& call, CollectiveAlgorithm algorithm, std::size_t count,
                            std::vector<std::span<std::byte>> chunks,
                            std::vector<std::vector<std::byte>> kept, Posted mine) {
  CollectiveOrder order;
  order.members = members_;
  order.place = place_;
  order.context = context_;
  order.operation = ++operations_;
  order.call.kind = Call::Kind::collective;
  order.call.collective = number_of(call.kind);
  order.call.algorithm = number_of(algorithm);
  order.call.element = number_of(call.element);
  order.call.reduce = number_of(call.reduce);
  order.call.root = static_cast<std::uint32_t>(call.root);
  order.call.members = static_cast<std::uint32_t>(size());
  order.call.count = count;
  order.steps = steps_of(call, algorithm);
  order.chunks = std::move(chunks);
  order.element = call.element;
  order.reduce = call.reduce;
  order.keeps_zeros_back = call.keeps_zeros_back;
  order.kept = std::move(kept);
  order.mine = mine;
  return messenger_->post(std::move(order));
}

Request Communicator::start(const CollectiveCall& call, std::span<std::byte> values, Posted mine) {
  const std::size_t width = element_bytes(call.element), count = values.size() / width;
  MOTLEY_CHECK(values.size() % width == 0 && call.root >= 0 && call.root < size());
  const CollectiveAlgorithm algorithm = algorithm_of(call, values.size());
  if (call.kind == CollectiveKind::all_to_all) {
    MOTLEY_CHECK(count % members_.size() == 0);
    std::vector<std::span<std::byte>> parts;
    for (std::size_t i = 0; i < members_.size(); ++i)
      parts.push_back(part_of(values, width, i, members_.size()));
    return start_parts(call, parts, mine);
  }
  const auto steps = steps_of(call, algorithm);
  std::vector<std::span<std::byte>> chunks;
  for (std::size_t i = 0; i < at(steps->chunks); ++i)
    chunks.push_back(part_of(values, width, i, at(steps->chunks)));
  return begin(call, algorithm, count, std::move(chunks), {}, mine);
}

Request Communicator::start_parts(const CollectiveCall& call, const std::vector<std::span<std::byte>>& parts,
                                  Posted mine) {
  const std::size_t R = members_.size(), me = at(place_);
  MOTLEY_CHECK(parts.size() == R);
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  const std::size_t count = bytes / element_bytes(call.element);
  if (call.kind != CollectiveKind::all_to_all)
    return begin(call, CollectiveAlgorithm::ring, count, parts, {}, mine);
  // Chunk i * R + j is part j of member i. What comes takes the place of what goes, so that goes from a copy. Parts of
  // others that pass through have places of their own.
  const CollectiveAlgorithm algorithm = algorithm_of(call, bytes);
  std::vector<std::vector<std::byte>> kept;
  std::vector<std::span<std::byte>> chunks(R * R);
  const auto keep = [&](std::size_t chunk, std::size_t size) {
    kept.emplace_back(size);
    chunks[chunk] = kept.back();
  };
  for (std::size_t i = 0; i < R; ++i) {
    if (i == me) continue;
    chunks[i * R + me] = parts[i];
    keep(me * R + i, parts[i].size());
    messenger_->copy(kept.back(), parts[i]);
  }
  for (const CollectiveStep& step : steps_of(call, algorithm)->steps)
    if ((step.from == place_ || step.to == place_) && chunks[at(step.chunk)].data() == nullptr)
      keep(at(step.chunk), parts[me].size());
  return begin(call, algorithm, count, std::move(chunks), std::move(kept), mine);
}

Request Communicator::start_exchange(const std::vector<std::span<const std::byte>>& outgoing,
                                     const std::vector<std::span<std::byte>>& incoming, Posted mine) {
  const std::size_t R = members_.size(), me = at(place_);
  MOTLEY_CHECK(outgoing.size() == R && incoming.size() == R && outgoing[me].size() == incoming[me].size());
  messenger_->copy(incoming[me], outgoing[me]);
  std::vector<std::span<std::byte>> chunks(R * R);
  for (std::size_t i = 0; i < R; ++i) {
    if (i == me) continue;
    // Steps only read what this member sends.
    chunks[me * R + i] = {const_cast<std::byte*>(outgoing[i].data()), outgoing[i].size()};
    chunks[i * R + me] = incoming[i];
  }
  CollectiveCall call;
  call.kind = CollectiveKind::all_to_all;
  call.element = ElementType::uint8;
  // The sizes differ from member to member: each pair compares its own.
  return begin(call, CollectiveAlgorithm::flat, 0, std::move(chunks), {}, mine);
}

Request Communicator::send(int to, std::uint64_t tag, std::span<const std::byte> bytes, Posted mine) {
  SendOrder order;
  order.to = members_[at(to)];
  order.key = {~context_, tag, 0};  // messages and collectives have numbers of their own
  order.call.count = bytes.size();
  order.pieces = {bytes};
  order.mine = mine;
  return messenger_->post(std::move(order));
}

Request Communicator::receive(int from, std::uint64_t tag, std::span<std::byte> bytes, Posted mine) {
  ReceiveOrder order;
  order.from = members_[at(from)];
  order.key = {~context_, tag, 0};
  order.call.count = bytes.size();
  order.into = bytes;
  order.mine = mine;
  return messenger_->post(order);
}

std::unique_ptr<Communicator> Communicator::split(int colour, int key) {
  const std::uint64_t number = ++splits_;
  std::vector<std::array<std::int32_t, 2>> all(members_.size());
  all[at(place_)] = {colour, key};
  CollectiveCall call;
  call.kind = CollectiveKind::all_gather;
  call.element = ElementType::int32;
  call.algorithm = CollectiveAlgorithm::ring;
  run(call, std::as_writable_bytes(std::span(all)));
  if (colour < 0) return nullptr;
  std::vector<std::pair<int, std::size_t>> ordered;  // by key and place
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i][0] == colour) ordered.emplace_back(all[i][1], i);
  std::sort(ordered.begin(), ordered.end());
  std::vector<Rank> members;
  for (const auto& [its_key, place] : ordered) members.push_back(members_[place]);
  // The same on every member, and on no other group but by a chance of 1 in 2^64.
  const std::array<std::uint64_t, 3> origin = {context_, number, static_cast<std::uint64_t>(colour)};
  return std::make_unique<Communicator>(*messenger_, XXH3_64bits(origin.data(), sizeof origin),
                                        std::move(members), 1, choose_);
}

}  // namespace motley
