// What tells rows that cannot be among the best, against pipelines on them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/row_time.hpp"
#include "models/strategy/partition.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Stages on one segment of a row; the gradients of the weights of embedding and head are a large part of theirs.
StageSeconds random_seconds(Dice& dice, std::int64_t layers) {
  const auto pass = [&](double seconds, std::initializer_list<double> shares) {
    return PassSeconds{seconds, 2 * seconds, 3 * seconds * dice.one_of(shares)};
  };
  const double share = dice.one_of({0.05, 0.25});
  StageSeconds seconds;
  const double once_s = dice.one_of({0.0, 0.05});
  seconds.pass = {once_s, once_s, 0};
  seconds.embedding = pass(dice.one_of({0.0, 0.1, 2.0}), {0.2, 0.3, 0.6});
  seconds.head = pass(dice.one_of({0.1, 1.0, 2.0, 4.0}), {0.2, 0.33, 0.6});
  const double speed = dice.one_of({0.5, 1.0, 1.0, 1.0, 1.7});
  seconds.layers.push_back({});
  seconds.least_layer_s = 1e9;
  for (std::int64_t i = 0; i < layers; ++i) {
    const PassSeconds layer = pass(speed * dice.one_of({1.0, 1.0, 1.0, 1.4}), {share, share, share / 2});
    seconds.least_layer_s = std::min(seconds.least_layer_s, layer.seconds());
    seconds.weights_share = std::max(seconds.weights_share, layer.weights_s / layer.seconds());
    seconds.layers.push_back(seconds.layers.back());
    seconds.layers.back() += layer;
  }
  return seconds;
}

// Segments that may have several stages, and the stages of one pipeline on them, some of which recompute.
struct RandomRow {
  std::vector<StageSeconds> seconds;
  std::vector<RowPart> parts;
  std::vector<PassSeconds> stages;
  std::vector<std::int64_t> layers;  // of the stages
  std::int64_t all_layers = 0;
};

RandomRow random_row(Dice& dice, int chunks) {
  RandomRow row;
  std::vector<std::size_t> owners;
  const int segments = dice.one_of({1, 2, 3, 4});
  std::vector<std::int64_t> most;
  for (int i = 0; i < segments; ++i) {
    most.push_back(dice.one_of({1, 2, 3, 6}));
    const std::int64_t used = std::min<std::int64_t>(most.back(), dice.one_of({1, 2, 3, 6}));
    owners.insert(owners.end(), static_cast<std::size_t>(used), static_cast<std::size_t>(i));
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    row.layers.push_back(chunks * dice.one_of({1, 1, 2, 3}) + (chunks > 1 ? dice.one_of({0, 1}) : 0));
    row.all_layers += row.layers.back();
  }
  for (int i = 0; i < segments; ++i) row.seconds.push_back(random_seconds(dice, row.all_layers));
  for (std::size_t i = 0; i < row.seconds.size(); ++i) {
    // Recompute makes a backward as long as a forward longer.
    const PassSeconds whole = row.seconds[i].of_layers(0, row.all_layers);
    row.parts.push_back({most[i], &row.seconds[i], whole.seconds() + whole.forward_s});
  }
  std::int64_t first = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    PassSeconds& stage =
        row.stages.emplace_back(row.seconds[owners[i]].of_layers(first, first + row.layers[i]));
    stage.backward_s += stage.forward_s * dice.one_of({0.0, 0.0, 0.3, 1.0});
    first += row.layers[i];
  }
  return row;
}

double step_s(const RandomRow& row, Schedule schedule, int chunks, double micro_batches) {
  if (schedule == Schedule::zb_h1) return split_backward_s(row.stages, micro_batches);
  double all_s = 0, longest_s = 0;
  for (int round = 0; round < chunks; ++round) {
    double longest_chunk_s = 0;
    for (std::size_t i = 0; i < row.stages.size(); ++i) {
      const std::int64_t layers = even_layers(row.layers[i], chunks)[static_cast<std::size_t>(round)];
      const double chunk_s =
          row.stages[i].seconds() * static_cast<double>(layers) / static_cast<double>(row.layers[i]);
      all_s += chunk_s;
      longest_chunk_s = std::max(longest_chunk_s, chunk_s);
    }
    longest_s += longest_chunk_s;
  }
  return micro_batches * longest_s + (all_s - longest_s) / chunks;
}

}  // namespace

TEST_CASE("no row is dropped on which a pipeline takes less than those that are kept", "[plan]") {
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zb_h1, Schedule::interleaved}) {
    int dropped = 0, near = 0;
    for (unsigned seed = 1; seed <= 4000; ++seed) {
      CAPTURE(seed, name_of(schedule));
      Dice dice(seed);
      const int chunks = schedule == Schedule::interleaved ? dice.one_of({2, 3}) : 1;
      const RandomRow row = random_row(dice, chunks);
      if (schedule != Schedule::one_f_one_b && row.stages.size() < 2) continue;
      const double micro_batches = dice.one_of({1.0, 2.0, 5.0, 12.0, 40.0});
      const RowTime time = row_time(row.parts, row.all_layers);
      const double taken_s = step_s(row, schedule, chunks, micro_batches);
      double longest_s = 0;
      for (const PassSeconds& stage : row.stages) longest_s = std::max(longest_s, stage.seconds());
      const double allowed_s = time.longest_stage_s(schedule, chunks, micro_batches, taken_s * (1 + 1e-9));
      REQUIRE(allowed_s >= longest_s * (1 - 1e-9));
      near += allowed_s <= longest_s * 1.1 ? 1 : 0;
      dropped += time.longest_stage_s(schedule, chunks, micro_batches, taken_s / 3) <= 0 ? 1 : 0;
    }
    CAPTURE(near, dropped);
    CHECK(near > 1000);
    CHECK(dropped > 1000);
  }
}
