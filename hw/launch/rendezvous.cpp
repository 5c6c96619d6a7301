#include "hw/launch/rendezvous.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "hw/launch/hello.hpp"
#include "hw/transport/host_id.hpp"
#include "hw/transport/shm/peer_memory.hpp"
#include "hw/transport/wire.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

using nlohmann::json;

constexpr std::uint32_t kHelloBytesMax = 1U << 16U;
constexpr int kClockExchanges = 40;
constexpr double kHello_s = 10;  // one of the job that has come says so at once

json json_of(const PeerPlace& place) { return {place.address.host, place.address.port, place.domain}; }
PeerPlace place_of(const json& fields) { return {{fields.at(0), fields.at(1)}, fields.at(2)}; }

// What rank 0 answers a hello, or a Refusal as it tells it; nothing: it is neither.
std::optional<json> read_answer(const std::string& text, std::int32_t rank_count) {
  const json answer = json::parse(text, nullptr, false);
  if (!answer.is_object()) return std::nullopt;
  if (answer.contains("refused")) {
    const json& why = answer["refused"];
    for (const char* key : {"kind", "message", "hint"})
      if (!why.is_object() || !why.contains(key) || !why[key].is_string()) return std::nullopt;
    return answer;
  }
  if (!answer.contains("places") || !answer["places"].is_array() ||
      answer["places"].size() != static_cast<std::size_t>(rank_count))
    return std::nullopt;
  for (const json& place : answer["places"]) {
    if (!place.is_array() || place.size() != 3 || !place[0].is_string() || !place[2].is_string())
      return std::nullopt;
    if (!place[1].is_number_unsigned() || place[1] > std::numeric_limits<std::uint16_t>::max())
      return std::nullopt;
  }
  return answer;
}

// One of the job that has not said yet who it is. It keeps nobody waiting.
class Newcomer {
 public:
  explicit Newcomer(Door::Guest its) : guest(std::move(its)), until_s_(monotonic_s() + kHello_s) {}
  // Reads what there is. Returns whether nothing more will come.
  bool advance() {
    if (guest.introduction.purpose != ConnectionPurpose::rendezvous || monotonic_s() > until_s_) return true;
    try {
      while (came_ < message_.size()) {
        const std::size_t read = guest.socket.read_some(std::span(message_).subspan(came_));
        if (read == 0) return false;
        came_ += read;
        const std::uint32_t length = WireReader(message_).number<std::uint32_t>();
        if (came_ == sizeof length && length > kHelloBytesMax) return true;
        if (came_ == sizeof length)
          message_.resize(sizeof length + length);  // little, as kHelloBytesMax says
      }
    } catch (const SocketFailure&) {  // it has gone
      return true;
    }
    const auto rest = std::span(message_).subspan(sizeof(std::uint32_t));
    text_ = std::string(reinterpret_cast<const char*>(rest.data()), rest.size());
    return true;
  }
  const std::optional<std::string>& text() const { return text_; }  // nothing: it has said none

  Door::Guest guest;

 private:
  double until_s_;
  std::vector<std::byte> message_ = std::vector<std::byte>(sizeof(std::uint32_t));
  std::size_t came_ = 0;
  std::optional<std::string> text_;
};

// Rank 0 has noted where the message was written.
[[noreturn]] void refuse(const json& why) {
  throw Refusal(Exit::infeasible, why.at("kind"), {}, why.at("message"), why.at("hint"), RefusalSite{});
}

}  // namespace

std::string hash_of_this_binary() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

Rendezvous::Rendezvous(const RendezvousOptions& options)
    : options_(options), connections_(std::make_unique<Connections>(connections_options())) {
  try {
    options_.rank == kLeader ? lead() : follow();
  } catch (const SocketFailure& failure) {
    const bool leads = options_.rank == kLeader;
    throw RunFailure(fmt::format("rank {}: {}at the rendezvous {}: {}", options_.rank,
                                 leads ? "" : "rank 0 does not let it in ", print(options_.at),
                                 failure.what()));
  }
}

void Rendezvous::lead() {
  Socket own_door = options_.listener >= 0 ? adopt_listener(options_.listener) : listen_on(options_.at);
  listener_ = listen_on({own_door.local_host(), 0});
  places_.resize(static_cast<std::size_t>(options_.rank_count));
  places_[kLeader] = {{options_.at.host, listener_.local_port()}, memory_domain()};
  Door door(std::move(own_door), options_.token, options_.on_note);
  const double until_s = monotonic_s() + options_.timeout_s;
  std::list<Newcomer> newcomers;
  while (arrived_ < options_.rank_count && refused_.empty()) {
    for (Door::Guest& guest : door.admit()) newcomers.emplace_back(std::move(guest));
    for (auto each = newcomers.begin(); each != newcomers.end() && refused_.empty();) {
      const bool ended = each->advance();
      if (ended && each->text()) admit(std::move(each->guest), *each->text());
      each = ended ? newcomers.erase(each) : std::next(each);
    }
    if (arrived_ == options_.rank_count || !refused_.empty()) break;
    if (const auto why = connections_->failure()) throw RunFailure("rank 0: " + *why);
    if (monotonic_s() > until_s) fail_without_missing();
    std::vector<pollfd> waiting = {{door.descriptor(), POLLIN, 0}};
    for (const Newcomer& each : newcomers) waiting.push_back({each.guest.socket.descriptor(), POLLIN, 0});
    poll(waiting.data(), waiting.size(), 100);
  }
  tell_all();
}

void Rendezvous::fail_without_missing() {
  std::vector<Rank> missing;
  for (const Rank rank : places_.ids())
    if (rank != kLeader && !connections_->has(rank)) missing.push_back(rank);
  const std::string why = fmt::format("rank 0: rank {} did not come to {} within {} s",
                                      fmt::join(missing, ", "), print(options_.at), options_.timeout_s);
  connections_->fail(why);
  throw RunFailure(why);
}

void Rendezvous::admit(Door::Guest guest, const std::string& text) {
  const std::optional<Hello> hello = read_hello(text, options_);
  if (!hello) return;  // it is no rank
  std::string refused = hello->refused;
  const std::int64_t number = hello->rank;
  const bool known = number > 0 && number < options_.rank_count && !connections_->has(Rank(number));
  if (!known && refused.empty())
    refused =
        told_to_all(Refusal(Exit::infeasible, "rank-conflict", {},
                            fmt::format("rank {} of {} came twice or is none", number, options_.rank_count),
                            "give every process a rank of its own, from 0"));
  if (!refused.empty()) refused_ = refused;
  if (!known) {
    ConnectionsOptions alone = connections_options();
    alone.on_overdue = nullptr;
    Connections to_it(alone);
    to_it.add(Rank(0), std::move(guest.socket));
    try {
      to_it.send(Rank(0), json{{"refused", json::parse(refused)}}.dump());
    } catch (const RunFailure&) {  // it has gone
    }
    return;
  }
  const Rank rank(number);
  places_[rank] = {{guest.host, hello->port}, hello->memory};
  connections_->add(rank, std::move(guest.socket));
  ++arrived_;
}

// Tells every rank that has come where all are, or why the job is refused.
void Rendezvous::tell_all() {
  json answer = json::object();
  for (const PeerPlace& place : places_) answer["places"].push_back(json_of(place));
  if (!refused_.empty()) answer = {{"refused", json::parse(refused_)}};
  for (const Rank rank : places_.ids())
    if (rank != kLeader && connections_->has(rank)) try {
        connections_->send(rank, answer.dump());
      } catch (const RunFailure&) {
        if (refused_.empty()) throw;  // else it has gone, and the others are refused all the same
      }
  if (refused_.empty()) return;
  connections_->leave();
  refuse(answer["refused"]);
}

void Rendezvous::follow() {
  Socket leader = dial(options_.at, options_.token,
                       {ConnectionPurpose::rendezvous, options_.rank, kLeader, 0}, options_.timeout_s);
  listener_ = listen_on({leader.local_host(), 0});  // where the others can reach this rank, too
  WireWriter hello;
  const std::string text = write_hello(options_, listener_.local_port(), memory_domain());
  hello.add(static_cast<std::uint32_t>(text.size()));
  hello.add(std::as_bytes(std::span(text)));
  leader.write_all(hello.bytes(), options_.timeout_s);
  connections_->add(kLeader, std::move(leader));
  // Rank 0 answers when the last rank has come.
  const std::optional<json> answer = read_answer(connections_->receive(kLeader), options_.rank_count);
  if (!answer)
    throw RunFailure(fmt::format("rank {}: who listens at {} says nothing that rank 0 would", options_.rank,
                                 print(options_.at)));
  if (answer->contains("refused")) {
    connections_->leave();
    refuse((*answer)["refused"]);
  }
  for (const json& place : (*answer)["places"]) places_.add(place_of(place));
  places_[kLeader].address.host = options_.at.host;
}

ConnectionsOptions Rendezvous::connections_options() const {
  // Rank 0 answers when the last rank has come, which may take its whole timeout.
  return {options_.rank, options_.silence_s, 2 * options_.timeout_s, options_.on_overdue};
}

std::map<Rank, PeerPlace> Rendezvous::peers() const {
  std::map<Rank, PeerPlace> peers;
  for (const Rank rank : places_.ids())
    if (rank != options_.rank) peers[rank] = places_[rank];
  return peers;
}

IdTable<Rank, Socket> Rendezvous::take_connections() {
  IdTable<Rank, Socket> sockets;
  if (options_.rank == kLeader) sockets.resize(places_.size());
  for (auto& [rank, socket] : connections_->take())
    if (options_.rank == kLeader)
      sockets[rank] = std::move(socket);
    else
      sockets.add(std::move(socket));
  return sockets;
}

IdTable<Rank, std::string> Rendezvous::gather(const std::string& mine) {
  if (options_.rank != kLeader) {
    connections_->send(kLeader, mine);
    return {};
  }
  IdTable<Rank, std::string> all = {mine};
  for (const Rank rank : places_.ids())
    if (rank != kLeader) all.add(connections_->receive(rank));
  return all;
}

std::string Rendezvous::release(const std::string& message) {
  if (options_.rank != kLeader) return connections_->receive(kLeader);
  for (const Rank rank : places_.ids())
    if (rank != kLeader) connections_->send(rank, message);
  return message;
}

void Rendezvous::barrier() {
  gather("");
  release("");
}

// ---- clocks

void Rendezvous::tell_clock(Rank rank) const {
  for (int i = 0; i < kClockExchanges; ++i) {
    connections_->receive(rank);
    std::array<double, 2> times{monotonic_s(), 0};
    std::string answer(sizeof times, '\0');
    times[1] = monotonic_s();
    std::memcpy(answer.data(), times.data(), sizeof times);
    connections_->send(rank, answer);
  }
}

ClockReading Rendezvous::ask_clock() const {
  std::vector<ClockExchange> exchanges;
  for (int i = 0; i < kClockExchanges; ++i) {
    const double sent_s = monotonic_s();
    connections_->send(kLeader, "clock");
    const std::string answer = connections_->receive(kLeader);
    const double received_s = monotonic_s();
    std::array<double, 2> times{};
    MOTLEY_CHECK(answer.size() == sizeof times);
    std::memcpy(times.data(), answer.data(), sizeof times);
    exchanges.push_back({sent_s, times[0], times[1], received_s});
  }
  return read_clock(exchanges);
}

// One rank of each host asks rank 0, one after the other, and all ranks of the host are told.
ClockReading Rendezvous::read_clocks() {
  const std::string host = host_id();
  const IdTable<Rank, std::string> hosts = gather(host);
  json asking = json::array();
  std::set<std::string> known;
  for (const Rank rank : hosts.ids())
    if (known.insert(hosts[rank]).second && rank != kLeader) asking.push_back(rank.value());
  asking = json::parse(release(asking.dump()));
  ClockReading mine;
  if (asking.empty()) return mine;
  bool asks = false;
  for (const json& each : asking) {
    const Rank rank(each.get<std::int64_t>());
    if (options_.rank == kLeader) tell_clock(rank);
    if (options_.rank == rank) mine = ask_clock();
    asks = asks || options_.rank == rank;
  }
  json readings = json::object();
  for (const std::string& each :
       gather(json{host, asks, mine.at_s, mine.offset_s, mine.uncertainty_s}.dump()))
    if (const json reading = json::parse(each); reading[1]) readings[reading[0].get<std::string>()] = reading;
  readings = json::parse(release(readings.dump()));
  if (const auto reading = readings.find(host); reading != readings.end())
    mine = {(*reading)[2], (*reading)[3], (*reading)[4]};
  return mine;
}

double Rendezvous::start_clock() {
  clock_.before = clock_.after = read_clocks();
  gather("");
  const double zero_s = json::parse(release(json(monotonic_s()).dump()));
  return clock_.zero_s = zero_s - clock_.before.offset_s;
}

SharedClock Rendezvous::clock() {
  clock_.after = read_clocks();
  return clock_;
}

}  // namespace motley
