// Golden text: the Program of a small job, word for word. MOTLEY_REWRITE=1 in the environment writes it anew, to be
// read in `git diff`: a change of what strategies compile to is seen there, line by line.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/models/tiny_job.hpp"

using namespace motley;

namespace {

void check_golden(const Job& job, const std::string& name) {
  const std::string path = std::string(MOTLEY_SOURCE_DIR) + "/tests/models/golden/" + name + ".program";
  const std::string text = print(compile(job));
  if (std::getenv("MOTLEY_REWRITE") != nullptr) std::ofstream(path) << text;
  std::stringstream expected;
  expected << std::ifstream(path).rdbuf();
  INFO(path);
  REQUIRE(expected.str() == text);
}

Job two_by_two(Family family) {
  Job job = tests::tiny_job({2, 2, 1}, family);
  job.transformer.layers = 2;
  job.train.global_batch = 4;
  job.strategy = expand(job.transformer, job.train, 2, 2, 1);
  return job;
}

}  // namespace

TEST_CASE("a GPT-2 on two stages of two ranks compiles to the golden text") {
  check_golden(two_by_two(Family::gpt2), "gpt2-tp2-pp2");
}

TEST_CASE("a Llama with full recompute, overlapped gradients and two replicas compiles to the golden text") {
  Job job = tests::tiny_job({1, 1, 2}, Family::llama);
  job.transformer.layers = 2;
  job.train.global_batch = 4;
  job.strategy = expand(job.transformer, job.train, 1, 1, 2);
  job.strategy.recompute = Recompute::full;
  job.strategy.overlap_gradients = true;
  job.strategy.bucket_bytes = 10'000;
  check_golden(job, "llama-dp2-recompute");
}

TEST_CASE("experts divided over the ranks of a tensor-parallel group compile to the golden text") {
  Transformer transformer = tests::tiny_variant("mixtral");
  transformer.layers = 1;
  Job job = tests::tiny_job({2, 1, 1}, transformer);
  job.strategy.templates[0].stages[0].expert_parallel = 2;
  job.strategy.templates[0].stages[0].expert_tensor_parallel = 1;
  job.train.expert_skew = 1;
  check_golden(job, "mixtral-tp2-ep2");
}

TEST_CASE(
    "latent attention and routed experts over two ranks, with FP8 products, compile to the golden text") {
  Transformer transformer = tests::tiny_variant("deepseek-v3");
  transformer.layers = 2;
  Job job = tests::tiny_job({2, 1, 1}, transformer);
  job.train.precision = Format::bf16;
  job.train.matmuls = Format::fp8;
  job.train.expert_skew = 0.5;
  check_golden(job, "deepseek-v3-tp2-fp8");
}
