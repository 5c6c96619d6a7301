// One host rank computed for real while the others are imagined (Mixed): its computes and optimizer steps run on this
// processor and are timed. What other ranks would have sent is made up, finite and stated: small numbers of both signs.
// It moves no bytes, so an all_reduce inside a compute costs nothing here; whoever imagines the fabric adds it. Read
// next: hw/rank/work.hpp.
#pragma once

#include <cstdint>
#include <set>

#include "hw/rank/data.hpp"
#include "hw/rank/work.hpp"
#include "models/world/world.hpp"

namespace motley {

class HostExecutor : public Executor {
 public:
  // Keeps references to program and transformer. Refuses formats other than fp32 ("host-precision").
  HostExecutor(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
               KernelLibrary library = KernelLibrary::fast);
  // Steps of one stream in order, as a World issues them; any number of training steps.
  double execute(const Step& step, const Instruction& instruction) override;
  const Memory& memory() { return work_.memory(); }

 private:
  const Rank rank_;
  Text text_;  // made up as well
  RankWork work_;
  std::set<TensorId> sent_;  // what a send takes away: here they go when they are made
  std::int64_t steps_begun_ = 0;

  void make_up_missing(TensorId tensor, std::int32_t micro_batch);
  void make_up_missing(const Compute& compute, std::int32_t micro_batch);
  void drop_sent(std::int32_t micro_batch);
  double execute(const Compute& compute, std::int32_t micro_batch);
  double execute(const OptimizerStep& optimizer_step);
};

}  // namespace motley
