// Expected tokens of experts under skewed routing, and what skew and narrow formats cost.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "models/compute_cost.hpp"
#include "models/refusal.hpp"
#include "models/routing.hpp"
#include "tests/models/tiny_job.hpp"

using namespace motley;

namespace {

Experts experts(std::int64_t count, std::int64_t per_token) {
  Experts e;
  e.count = count;
  e.per_token = per_token;
  e.ffn = 64;
  return e;
}

double block_seconds(const Job& job) {
  const Program program = compile(job);
  double seconds = 0;
  for (const Block& block : program.classes[0].blocks)
    for (const Kernel& kernel : block.kernels)
      seconds += kernel_time(kernel, program.precision, job.cluster.groups[0].chip, nullptr).seconds;
  return seconds;
}

}  // namespace

TEST_CASE("shares of experts add up to one, and none is more than a token can give") {
  const double zipf = GENERATE(0.0, 0.5, 1.0, 3.0);
  const Experts e = experts(16, GENERATE(1, 4, 16));
  const auto shares = expert_shares(e, zipf, 7, 3);
  CHECK(std::accumulate(shares.begin(), shares.end(), 0.0) == Approx(1.0).epsilon(1e-12));
  for (double share : shares) {
    CHECK(share > 0);
    CHECK(share <= 1.0 / static_cast<double>(e.per_token) * (1 + 1e-9));
  }
}

TEST_CASE("even routing gives all experts the same, skewed routing more to one the more it is skewed") {
  const Experts e = experts(8, 2);
  CHECK(busiest_rows(e, 0, 1, 0, 1000) == 250);
  CHECK(busiest_rows(e, 0.5, 1, 0, 1000) > 250);
  CHECK(busiest_rows(e, 1.0, 1, 0, 1000) > busiest_rows(e, 0.5, 1, 0, 1000));
  CHECK(busiest_rows(e, 9.0, 1, 0, 1000) == 1000);  // every token, once
}

TEST_CASE("shares are those of Zipf's law, in an order that the seed and the layer decide") {
  const Experts e = experts(4, 1);
  auto shares = expert_shares(e, 1.0, 5, 0);
  CHECK(shares == expert_shares(e, 1.0, 5, 0));
  bool another = false;
  for (int layer = 1; layer < 8; ++layer) another = another || expert_shares(e, 1.0, 5, layer) != shares;
  CHECK(another);
  std::sort(shares.rbegin(), shares.rend());
  for (std::size_t i = 0; i < 4; ++i) CHECK(shares[i] == Approx(12.0 / 25 / static_cast<double>(i + 1)));
}

TEST_CASE("skewed routing costs time where tiles are wasted, and never FLOPs") {
  Job even = tests::tiny_job({1, 1, 1}, tests::tiny_variant("mixtral"));
  even.cluster.groups[0].chip.multiprocessors = {4, "assumed"};
  even.cluster.groups[0].chip.gemm_wave = {1, "assumed"};
  Job skewed = even;
  skewed.train.expert_skew = 2;
  CHECK(compile(even).classes[0].streams[0].instructions[0].flops ==
        compile(skewed).classes[0].streams[0].instructions[0].flops);
  CHECK(block_seconds(skewed) != block_seconds(even));
}

TEST_CASE("narrow matmuls leave head, router, norms and attention as they are") {
  Job job = tests::tiny_job({1, 1, 1}, tests::tiny_variant("mixtral"));
  const Program wide = compile(job);
  job.train.matmuls = Format::fp8;
  const Program narrow = compile(job);
  for (std::size_t block = 0; block < 2; ++block)
    for (std::size_t i = 0; i < narrow.classes[0].blocks[block].kernels.size(); ++i) {
      const Kernel& kernel = narrow.classes[0].blocks[block].kernels[i];
      const Kernel& before = wide.classes[0].blocks[block].kernels[i];
      bool router = false;
      for (int id : kernel.parameters)
        router = router || narrow.classes[0].tensors[static_cast<std::size_t>(id)].name.find("router") !=
                               std::string::npos;
      const bool product = name_of(kernel.op).find("matmul") != std::string_view::npos;
      const bool expected = product && !router && kernel.layer >= 0 && kernel.layer < job.transformer.layers;
      INFO(name_of(kernel.op) << " of layer " << kernel.layer);
      REQUIRE(kernel.format.has_value() == expected);
      REQUIRE(kernel.bytes >= before.bytes);
      REQUIRE((kernel.bytes > before.bytes) == (expected && kernel.op != KernelOp::matmul_weight_gradient &&
                                                kernel.op != KernelOp::grouped_matmul_weight_gradient));
    }
}

TEST_CASE("a kernel's own format sets its rate, and a chip without it refuses") {
  Chip chip = tests::tiny_chip();
  Kernel kernel;
  kernel.op = KernelOp::matmul;
  kernel.m = kernel.n = kernel.k = 1024;
  kernel.flops = 2.0 * 1024 * 1024 * 1024;
  const double wide_s = kernel_time(kernel, Format::bf16, chip, nullptr).work_s;
  kernel.format = Format::fp8;
  CHECK_THROWS_AS(kernel_time(kernel, Format::bf16, chip, nullptr), Refusal);
  chip.peak_flops[Format::fp8] = {2e11, "assumed"};
  CHECK(kernel_time(kernel, Format::bf16, chip, nullptr).work_s == Approx(wide_s / 2).epsilon(1e-12));
}
