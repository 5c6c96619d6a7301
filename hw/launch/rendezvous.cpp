#include "hw/launch/rendezvous.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kProtocol = 1;
constexpr std::uint32_t kHelloBytesMax = 1U << 16U;  // any process may connect and send any four bytes

std::string read_message(const Socket& socket, double timeout_s, std::uint32_t bytes_max) {
  std::uint32_t length = 0;
  socket.read_all(std::as_writable_bytes(std::span(&length, 1)), timeout_s);
  if (length > bytes_max) throw SocketFailure(SocketEnd::closed, "not a message of ours");
  std::string message(length, '\0');
  socket.read_all(std::as_writable_bytes(std::span(message)), timeout_s);
  return message;
}

void write_message(const Socket& socket, double timeout_s, const std::string& message) {
  const auto length = static_cast<std::uint32_t>(message.size());
  socket.write_all(std::as_bytes(std::span(&length, 1)), timeout_s);
  socket.write_all(std::as_bytes(std::span(message)), timeout_s);
}

struct Member {
  json hello;
  Socket socket;
};

// Says why a process does not belong to this job; none: it does. Rank 0 sends the reason to all ranks, and every rank
// throws it.
std::optional<json> complaint(const RendezvousOptions& mine, const json& hello) {
  const auto differs = [&](const char* kind, const char* what, const json& theirs, const json& ours,
                           const char* hint) {
    return json{{"kind", kind},
                {"message", fmt::format("rank {} has {} {}, rank 0 has {}", hello["rank"].dump(), what,
                                        theirs.is_string() ? theirs.get<std::string>() : theirs.dump(),
                                        ours.is_string() ? ours.get<std::string>() : ours.dump())},
                {"hint", hint}};
  };
  if (hello["protocol"] != kProtocol)
    return differs("binary-differs", "protocol", hello["protocol"], kProtocol,
                   "install the same build everywhere");
  if (hello["binary"] != mine.binary_hash)
    return differs("binary-differs", "binary", hello["binary"], mine.binary_hash,
                   "install the same build everywhere");
  if (hello["rank_count"] != mine.rank_count)
    return differs("rank-conflict", "a rank count of", hello["rank_count"], mine.rank_count,
                   "start every rank of one job with the same count");
  if (hello["program"] != mine.program_hash)
    return differs("program-differs", "Program", hello["program"], mine.program_hash,
                   "start every rank with the same scenario and the same options");
  return std::nullopt;
}

std::optional<json> parse_hello(const std::string& text) {
  const json hello = json::parse(text, nullptr, false);
  if (!hello.is_object()) return std::nullopt;
  for (const char* key : {"protocol", "rank", "rank_count", "port"})
    if (!hello.contains(key) || !hello[key].is_number_integer()) return std::nullopt;
  for (const char* key : {"binary", "program"})
    if (!hello.contains(key) || !hello[key].is_string()) return std::nullopt;
  return hello;
}

[[noreturn]] void refuse(const json& why) {
  throw Refusal(Exit::infeasible, why.at("kind"), {}, why.at("message"), why.at("hint"));
}

}  // namespace

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string hash_of_this_binary() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

Rendezvous::Rendezvous(const RendezvousOptions& options) : options_(options) {
  try {
    options_.rank == kLeader ? lead() : follow();
  } catch (const SocketFailure& failure) {
    throw RunFailure(fmt::format("rank {}: at the rendezvous {}:{}: {}", options_.rank, options_.at.host,
                                 options_.at.port, failure.what()));
  }
}

void Rendezvous::lead() {
  const Socket door = options_.listener >= 0 ? adopt_listener(options_.listener) : listen_on(options_.at);
  listener_ = listen_on({});
  members_.resize(static_cast<std::size_t>(options_.rank_count));
  addresses_.resize(members_.size());
  addresses_[kLeader] = {options_.at.host, listener_.local_port()};
  std::optional<json> refused;
  const double until_s = monotonic_s() + options_.timeout_s;
  for (std::int32_t arrived = 1; arrived < options_.rank_count;) {
    Socket socket;
    std::optional<json> hello;
    try {
      socket = accept_from(door, until_s - monotonic_s());
    } catch (const SocketFailure&) {
      std::vector<Rank> missing;
      for (Rank rank : members_.ids())
        if (rank != kLeader && !members_[rank].open()) missing.push_back(rank);
      throw RunFailure(fmt::format("rank 0: rank {} did not come to {}:{} within {} s",
                                   fmt::join(missing, ", "), options_.at.host, options_.at.port,
                                   options_.timeout_s));
    }
    try {
      hello = parse_hello(read_message(socket, 5.0, kHelloBytesMax));
    } catch (const SocketFailure&) {
    }
    if (!hello) continue;  // not a process of this job
    if (!refused) refused = complaint(options_, *hello);
    const std::int64_t number = (*hello)["rank"];
    const Rank rank(number);
    const bool known = number > 0 && number < options_.rank_count && !members_[rank].open();
    if (!known) {
      if (!refused)
        refused =
            json{{"kind", "rank-conflict"},
                 {"message", fmt::format("rank {} of {} came twice or is none", number, options_.rank_count)},
                 {"hint", "give every process a rank of its own, from 0"}};
      write_message(socket, options_.timeout_s, json{{"refused", *refused}}.dump());
      break;
    }
    addresses_[rank] = {socket.peer_host(), (*hello)["port"]};
    members_[rank] = std::move(socket);
    ++arrived;
  }
  json answer = json::object();
  for (const Address& address : addresses_) answer["addresses"].push_back({address.host, address.port});
  if (refused) answer = {{"refused", *refused}};
  for (const Socket& member : members_)
    if (member.open()) write_message(member, options_.timeout_s, answer.dump());
  if (refused) refuse(*refused);
}

void Rendezvous::follow() {
  listener_ = listen_on({});
  members_.add(connect_to(options_.at, options_.timeout_s));
  const json hello = {{"protocol", kProtocol},
                      {"rank", options_.rank},
                      {"rank_count", options_.rank_count},
                      {"binary", options_.binary_hash},
                      {"program", options_.program_hash},
                      {"port", listener_.local_port()}};
  write_message(members_[kLeader], options_.timeout_s, hello.dump());
  // Rank 0 answers when the last rank has come, which may take its whole timeout.
  const json answer = json::parse(read_message(members_[kLeader], 2 * options_.timeout_s, kMessageBytesMax));
  if (answer.contains("refused")) refuse(answer["refused"]);
  for (const json& address : answer["addresses"]) addresses_.add({address[0], address[1]});
  addresses_[kLeader].host = options_.at.host;
}

std::string Rendezvous::receive(const Socket& socket, Rank rank) const {
  try {
    // Assumes: no rank is a whole day behind. The connection of a dead peer closes long before.
    return read_message(socket, 86400.0, kMessageBytesMax);
  } catch (const SocketFailure& failure) {
    throw RunFailure(fmt::format("rank {}: rank {} is gone ({})", options_.rank, rank, failure.what()));
  }
}

void Rendezvous::send(const Socket& socket, Rank rank, const std::string& message) const {
  try {
    write_message(socket, options_.timeout_s, message);
  } catch (const SocketFailure& failure) {
    throw RunFailure(fmt::format("rank {}: rank {} is gone ({})", options_.rank, rank, failure.what()));
  }
}

IdTable<Rank, std::string> Rendezvous::gather(const std::string& mine) {
  if (options_.rank != kLeader) {
    send(members_[kLeader], kLeader, mine);
    return {};
  }
  IdTable<Rank, std::string> all = {mine};
  for (Rank rank : members_.ids())
    if (rank != kLeader) all.add(receive(members_[rank], rank));
  return all;
}

std::string Rendezvous::release(const std::string& message) {
  if (options_.rank != kLeader) return receive(members_[kLeader], kLeader);
  for (Rank rank : members_.ids())
    if (rank != kLeader) send(members_[rank], rank, message);
  return message;
}

void Rendezvous::barrier() {
  gather("");
  release("");
}

double Rendezvous::start_clock() {
  gather("");
  const double mine_s = monotonic_s();
  const std::string host = boot_id();
  const json started = json::parse(release(json{{"host", host}, {"at_s", mine_s}}.dump()));
  return started["host"] == host ? started["at_s"].get<double>() : monotonic_s();
}

}  // namespace motley
