// motley bench comm: how fast ranks of this host, or of the hosts of a launch, talk: sizes by operations by paths. Each
// number is a median; nothing is compared here (tools/bench comm does, with other libraries in the same run). Read
// next: hw/calibration/time_calls.hpp.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hw/calibration/host_facts.hpp"
#include "hw/calibration/time_calls.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/world/met_ranks.hpp"
#include "models/base/index.hpp"
#include "models/base/json_text.hpp"
#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/measure_transfers.hpp"
#include "tools/commands/place_flags.hpp"
#include "tools/commands/predict_calls.hpp"

namespace motley {
namespace {

struct BenchArguments {
  std::string what = "comm", operations = "message,all_reduce,all_gather,reduce_scatter,all_to_all",
              algorithms, paths = "shm,tcp", memory = "host", bytes = "8 B,1 KiB,32 KiB,1 MiB,16 MiB";
  std::string cluster;  // empty: not given
  int ranks = 2;
  PlaceFlags place;
  double seconds_a_time = 0.02;
  bool json = false;
};

std::vector<std::string> words_in(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string word = list.substr(begin, end - begin);
    word.erase(0, word.find_first_not_of(' '));
    if (!word.empty()) words.push_back(word);
    begin = end + 1;
  }
  return words;
}

template <class T, class Parse>
std::vector<T> choices(const char* option, const std::string& list, const std::vector<std::string>& known,
                       const Parse& parse) {
  std::vector<T> values;
  for (const std::string& word : words_in(list)) {
    if (std::find(known.begin(), known.end(), word) == known.end())
      throw Refusal(Exit::usage, "unknown-choice", {},
                    fmt::format("{}: `{}` is none of its words", option, word), suggest(word, known));
    values.push_back(parse(word));
  }
  if (values.empty())
    throw Refusal(Exit::usage, "unknown-choice", {}, fmt::format("{}: the list is empty", option),
                  suggest("", known));
  return values;
}

std::size_t bytes_of(const std::string& word) {
  constexpr double kMost = 64e9;
  std::string why;
  const auto bytes = parse_quantity(word, Dimension::bytes, why);
  if (!bytes)
    throw Refusal(Exit::usage, "bad-size", {}, fmt::format("--bytes: {}", why), "for example 8 B,16 MiB");
  if (*bytes < 0 || *bytes > kMost)
    throw Refusal(Exit::usage, "bad-size", {}, fmt::format("--bytes: `{}`", word), "from 0 B to 64 GB");
  return static_cast<std::size_t>(*bytes);
}

template <Worded E>
std::vector<std::string> words_of() {
  std::vector<std::string> words;
  for (const E each : every<E>()) words.emplace_back(name_of(each));
  return words;
}

constexpr std::array kCollectives = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                     CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};

TimeCallsOptions read_options(const BenchArguments& arguments) {
  TimeCallsOptions options;
  std::vector<std::string> operations = {"message"};
  for (const CollectiveKind kind : kCollectives) operations.emplace_back(name_of(kind));
  options.kinds =
      choices<std::optional<CollectiveKind>>("--operations", arguments.operations, operations,
                                             [](const std::string& word) -> std::optional<CollectiveKind> {
                                               for (const CollectiveKind kind : kCollectives)
                                                 if (name_of(kind) == word) return kind;
                                               return std::nullopt;
                                             });
  if (!arguments.algorithms.empty())
    options.algorithms = choices<CollectiveAlgorithm>(
        "--algorithms", arguments.algorithms, words_of<CollectiveAlgorithm>(),
        [](const std::string& word) { return parse_word<CollectiveAlgorithm>(word).value(); });
  options.paths = choices<Path>("--paths", arguments.paths, words_of<Path>(),
                                [](const std::string& word) { return parse_word<Path>(word).value(); });
  options.memories =
      choices<MemoryKind>("--memory", arguments.memory, words_of<MemoryKind>(),
                          [](const std::string& word) { return parse_word<MemoryKind>(word).value(); });
  for (const std::string& word : words_in(arguments.bytes)) options.bytes.push_back(bytes_of(word));
  options.seconds_a_time = arguments.seconds_a_time;
  return options;
}

std::string operation_of(const TimedCall& call) {
  return call.kind ? std::string(name_of(*call.kind)) : "message";
}

// What a person reads of how a call was done: "automatic: recursive", or to which rank a message went.
std::string how_of(const TimedCall& call) {
  if (!call.kind) return fmt::format("to rank {}, {}", call.peer, call.leaves_host ? "far" : "near");
  if (call.chosen == call.algorithm) return std::string(name_of(call.algorithm));
  return fmt::format("{}: {}", name_of(call.algorithm), name_of(call.chosen));
}

std::string microseconds(double seconds) { return fmt::format("{:.2f} us", seconds * 1e6); }

// The columns of a line; the last one only where a cluster predicts.
constexpr const char* kLine = "{:<15} {:<24} {:<5} {:<7} {:>10} {:>14} {:>10} {:>10} {:>9} {:>8}{}\n";

std::string to_text(const TimedCall& call, int ranks, const PredictedCalls* predicted) {
  const auto expected_s = predicted != nullptr ? predicted->seconds_of(call) : std::nullopt;
  return fmt::format(
      kLine, operation_of(call), how_of(call), print(call.taken), name_of(call.memory), call.bytes,
      microseconds(call.seconds), fmt::format("{:.4f}", call.algorithm_bandwidth() / 1e9),
      fmt::format("{:.4f}", call.bus_bandwidth(ranks) / 1e9),
      fmt::format("{:.3f}", call.bytes > 0 ? call.cpu_s / static_cast<double>(call.bytes) * 1e9 : 0),
      fmt::format("{:.1f} %", call.spread * 100),
      expected_s ? fmt::format(" {:>14}", microseconds(*expected_s)) : "");
}

// What was timed, on which hosts, and what a cluster predicts.
struct Benched {
  std::vector<TimedCall> calls;
  int ranks = 0, hosts = 0, per_host = 1;
  std::string machine = {};                   // the kind of all hosts; empty: they are unlike
  const PredictedCalls* predicted = nullptr;  // null: no cluster was given
};

std::string to_json(const Benched& benched) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TimedCall& call : benched.calls) {
    nlohmann::ordered_json entry = {{"operation", operation_of(call)},
                                    {"algorithm", call.kind ? name_of(call.algorithm) : ""},
                                    {"allowed", name_of(call.path)},
                                    {"path", print(call.taken)},
                                    {"memory", name_of(call.memory)},
                                    {"bytes", call.bytes},
                                    {"seconds", call.seconds},
                                    {"spread", call.spread},
                                    {"algbw_bytes_per_s", call.algorithm_bandwidth()},
                                    {"busbw_bytes_per_s", call.bus_bandwidth(benched.ranks)},
                                    {"cpu_s", call.cpu_s}};
    if (call.kind) entry["chosen"] = name_of(call.chosen);
    if (!call.kind) entry["peer"] = call.peer;
    if (!call.kind) entry["leaves_host"] = call.leaves_host;
    if (call.between_hosts_bytes) entry["between_hosts_bytes"] = *call.between_hosts_bytes;
    if (benched.predicted != nullptr)
      if (const auto seconds = benched.predicted->seconds_of(call)) entry["predicted_s"] = *seconds;
    list.push_back(std::move(entry));
  }
  return json_text(nlohmann::ordered_json{{"schema", "motley.bench_comm/1"},
                                          {"ranks", benched.ranks},
                                          {"hosts", benched.hosts},
                                          {"ranks_per_host", benched.per_host},
                                          {"machine", benched.machine},
                                          {"calls", list}});
}

// Counts what this rank sends to ranks of other hosts.
class SentBetweenHosts {
 public:
  SentBetweenHosts(const std::vector<std::string>& hosts, Rank mine)
      : hosts_(hosts), mine_(hosts[at(mine.value())]) {}
  void count(const SendOrder& order) {
    if (hosts_[at(order.to.value())] == mine_) return;
    for (const auto& piece : order.pieces) bytes_ += piece.size();
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const std::vector<std::string>& hosts_;
  const std::string& mine_;
  std::atomic<std::uint64_t> bytes_ = 0;
};

Exit run_rank(const Place& place, const BenchArguments& arguments, TimeCallsOptions options) {
  constexpr double kSilence_s = 120;
  const bool tells = place.rank == kLeader;
  std::optional<PredictedCalls> predicted;
  if (!arguments.cluster.empty()) predicted.emplace(arguments.cluster, place.rank_count);
  if (predicted && tells) predicted->simulate(options);  // before this process has threads
  RendezvousOptions meeting = rendezvous_of(place, "bench comm", kSilence_s);
  meeting.silence_s = kSilence_s;
  meeting.alike = {{"--operations", arguments.operations},
                   {"--algorithms", arguments.algorithms},
                   {"--paths", arguments.paths},
                   {"--memory", arguments.memory},
                   {"--bytes", arguments.bytes},
                   {"--seconds-a-time", fmt::format("{}", arguments.seconds_a_time)},
                   {"--cluster", arguments.cluster.empty() ? "not given" : "given"}};
  Rendezvous rendezvous(meeting);
  options.hosts = hosts_of(rendezvous);
  if (predicted) predicted->require(inventory_of(rendezvous));
  Benched benched{.calls = {},
                  .ranks = place.rank_count,
                  .hosts = static_cast<int>(std::set(options.hosts.begin(), options.hosts.end()).size()),
                  .per_host = ranks_per_host(options.hosts),
                  .predicted = predicted ? &*predicted : nullptr};
  benched.machine = common_machine(rendezvous);
  SentBetweenHosts between_hosts(options.hosts, place.rank);
  options.sent_between_hosts = [&] { return between_hosts.bytes(); };
  MessengerOptions messages = messages_after(rendezvous, place, kSilence_s);
  messages.on_send = [&](const SendOrder& order, Path) { between_hosts.count(order); };
  messages.on_note = [](const std::string& what) { spdlog::warn("{}", what); };
  Messenger messenger(std::move(messages));
  ChooseAlgorithm choose;
  if (predicted)
    choose = [&](CollectiveKind kind, std::size_t bytes) { return predicted->fastest(kind, bytes); };
  Communicator ranks(messenger, 1, all_ranks(rendezvous), benched.per_host, choose);
  if (tells && !arguments.json) {
    write_result(
        fmt::format(kLine, "operation", "algorithm", "path", "memory", "bytes", "time", "algbw GB/s",
                    "busbw GB/s", "CPU s/GB", "spread", predicted ? fmt::format(" {:>14}", "predicted") : ""),
        "");
    options.on_result = [&](const TimedCall& call) {
      write_result(to_text(call, place.rank_count, benched.predicted), "");
    };
  }
  benched.calls = time_calls(ranks, options);
  rendezvous.barrier();
  if (tells && arguments.json) write_result(to_json(benched), "");
  return Exit::ok;
}

Exit run(const BenchArguments& arguments) {
  if (arguments.what != "comm")
    throw Refusal(Exit::usage, "unknown-choice", {},
                  fmt::format("motley bench knows no `{}`", arguments.what),
                  suggest(arguments.what, {"comm"}));
  const TimeCallsOptions options = read_options(arguments);
  const std::optional<Place> place = place_of_process(arguments.place);
  if (place && place->rank_count > 1) return run_rank(*place, arguments, options);
  if (arguments.ranks < 2)
    throw Refusal(Exit::usage, "bad-rank-count", {}, "one rank has nobody to exchange bytes with",
                  "motley bench comm -n 2");
  if (!arguments.cluster.empty()) const PredictedCalls refuses(arguments.cluster, arguments.ranks);
  return run_own_ranks(arguments.ranks);
}

}  // namespace

void add_bench(const Command& program) {
  const auto arguments = std::make_shared<BenchArguments>();
  const Command command = program.subcommand("bench", "Time what ranks do: how fast they talk");
  command.option("what", arguments->what, "comm: messages and collectives");
  command.option("-n,--ranks", arguments->ranks,
                 "how many ranks on this host, where no launcher started them");
  add_place_flags(command, arguments->place);
  command.option("--operations", arguments->operations, "of message, all_reduce, all_gather, ...");
  command.option("--algorithms", arguments->algorithms,
                 "those that do an operation are tried; without: the plain one. hierarchical needs as many "
                 "ranks on each of several hosts; automatic needs --cluster");
  command.option("--paths", arguments->paths, "of shm (memory to memory on one host), tcp");
  command.option("--memory", arguments->memory,
                 "of host, pinned, guarded (only copy calls may touch it: it stands for a chip's)");
  command.option("--bytes", arguments->bytes, "sizes of the payload");
  command.option("--cluster", arguments->cluster,
                 "a cluster that describes these hosts: also print what the simulator predicts, and let the "
                 "algorithm `automatic` be the fastest by its figures");
  command.option("--seconds-a-time", arguments->seconds_a_time, "each time is the mean of as many calls");
  command.flag("--json", arguments->json, "print JSON (schema motley.bench_comm/1)");
  command.example(
      "motley bench comm -n 2 --operations all_reduce --bytes '8 B,16 MiB'\n"
      "  motley launch --hosts a:2,b:2 --rendezvous-host 10.0.0.1 -- motley bench comm --cluster pair.yaml "
      "--algorithms ring,hierarchical,automatic");
  command.runs([arguments] { return run(*arguments); });
}

}  // namespace motley
