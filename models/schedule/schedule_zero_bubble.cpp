// Zero bubble with one chunk on each rank (Qi et al. 2023, arXiv:2401.10241): a backward is split, so that the gradient
// of the input goes on at once and the gradient of the weights fills idle time.
//   ZB-H1: the forwards and input gradients of 1F1B, with no more memory than its first rank: p micro-batches
//          everywhere. The bubble is (p-1)(F+I-W).
//   ZB-H2: about twice as many forwards to warm up, up to 2p-1 in flight. The bubble is (p-1)(F+I-2W) between the
//          first and the last action of a rank. Ranks begin, and end, one after another, so the optimizer must not
//          need a rank to wait for others.
#include "models/schedule/schedule_rules.hpp"

namespace motley {

Timetable zero_bubble_h1(const PipelineShape& shape, const ScheduleTimes& times) {
  Timetable ordered;
  for (int rank = 0; rank < shape.ranks; ++rank)
    ordered.ranks.push_back(in_turn(rank, shape.micro_batches, shape.ranks - 1 - rank, Pass::input_gradient));
  return fill_with_weight_gradients(ordered, times, shape.ranks, shape.steps_overlap);
}

Timetable zero_bubble_h2(const PipelineShape& shape, const ScheduleTimes& times) {
  Timetable ordered;
  for (int rank = 0; rank < shape.ranks; ++rank)
    ordered.ranks.push_back(
        in_turn(rank, shape.micro_batches, 2 * (shape.ranks - 1 - rank), Pass::input_gradient));
  return fill_with_weight_gradients(ordered, times, 2 * shape.ranks - 1, shape.steps_overlap);
}

}  // namespace motley
