// Several documents in one sequence: the work of attention, by closed form, and what is refused.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

double attention_flops(const Job& job) {
  const Program program = compile(job);
  double flops = 0;
  for (const Block& block : program.rank_programs.front().blocks)
    for (const Kernel& kernel : block.kernels)
      if (kernel.op == KernelOp::attention || kernel.op == KernelOp::attention_backward)
        flops += kernel.flops;
  return flops;
}

}  // namespace

TEST_CASE("attention over documents computes the sum of their squares, and nothing else changes") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  const double whole = attention_flops(job);
  const std::string hash = strategy_hash(job.transformer, job.train, job.strategy);
  job.train.documents = {4, 4, 4, 4};
  CHECK(attention_flops(job) == Approx(whole / 4));
  job.train.documents = {4, 12};
  CHECK(attention_flops(job) == Approx(whole * (4 * 4 + 12 * 12) / (16 * 16)));
  CHECK(strategy_hash(job.transformer, job.train, job.strategy) != hash);
  job.train.documents = {16};
  CHECK(attention_flops(job) == whole);
  CHECK(attention_pairs({4, 12}, 16, Sight{.window = 5}) == attention_pairs(4, 5) + attention_pairs(12, 5));
}

TEST_CASE("documents fill a sequence, and positions are those of the longest") {
  Job job = tests::tiny_job({1, 1, 1});
  const auto kind = [&]() -> std::string {
    const auto complaint = find_batch_complaint(job.transformer, job.train);
    return complaint ? complaint->kind : "accepted";
  };
  job.train.documents = {8, 4};
  CHECK(kind() == "impossible-documents");
  job.train.documents = {8, 4, 4};
  CHECK(kind() == "accepted");
  job.train.sequence = 64;  // documents fit the 16 learned positions
  job.train.documents = {16, 16, 16, 16};
  CHECK(kind() == "accepted");
  job.train.documents = {17, 15, 16, 16};
  CHECK(kind() == "impossible-sequence");
}
