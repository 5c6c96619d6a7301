// Interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2): rank r holds virtual stages r, r+p, r+2p,
// ...; micro-batches go through each chunk in groups of p. The bubble is (p-1)/(v m) of the work for v chunks. The
// order is that of Megatron-LM, which also refuses micro-batches that are no multiple of p.
#include <algorithm>

#include "models/schedule/schedule_rules.hpp"

namespace motley {
namespace {

// The k-th forward (or backward) of a rank.
Action nth(const PipelineShape& shape, int rank, int k, Pass pass) {
  const int p = shape.ranks, v = shape.chunks;
  const int turn = k / p % v;
  const int chunk = pass == Pass::forward ? turn : v - 1 - turn;
  return {pass, chunk * p + rank, k / (p * v) * p + k % p};
}

}  // namespace

Timetable interleaved(const PipelineShape& shape) {
  const int p = shape.ranks, v = shape.chunks, total = v * shape.micro_batches;
  Timetable timetable;
  for (int rank = 0; rank < p; ++rank) {
    const int warm_up = std::min(total, 2 * (p - 1 - rank) + (v - 1) * p + shape.ahead);
    std::vector<Action> order;
    for (int k = 0; k < warm_up; ++k) order.push_back(nth(shape, rank, k, Pass::forward));
    for (int k = warm_up; k < total; ++k) {
      order.push_back(nth(shape, rank, k, Pass::forward));
      order.push_back(nth(shape, rank, k - warm_up, Pass::backward));
    }
    for (int k = total - warm_up; k < total; ++k) order.push_back(nth(shape, rank, k, Pass::backward));
    timetable.ranks.push_back(std::move(order));
  }
  return timetable;
}

}  // namespace motley
