#include "hw/transport/verbs/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "hw/transport/verbs/device.hpp"
#include "hw/transport/verbs/queue_pair.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// A Put on its way, perhaps over several rails.
struct Flow {
  Put put;
  std::size_t begun = 0;               // bytes
  bool all_begun = false;              // an empty one has a message, too
  bool is_registered = false;          // its pieces lie in registered memory
  bool has_failed = false;             // it is given back once nothing of it is under way
  std::vector<std::size_t> under_way;  // messages, by rail
  bool is_at_rest() const {
    return std::all_of(under_way.begin(), under_way.end(), [](std::size_t each) { return each == 0; });
  }
};

// Memory of the owner, for all devices.
struct OwnersMemory {
  std::span<std::byte> bytes;
  std::vector<VerbsRegion> regions;  // by device
};

// One device of this rank and that of the same number of a peer.
struct Rail {
  std::unique_ptr<QueuePair> pair;
  bool wired = false;
  bool is_ending = false;  // this rank has told the peer so, and waits for its answer
  bool is_alive() const { return pair && !is_ending && !pair->broken(); }
};

class RdmaTransport final : public VerbsTransport {
 public:
  RdmaTransport(Rank rank, std::vector<std::unique_ptr<VerbsDevice>> devices, TransportEvents& events,
                VerbsEvents& owner)
      : rank_(rank), devices_(std::move(devices)), dead_(devices_.size()), events_(events), owner_(owner) {}

  Reach reach(Rank peer) const override;
  void wire_up(Rank peer) override;
  void came(Rank from, const Frame& frame) override;
  void put(Rank peer, Put put) override;
  void progress() override;
  std::vector<int> descriptors() const override;
  void close() override;
  void forget(Rank peer) override;
  std::uint64_t register_memory(std::span<std::byte> bytes) override;
  void unregister_memory(std::uint64_t number) override { memory_.erase(number); }
  RemoteMemory place_of(std::span<const std::byte> bytes) const override;

 private:
  struct Peer {
    std::vector<Rail> rails;              // as many as this rank has devices
    std::map<std::uint64_t, Flow> flows;  // by a number that no other has
    std::deque<std::uint64_t> turns;      // those with bytes that have not begun
    Reach told = Reach::unknown;          // what the owner knows
    bool gone = false;
  };
  // What a queue pair tells belongs to its peer and rail.
  struct Listener final : QueuePairEvents {
    Listener(RdmaTransport& its_transport, Rank its_rank, std::size_t its_rail)
        : transport(its_transport), peer(its_rank), rail(its_rail) {}
    void sent(std::uint64_t tag) override { transport.arrived(peer, rail, tag); }
    void came(const Frame& data, std::span<const std::byte> bytes) override;
    RdmaTransport& transport;
    const Rank peer;
    const std::size_t rail;
  };

  void add_rails(Rank rank, Peer& peer);
  void take_wire(Rank from, Peer& peer, const Endpoint& theirs);
  void take_unwired(Rank from, Peer& peer, const Frame& frame);
  void arrived(Rank rank, std::size_t rail, std::uint64_t tag);
  void fill(Peer& peer);
  void send_next(Peer& peer, std::size_t rail);
  const OwnersMemory* memory_with(std::span<const std::byte> bytes) const;
  void poll(Rank rank, std::size_t rail);
  void end_rail(Rank rank, std::size_t rail, const std::string& why);
  void give_back_flows_on(Peer& peer, std::size_t rail);
  void look_after_devices();
  void tell_unwired(Rank rank, std::size_t rail, std::uint64_t count, const std::string& why);
  void tell_owner();

  const Rank rank_;
  std::vector<std::unique_ptr<VerbsDevice>> devices_;
  std::vector<std::optional<std::string>> dead_;  // devices that failed, and why
  TransportEvents& events_;
  VerbsEvents& owner_;
  std::map<std::uint64_t, OwnersMemory> memory_;
  std::map<Rank, Peer> peers_;
  std::vector<std::uint64_t> given_back_;  // Puts that the owner is not told of yet
  std::uint64_t next_flow_ = 1, next_memory_ = 1;
  bool closed_ = false;
};

VerbsTransport::Reach RdmaTransport::reach(Rank peer) const {
  if (closed_) return Reach::none;
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return Reach::unknown;
  bool wiring = false;
  for (const Rail& rail : known->second.rails) {
    if (rail.is_alive() && rail.wired) return Reach::wired;
    wiring = wiring || rail.is_alive();
  }
  return wiring ? Reach::wiring : Reach::none;
}

// ---- wiring

void RdmaTransport::wire_up(Rank peer) {
  if (closed_ || peers_.contains(peer)) return;
  add_rails(peer, peers_[peer]);
}

// Tells the peer where each of them is.
void RdmaTransport::add_rails(Rank rank, Peer& peer) {
  peer.rails.resize(devices_.size());
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (dead_[i]) continue;
    try {
      peer.rails[i].pair = std::make_unique<QueuePair>(*devices_[i], static_cast<std::uint8_t>(i));
    } catch (const VerbsFailure& failure) {
      events_.noted(fmt::format("rank {} has no queues to rank {} on {}: {}", rank_, rank,
                                devices_[i]->name(), failure.what()));
      continue;
    }
    Frame wire;
    wire.kind = FrameKind::wire;
    wire.endpoint = peer.rails[i].pair->endpoint();
    owner_.tells(rank, wire);
  }
}

void RdmaTransport::came(Rank from, const Frame& frame) {
  const std::size_t rail = frame.endpoint.rail;
  if (closed_) {
    if (frame.kind == FrameKind::wire) tell_unwired(from, rail, 0, "");
    return;
  }
  if (frame.kind == FrameKind::wire) wire_up(from);
  const auto known = peers_.find(from);
  if (known == peers_.end() || known->second.gone) return;
  Peer& peer = known->second;
  const bool has_rail = rail < peer.rails.size() && peer.rails[rail].pair;
  if (frame.kind == FrameKind::wire) {
    if (has_rail)
      take_wire(from, peer, frame.endpoint);
    else
      tell_unwired(from, rail, 0, rail < devices_.size() && dead_[rail] ? *dead_[rail] : "");
  } else if (frame.kind == FrameKind::wired && has_rail) {
    peer.rails[rail].wired = true;
    peer.rails[rail].pair->let_send();
  } else if (frame.kind == FrameKind::unwired && has_rail) {
    take_unwired(from, peer, frame);
  }
  tell_owner();
}

void RdmaTransport::take_wire(Rank from, Peer& peer, const Endpoint& theirs) {
  Rail& rail = peer.rails[theirs.rail];
  if (!rail.is_alive()) return;
  try {
    rail.pair->connect(theirs);
  } catch (const VerbsFailure& failure) {
    return end_rail(from, theirs.rail, failure.what());
  }
  Frame wired;
  wired.kind = FrameKind::wired;
  wired.endpoint.rail = theirs.rail;
  owner_.tells(from, wired);
}

// The peer receives nothing more, and says how much came: what has arrived is not sent again, the rest is given back.
void RdmaTransport::take_unwired(Rank from, Peer& peer, const Frame& frame) {
  const std::size_t number = frame.endpoint.rail;
  Rail& rail = peer.rails[number];
  poll(from, number);
  if (closed_) return;
  if (!rail.is_ending) end_rail(from, number, frame.text);
  for (const std::uint64_t tag : rail.pair->take_arrived(frame.came)) arrived(from, number, tag);
  give_back_flows_on(peer, number);
  rail = {};
}

void RdmaTransport::tell_unwired(Rank rank, std::size_t rail, std::uint64_t count, const std::string& why) {
  Frame frame;
  frame.kind = FrameKind::unwired;
  frame.endpoint.rail = static_cast<std::uint8_t>(rail);
  frame.came = count;
  frame.text = why;
  owner_.tells(rank, frame);
}

// Tells the owner what has changed: who can be reached, and which Puts go another way.
void RdmaTransport::tell_owner() {
  for (auto& [rank, peer] : peers_) {
    const Reach now = peer.gone ? Reach::none : reach(rank);
    if (std::exchange(peer.told, now) != now && now != Reach::wiring) owner_.reach_changed(rank);
  }
  for (const std::uint64_t number : std::exchange(given_back_, {})) owner_.gave_back(number);
}

// ---- failures

// Those that other rails have messages of wait until these have come: then nothing is written any more.
void RdmaTransport::give_back_flows_on(Peer& peer, std::size_t rail) {
  const bool has_others = std::any_of(peer.rails.begin(), peer.rails.end(),
                                      [](const Rail& each) { return each.is_alive() && each.wired; });
  for (auto entry = peer.flows.begin(); entry != peer.flows.end();) {
    Flow& flow = entry->second;
    if (has_others && flow.under_way[rail] == 0) {
      ++entry;
      continue;
    }
    flow.under_way[rail] = 0;
    flow.has_failed = true;
    std::erase(peer.turns, entry->first);
    if (!flow.is_at_rest()) {
      ++entry;
      continue;
    }
    given_back_.push_back(flow.put.number);
    entry = peer.flows.erase(entry);
  }
}

// This end is closed now. What was on its way is given back once the peer has said how much of it came. `why` is empty
// where nothing has failed.
void RdmaTransport::end_rail(Rank rank, std::size_t number, const std::string& why) {
  Rail& rail = peers_.at(rank).rails[number];
  rail.pair->stop(why);
  rail.is_ending = true;
  tell_unwired(rank, number, rail.pair->messages_came(), why);
  if (!why.empty())
    events_.noted(fmt::format("ranks {} and {} no longer use RDMA over {}: {}", rank_, rank,
                              devices_[number]->name(), why));
}

void RdmaTransport::look_after_devices() {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    devices_[i]->take_completion_events();
    for (const VerbsDevice::Event& event : devices_[i]->take_failures()) {
      if (!event.queue && !dead_[i]) dead_[i] = event.what;
      for (auto& [rank, peer] : peers_) {
        if (i >= peer.rails.size() || !peer.rails[i].is_alive()) continue;
        if (event.queue && *event.queue != peer.rails[i].pair->endpoint().queue) continue;
        poll(rank, i);  // what came before
        if (!closed_ && peer.rails[i].is_alive()) end_rail(rank, i, event.what);
      }
    }
  }
}

void RdmaTransport::forget(Rank peer) {
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  known->second.gone = true;
  for (Rail& rail : known->second.rails) {
    if (rail.pair) rail.pair->stop("the peer is gone");
    rail = {};
  }
  known->second.flows.clear();
  known->second.turns.clear();
}

void RdmaTransport::close() {
  if (std::exchange(closed_, true)) return;
  for (auto& [rank, peer] : peers_) {
    peer.flows.clear();
    peer.turns.clear();
    for (std::size_t i = 0; i < peer.rails.size(); ++i) {
      if (!peer.rails[i].pair || peer.rails[i].is_ending) continue;
      peer.rails[i].pair->stop("closed");
      tell_unwired(rank, i, peer.rails[i].pair->messages_came(), "");
    }
  }
}

// ---- data

void RdmaTransport::put(Rank rank, Put put) {
  Peer& peer = peers_.at(rank);
  const std::uint64_t number = next_flow_++;
  Flow& flow = peer.flows[number];
  flow.put = std::move(put);
  flow.under_way.resize(devices_.size());
  const Pieces& pieces = flow.put.pieces;
  flow.is_registered = !pieces.empty() && pieces.size() <= QueuePair::kPiecesOfMessage &&
                       std::all_of(pieces.begin(), pieces.end(),
                                   [&](const auto& piece) { return memory_with(piece) != nullptr; });
  peer.turns.push_back(number);
  fill(peer);
}

// Gives each rail as much as it takes. A faster rail has its slots free sooner, and takes more.
void RdmaTransport::fill(Peer& peer) {
  while (!peer.turns.empty()) {
    std::size_t best = peer.rails.size();
    for (std::size_t i = 0; i < peer.rails.size(); ++i) {
      const QueuePair* const pair = peer.rails[i].pair.get();
      if (pair == nullptr || !pair->can_send()) continue;
      if (best == peer.rails.size() || pair->credits() > peer.rails[best].pair->credits()) best = i;
    }
    if (best == peer.rails.size()) return;
    send_next(peer, best);
  }
}

// Sends a part of the Put whose turn it is.
void RdmaTransport::send_next(Peer& peer, std::size_t rail) {
  const std::uint64_t number = peer.turns.front();
  peer.turns.pop_front();
  Flow& flow = peer.flows.at(number);
  const RemoteMemory& place = flow.put.place;
  Frame frame = flow.put.frame;
  frame.is_written = rail < place.keys.size();
  const std::size_t whole = bytes_in(flow.put.pieces);
  const std::size_t most = frame.is_written && flow.is_registered ? QueuePair::kWritten : QueuePair::kSegment;
  frame.length = std::min(most, whole - flow.begun);
  frame.offset += flow.begun;
  const Pieces pieces = cut(flow.put.pieces, flow.begun, frame.length);
  std::vector<std::uint32_t> keys;
  if (flow.is_registered)
    for (const auto& piece : pieces) keys.push_back(memory_with(piece)->regions[rail]->lkey);
  std::optional<QueuePair::Target> target;
  if (frame.is_written) target = {place.address + frame.offset, place.keys[rail]};
  flow.begun += frame.length;
  flow.all_begun = flow.begun == whole;
  ++flow.under_way[rail];
  if (!flow.all_begun) peer.turns.push_back(number);
  peer.rails[rail].pair->send(frame, pieces, keys, target, number);
}

void RdmaTransport::arrived(Rank rank, std::size_t rail, std::uint64_t tag) {
  Peer& peer = peers_.at(rank);
  const auto entry = peer.flows.find(tag);
  if (entry == peer.flows.end()) return;  // it was forgotten
  Flow& flow = entry->second;
  --flow.under_way[rail];
  if (!flow.is_at_rest() || !(flow.all_begun || flow.has_failed)) return;
  const std::uint64_t number = flow.put.number;
  const bool has_failed = flow.has_failed;
  peer.flows.erase(entry);
  if (has_failed)
    given_back_.push_back(number);
  else
    events_.left(number);
}

// ---- memory

std::uint64_t RdmaTransport::register_memory(std::span<std::byte> bytes) {
  OwnersMemory memory{bytes, {}};
  for (const auto& device : devices_) {
    constexpr int kAccess = int{IBV_ACCESS_LOCAL_WRITE} | int{IBV_ACCESS_REMOTE_WRITE};
    ibv_mr* const region = ibv_reg_mr(device->domain(), bytes.data(), bytes.size(), kAccess);
    if (region == nullptr) {
      events_.noted(fmt::format("rank {} copies what it sends from {} bytes of its memory: {}", rank_,
                                bytes.size(), verbs_failure("ibv_reg_mr", errno).what()));
      return 0;
    }
    count_verbs_object(1);
    memory.regions.emplace_back(region);
  }
  const std::uint64_t number = next_memory_++;
  memory_.emplace(number, std::move(memory));
  return number;
}

const OwnersMemory* RdmaTransport::memory_with(std::span<const std::byte> bytes) const {
  for (const auto& [number, memory] : memory_)
    if (bytes.data() >= memory.bytes.data() &&
        bytes.data() + bytes.size() <= memory.bytes.data() + memory.bytes.size())
      return &memory;
  return nullptr;
}

RemoteMemory RdmaTransport::place_of(std::span<const std::byte> bytes) const {
  const OwnersMemory* const memory = memory_with(bytes);
  if (memory == nullptr) return {};
  RemoteMemory place{reinterpret_cast<std::uint64_t>(bytes.data()), {}};
  for (const VerbsRegion& region : memory->regions) place.keys.push_back(region->rkey);
  return place;
}

// ---- what comes

void RdmaTransport::Listener::came(const Frame& data, std::span<const std::byte> bytes) {
  const std::span<std::byte> place = transport.events_.place_for(peer, data);
  if (!data.is_written) std::copy_n(bytes.begin(), std::min(place.size(), bytes.size()), place.begin());
  Frame by_rdma = data;
  by_rdma.path = TransferPath::verbs;
  transport.events_.landed(peer, by_rdma);
}

void RdmaTransport::poll(Rank rank, std::size_t rail) {
  QueuePair* const pair = peers_.at(rank).rails[rail].pair.get();
  if (pair == nullptr) return;
  Listener listener(*this, rank, rail);
  pair->poll(listener);
  if (!closed_ && pair->broken() && !peers_.at(rank).rails[rail].is_ending)
    end_rail(rank, rail, std::string(*pair->broken()));
}

void RdmaTransport::progress() {
  if (closed_) return;
  look_after_devices();
  for (auto& [rank, peer] : peers_)
    for (std::size_t i = 0; i < peer.rails.size() && !closed_; ++i) {
      poll(rank, i);
      fill(peer);
    }
  if (!closed_) tell_owner();
}

std::vector<int> RdmaTransport::descriptors() const {
  std::vector<int> all;
  for (const auto& device : devices_)
    for (const int descriptor : device->descriptors()) all.push_back(descriptor);
  return all;
}

}  // namespace

std::unique_ptr<VerbsTransport> open_verbs(const VerbsOptions& options, TransportEvents& events,
                                           VerbsEvents& owner) {
  std::vector<std::string> complaints;
  auto devices = open_devices(options.devices, complaints);
  for (const std::string& each : complaints) events.noted(each);
  if (devices.empty()) return nullptr;
  if (devices.size() > kRailsMost) devices.resize(kRailsMost);
  return std::make_unique<RdmaTransport>(options.rank, std::move(devices), events, owner);
}

int living_verbs_objects() { return count_verbs_object(0); }

}  // namespace motley
