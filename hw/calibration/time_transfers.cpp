#include "hw/calibration/time_transfers.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "hw/transport/tcp/socket.hpp"
#include "models/base/index.hpp"

namespace motley {
namespace {

constexpr std::array kKinds = {TransferKind::send_latency, TransferKind::all_reduce, TransferKind::all_gather,
                               TransferKind::reduce_scatter, TransferKind::all_to_all};

std::optional<CollectiveKind> collective_of(TransferKind kind) {
  switch (kind) {
    case TransferKind::all_reduce:
      return CollectiveKind::all_reduce;
    case TransferKind::all_gather:
      return CollectiveKind::all_gather;
    case TransferKind::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case TransferKind::all_to_all:
      return CollectiveKind::all_to_all;
    default:
      return std::nullopt;
  }
}

// Computes on a thread of its own from begin to end of its life, once at least.
class Beside {
 public:
  explicit Beside(std::function<void()> compute) : compute_(std::move(compute)) {
    if (!compute_) return;
    thread_ = std::thread([this] {
      begun_ = true;
      begun_.notify_one();
      do {
        compute_();
      } while (!ends_);
    });
    begun_.wait(false);
  }
  ~Beside() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  const std::function<void()> compute_;
  std::atomic<bool> begun_ = false, ends_ = false;
  std::thread thread_;
};

// One rank's side of all transfers. Every rank does the same in the same order.
class TransferTimer {
 public:
  explicit TransferTimer(Communicator& ranks) : ranks_(ranks) {}

  // Seconds of one transfer: the mean of `count` in a row on the rank where they took longest.
  double time(TransferKind kind, std::int64_t bytes, std::int64_t count) {
    make_room(kind, bytes);
    latest(0);  // all begin together
    const double begin_s = monotonic_s();
    for (std::int64_t i = 0; i < count; ++i) transfer(kind, bytes);
    const double seconds = (monotonic_s() - begin_s) / static_cast<double>(count);
    return latest(seconds);
  }

  // The largest of what the ranks give.
  double latest(double mine) {
    std::vector<float> largest(at(ranks_.size()), static_cast<float>(mine));
    collect(CollectiveKind::all_reduce, largest, ReduceOp::maximum);
    return largest[0];
  }

 private:
  Communicator& ranks_;
  std::vector<float> values_;
  std::uint64_t tag_ = 0;

  void collect(CollectiveKind kind, std::span<float> values, ReduceOp reduce) {
    ranks_.run({.kind = kind, .reduce = reduce}, std::as_writable_bytes(values), now());
  }

  // An all_to_all wants equal parts for all.
  std::size_t count_of(TransferKind kind, std::int64_t bytes) const {
    const std::size_t count = at(bytes) / sizeof(float), ranks = at(ranks_.size());
    return kind == TransferKind::all_to_all ? (count + ranks - 1) / ranks * ranks : count;
  }
  void make_room(TransferKind kind, std::int64_t bytes) {
    if (const std::size_t count = count_of(kind, bytes); values_.size() < count) values_.resize(count, 1.0F);
  }

  Posted now() { return {monotonic_s(), ranks_.members()[at(ranks_.place())]}; }

  void transfer(TransferKind kind, std::int64_t bytes) {
    const std::span<float> values = std::span(values_).first(count_of(kind, bytes));
    if (const auto collective = collective_of(kind)) return collect(*collective, values, ReduceOp::maximum);
    message(values);
  }

  // A message from the first rank to the second, or back; a transfer of its kind is half of both.
  void message(std::span<float> values) {
    const int place = ranks_.place(), peer = 1 - place;
    tag_ += 2;
    if (place > 1) return;
    for (const bool back : {false, true}) {
      const std::uint64_t tag = back ? tag_ : tag_ - 1;
      ranks_.wait((place == 0) != back ? ranks_.send(peer, tag, std::as_bytes(values), now())
                                       : ranks_.receive(peer, tag, std::as_writable_bytes(values), now()));
    }
  }
};

double halves(TransferKind kind) { return kind == TransferKind::send_latency ? 0.5 : 1; }

}  // namespace

std::vector<std::int64_t> TransferTimeOptions::standard_transfer_bytes() {
  std::vector<std::int64_t> bytes = {0};
  for (std::int64_t size = 16; size <= 64LL << 20; size *= 4) bytes.push_back(size);
  return bytes;  // the last is 64 MiB
}

std::vector<TimedTransfers> time_transfers(Communicator& ranks, const TransferTimeOptions& options) {
  const double begin_s = monotonic_s();
  TransferTimer timer(ranks);
  std::vector<TimedTransfers> timed;
  std::vector<std::int64_t> counts;  // of each: transfers a time
  for (const bool beside : {false, true}) {
    if (beside && !options.compute) continue;
    const Beside computing(beside ? options.compute : std::function<void()>());
    for (const TransferKind kind : kKinds)
      for (const std::int64_t bytes : options.bytes) {
        const double once_s = timer.time(kind, bytes, 1);  // to warm up
        timed.push_back({kind, bytes, beside, {}});
        counts.push_back(std::clamp<std::int64_t>(
            static_cast<std::int64_t>(std::ceil(options.seconds_a_time / std::max(once_s, 1e-9))), 1,
            options.most));
        if (once_s > options.longest_s) break;
      }
  }
  for (std::int64_t round = 1; round <= options.rounds; ++round) {
    for (const bool beside : {false, true}) {
      if (beside && !options.compute) continue;
      const Beside computing(beside ? options.compute : std::function<void()>());
      for (std::size_t i = 0; i < timed.size(); ++i)
        if (timed[i].beside_compute == beside)
          timed[i].times.push_back(halves(timed[i].kind) *
                                   timer.time(timed[i].kind, timed[i].bytes, counts[i]));
    }
    if (options.on_round) options.on_round(round);
    if (timer.latest(monotonic_s() - begin_s) > options.seconds) break;
  }
  return timed;
}

}  // namespace motley
