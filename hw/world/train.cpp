#include "hw/world/train.hpp"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <type_traits>

#include "hw/launch/rendezvous.hpp"
#include "hw/rank/recording.hpp"
#include "hw/world/peers.hpp"
#include "hw/world/real_world.hpp"
#include "hw/world/routing_tally.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Values as bytes for the rendezvous, which has checked that every rank runs the same binary, with one byte order.
template <typename T>
std::string packed(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
std::vector<T> unpacked(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty())
    std::memcpy(static_cast<void*>(values.data()), bytes.data(), values.size() * sizeof(T));
  return values;
}

// What it takes to read the clock and keep a record so often.
double recording_s(std::size_t records) {
  std::vector<KernelSpan> spans;
  std::vector<KernelEvent> kernels;
  const double begin_s = monotonic_s();
  for (std::size_t i = 0; i < records; ++i) {
    spans.push_back({0, begin_s, monotonic_s(), 0});
    kernels.push_back({{}, 0, begin_s, spans.back().end_s});
  }
  return monotonic_s() - begin_s;
}

// The steps to which something comes from other ranks, in the order of the Program.
std::vector<Step> receiving_steps(const Program& program, Rank rank) {
  std::vector<Step> receiving;
  const auto& streams = program.program_of(rank).streams;
  for (const StreamId stream : streams.ids())
    for (std::size_t i = 0; i < streams[stream].instructions.size(); ++i) {
      const Step step{rank, stream, static_cast<std::int32_t>(i)};
      if (receives(program, step) || receives_inside(program, step)) receiving.push_back(step);
    }
  return receiving;
}

// One rank's run from the rendezvous to the result.
class RankRun {
 public:
  RankRun(const Job& job, const Program& program, const Text& text, const Place& place,
          const TrainOptions& options)
      : program_(program),
        text_(text),
        options_(options),
        rank_(place.rank),
        token_(place.token),
        extra_modules_(job.transformer.trained_extra()),
        recorder_(recorder(job)),
        rendezvous_(rendezvous_options(program, place, options)),
        messenger_(messenger_options(options)),
        peers_(program, messenger_, options.algorithms),
        work_(program, job.transformer, job.train, rank_, options.library,
              [this](const Kernel& kernel, std::span<float> values) {
                world_.tensor_collective(kernel, values);
              }),
        world_(program, work_, rank_, &peers_),
        tally_(program, job.transformer.experts.count) {
    if (!options.record_contributions.empty()) world_.use(&received_);
  }

  TrainResult run() {
    if (options_.on_start) options_.on_start(rank_, work_);
    double begin_s = rendezvous_.start_clock(), step_begin_s = begin_s;
    const double tokens = static_cast<double>(program_.global_batch * program_.sequence);
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      const bool traced = step == options_.trace_step;
      step_begin_s = monotonic_s();
      const auto done = world_.run_step(text_, step, traced ? rendezvous_.start_clock() : begin_s,
                                        traced && options_.traces_kernels);
      end_step(step, tokens);
      if (rank_ == kLeader) result_.step_s.push_back(monotonic_s() - step_begin_s);
      if (traced) collect(done);
      if (step == 0 && !options_.record_contributions.empty()) record_received();
      if (step == 0 && options_.steps > 1) begin_s = rendezvous_.start_clock();
    }
    rendezvous_.barrier();
    const double seconds = monotonic_s() - begin_s;
    const auto timed = static_cast<double>(options_.steps > 1 ? options_.steps - 1 : options_.steps);
    if (rank_ == kLeader) result_.tokens_per_s = timed * tokens / seconds;
    for (const std::string& peak : rendezvous_.gather(packed(std::vector{work_.memory().peak_bytes()})))
      result_.peak_bytes.add(unpacked<std::int64_t>(peak).at(0));
    if (MeasuredRouting routing = tally_.measured(); !routing.layers.empty())
      result_.routing = std::move(routing);
    return result_;
  }

 private:
  const Program& program_;
  const Text& text_;
  const TrainOptions& options_;
  const Rank rank_;
  const JobToken token_;
  const std::int64_t extra_modules_;
  const std::unique_ptr<RecordingWriter> recorder_;  // on rank 0, if there is a recording
  KeptArrivals received_;
  Rendezvous rendezvous_;
  Messenger messenger_;
  RealPeers peers_;
  RankWork work_;
  RealWorld world_;
  RoutingTally tally_;  // only rank 0 has something to add up
  TrainResult result_;

  static RendezvousOptions rendezvous_options(const Program& program, const Place& place,
                                              const TrainOptions& options) {
    static const std::string binary = hash_of_this_binary();
    return {place.rank, place.rank_count,      place.rendezvous, place.listener, options.rendezvous_timeout_s,
            binary,     program_hash(program), place.token,      options.on_note};
  }
  MessengerOptions messenger_options(const TrainOptions& options) {
    MessengerOptions messages;
    messages.rank = rank_;
    messages.listener = rendezvous_.take_listener();
    messages.peers = rendezvous_.peers();
    messages.token = token_;
    messages.timeout_s = options.timeout_s;
    messages.reads_memory = options.reads_memory;
    messages.uses_rdma = options.uses_rdma;
    messages.rdma_devices = options.rdma_devices;
    messages.on_note = options.on_note;
    return messages;
  }
  std::unique_ptr<RecordingWriter> recorder(const Job& job) const {
    if (rank_ != kLeader || options_.record_contributions.empty()) return nullptr;
    RecordingOrigin origin = origin_of(job, program_, &text_);
    origin.inside_computes = true;
    std::vector<Rank> ranks;
    for (const Rank rank : program_.ranks.ids()) ranks.push_back(rank);
    return std::make_unique<RecordingWriter>(options_.record_contributions, origin, ranks);
  }
  // What came to one of this rank's steps. Throws RunFailure if that is too much for one message.
  std::string received(const Step& step) {
    std::string values = packed(received_.take(step));
    if (values.size() > kMessageBytesMax)
      throw RunFailure(fmt::format("{} receives {} bytes, and a recording of training gathers at most {}",
                                   describe(program_, rank_, step.stream, step.index), values.size(),
                                   kMessageBytesMax));
    return values;
  }
  // Rank 0 gathers what came to one step of each rank, then to the next, so that it never holds more.
  void record_received() {
    world_.use(nullptr);
    IdTable<Rank, std::vector<Step>> steps;
    std::size_t most = 0;
    for (const Rank rank : program_.ranks.ids())
      most = std::max(most, steps[steps.add(receiving_steps(program_, rank))].size());
    for (std::size_t i = 0; i < most; ++i) {
      const auto& mine = steps[rank_];
      const auto all = rendezvous_.gather(i < mine.size() ? received(mine[i]) : "");
      for (const Rank rank : all.ids())
        if (i < steps[rank].size()) recorder_->add(steps[rank][i], unpacked<float>(all[rank]));
    }
    if (recorder_) recorder_->close();
  }
  void end_step(std::int64_t step, double tokens) {
    const std::string sums = packed(std::vector{work_.loss_sum(), work_.extra_loss_sum()});
    const IdTable<Rank, std::string> parts = rendezvous_.gather(sums + packed(numbers_of(work_.routed())));
    if (rank_ != kLeader) return;
    double sum = 0, extra_sum = 0;
    for (const Rank rank : parts.ids()) {
      const std::vector<double> losses = unpacked<double>(parts[rank].substr(0, sums.size()));
      sum += losses.at(0);
      extra_sum += losses.at(1);
      tally_.add(rank, unpacked<std::int32_t>(parts[rank].substr(sums.size())));
    }
    tally_.end_step();
    result_.losses.push_back(sum / tokens);
    if (extra_modules_ > 0)
      result_.extra_losses.push_back(extra_sum / tokens / static_cast<double>(extra_modules_));
    if (options_.on_step) options_.on_step(step, result_.losses.back());
  }
  // Appends the values of all ranks.
  template <typename T>
  void append_all(const std::vector<T>& own, std::vector<T>& all) {
    for (const std::string& part : rendezvous_.gather(packed(own)))
      for (const T& each : unpacked<T>(part)) all.push_back(each);
  }
  void collect(const RealWorld::RankStep& done) {
    result_.trace.world = "real";
    result_.trace.strategy_hash = program_.strategy_hash;
    result_.trace.program_hash = program_hash(program_);
    append_all(done.events, result_.trace.events);
    if (options_.traces_kernels) {
      append_all(done.kernels, result_.trace.kernels);
      for (const std::string& part :
           rendezvous_.gather(packed(std::vector{recording_s(done.kernels.size())})))
        result_.recording_s = std::max(result_.recording_s, unpacked<double>(part).at(0));
    }
    for (Rank rank : program_.ranks.ids()) result_.trace.measured_ranks.push_back(rank);
    sort_events(result_.trace);
  }
};

// The rank and the number of ranks that one kind of launcher sets.
struct StartedAs {
  const char* variable = "";  // the name of the variable that holds the rank
  long rank = 0, rank_count = 0;
};

long number(const Environment& environment, const char* name, long least) {
  const char* const text = environment(name);
  char* end = nullptr;
  const long value = text != nullptr ? std::strtol(text, &end, 10) : -1;
  if (text == nullptr || *text == '\0' || *end != '\0' || value < least || value > 1'000'000)
    throw Refusal(Exit::usage, "bad-rank", {},
                  fmt::format("{} is {}", name, text == nullptr ? "not set" : fmt::format("`{}`", text)),
                  "ranks count from 0, and each way of starting them sets both the rank and the count");
  return value;
}

// Reads the two variables of one kind of launcher. None: neither is set.
std::optional<StartedAs> started_as(const Environment& environment, const char* rank,
                                    const char* rank_count) {
  if (environment(rank) == nullptr && environment(rank_count) == nullptr) return std::nullopt;
  StartedAs started{rank, number(environment, rank, 0), number(environment, rank_count, 1)};
  if (started.rank >= started.rank_count)
    throw Refusal(Exit::usage, "bad-rank", {},
                  fmt::format("{}={} of {}={}", rank, started.rank, rank_count, started.rank_count),
                  "ranks count from 0 to one less than their number");
  return started;
}

Address rendezvous_from(const Environment& environment) {
  if (const char* const address = environment("MOTLEY_RENDEZVOUS")) return parse_address(address);
  const char* const host = environment("MASTER_ADDR");
  const char* const port = environment("MASTER_PORT");
  if (host != nullptr && port != nullptr) {
    const bool six = std::strchr(host, ':') != nullptr;
    return parse_address(six ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port));
  }
  throw Refusal(Exit::usage, "bad-rendezvous", {}, "several ranks, and no place where they meet",
                "MOTLEY_RENDEZVOUS=host:port, where rank 0 listens (or MASTER_ADDR and MASTER_PORT)");
}

std::string secret_in(const std::string& path) {
  std::ifstream file(path);
  std::string secret;
  std::getline(file, secret);
  if (secret.empty())
    throw Refusal(Exit::usage, "no-job-token", {},
                  fmt::format("MOTLEY_JOB_TOKEN_FILE: {} holds no token", path),
                  "a file whose first line is a secret that all ranks share");
  return secret;
}

JobToken token_from(const Environment& environment, const Address& rendezvous) {
  if (const char* const secret = environment("MOTLEY_JOB_TOKEN"); secret != nullptr && *secret != '\0')
    return JobToken(secret);
  if (const char* const path = environment("MOTLEY_JOB_TOKEN_FILE")) return JobToken(secret_in(path));
  const std::string& host = rendezvous.host;
  if (host != "localhost" && host != "::1" && !host.starts_with("127."))
    throw Refusal(
        Exit::usage, "no-job-token", {},
        fmt::format("ranks that meet at {} need a token by which they know each other", print(rendezvous)),
        "export MOTLEY_JOB_TOKEN=$(openssl rand -hex 16) where the ranks are started");
  return JobToken();
}

}  // namespace

std::optional<Place> place_from(const Environment& environment) {
  std::optional<StartedAs> agreed;
  for (const auto& [rank, rank_count] : {std::pair{"MOTLEY_RANK", "MOTLEY_RANK_COUNT"},
                                         {"RANK", "WORLD_SIZE"},
                                         {"SLURM_PROCID", "SLURM_NTASKS"}}) {
    const auto started = started_as(environment, rank, rank_count);
    if (!started) continue;
    if (agreed && (agreed->rank != started->rank || agreed->rank_count != started->rank_count))
      throw Refusal(
          Exit::usage, "rank-conflict", {},
          fmt::format("{} says rank {} of {}, {} says rank {} of {}", agreed->variable, agreed->rank,
                      agreed->rank_count, started->variable, started->rank, started->rank_count),
          "unset the one that does not hold");
    agreed = started;
  }
  if (!agreed) return std::nullopt;
  Place place;
  place.rank = Rank(agreed->rank);
  place.rank_count = static_cast<std::int32_t>(agreed->rank_count);
  if (place.rank_count > 1) place.rendezvous = rendezvous_from(environment);
  if (environment("MOTLEY_RENDEZVOUS_LISTENER") != nullptr && place.rank == kLeader)
    place.listener = static_cast<int>(number(environment, "MOTLEY_RENDEZVOUS_LISTENER", 0));
  if (place.rank_count > 1) place.token = token_from(environment, place.rendezvous);
  return place;
}

TrainResult train_rank(const Job& job, const Program& program, const Text& text, const Place& place,
                       const TrainOptions& options) {
  text.suits(job.transformer, job.train);
  if (place.rank_count != program.rank_count())
    throw Refusal(
        Exit::usage, "rank-count", {},
        fmt::format("{} ranks were started, the strategy has {}", place.rank_count, program.rank_count()),
        fmt::format("motley launch -n {} ...", program.rank_count()));
  RankRun rank(job, program, text, place, options);
  try {
    return rank.run();
  } catch (...) {
    if (options.on_failure) options.on_failure(std::current_exception());
    throw;
  }
}

TrainResult train_in_process(const Job& job, const Program& program, const Text& text,
                             const TrainOptions& options) {
  Socket door = listen_on({"127.0.0.1", 0});
  const Address address{"127.0.0.1", door.local_port()};
  const JobToken token(random_secret());
  std::mutex mutex;
  std::exception_ptr first;
  TrainResult result;
  std::vector<std::thread> ranks;
  // on_failure is called before unwinding closes the connections of the failed rank, which would make the others fail.
  // A failure within a step has ended its transfers before that, so then `first` is that of the rank that notices
  // first.
  TrainOptions noting = options;
  noting.on_failure = [&](const std::exception_ptr& failure) {
    if (options.on_failure) options.on_failure(failure);
    const std::lock_guard lock(mutex);
    if (!first) first = failure;
  };
  for (Rank rank : program.ranks.ids())
    ranks.emplace_back([&, rank] {
      try {
        Place place{rank, program.rank_count(), address, -1, token};
        if (rank == kLeader) place.listener = door.release();
        TrainResult mine = train_rank(job, program, text, place, noting);
        if (rank == kLeader) result = std::move(mine);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  if (first) std::rethrow_exception(first);
  return result;
}

}  // namespace motley
