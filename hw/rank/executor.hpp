// One host rank computes for real while the others are imagined (Mixed): its computes and optimizer steps run on this
// processor and are timed. What other ranks would have sent is made up: small numbers of both signs. The executor moves
// no bytes, so an all_reduce inside a compute costs nothing here; the World that imagines the fabric adds its time.
// Read next: hw/rank/work.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "hw/rank/data.hpp"
#include "hw/rank/work.hpp"
#include "models/world/world.hpp"

namespace motley {

class HostExecutor : public Executor {
 public:
  // Keeps references to program and transformer. Throws Refusal "host-precision" for formats other than fp32.
  HostExecutor(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
               KernelLibrary library = KernelLibrary::fast);
  // Executes a step and returns its measured seconds. A World issues the steps of one stream in order, for any number
  // of training steps.
  double execute(const Step& step, const Instruction& instruction) override;
  std::vector<KernelSpan> kernels() const override { return kernels_; }
  const Memory& memory() { return work_.memory(); }

 private:
  const Program& program_;
  const Rank rank_;
  Text text_;  // made up, too
  RankWork work_;
  // Tensors that a send would free: here they are freed after the compute that writes them.
  std::set<TensorId> sent_;
  // The groups over which tensors are gathered between computes.
  std::map<TensorId, GroupId> gathered_;
  std::int64_t steps_begun_ = 0;
  std::vector<KernelSpan> kernels_;  // of the last compute

  void make_up_missing(TensorId tensor, std::int32_t micro_batch);
  void make_up_missing(const Compute& compute, std::int32_t micro_batch);
  void fill_gathered(const Compute& compute, std::int32_t micro_batch);
  void drop_sent(std::int32_t micro_batch);
  double execute(const Compute& compute, std::int32_t micro_batch);
  double execute(const OptimizerStep& optimizer_step);
};

}  // namespace motley
