// What optimizers keep and what frozen weights take: laws over random shapes, and the figures that were published.
#include <algorithm>
#include <catch2/catch.hpp>

#include "models/transformer/optimizer.hpp"
#include "models/transformer/transformer.hpp"
#include "tests/support/random_text.hpp"

using namespace motley;

namespace {

std::int64_t state_of(const OptimizerRule& rule, const Transformer& transformer) {
  std::int64_t bytes = 0;
  for (const Parameter& parameter : parameters(transformer))
    if (parameter.trained) bytes += optimizer_bytes(rule, parameter, parameter.shape);
  return bytes;
}

Parameter drawn_parameter(tests::Random& random) {
  Parameter parameter;
  parameter.name = random.one_of<std::string>({"layers.3.qkv.weight", "head.weight", "embedding.token.weight",
                                               "extra.0.from_token.weight", "layers.0.norm1.weight"});
  parameter.shape = {random.integer(2, 5'000)};
  if (random.coin()) parameter.shape.push_back(random.integer(2, 5'000));
  return parameter;
}

}  // namespace

TEST_CASE("AdamW keeps 8 bytes of each parameter, and 4 more where weights are narrower than fp32") {
  for (const char* name : {"llama-3-8b", "gpt2-xl", "qwen3-30b-a3b", "deepseek-v3"}) {
    const Transformer model = load_transformer(name);
    const std::int64_t count = trained_parameter_count(model);
    CHECK(state_of({Optimizer::adamw, Format::fp32, true}, model) == 8 * count);
    CHECK(state_of({Optimizer::adamw, Format::bf16, true}, model) == 12 * count);
    CHECK(state_of({Optimizer::adamw, Format::bf16, false}, model) == 8 * count);
    CHECK(state_of({Optimizer::sgd, Format::fp32, true}, model) == 0);
    CHECK(state_of({Optimizer::sgd, Format::fp16, true}, model) == 4 * count);
  }
}

TEST_CASE("optimizers are ordered by what they keep, and cutting a parameter saves nothing in all") {
  tests::Random random(1);
  for (int draw = 0; draw < 2'000; ++draw) {
    const Parameter parameter = drawn_parameter(random);
    const Format precision = random.one_of<Format>({Format::fp32, Format::bf16});
    const bool masters = random.coin();
    const auto bytes = [&](Optimizer optimizer, const std::vector<std::int64_t>& shape) {
      return optimizer_bytes({optimizer, precision, masters}, parameter, shape);
    };
    CAPTURE(parameter.name, parameter.shape);
    const auto& shape = parameter.shape;
    CHECK(bytes(Optimizer::sgd, shape) <= bytes(Optimizer::adafactor, shape));
    CHECK(bytes(Optimizer::adafactor, shape) <= bytes(Optimizer::adamw, shape));
    CHECK(bytes(Optimizer::muon, shape) <= bytes(Optimizer::adamw, shape));
    CHECK(bytes(Optimizer::adamw_8bit, shape) <= bytes(Optimizer::adamw, shape));
    const std::int64_t parts = random.integer(2, 4);
    std::vector<std::int64_t> whole = shape, part = shape;
    whole[0] *= parts;
    for (const Optimizer each : every<Optimizer>()) CHECK(parts * bytes(each, part) >= bytes(each, whole));
    for (const Optimizer each : {Optimizer::adamw, Optimizer::muon, Optimizer::sgd})
      CHECK(parts * bytes(each, part) == bytes(each, whole));
  }
}

// Shazeer & Stern 2018 (arXiv:1804.04235), section 3: n + m numbers in place of n m for a matrix.
TEST_CASE(
    "Adafactor keeps the sums of rows and columns of a matrix, of each expert's own where experts are "
    "stacked") {
  const OptimizerRule rule{Optimizer::adafactor, Format::fp32, true};
  Parameter matrix;
  matrix.name = "layers.0.fc1.weight";
  matrix.shape = {4'096, 1'024};
  CHECK(optimizer_bytes(rule, matrix, matrix.shape) == 4 * (4'096 + 1'024));
  matrix.experts = 8;
  CHECK(optimizer_bytes(rule, matrix, matrix.shape) == 8 * 4 * (512 + 1'024));
  Parameter vector;
  vector.name = "layers.0.norm1.weight";
  vector.shape = {1'024};
  CHECK(optimizer_bytes(rule, vector, vector.shape) == 4 * 1'024);
}

// huggingface.co/docs/bitsandbytes/v0.50.1/optimizers (read 2026-11): "75% less GPU memory"; tensors of fewer than
// 4,096 elements stay at 32 bits.
TEST_CASE("8-bit AdamW keeps a quarter of what AdamW keeps, and small tensors as AdamW does") {
  const Transformer model = load_transformer("llama-2-7b");
  const double share = static_cast<double>(state_of({Optimizer::adamw_8bit, Format::fp32, true}, model)) /
                       static_cast<double>(state_of({Optimizer::adamw, Format::fp32, true}, model));
  CHECK(share > 0.25);
  CHECK(share < 0.255);
  Parameter vector;
  vector.name = "layers.0.norm1.weight";
  const auto bytes = [&](std::int64_t count) {
    return optimizer_bytes({Optimizer::adamw_8bit, Format::fp32, true}, vector, {count});
  };
  CHECK(bytes(4'095) == 8 * 4'095);
  CHECK(bytes(4'096) == 2 * (4'096 + 4 * 16));
  CHECK(bytes(4'097) == 2 * (4'097 + 4 * 17));
}

// Jordan 2024-12 (kellerjordan.github.io/posts/muon), "Runtime analysis": at most 5 m / B of a step's FLOPs, 0.7 % for
// a model of width 768 with 524,288 tokens a step and 0.5 % for Llama 405B with 16 M tokens.
TEST_CASE(
    "Muon's orthogonalization costs what its author says, and it keeps one number where AdamW keeps two") {
  const auto [name, tokens, width] = GENERATE(
      table<std::string, double, double>({{"gpt2", 524'288, 768}, {"llama-3.1-405b", 16e6, 16'384}}));
  const Transformer model = load_transformer(name);
  double flops = 0, elements = 0;
  for (const Parameter& parameter : parameters(model)) {
    flops += orthogonalization_flops(parameter, parameter.shape);
    if (!is_orthogonalized(parameter)) continue;
    elements += static_cast<double>(parameter.count());
    CHECK(optimizer_bytes({Optimizer::muon, Format::fp32, true}, parameter, parameter.shape) ==
          4 * parameter.count());
  }
  const double share = flops / (6 * elements * tokens);
  CHECK(share <= 5 * width / tokens);
  CHECK(share > 2 * width / tokens);
  CHECK(state_of({Optimizer::muon, Format::fp32, true}, model) >
        4 * trained_parameter_count(model));  // embeddings and norms have two
}

// Dettmers et al. 2023 (arXiv:2305.14314), section 3: constants take 8/64 + 32/(64 256) = 0.127 bits a parameter.
TEST_CASE("NF4 with double quantization takes 4.127 bits a parameter") {
  CHECK(8.0 * static_cast<double>(nf4_bytes(1 << 26)) / (1 << 26) ==
        Approx(4 + 8.0 / 64 + 32.0 / (64 * 256)));
  tests::Random random(2);
  for (int draw = 0; draw < 1'000; ++draw) {
    const std::int64_t a = random.integer(1, 1 << 20), b = random.integer(1, 1 << 20);
    CHECK(nf4_bytes(a) + nf4_bytes(b) >= nf4_bytes(a + b));
    CHECK(nf4_bytes(a) <= nf4_bytes(a + 1));
    CHECK(nf4_bytes(a) < 2 * a + 6);
  }
}

// Hu et al. 2021 (arXiv:2106.09685): 4.7 M and 37.7 M trainable parameters of GPT-3 175B in table 4, for adapters of
// rank 1 and 8 on the query and value projections; one of the fused projection has as many. Section 4.2: 350 GB of
// memory are left of training it, with rank 4.
TEST_CASE(
    "adapters of GPT-3 are as many as published, and training them takes what the frozen weights take") {
  Transformer model = load_transformer("gpt3-175b");
  const auto [rank, count] = GENERATE(table<std::int64_t, double>({{1, 4.7e6}, {8, 37.7e6}}));
  model.lora = {rank, static_cast<double>(rank), {"qkv"}};
  CHECK(static_cast<double>(trained_parameter_count(model)) == Approx(count).epsilon(0.005));
  model.lora.rank = 4;
  double bytes = 0;
  for (const Parameter& parameter : parameters(model)) {
    bytes += 2.0 * static_cast<double>(parameter.count());
    if (parameter.trained)
      bytes += 4.0 * static_cast<double>(parameter.count()) +
               static_cast<double>(optimizer_bytes({}, parameter, parameter.shape));
  }
  CHECK(bytes == Approx(350e9).epsilon(0.01));
}
