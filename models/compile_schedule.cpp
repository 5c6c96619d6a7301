// Pass "schedule": the order of forwards and backwards in each stage's compute stream.
// GPipe (arXiv:1811.06965): every forward, then every backward in the same order.
// 1F1B (PipeDream-flush, arXiv:2006.09503): pp-1-stage forwards to warm up, then one forward and one backward in turn.
#include <algorithm>

#include "models/compile_passes.hpp"

namespace motley {
namespace {

struct Slot {
  Pass pass;
  int micro_batch;
};

std::vector<Slot> gpipe(int micro_batches) {
  std::vector<Slot> order;
  for (int m = 0; m < micro_batches; ++m) order.push_back({Pass::forward, m});
  for (int m = 0; m < micro_batches; ++m) order.push_back({Pass::backward, m});
  return order;
}

std::vector<Slot> one_f_one_b(int micro_batches, int stages, int stage) {
  std::vector<Slot> order;
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  for (int m = 0; m < warm_up; ++m) order.push_back({Pass::forward, m});
  for (int m = warm_up; m < micro_batches; ++m) {
    order.push_back({Pass::forward, m});
    order.push_back({Pass::backward, m - warm_up});
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) order.push_back({Pass::backward, m});
  return order;
}

}  // namespace

void schedule_computes(const Job& job, Program& program) {
  for (ProgramClass& of_class : program.classes) {
    const int micro_batches = static_cast<int>(of_class.micro_batches);
    const int stages =
        static_cast<int>(job.strategy.templates[static_cast<std::size_t>(of_class.pipeline)].stages.size());
    Stream& computes = of_class.streams[static_cast<std::size_t>(stream_of(of_class, StreamKind::compute))];
    const auto order = job.strategy.schedule == Schedule::gpipe
                           ? gpipe(micro_batches)
                           : one_f_one_b(micro_batches, stages, of_class.stage);
    for (const Slot& slot : order) {
      Instruction compute;
      compute.op = Op::compute;
      compute.micro_batch = slot.micro_batch;
      compute.block = block_of(of_class, slot.pass, 0);
      compute.last_kernel =
          static_cast<int>(of_class.blocks[static_cast<std::size_t>(compute.block)].kernels.size());
      computes.instructions.push_back(compute);
    }
  }
}

}  // namespace motley
