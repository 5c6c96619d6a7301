#include "hw/calibration/time_calls.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

constexpr std::size_t kMostCalls = 5000;  // of one time

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class CallTimer {
 public:
  CallTimer(Communicator& ranks, const TimeCallsOptions& options) : ranks_(ranks), options_(options) {}

  bool can(const TimedCall& call) const {
    return call.kind ? ranks_.does(call.chosen, *call.kind) : ranks_.size() > 1;
  }

  void time(TimedCall& call) {
    ranks_.messenger().allow(call.path);
    make_room(call);
    run(call, 1);  // to warm up
    const double once_s = largest(run(call, 3) / 3);
    const auto count = static_cast<std::size_t>(std::clamp(
        std::ceil(options_.seconds_a_time / std::max(once_s, 1e-9)), 1.0, static_cast<double>(kMostCalls)));
    std::vector<double> times;
    const double cpu_begin_s = cpu_seconds();
    sent_ = 0;
    for (int i = 0; i < options_.rounds; ++i)
      times.push_back(largest(run(call, count)) / static_cast<double>(count));
    const double calls = static_cast<double>(count) * options_.rounds;
    call.cpu_s = sum(cpu_seconds() - cpu_begin_s) / calls;
    std::sort(times.begin(), times.end());
    const double ways = call.kind ? 1 : 2;
    call.seconds = times[times.size() / 2] / ways;
    call.cpu_s /= ways;
    if (options_.sent_between_hosts)
      call.between_hosts_bytes = sum(static_cast<double>(sent_)) / calls / ways;
    call.spread = (times[times.size() * 3 / 4] - times[times.size() / 4]) / 2 / times[times.size() / 2];
  }

 private:
  Communicator& ranks_;
  const TimeCallsOptions& options_;
  // What is sent and reduced, and what a message comes into.
  struct Buffers {
    std::unique_ptr<DeviceMemory> memory;
    std::shared_ptr<void> registration;
    std::span<std::byte> values, coming;
  };
  std::map<MemoryKind, Buffers> buffers_;
  std::uint64_t tag_ = 0, sent_ = 0;

  void make_room(TimedCall& call) {
    call.bytes = payload_for(call.kind, call.bytes, ranks_.size());
    Buffers& mine = buffers_[call.memory];
    if (mine.memory && mine.values.size() >= call.bytes) return;
    mine.registration.reset();  // ends before its memory does
    std::string why;
    mine.memory = allocate_memory(call.memory, 2 * call.bytes, why);
    if (!why.empty()) throw RunFailure(why);
    mine.registration = ranks_.messenger().register_memory(*mine.memory);
    mine.values = mine.memory->bytes().first(call.bytes);
    mine.coming = mine.memory->bytes().last(call.bytes);
  }

  double run(TimedCall& call, std::size_t count) {
    const std::span<std::byte> values = buffers_[call.memory].values.first(call.bytes);
    ranks_.run({.element = ElementType::uint8}, std::span(&joined_, 1));  // all begin together
    const std::uint64_t sent_before = sent_until_now();
    const double begin_s = monotonic_s();
    if (!call.kind) exchange(values, call, count);
    for (std::size_t i = 0; call.kind && i < count; ++i)
      await(ranks_.start({.kind = *call.kind, .algorithm = call.algorithm}, values), call);
    const double seconds = monotonic_s() - begin_s;
    sent_ += sent_until_now() - sent_before;
    return seconds;
  }
  std::uint64_t sent_until_now() const {
    return options_.sent_between_hosts ? options_.sent_between_hosts() : 0;
  }

  void await(const Request& request, TimedCall& call) {
    ranks_.wait(request);
    call.taken.add(ranks_.messenger().paths_of(request));
  }

  // There and back, as often as that. As in perftest, receives are posted before what they receive is sent: two ahead,
  // so that no message waits for a buffer; and each leaves together with what is sent.
  void exchange(std::span<std::byte> values, TimedCall& call, std::size_t count) {
    constexpr std::size_t kAhead = 2;
    const std::uint64_t first_tag = std::exchange(tag_, tag_ + count);
    const int place = ranks_.place();
    if (place != 0 && place != call.peer) return;
    const int other = place == 0 ? call.peer : 0;
    const std::span<std::byte> into = buffers_[call.memory].coming.first(values.size());
    std::deque<Request> coming;
    std::size_t posted = 0;
    const auto post = [&] {
      if (posted == count) return;
      coming.push_back(ranks_.receive(other, first_tag + posted++, into));
    };
    for (std::size_t i = 0; i < kAhead; ++i) post();
    const auto take = [&] {
      ranks_.wait(coming.front());
      coming.pop_front();
    };
    for (std::size_t i = 0; i < count; ++i) {
      if (place != 0) take();
      std::optional<Messenger::Together> together(std::in_place, ranks_.messenger());
      if (place != 0 || i > 0) post();
      const Request going = ranks_.send(other, first_tag + i, values);
      together.reset();
      if (place == 0) take();
      await(going, call);
    }
  }

  double reduced(double mine, ReduceOp reduce) {
    ranks_.run({.element = ElementType::fp64, .reduce = reduce}, std::as_writable_bytes(std::span(&mine, 1)));
    return mine;
  }
  double largest(double mine) { return reduced(mine, ReduceOp::maximum); }
  double sum(double mine) { return reduced(mine, ReduceOp::sum); }

  std::byte joined_{};
};

// Each algorithm that is to be tried.
std::vector<TimedCall> collectives(CollectiveKind kind, const TimeCallsOptions& options) {
  std::vector<CollectiveAlgorithm> algorithms = options.algorithms;
  if (algorithms.empty()) algorithms = {plain_algorithm(kind)};
  std::vector<TimedCall> forms;
  for (const CollectiveAlgorithm algorithm : algorithms)
    forms.push_back({.kind = kind, .algorithm = algorithm});
  return forms;
}

// One to a rank of the same host and one to a rank of another host, where there are such.
std::vector<TimedCall> messages(const TimeCallsOptions& options) {
  std::vector<TimedCall> forms;
  for (const bool leaves : {false, true})
    for (std::size_t i = 1; i < options.hosts.size(); ++i)
      if ((options.hosts[i] != options.hosts[0]) == leaves) {
        forms.push_back({.peer = static_cast<int>(i), .leaves_host = leaves});
        break;
      }
  if (options.hosts.empty()) forms.emplace_back();
  return forms;
}

}  // namespace

double TimedCall::bus_bandwidth(int ranks) const {
  const double share = static_cast<double>(ranks - 1) / ranks;
  if (!kind) return algorithm_bandwidth();
  return algorithm_bandwidth() * (kind == CollectiveKind::all_reduce ? 2 * share : share);
}

std::vector<TimedCall> calls_of(std::optional<CollectiveKind> kind, const TimeCallsOptions& options) {
  return kind ? collectives(*kind, options) : messages(options);
}

std::size_t payload_for(std::optional<CollectiveKind> kind, std::size_t bytes, int ranks) {
  if (!kind) return bytes;
  const std::size_t each = sizeof(float) * (kind == CollectiveKind::all_to_all ? at(ranks) : 1);
  return (bytes + each - 1) / each * each;
}

std::vector<TimedCall> time_calls(Communicator& ranks, const TimeCallsOptions& options) {
  CallTimer timer(ranks, options);
  std::vector<TimedCall> timed;
  for (const auto& kind : options.kinds)
    for (const TimedCall& form : calls_of(kind, options))
      for (const Path path : options.paths)
        for (const std::size_t bytes : options.bytes)
          for (const MemoryKind memory : options.memories) {
            TimedCall call = form;
            call.path = path;
            call.memory = memory;
            call.bytes = bytes;
            if (kind) call.chosen = ranks.algorithm_for(call.algorithm, *kind, bytes);
            if (!timer.can(call)) continue;
            timer.time(call);
            timed.push_back(call);
            if (options.on_result) options.on_result(call);
          }
  return timed;
}

}  // namespace motley
