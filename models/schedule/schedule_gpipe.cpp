// GPipe (Huang et al. 2018, arXiv:1811.06965): every forward, then every backward in the same order. The bubble is
// (p-1)/m of the work; every micro-batch is in flight at once.
#include "models/schedule/schedule_rules.hpp"

namespace motley {

Timetable gpipe(const PipelineShape& shape) {
  Timetable timetable;
  for (int rank = 0; rank < shape.ranks; ++rank)
    timetable.ranks.push_back(in_turn(rank, shape.micro_batches, shape.micro_batches, Pass::backward));
  return timetable;
}

}  // namespace motley
