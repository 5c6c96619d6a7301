// How tokens of real ranks chose experts: what is added up, and what a real training measures.
#include <catch2/catch.hpp>
#include <numeric>

#include "hw/world/routing_tally.hpp"
#include "hw/world/train.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"
#include "tests/support/tiny_text.hpp"

using namespace motley;

namespace {

Job divided(std::int64_t parts, const char* model = "mixtral") {
  Job job = tests::tiny_job({1, 1, 4}, tests::tiny_variant(model));
  job.strategy.templates[0].stages[0].expert_parallel = parts;
  return job;
}

}  // namespace

TEST_CASE("loads are means over exchanges, of the busiest rank in each") {
  const Program program = compile(divided(2));
  RoutingTally tally(program, 4);
  // Ranks 0 and 1 exchange, and so do 2 and 3. Experts 0 and 1 are on the first rank of each pair.
  tally.add(0_rank, numbers_of({{{0, 1}, {4, 0, 0, 0}}}));
  tally.add(1_rank, numbers_of({{{0, 1}, {0, 2, 2, 0}}}));
  tally.add(2_rank, numbers_of({{{0, 1}, {1, 1, 1, 1}}}));
  tally.add(3_rank, numbers_of({{{0, 1}, {0, 0, 0, 4}}}));
  tally.end_step();
  const MeasuredRouting first = tally.measured();
  REQUIRE(first.layers.size() == 1);
  CHECK(first.layers[0].layer == 1);
  CHECK(first.layers[0].parts == 2);
  CHECK(first.layers[0].busiest_rank == Approx((1.5 + 1.5) / 2));    // 6 and 2 of 8; 2 and 6 of 8
  CHECK(first.layers[0].busiest_expert == Approx((2.0 + 2.5) / 2));  // 4 of 8; 5 of 8
  CHECK(first.layers[0].shares == std::vector<double>{5 / 16.0, 3 / 16.0, 3 / 16.0, 5 / 16.0});
  CHECK(first.busiest_rank == std::vector{1.5});
  tally.add(0_rank, numbers_of({{{0, 1}, {1, 0, 1, 0}}, {{0, 3}, {2, 0, 0, 0}}}));
  tally.end_step();
  const MeasuredRouting both = tally.measured();
  CHECK(both.busiest_rank == std::vector{1.5, (1.0 + 2.0) / 2});
  REQUIRE(both.layers.size() == 2);
  CHECK(both.layers[0].busiest_rank == Approx((1.5 + 1.5 + 1.0) / 3));
  CHECK(both.layers[1].layer == 3);
  CHECK(both.layers[1].busiest_rank == 2);
}

TEST_CASE("training measures every layer with experts, however they are divided, and no others") {
  for (const std::int64_t parts : {1, 2, 4}) {
    const Job job = divided(parts, GENERATE("mixtral", "deepseek-v3"));
    const auto result = train_in_process(job, compile(job), tests::tiny_text(), {.steps = 3});
    REQUIRE(result.routing.has_value());
    CHECK(result.routing->busiest_rank.size() == 3);
    CHECK(result.routing->busiest_expert.size() == 3);
    std::vector<int> measured, with_experts;
    for (std::int64_t layer = 0; layer < job.transformer.layers; ++layer)
      if (job.transformer.has_experts(layer)) with_experts.push_back(static_cast<int>(layer));
    for (const RoutedLayer& layer : result.routing->layers) {
      measured.push_back(layer.layer);
      CHECK(layer.parts == parts);
      CHECK(layer.busiest_rank >= 1);
      CHECK(layer.busiest_rank <= static_cast<double>(parts));
      CHECK(layer.busiest_expert >= layer.busiest_rank);
      CHECK(layer.shares.size() == static_cast<std::size_t>(job.transformer.experts.count));
      CHECK(std::accumulate(layer.shares.begin(), layer.shares.end(), 0.0) == Approx(1));
    }
    CHECK(measured == with_experts);
  }
}

TEST_CASE(
    "how experts are divided changes which rank is busy, not which experts are, nor does computing again") {
  const auto shares_of = [](const Job& job) {
    const auto result = train_in_process(job, compile(job), tests::tiny_text(), {.steps = 1});
    std::vector<double> shares;
    for (const RoutedLayer& layer : result.routing.value().layers)
      shares.insert(shares.end(), layer.shares.begin(), layer.shares.end());
    return shares;
  };
  const std::vector<double> whole = shares_of(divided(1));
  CHECK(shares_of(divided(2)) == whole);
  Job again = divided(1);
  again.strategy.recompute = Recompute::full;
  again.strategy.templates[0].stages[0].recompute = Recompute::full;
  CHECK(shares_of(again) == whole);
}

TEST_CASE("a model without experts measures no routing") {
  const Job job = tests::tiny_job({1, 1, 2});
  CHECK_FALSE(train_in_process(job, compile(job), tests::tiny_text(), {.steps = 1}).routing.has_value());
}
