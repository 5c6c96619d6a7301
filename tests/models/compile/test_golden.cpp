// Golden text: a page of the Program of a small job, word for word, and the hash of the whole Program. MOTLEY_REWRITE=1
// in the environment writes the pages again; then `git diff` shows, line by line, how the result of compiling has
// changed.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "models/compile/compile.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// The lines of one rank program and of all groups and ranks. Only its parameters are shown of its tensors: the others
// follow from them and from the kernels, and the hash shows a change of any of them.
std::string page_of(const Program& program, const std::string& rank_program) {
  std::string page = "hash of the whole text: " + program_hash(program) + "\n";
  bool is_shown = true;
  std::stringstream text(print(program));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("program ")) is_shown = line.starts_with("program \"" + rank_program + "\"");
    if (line.starts_with("group ") || line.starts_with("rank ")) is_shown = true;
    const bool is_tensor = line.starts_with("  tensor ");
    if (is_shown && (!is_tensor || line.find(" role=parameter ") != std::string::npos)) page += line + "\n";
  }
  return page;
}

void check_golden(const Job& job, const std::string& name, const std::string& rank_program = "stage 0") {
  const std::string path =
      std::string(MOTLEY_SOURCE_DIR) + "/tests/models/compile/golden/" + name + ".program";
  const std::string page = page_of(compile(job), rank_program);
  if (std::getenv("MOTLEY_REWRITE") != nullptr) std::ofstream(path) << page;
  std::stringstream expected;
  expected << std::ifstream(path).rdbuf();
  INFO(path);
  REQUIRE(expected.str() == page);
}

// A job with one layer in each stage.
Job small_job(tests::Degrees degrees, Transformer transformer, std::int64_t micro_batches) {
  transformer.layers = degrees.pp;
  Job job = tests::tiny_job(degrees, transformer);
  job.train.global_batch = job.train.micro_batch * micro_batches * degrees.dp;
  job.strategy = expand(job.transformer, job.train, degrees.tp, degrees.pp, degrees.dp);
  return job;
}

}  // namespace

TEST_CASE("the last of two stages of a GPT-2, on two ranks each, compiles to the golden text") {
  check_golden(small_job({2, 2, 1}, tests::tiny_transformer(Family::gpt2), 2), "gpt2-tp2-pp2", "stage 1");
}

TEST_CASE("a Llama with full recompute, overlapped gradients and two replicas compiles to the golden text") {
  Job job = small_job({1, 1, 2}, tests::tiny_transformer(Family::llama), 2);
  job.strategy.recompute = Recompute::full;
  job.strategy.overlap_gradients = true;
  job.strategy.bucket_bytes = 10'000;
  check_golden(job, "llama-dp2-recompute");
}

TEST_CASE("experts divided over the ranks of a tensor-parallel group compile to the golden text") {
  Job job = small_job({2, 1, 1}, tests::tiny_variant("mixtral"), 1);
  job.strategy.templates[0].stages[0].expert_parallel = 2;
  job.strategy.templates[0].stages[0].expert_tensor_parallel = 1;
  job.train.expert_skew = 1;
  check_golden(job, "mixtral-tp2-ep2");
}

TEST_CASE(
    "latent attention and routed experts over two ranks, with FP8 products, compile to the golden text") {
  Transformer transformer = tests::tiny_variant("deepseek-v3");
  transformer.experts.dense_layers = {};
  Job job = small_job({2, 1, 1}, transformer, 1);
  job.train.precision = Format::bf16;
  job.train.matmuls = Format::fp8;
  job.train.expert_skew = 0.5;
  check_golden(job, "deepseek-v3-tp2-fp8");
}
