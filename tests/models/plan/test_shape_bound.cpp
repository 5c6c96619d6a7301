// The bound of a shape against every pipeline of it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "models/plan/partial_recompute.hpp"
#include "models/plan/shape_bound.hpp"
#include "models/schedule/schedule.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kEnough = 1e6;

// What a stage of one option takes and keeps; with recompute, layers take longer and keep less.
struct Ways {
  double forward_share = 0.4;
  StageBytes light, heavy;
};

struct RandomShape {
  BoundedShape shape;
  std::vector<Ways> ways;  // of each option
};

RandomShape random_shape(unsigned seed) {
  Dice dice(seed);
  RandomShape random;
  BoundedShape& shape = random.shape;
  shape.micro_batches = dice.one_of({1, 2, 3, 4, 6, 12});
  shape.layers = dice.one_of({2, 3, 4, 5});
  shape.shorter_share = 0.4;
  if (dice.one_of({0, 1}) == 1) shape.slower = [](double chips) { return 1 + 0.05 * std::floor(chips); };
  const int groups = dice.one_of({1, 2, 2});
  for (int group = 0; group < groups; ++group) {
    shape.chips.push_back(dice.one_of({1, 2, 3, 4}));
    const double layer_s = dice.one_of({1.0, 1.5, 2.5});
    for (const int cut : {1, 2}) {
      StageOption option;
      option.group = static_cast<std::size_t>(group);
      option.chips = cut;
      option.pass_s = dice.one_of({0.0, 0.2});
      option.layer_s = layer_s / cut * dice.one_of({1.0, 1.2});
      option.heavier_layer_s = option.layer_s * 1.3;
      option.embedding_s = dice.one_of({0.0, 0.3}) / cut;
      option.head_s = dice.one_of({0.0, 0.5}) / cut;
      option.end_s = dice.one_of({0.0, 0.0, 0.4});
      option.layer_end_s = dice.one_of({0.0, 0.3, 1.0}) / cut;
      Ways ways;
      ways.light.capacity = ways.heavy.capacity = dice.one_of({4.0, 8.0, 100.0}) * cut;
      ways.light.layer = ways.heavy.layer = 1;
      ways.light.first = ways.heavy.first = dice.one_of({0.0, 1.0});
      ways.light.last = ways.heavy.last = dice.one_of({0.0, 1.0});
      ways.light.layer_in_flight = dice.one_of({0.2, 1.0});
      ways.heavy.layer_in_flight = 0.1;
      // What is computed again of a layer is there once.
      ways.heavy.fixed = 0.9 * ways.light.layer_in_flight;
      option.bytes = {ways.light, PartialBytes{ways.light, ways.heavy}.least()};
      shape.options.push_back(option);
      random.ways.push_back(ways);
    }
  }
  return random;
}

// Every pipeline of a shape: each stage any option, any number of layers, of which any number recompute. The least 1F1B
// timetable, or with several chunks the least estimate, and what the first stage does after it.
class EveryPipeline {
 public:
  explicit EveryPipeline(const RandomShape& random) : random_(random) {}
  double least_s() {
    extend(random_.shape.layers, random_.shape.chips);
    return least_s_;
  }

 private:
  struct Stage {
    std::size_t option = 0;
    double layers = 0;
    double recomputed = 0;  // layers
  };

  void extend(double layers, std::vector<double> chips) {
    if (layers == 0) return take();
    for (std::size_t i = 0; i < random_.shape.options.size(); ++i) {
      const StageOption& option = random_.shape.options[i];
      if (chips[option.group] < option.chips) continue;
      std::vector<double> left = chips;
      left[option.group] -= option.chips;
      for (double count = 1; count <= layers; ++count)
        for (double recomputed = 0; recomputed <= count; ++recomputed) {
          stages_.push_back({i, count, recomputed});
          extend(layers - count, left);
          stages_.pop_back();
        }
    }
  }

  void take() {
    const auto count = stages_.size();
    const double m = random_.shape.micro_batches;
    ScheduleTimes times;
    double longest_s = 0, all_s = 0, chips = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Stage& stage = stages_[i];
      const StageOption& option = random_.shape.options[stage.option];
      const Ways& ways = random_.ways[stage.option];
      const bool is_first = i == 0, is_last = i + 1 == count;
      const double flying = std::min(m, static_cast<double>(count - i));
      const PartialBytes bytes{ways.light, ways.heavy};
      if (!bytes.fits(static_cast<std::int64_t>(stage.layers), static_cast<std::int64_t>(stage.recomputed),
                      {flying, is_first, is_last, 1, flying}))
        return;
      const double seconds = option.pass_s + stage.layers * option.layer_s +
                             stage.recomputed * (option.heavier_layer_s - option.layer_s) +
                             (is_first ? option.embedding_s : 0) + (is_last ? option.head_s : 0);
      times.stages.push_back({ways.forward_share * seconds, (1 - ways.forward_share) * seconds, 0});
      longest_s = std::max(longest_s, seconds);
      all_s += seconds;
      chips += option.chips;
    }
    const StageOption& first = random_.shape.options[stages_.front().option];
    const double end_s = first.end_s + first.layer_end_s * stages_.front().layers;
    const double slower = random_.shape.slower ? random_.shape.slower(chips) : 1;
    const PipelineShape shape{static_cast<int>(count), 1, static_cast<int>(m)};
    const double passes_s = random_.shape.chunks > 1
                                ? m * longest_s + (all_s - longest_s) / random_.shape.chunks
                                : evaluate(make_timetable(Schedule::one_f_one_b, shape), times)->makespan_s;
    least_s_ = std::min(least_s_, slower * passes_s + end_s);
  }

  const RandomShape& random_;
  std::vector<Stage> stages_;
  double least_s_ = kInfinite;
};

}  // namespace

TEST_CASE("no pipeline of a shape takes less than its bound, and the best one takes little more",
          "[plan][slow]") {
  int feasible = 0, impossible = 0;
  double sum = 0, worst = 1;
  for (unsigned seed = 1; seed <= drawn_of(400U); ++seed) {
    CAPTURE(seed);
    const RandomShape random = random_shape(seed);
    const double bound_s = ShapeBound(random.shape).least_step(1.001, kEnough).step_s;
    const double least_s = EveryPipeline(random).least_s();
    CHECK(bound_s <= least_s * (1 + 1e-9));
    if (least_s == kInfinite) {
      ++impossible;
      continue;
    }
    CHECK(bound_s >= ShapeBound(random.shape).at_once_s() * (1 - 1e-9));
    ++feasible;
    sum += bound_s / least_s;
    worst = std::min(worst, bound_s / least_s);
  }
  CAPTURE(feasible, impossible, worst);
  CHECK(feasible > least_of(200));
  CHECK(impossible > least_of(5));
  CHECK(sum / feasible > 0.9);
}

TEST_CASE("no interleaved pipeline of a shape is estimated below its bound", "[plan]") {
  int feasible = 0;
  double sum = 0;
  for (unsigned seed = 1; seed <= drawn_of(200U); ++seed) {
    CAPTURE(seed);
    RandomShape random = random_shape(seed);
    random.shape.schedule = Schedule::interleaved;
    random.shape.chunks = 2;
    const double bound_s = ShapeBound(random.shape).least_step(1.001, kEnough).step_s;
    const double least_s = EveryPipeline(random).least_s();
    CHECK(bound_s <= least_s * (1 + 1e-9));
    if (least_s == kInfinite) continue;
    ++feasible;
    sum += bound_s / least_s;
  }
  CHECK(feasible > least_of(60));
  CHECK(sum / feasible > 0.9);
}

TEST_CASE("more chips, memory or options never raise the bound of a shape", "[plan]") {
  int lower = 0;
  for (unsigned seed = 1; seed <= drawn_of(200U); ++seed) {
    CAPTURE(seed);
    const RandomShape random = random_shape(seed);
    const double before_s = ShapeBound(random.shape).least_step(1.001, kEnough).step_s;
    const auto check_lower = [&](const BoundedShape& better) {
      const double after_s = ShapeBound(better).least_step(1.001, kEnough).step_s;
      CHECK(after_s <= before_s * 1.02);  // where there are too many splits, some are left out
      lower += after_s < before_s * 0.999 ? 1 : 0;
    };
    BoundedShape better = random.shape;
    better.chips[0] += 1;
    check_lower(better);
    better = random.shape;
    for (StageBytes& bytes : better.options[0].bytes) bytes.capacity *= 2;
    check_lower(better);
    better = random.shape;
    better.options.push_back(better.options[0]);
    better.options.back().layer_s *= 0.8;
    check_lower(better);
  }
  CHECK(lower > least_of(100));
}
