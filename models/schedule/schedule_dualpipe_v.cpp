// DualPipeV: the half of DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1) that Sea AI Lab's note "Cut-in-half"
// keeps. Each rank has two chunks in a V. In the middle a forward of one chunk and a whole backward of the other are
// side by side, so that each hides the communication of the other. The order is that of the authors' published
// implementation (github.com/deepseek-ai/DualPipe, read 2026-11), whose eight phases are three functions here.
// Assumes: a rank does one action at a time, and of a pair the forward first; with `overlap: {experts: true}` the two
// take turns (models/compile/exchanges.cpp).
#include <deque>

#include "models/schedule/schedule_rules.hpp"

namespace motley {
namespace {

class DualPipeVActions {
 public:
  DualPipeVActions(int ranks, int rank) : stages_{rank, 2 * ranks - 1 - rank} {}

  void forward(int chunk) { actions_.push_back({Pass::forward, stages_[chunk], forwards_[chunk]++}); }
  void backward(int chunk) { actions_.push_back({Pass::backward, stages_[chunk], backwards_[chunk]++}); }
  void input_gradient(int chunk) {
    const Action split{Pass::input_gradient, stages_[chunk], backwards_[chunk]++};
    actions_.push_back(split);
    owed_.push_back({Pass::weight_gradient, split.virtual_stage, split.micro_batch});
  }
  void weight_gradient() {  // adds the weight gradient that has waited longest
    actions_.push_back(owed_.front());
    owed_.pop_front();
  }
  void either(int chunk, bool split) { split ? input_gradient(chunk) : backward(chunk); }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  const int stages_[2];
  int forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::deque<Action> owed_;
  std::vector<Action> actions_;
};

void warm_up(DualPipeVActions& order, int after, int rank) {
  for (int i = 0; i < 2 * after; ++i) order.forward(0);
  for (int i = 0; i <= rank; ++i) {
    order.forward(0);
    order.forward(1);
  }
  for (int i = 0; i < after; ++i) {
    order.input_gradient(1);
    order.weight_gradient();
    order.forward(1);
  }
}

void side_by_side(DualPipeVActions& order, int after, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    order.forward(0);
    order.backward(1);
    order.forward(1);
    order.backward(0);
  }
  for (int i = 0; i < after; ++i) {
    order.backward(1);
    order.forward(1);
    order.backward(0);
  }
}

void cool_down(DualPipeVActions& order, int after, int rank) {
  const int turns = rank + 1;  // the second half of these backwards is split
  for (int i = 0; i < turns; ++i) {
    order.either(1, i > turns / 2 || (i == turns / 2 && rank % 2 == 1));
    order.either(0, i >= turns / 2);
  }
  for (int i = 0; i < after; ++i) {
    order.weight_gradient();
    order.input_gradient(0);
  }
  for (int i = 0; i < turns; ++i) order.weight_gradient();
}

}  // namespace

Timetable dualpipe_v(const PipelineShape& shape) {
  Timetable timetable;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int after = shape.ranks - 1 - rank;
    DualPipeVActions order(shape.ranks, rank);
    warm_up(order, after, rank);
    side_by_side(order, after, shape.micro_batches - 2 * shape.ranks + rank + 1);
    cool_down(order, after, rank);
    timetable.ranks.push_back(order.take());
  }
  return timetable;
}

}  // namespace motley
