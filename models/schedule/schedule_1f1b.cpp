// 1F1B (PipeDream-flush, Narayanan et al. 2020, arXiv:2006.09503): p-1-rank forwards to warm up, then one forward and
// one backward in turn. The bubble is (p-1)/m of the work, as in GPipe, with at most p-rank micro-batches in flight.
#include <algorithm>

#include "models/schedule/schedule_rules.hpp"

namespace motley {

std::vector<Action> in_turn(int virtual_stage, int micro_batches, int warm_up, Pass backward) {
  std::vector<Action> order;
  warm_up = std::min(warm_up, micro_batches);
  for (int m = 0; m < warm_up; ++m) order.push_back({Pass::forward, virtual_stage, m});
  for (int m = warm_up; m < micro_batches; ++m) {
    order.push_back({Pass::forward, virtual_stage, m});
    order.push_back({backward, virtual_stage, m - warm_up});
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) order.push_back({backward, virtual_stage, m});
  return order;
}

Timetable one_f_one_b(const PipelineShape& shape) {
  Timetable timetable;
  for (int rank = 0; rank < shape.ranks; ++rank)
    timetable.ranks.push_back(
        in_turn(rank, shape.micro_batches, shape.ranks - 1 - rank + shape.ahead, Pass::backward));
  return timetable;
}

}  // namespace motley
