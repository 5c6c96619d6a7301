// Closed forms of schedules beside their timetables: how transfers lengthen 1F1B, where stages with few micro-batches
// in flight wait until these have come back, and what weights' gradients that are put off fill under zb_h1.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
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

TEST_CASE(
    "the closed form of zb-h1 is what its timetables take where stages are equal, and near it elsewhere",
    "[plan]") {
  int tried = 0;
  double sum = 0, distance = 0;
  for (unsigned seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const bool are_equal = dice.once_in(4);
    const int stages = dice.one_of({2, 3, 5, 8, 12, 20});
    const int micro_batches = stages * dice.one_of({1, 2, 3, 6});
    const double input_s = dice.one_of({1.0, 1.3, 1.8}), weights_s = dice.one_of({0.5, 0.8, 1.0});
    ScheduleTimes times;
    std::vector<PassSeconds> passes;
    for (int i = 0; i < stages; ++i) {
      const double longer = are_equal ? 1 : dice.one_of({0.5, 0.9, 1.0, 1.1, 1.5});
      times.stages.push_back({longer, longer * input_s, longer * weights_s});
      passes.push_back({longer, longer * (input_s + weights_s), longer * weights_s});
    }
    const PipelineShape shape{stages, 1, micro_batches, 0, true};
    double period_s = 0;
    const std::optional<ScheduleResult> result =
        evaluate(make_timetable(Schedule::zb_h1, shape, times), times);
    for (const RankTimes& rank : result->ranks) period_s = std::max(period_s, rank.last_s - rank.first_s);
    const double ratio = split_backward_s(passes, micro_batches) / period_s;
    CAPTURE(ratio, stages, micro_batches);
    if (are_equal && micro_batches > stages) CHECK(ratio == Approx(1));
    CHECK(ratio > 0.88);
    CHECK(ratio < 1.16);
    sum += ratio;
    distance += std::abs(ratio - 1);
    ++tried;
  }
  CHECK(sum / tried == Approx(1).margin(0.02));
  CHECK(distance / tried < 0.025);
}
