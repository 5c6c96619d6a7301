// One host rank computes for real while the others are imagined (Mixed): its computes and optimizer steps run on this
// processor and are timed, several times over from the same state, so that a repeat changes nothing. What other ranks
// would have sent is made up. The executor moves no bytes, so a collective inside a compute costs nothing here; the
// World that imagines the fabric adds its time.
// Read next: hw/rank/work.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "hw/rank/arrivals.hpp"
#include "hw/rank/data.hpp"
#include "hw/rank/work.hpp"
#include "models/scenario/world_choice.hpp"
#include "models/world/world.hpp"

namespace motley {

struct ExecutorOptions {
  KernelLibrary library = KernelLibrary::fast;
  Repeats repeats = {0, 1};
  Contribution contribution = Contribution::made_up;
  const Text* text = nullptr;  // what the rank trains on; null: made up
  // True: every transfer, collective and copy is performed on work() when it is due. False: none is, and what they
  // would have freed is freed after the compute that wrote it.
  bool communicates = false;
  // False: what an optimizer step changes is undone after it was timed. Gradients that are made up lead parameters far
  // from all that training would meet, and kernels are faster or slower there.
  bool learns = true;
};

void make_up(Contribution contribution, std::span<float> values);

class HostExecutor : public Executor {
 public:
  // Keeps references to program and transformer. Throws Refusal "host-precision" for formats other than fp32.
  HostExecutor(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
               const ExecutorOptions& options = {});
  // Executes a step and returns its measured seconds. A World issues the steps of one stream in order, for any number
  // of training steps.
  double execute(const Step& step, const Instruction& instruction) override;
  std::vector<KernelSpan> kernels() const override { return kernels_; }
  // What comes inside the compute that execute() runs next, in place of what would be made up.
  void bring_inside(RecordedValues recorded) { inside_ = std::move(recorded); }
  const Memory& memory() { return work_.memory(); }
  RankWork& work() { return work_; }
  // Makes an instance with made-up values where there is none.
  void make_up_missing(TensorId tensor, std::int32_t micro_batch);

 private:
  const Program& program_;
  const Rank rank_;
  const ExecutorOptions options_;
  const Text text_;
  RankWork work_;
  // Tensors that a send would free: here they are freed after the compute that writes them.
  std::set<TensorId> sent_;
  // What an optimizer step changes but gradients, if that is to be undone.
  std::set<TensorId> learned_;
  // The groups over which tensors are gathered between computes.
  std::map<TensorId, GroupId> gathered_;
  std::int64_t steps_begun_ = 0;
  std::optional<std::int32_t> last_index_;  // on the compute stream
  std::vector<KernelSpan> kernels_;         // of the last compute
  std::optional<RecordedValues> inside_;    // what comes inside the next compute; nothing: it is made up

  void fill_others(const Group& group, std::span<float> values) const;
  void fill_others(const Kernel& kernel, std::span<float> values);
  void note_gather(const Instruction& instruction);
  void make_up_missing(const Compute& compute, std::int32_t micro_batch);
  void fill_gathered(const Compute& compute, std::int32_t micro_batch);
  void drop_sent(std::int32_t micro_batch);
  double execute(const Compute& compute, std::int32_t micro_batch);
  double execute(const OptimizerStep& optimizer_step);
  double compute_once(const Compute& compute, std::int32_t micro_batch);
  double take_out_collectives(const Compute& compute);
  // Seconds of the median run. `compute`: what run() computes; null: an optimizer step.
  double repeat(const Compute* compute, std::int32_t micro_batch, const std::function<double()>& run);
};

}  // namespace motley
