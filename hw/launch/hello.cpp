#include "hw/launch/hello.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace motley {
namespace {

using nlohmann::json;

constexpr int kProtocol = 2;

// Says why a process does not belong to this job; none: it does.
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
  for (const char* key : {"binary", "program", "memory"})
    if (!hello.contains(key) || !hello[key].is_string()) return std::nullopt;
  return hello;
}

}  // namespace

std::string write_hello(const RendezvousOptions& mine, std::uint16_t port, const std::string& memory) {
  return json{{"protocol", kProtocol},
              {"rank", mine.rank.value()},
              {"rank_count", mine.rank_count},
              {"binary", mine.binary_hash},
              {"program", mine.program_hash},
              {"port", port},
              {"memory", memory}}
      .dump();
}

std::optional<Hello> read_hello(const std::string& text, const RendezvousOptions& mine) {
  const std::optional<json> fields = parse_hello(text);
  if (!fields) return std::nullopt;
  const json& port = (*fields)["port"];
  if (port < 1 || port > std::numeric_limits<std::uint16_t>::max()) return std::nullopt;
  Hello hello;
  hello.rank = (*fields)["rank"];
  hello.port = port;
  hello.memory = (*fields)["memory"];
  if (const std::optional<json> refused = complaint(mine, *fields)) hello.refused = refused->dump();
  return hello;
}

}  // namespace motley
