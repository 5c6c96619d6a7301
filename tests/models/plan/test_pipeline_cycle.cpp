// How transfers lengthen 1F1B: stages with few micro-batches in flight wait until these have come back.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "models/plan/pipeline_estimate.hpp"
#include "models/schedule/schedule.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using namespace motley::tests;

TEST_CASE("micro-batches times the cycle are no more than 1F1B takes, and not far below it", "[plan]") {
  double sum = 0, without = 0;
  int slow = 0;
  constexpr int kPipelines = 2000;
  for (unsigned seed = 1; seed <= kPipelines; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const int stages = dice.one_of({2, 3, 5, 8, 12}), micro_batches = dice.one_of({16, 32, 64});
    ScheduleTimes times;
    times.transfer_s = dice.one_of({0.0, 0.5, 2.0, 6.0});
    std::vector<double> stage_s, in_flight;
    for (int i = 0; i < stages; ++i) {
      const double forward_s = dice.one_of({1.0, 1.3, 2.0});
      times.stages.push_back({forward_s, 2 * forward_s, 0});
      stage_s.push_back(3 * forward_s);
      in_flight.push_back(std::min(stages - i, micro_batches));
    }
    const std::vector<double> transfer_s(stage_s.size() - 1, times.transfer_s);
    const double least_s = micro_batches * cycle_s(stage_s, transfer_s, in_flight);
    const double makespan_s =
        evaluate(make_timetable(Schedule::one_f_one_b, {stages, 1, micro_batches}), times)->makespan_s;
    // As many micro-batches as are in flight at last need not come back before the next one.
    CHECK(least_s <= makespan_s * (1 + 1e-9));
    if (times.transfer_s < 2) continue;
    ++slow;
    sum += least_s / makespan_s;
    without += micro_batches * *std::max_element(stage_s.begin(), stage_s.end()) / makespan_s;
  }
  CHECK(sum / slow > 0.8);
  CHECK(without / slow < 0.7);  // what an estimate without transfers says
}
