#include "hw/launch/hello.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace motley {
namespace {

using nlohmann::json;

constexpr int kProtocol = 3;
constexpr const char* kSameBuild = "install the same build everywhere";
constexpr const char* kSameJob = "start every rank with the same scenario, text and options";

// A value may be as long as a list of documents, and a hello is short.
std::string as_told(const std::string& value) {
  constexpr std::size_t kWhole = 200, kBegin = 100;
  if (value.size() <= kWhole) return value;
  return fmt::format("{}... (hash {:016x})", value.substr(0, kBegin),
                     XXH3_64bits(value.data(), value.size()));
}

json told(const Agreement& alike) {
  json list = json::array();
  for (const Agreed& each : alike) list.push_back({each.name, as_told(each.value)});
  return list;
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

struct Unlike {
  json rank;
  std::string what;
  json theirs, ours;
};

Refusal differs(const char* kind, const Unlike& unlike, const std::string& hint,
                RefusalSite site = RefusalSite::here()) {
  return Refusal(Exit::infeasible, kind, {},
                 fmt::format("rank {} has {} {}, rank 0 has {}", unlike.rank.dump(), unlike.what,
                             text_of(unlike.theirs), text_of(unlike.ours)),
                 hint, site);
}

// What the rank has where it differs in one of the things that ranks must have alike: the first of them with both
// values, the others by name.
std::optional<Unlike> find_unlike(const Agreement& alike, const json& hello) {
  const json mine = told(alike), &theirs = hello["alike"];
  std::optional<Unlike> first;
  std::string others;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const json value = i < theirs.size() && theirs[i][0] == mine[i][0] ? theirs[i][1] : json("nothing");
    if (value == mine[i][1]) continue;
    if (first)
      others += fmt::format("{}{}", others.empty() ? "; it also has another " : ", ", text_of(mine[i][0]));
    else
      first = {hello["rank"], text_of(mine[i][0]), value, mine[i][1]};
  }
  if (!first && theirs.size() > mine.size())
    first = {hello["rank"], text_of(theirs[mine.size()][0]), theirs[mine.size()][1], "nothing"};
  if (first) first->ours = text_of(first->ours) + others;
  return first;
}

// Says why a process does not belong to this job; none: it does.
std::optional<Refusal> complaint(const RendezvousOptions& mine, const json& hello) {
  const json& rank = hello["rank"];
  if (hello["protocol"] != kProtocol)
    return differs("binary-differs", {rank, "protocol", hello["protocol"], kProtocol}, kSameBuild);
  if (hello["binary"] != mine.binary_hash)
    return differs("binary-differs", {rank, "binary", hello["binary"], mine.binary_hash}, kSameBuild);
  if (hello["rank_count"] != mine.rank_count)
    return differs("rank-conflict", {rank, "a rank count of", hello["rank_count"], mine.rank_count},
                   "start every rank of one job with the same count");
  if (const std::optional<Unlike> unlike = find_unlike(mine.alike, hello))
    return differs("run-differs", *unlike, kSameJob);
  if (hello["program"] != mine.program_hash)
    return differs("program-differs", {rank, "Program", hello["program"], mine.program_hash},
                   "start every rank with the same scenario and the same options");
  return std::nullopt;
}

bool is_agreement(const json& list) {
  if (!list.is_array()) return false;
  for (const json& each : list)
    if (!each.is_array() || each.size() != 2 || !each[0].is_string() || !each[1].is_string()) return false;
  return true;
}

std::optional<json> parse_hello(const std::string& text) {
  json hello = json::parse(text, nullptr, false);
  if (!hello.is_object()) return std::nullopt;
  if (!hello.contains("alike")) hello["alike"] = json::array();  // it speaks an older protocol
  for (const char* key : {"protocol", "rank", "rank_count", "port"})
    if (!hello.contains(key) || !hello[key].is_number_integer()) return std::nullopt;
  for (const char* key : {"binary", "program", "memory"})
    if (!hello.contains(key) || !hello[key].is_string()) return std::nullopt;
  if (!is_agreement(hello["alike"])) return std::nullopt;
  return hello;
}

}  // namespace

std::string told_to_all(const Refusal& refusal) {
  note_sites(refusal);
  return json{{"kind", refusal.kind()}, {"message", refusal.message()}, {"hint", refusal.hint()}}.dump();
}

std::string write_hello(const RendezvousOptions& mine, std::uint16_t port, const std::string& memory) {
  return json{{"protocol", kProtocol},
              {"rank", mine.rank.value()},
              {"rank_count", mine.rank_count},
              {"binary", mine.binary_hash},
              {"program", mine.program_hash},
              {"alike", told(mine.alike)},
              {"port", port},
              {"memory", memory}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
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
  if (const std::optional<Refusal> refused = complaint(mine, *fields)) hello.refused = told_to_all(*refused);
  return hello;
}

}  // namespace motley
