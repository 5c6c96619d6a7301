// ZB-V (Qi et al. 2023, arXiv:2401.10241, section 6; Qi et al. 2024, arXiv:2405.15362): each rank has two chunks in a
// V, so that the last virtual stage stands on the first rank, where micro-batches begin, and gradients begin there
// too. No bubble between the first and the last action of a rank when F = I = W, with 1F1B's memory: 2p chunks of
// micro-batches in flight.
#include <algorithm>

#include "models/schedule/schedule_rules.hpp"

namespace motley {
namespace {

class ZbVActions {
 public:
  ZbVActions(const PipelineShape& shape, int rank)
      : shape_(shape), stages_{rank, 2 * shape.ranks - 1 - rank} {}

  void forward(int chunk) { add(Pass::forward, chunk, forwards_[chunk]++); }
  void gradient(int chunk) { add(Pass::input_gradient, chunk, gradients_[chunk]++); }
  int forwards(int chunk) const { return forwards_[chunk]; }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  // The rule is for 2p-1 micro-batches or more; with fewer, only actions of existing micro-batches are added.
  void add(Pass pass, int chunk, int micro_batch) {
    if (micro_batch < shape_.micro_batches) actions_.push_back({pass, stages_[chunk], micro_batch});
  }
  const PipelineShape& shape_;
  const int stages_[2];
  int forwards_[2] = {0, 0}, gradients_[2] = {0, 0};
  std::vector<Action> actions_;
};

std::vector<Action> order_of(const PipelineShape& shape, int rank) {
  const int p = shape.ranks, m = std::max(shape.micro_batches, 2 * p - 1);
  ZbVActions order(shape, rank);
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) order.forward(0);
  for (int i = 0; i < rank; ++i) {
    order.forward(1);
    order.forward(0);
  }
  for (int i = 0; i < p - rank; ++i) {
    order.forward(1);
    order.gradient(1);
  }
  while (order.forwards(1) < m) {
    if (order.forwards(0) < m) order.forward(0);
    order.gradient(0);
    order.forward(1);
    order.gradient(1);
  }
  for (int i = 0; i < rank; ++i) {
    order.gradient(0);
    order.gradient(1);
  }
  for (int i = 0; i < p - rank; ++i) order.gradient(0);
  return order.take();
}

}  // namespace

Timetable zero_bubble_v(const PipelineShape& shape, const ScheduleTimes& times) {
  Timetable ordered;
  for (int rank = 0; rank < shape.ranks; ++rank) ordered.ranks.push_back(order_of(shape, rank));
  return fill_with_weight_gradients(ordered, times, 2 * shape.ranks, shape.steps_overlap);
}

}  // namespace motley
