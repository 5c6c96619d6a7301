// The Real world of one host rank: a thread for each stream, kernels on this processor, bytes by its Peers. Nothing
// is reordered; an instruction blocks its stream's thread until what it waits for has ended. The world measures and
// does not read the figures that a Program predicts. Read next: hw/world/train.hpp.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "hw/rank/arrivals.hpp"
#include "hw/rank/work.hpp"
#include "hw/world/peers.hpp"
#include "models/trace/trace.hpp"
#include "models/world/world.hpp"

namespace motley {

class RealWorld : public World {
 public:
  // Keeps references to its arguments. `peers` may be null if the Program has one rank.
  RealWorld(const Program& program, RankWork& work, Rank rank, Peers* peers);

  // What this rank did in a step, sorted by stream and index.
  struct RankStep {
    std::vector<TraceEvent> events;
    std::vector<KernelEvent> kernels;  // empty: they were not recorded
  };
  // Runs one training step; every rank runs the same number of them. Times count from `origin_s` on this host's steady
  // clock, which all ranks should have read at one moment (a barrier). Throws the first failure; the peers then know.
  RankStep run_step(const Text& text, std::int64_t step, double origin_s, bool records_kernels = false);

  // Performs one transfer, collective or copy, in a World that orders the steps itself (Mixed): everything that it
  // waits for has ended. Returns when it began and ended on this host's steady clock.
  TraceEvent perform_alone(const Step& step, const Instruction& instruction);
  // From now on `arrivals` may bring what other ranks would, and is told what has come. Null: neither.
  void use(Arrivals* arrivals) { arrivals_ = arrivals; }
  // From now on these are the other ranks.
  void meet(Peers* peers) { peers_ = peers; }

  void issue(const Step& step, const Instruction& instruction, std::span<const Step> after) override;
  void await(Rank rank, StreamId stream) override;
  // RankWork calls this for a tensor-parallel collective inside a compute.
  void tensor_collective(const Kernel& kernel, std::span<float> values);

 private:
  struct StreamState {
    int ended = 0;  // how many instructions have ended
    std::vector<double> end_s;
    std::vector<TraceEvent> events;
    std::vector<KernelEvent> kernels;
  };
  const Program& program_;
  RankWork& work_;
  const Rank rank_;
  Peers* peers_;
  Arrivals* arrivals_ = nullptr;
  Step computing_;           // the compute that began last; only its thread reads it
  PathSet computing_paths_;  // that bytes of its collectives took
  double origin_s_ = 0;
  std::int64_t step_ = 0;
  bool records_kernels_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  IdTable<StreamId, StreamState> streams_;
  std::exception_ptr failure_;  // the first failure

  double now_s() const;
  void wait_for(std::span<const Step> after, TraceEvent& event);
  void perform(const Instruction& instruction, TraceEvent& event);
  double compute(const Instruction& instruction, const TraceEvent& event, MemoryLedger& ledger);
  void transfer(const Instruction& instruction, TraceEvent& event, MemoryLedger& ledger);
  void exchange(const Collective& collective, std::int32_t micro_batch, TraceEvent& event,
                MemoryLedger& ledger);
  void exchange_parts(const Collective& collective, std::int32_t micro_batch, TraceEvent& event);
  void exchange_shard(const Collective& collective, std::int32_t micro_batch, TraceEvent& event,
                      MemoryLedger& ledger);
  std::vector<float> shard_values(const Collective& collective, const Shard& shard, std::int32_t micro_batch,
                                  MemoryLedger& ledger);
  void exchange_tensors(const Collective& collective, std::int32_t micro_batch, TraceEvent& event);
  Moved run_over_group(const Step& step, const Collective& collective, std::span<float> values,
                       double begin_s);
  // Returns what exchange() does, unless arrivals_ brings what comes to these places.
  Moved arrive(const Step& step, Places places, Posted mine, const std::function<Moved()>& exchange);
  void matched(const Moved& moved, TraceEvent& event) const;
  void fail(std::exception_ptr failure);
};

}  // namespace motley
