// What low-rank adapters add, and what frozen weights save, compared with closed forms and published counts.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

Transformer adapted(Transformer transformer, std::int64_t rank, std::vector<std::string> on) {
  transformer.lora.rank = rank;
  transformer.lora.alpha = 2 * static_cast<double>(rank);
  transformer.lora.on = std::move(on);
  return transformer;
}

}  // namespace

// PEFT prints 4,194,304 "trainable params" for Llama 2 7B with rank 8 on q_proj and v_proj. An adapter of the fused qkv
// has as many: 4 C rank in each layer.
TEST_CASE("adapters are as many as published") {
  const Transformer llama = load_transformer("llama-2-7b");
  CHECK(trained_parameter_count(adapted(llama, 8, {"qkv"})) == 4'194'304);
  CHECK(trained_parameter_count(llama) == parameter_count(llama));
  CHECK(parameter_count(adapted(llama, 8, {"qkv"})) == parameter_count(llama));
}

TEST_CASE("frozen weights have neither gradients nor optimizer state") {
  const Job whole = tests::tiny_job({2, 1, 1}, Family::llama);
  Job job = whole;
  job.transformer = adapted(job.transformer, 4, {"qkv", "fc2"});
  const Program program = compile(job);
  std::int64_t parameters_held = 0, gradients = 0, optimizer = 0;
  for (const Tensor& tensor : program.rank_programs.front().tensors) {
    if (tensor.role == TensorRole::parameter) parameters_held += tensor.bytes;
    if (tensor.role == TensorRole::gradient) gradients += tensor.bytes;
    if (tensor.role == TensorRole::optimizer) optimizer += tensor.bytes;
  }
  const std::int64_t C = 32, ffn = 96, rank = 4, layers = 4, tp = 2;
  const std::int64_t adapters = layers * (rank * C + 3 * C * rank / tp + rank * ffn / tp + C * rank) * 4;
  CHECK(gradients == adapters);
  CHECK(optimizer == 2 * adapters);  // two moments; fp32 weights need no master weights
  const Program untouched = compile(whole);
  std::int64_t before = 0;
  for (const Tensor& tensor : untouched.rank_programs.front().tensors)
    if (tensor.role == TensorRole::parameter) before += tensor.bytes;
  CHECK(parameters_held == before + adapters);
}

TEST_CASE(
    "the arithmetic of a step is that of the formula: four a frozen parameter and token, six a trained one") {
  for (Family family : {Family::gpt2, Family::llama}) {
    Transformer transformer = tests::tiny_transformer(family);
    transformer = adapted(transformer, 4, {"qkv", "proj", transformer.gated() ? "gate_up" : "fc1", "fc2"});
    const Job job = tests::tiny_job({1, 1, 1}, transformer);
    const Program program = compile(job);
    double flops = 0, again = 0;
    for (const Block& block : program.rank_programs.front().blocks)
      for (const Kernel& kernel : block.kernels) {
        flops += kernel.flops;
        if (kernel.op == KernelOp::attention_backward) again += kernel.flops / 5;  // the scores once more
      }
    CHECK(flops - again == Approx(model_flops_per_sequence(transformer, job.train.sequence) *
                                  static_cast<double>(job.train.micro_batch))
                               .epsilon(1e-12));
  }
}

TEST_CASE("a scenario names adapters, and they print and read back") {
  const Scenario scenario = read_scenario(
      parse_yaml("model: tiny-gpt2\ncluster: host-2\nstrategy: {tp: 2}\n"
                 "train: {global_batch: 2, sequence: 16, precision: fp32, lora: {rank: 4, on: [qkv]}}\n",
                 "test.yaml"),
      "test.yaml");
  const Transformer& transformer = scenario.job.transformer;
  CHECK(transformer.lora.rank == 4);
  CHECK(transformer.lora.alpha == 4);
  CHECK(transformer.lora.on == std::vector<std::string>{"qkv"});
  CHECK(parse_transformer(print(transformer)) == transformer);
  Transformer plain = transformer;
  plain.lora = {};
  CHECK(strategy_hash(plain, scenario.job.train, scenario.job.strategy) !=
        strategy_hash(transformer, scenario.job.train, scenario.job.strategy));
}

TEST_CASE("a gradient of adapters alone crosses replicas") {
  Job job = tests::tiny_job({1, 1, 2}, adapted(tests::tiny_transformer(Family::llama), 4, {"qkv"}));
  const Program program = compile(job);
  std::int64_t reduced = 0;
  for (const Stream& stream : program.rank_programs.front().streams)
    for (const Instruction& instruction : stream.instructions)
      if (const auto* collective = instruction.as<Collective>()) reduced += collective->bytes;
  CHECK(reduced == 4 * trained_parameter_count(job.transformer));
  CHECK_NOTHROW(check(program, job.cluster));
}
