#include "hw/world/train.hpp"

#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>

#include "hw/launch/rendezvous.hpp"
#include "hw/rank/recording.hpp"
#include "hw/world/met_ranks.hpp"
#include "hw/world/peers.hpp"
#include "hw/world/real_world.hpp"
#include "hw/world/routing_tally.hpp"
#include "hw/world/shared_times.hpp"
#include "hw/world/training_agreement.hpp"
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

// Assumes: no rank computes for an hour between two messages. Heartbeats tell of a rank that is dead long before.
constexpr double kMessage_s = 3600;
// Within which the rendezvous says which rank has failed, where another one is gone.
constexpr double kReason_s = 5;

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
        extra_modules_(job.transformer.trained_extra()),
        recorder_(recorder(job)),
        rendezvous_(rendezvous_options(job, program, text, place, options)),
        messenger_(messenger_options(place, options)),
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
    for (std::int64_t step = 0; step <= end_.last_step; ++step) {
      const bool traced = step == end_.trace_step;
      if (traced) hear_end(step);
      step_begin_s = monotonic_s();
      const auto done = world_.run_step(text_, step, traced ? rendezvous_.start_clock() : begin_s,
                                        traced && options_.traces_kernels);
      end_step(step, tokens);
      if (traced || step == 0)
        hear_end(step + 1);
      else
        hear_end(step);
      if (rank_ == kLeader) result_.step_s.push_back(monotonic_s() - step_begin_s);
      if (traced) collect(done);
      if (step == 0 && !options_.record_contributions.empty()) record_received();
      if (step == 0 && options_.steps > 1) begin_s = rendezvous_.start_clock();
    }
    hear_end(end_.last_step + 1);
    rendezvous_.barrier();
    // The clock of what follows was started last.
    for (const std::string& of_rank :
         rendezvous_.gather(packed(std::vector{rendezvous_.clock().uncertainty_s()})))
      result_.clock_uncertainty_s = std::max(result_.clock_uncertainty_s, unpacked<double>(of_rank).at(0));
    const double seconds = monotonic_s() - begin_s;
    const auto timed = static_cast<double>(std::max<std::int64_t>(1, end_.last_step));
    if (rank_ == kLeader) result_.tokens_per_s = timed * tokens / seconds;
    for (const std::string& peak : rendezvous_.gather(packed(std::vector{work_.memory().peak_bytes()})))
      result_.peak_bytes.add(unpacked<std::int64_t>(peak).at(0));
    if (MeasuredRouting routing = tally_.measured(); !routing.layers.empty())
      result_.routing = std::move(routing);
    return result_;
  }
  // Tells the others why this rank ends.
  void fail(const std::string& why) { rendezvous_.fail(why); }

 private:
  const Program& program_;
  const Text& text_;
  const TrainOptions& options_;
  const Rank rank_;
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
  // When the run ends, and which step is traced. An interrupt brings both forward: rank 0 says so after each step.
  // Others hear it one step later, when it has long been sent, so that no rank waits for it; and earlier where they are
  // about to hear something else of rank 0.
  struct End {
    std::int64_t last_step, trace_step;
  };
  End end_{options_.steps - 1, options_.trace_step};
  std::int64_t heard_ = 0;  // how often rank 0 has said so

  static RendezvousOptions rendezvous_options(const Job& job, const Program& program, const Text& text,
                                              const Place& place, const TrainOptions& options) {
    RendezvousOptions meeting = rendezvous_of(place, program_hash(program), options.rendezvous_timeout_s);
    meeting.on_note = options.on_note;
    meeting.on_overdue = options.on_overdue;
    meeting.silence_s = options.silence_s;
    meeting.alike = training_agreement(job, &text);
    for (Agreed& each : meeting.alike)
      if (each.name == "steps") each.value = fmt::format("{}", options.steps);
    meeting.alike.push_back({"kernels", describe(options.library)});
    meeting.alike.push_back(
        {"traced step", options.trace_step < 0 ? "none" : fmt::format("{}", options.trace_step)});
    meeting.alike.push_back({"trace of kernels", options.traces_kernels ? "yes" : "no"});
    meeting.alike.push_back({"recording", options.record_contributions.empty() ? "no" : "yes"});
    meeting.alike.push_back({"limit of silence", fmt::format("{} s", options.silence_s)});
    meeting.alike.insert(meeting.alike.end(), options.alike.begin(), options.alike.end());
    return meeting;
  }
  MessengerOptions messenger_options(const Place& place, const TrainOptions& options) {
    if (options.on_met) options.on_met(inventory_of(rendezvous_));
    MessengerOptions messages = messages_after(rendezvous_, place, std::max(options.silence_s, kMessage_s));
    messages.gives_up = [this] { return rendezvous_.failure(); };
    messages.reason_s = kReason_s;
    messages.reads_memory = options.reads_memory;
    messages.uses_rdma = options.uses_rdma;
    if (options.rdma_devices) messages.rdma_devices = *options.rdma_devices;
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
  // Hears what rank 0 has said after that many steps.
  void hear_end(std::int64_t steps) {
    for (; rank_ != kLeader && heard_ < steps; ++heard_) end_ = unpacked<End>(rendezvous_.release("")).at(0);
  }
  void tell_end(std::int64_t step, bool interrupted) {
    if (interrupted) {
      // Others know of the next step already whether it is traced.
      end_.last_step = std::min(end_.last_step, end_.trace_step > step + 1 ? step + 2 : step + 1);
      end_.trace_step = std::min(end_.trace_step, end_.last_step);
    }
    rendezvous_.release(packed(std::vector{end_}));
  }
  void end_step(std::int64_t step, double tokens) {
    const bool stops = options_.is_interrupted && options_.is_interrupted();
    const std::string sums = packed(std::vector{work_.loss_sum(), work_.extra_loss_sum(), stops ? 1.0 : 0.0});
    const IdTable<Rank, std::string> parts = rendezvous_.gather(sums + packed(numbers_of(work_.routed())));
    if (rank_ != kLeader) return;
    double sum = 0, extra_sum = 0, stopping = 0;
    for (const Rank rank : parts.ids()) {
      const std::vector<double> losses = unpacked<double>(parts[rank].substr(0, sums.size()));
      sum += losses.at(0);
      extra_sum += losses.at(1);
      stopping += losses.at(2);
      tally_.add(rank, unpacked<std::int32_t>(parts[rank].substr(sums.size())));
    }
    tally_.end_step();
    result_.losses.push_back(sum / tokens);
    if (extra_modules_ > 0)
      result_.extra_losses.push_back(extra_sum / tokens / static_cast<double>(extra_modules_));
    if (options_.on_step)
      options_.on_step(step, result_.losses.back(),
                       extra_modules_ > 0 ? std::optional(result_.extra_losses.back()) : std::nullopt);
    tell_end(step, stopping > 0);
  }
  // Appends the values of all ranks.
  template <typename T>
  void append_all(const std::vector<T>& own, std::vector<T>& all) {
    for (const std::string& part : rendezvous_.gather(packed(own)))
      for (const T& each : unpacked<T>(part)) all.push_back(each);
  }
  // Every rank has noted times of its own clock; the trace gets those of the clock that all share.
  void share_clock() {
    IdTable<Rank, SharedClock> clocks;
    for (const std::string& clock : rendezvous_.gather(packed(std::vector{rendezvous_.clock()})))
      clocks.add(unpacked<SharedClock>(clock).at(0));
    if (rank_ == kLeader) share_times(clocks, result_.trace);
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
    share_clock();
    sort_events(result_.trace);
  }
};

}  // namespace

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
  } catch (const std::exception& failure) {
    if (options.on_failure) options.on_failure(std::current_exception());
    rank.fail(failure.what());
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
