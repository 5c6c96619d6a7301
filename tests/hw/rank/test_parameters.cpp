// Parameters: shards of any tensor-parallel degree are cut from one model, which only the seed decides. The first steps
// of AdamW are compared with numbers worked out by hand.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "hw/rank/memory.hpp"
#include "hw/rank/parameters.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

std::vector<float> initial(const Parameter& parameter, std::uint64_t seed, std::int64_t tp,
                           std::int64_t index) {
  std::vector<float> values(shard_elements(parameter, tp, index).size());
  fill_initial(parameter, seed, tp, index, values);
  return values;
}

}  // namespace

TEST_CASE("the shards of a parameter hold every element of the whole with the same first value") {
  for (Family family : {Family::gpt2, Family::llama})
    for (const Parameter& parameter : parameters(tests::tiny_transformer(family))) {
      const auto whole = initial(parameter, 7, 1, 0);
      for (std::int64_t tp : {2, 4}) {
        std::vector<int> seen(whole.size());
        for (std::int64_t index = 0; index < tp; ++index) {
          const auto elements = shard_elements(parameter, tp, index);
          const auto values = initial(parameter, 7, tp, index);
          for (std::size_t i = 0; i < elements.size(); ++i) {
            ++seen[static_cast<std::size_t>(elements[i])];
            REQUIRE(values[i] == whole[static_cast<std::size_t>(elements[i])]);
          }
        }
        const int copies = parameter.cut == Cut::replicated ? static_cast<int>(tp) : 1;
        for (int times : seen) REQUIRE(times == copies);
      }
    }
}

TEST_CASE("a padded vocabulary shard is zero where no row exists") {
  Transformer transformer = tests::tiny_transformer();
  transformer.vocabulary = 7;
  const Parameter token = parameters(transformer)[0];
  const auto last = shard_elements(token, 4, 3);  // rows 6 and 7, of which 7 does not exist
  const auto values = initial(token, 1, 4, 3);
  REQUIRE(last.front() == 6 * transformer.hidden);
  REQUIRE(last.back() == -1);
  REQUIRE(values.back() == 0.0F);
  REQUIRE(values.front() != 0.0F);
}

TEST_CASE("query, key and value heads are each cut, not the fused matrix") {
  const auto all = parameters(tests::tiny_transformer());
  const auto bias = std::find_if(all.begin(), all.end(), [](const Parameter& parameter) {
    return parameter.name == "layers.0.qkv.bias";
  });
  REQUIRE(bias != all.end());
  const auto elements = shard_elements(*bias, 2, 1);  // the second half of each part of 32
  REQUIRE(elements.size() == 48);
  REQUIRE(elements[0] == 16);
  REQUIRE(elements[16] == 32 + 16);
  REQUIRE(elements[32] == 64 + 16);
}

TEST_CASE("initial values have the deviation asked for, and another seed gives another model") {
  const Parameter token = parameters(tests::tiny_transformer())[0];
  const auto values = initial(token, 1, 1, 0);
  double square = 0;
  for (float value : values) square += static_cast<double>(value) * value;
  REQUIRE(std::sqrt(square / static_cast<double>(values.size())) == Approx(token.init_std).epsilon(0.05));
  REQUIRE(values != initial(token, 2, 1, 0));
}

TEST_CASE("AdamW moves by the learning rate at first, decays what decays, and corrects its bias") {
  Train train;
  train.learning_rate = 0.1;
  train.beta1 = 0.9;
  train.beta2 = 0.99;
  train.weight_decay = 0.5;
  const std::vector<float> gradient = {3.0F, -0.001F};
  std::vector<float> means(2), squares(2), values = {1.0F, 1.0F};
  adamw(train, false, 1, gradient, means, squares, values);
  REQUIRE(values[0] == Approx(0.9));
  REQUIRE(values[1] == Approx(1.1));
  REQUIRE(means[0] == Approx(0.3));
  REQUIRE(squares[0] == Approx(0.09));
  adamw(train, true, 2, gradient, means, squares,
        values);  // the corrected moments of a constant gradient are constant
  REQUIRE(values[0] == Approx(0.9 * 0.95 - 0.1));
  REQUIRE(values[1] == Approx(1.1 * 0.95 + 0.1));
}

TEST_CASE("memory counts what is live, and refuses formats it cannot compute in") {
  const Job job = tests::tiny_job({1, 1, 1});
  const Program program = compile(job);
  const RankProgram& rank_program = program.rank_programs.front();
  Memory memory(rank_program);
  REQUIRE(memory.live_bytes() == rank_program.static_bytes);
  const TensorId tensor = rank_program.blocks.front().kernels[0].out[0];
  const std::int64_t bytes = rank_program.tensors[tensor].bytes;
  MemoryLedger ledger;
  memory.allocate(tensor, 3, ledger);
  memory.allocate(tensor, 4, ledger);
  REQUIRE(memory.find(tensor, 5) == nullptr);
  memory.free(tensor, 3, ledger);
  REQUIRE(ledger.allocated == 2 * bytes);
  REQUIRE(ledger.freed == bytes);
  REQUIRE(ledger.peak == 2 * bytes);
  REQUIRE(memory.live_bytes() == rank_program.static_bytes + bytes);
  REQUIRE(memory.peak_bytes() == rank_program.static_bytes + 2 * bytes);
  REQUIRE_THROWS_AS(memory.allocate(tensor, 4, ledger), std::logic_error);

  Job half = job;
  half.train.precision = Format::bf16;
  const Program refused = compile(half);
  REQUIRE_THROWS_AS(Memory(refused.rank_programs.front()), Refusal);
}
