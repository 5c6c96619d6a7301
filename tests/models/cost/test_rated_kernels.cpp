// Kernels that are priced by a chip's measured speeds.
#include <catch2/catch.hpp>
#include <random>

#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/rated_kernels.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Kernel product(std::int64_t m, std::int64_t n, std::int64_t k) {
  Kernel kernel;
  kernel.op = KernelOp::matmul;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.flops = 2.0 * static_cast<double>(m * n * k);
  kernel.bytes = 4 * (m * k + n * k + m * n);
  return kernel;
}

Chip measured_chip() {
  Chip chip = tiny_chip();
  KernelRates& rates = chip.software.kernels;
  rates.rates[{KernelOp::matmul}] = {
      .overhead_s = 1e-6, .flops_per_s = 1e10, .bytes_per_s = 1e9, .error = 0.1};
  for (const std::int64_t size : {32, 256}) {
    MeasuredShape shape = shape_of(product(size, size, size));
    shape.seconds = 1e-4;
    rates.shapes[{KernelOp::matmul}].push_back(shape);
  }
  return chip;
}

}  // namespace

TEST_CASE("a kernel's variant comes from its Program", "[calibration]") {
  for (const Family family : {Family::gpt2, Family::llama}) {
    const Program program = compile(tiny_job({1, 1, 1}, family));
    const RankProgram& rank_program = program.program_of(Rank(0));
    int variants = 0;
    for (const Block& block : rank_program.blocks)
      for (const Kernel& kernel : block.kernels) {
        const RatedKernel rated = rated_kernel(rank_program, kernel);
        CHECK(rated.op == kernel.op);
        const std::string_view op = name_of(kernel.op);
        const bool differs = op.starts_with("activation") || op.starts_with("norm");
        CHECK((rated.variant != KernelVariant::usual) == (differs && family == Family::llama));
        variants += rated.variant != KernelVariant::usual;
      }
    CHECK((variants > 0) == (family == Family::llama));
  }
}

TEST_CASE("a measured shape takes its measured time, others that of the speed", "[calibration]") {
  const Chip chip = measured_chip();
  const RatedKernel matmul{KernelOp::matmul};
  const auto known = [&](const Kernel& kernel) {
    return how_known(matmul, kernel, Format::fp32, chip.software.kernels);
  };
  CHECK(kernel_time(product(32, 32, 32), Format::fp32, chip, nullptr).seconds == 1e-4);
  CHECK(known(product(32, 32, 32)) == Known::measured);
  const Kernel between = product(64, 64, 64), beyond = product(512, 512, 512), below = product(8, 8, 8);
  CHECK(kernel_time(between, Format::fp32, chip, nullptr).seconds ==
        Approx(1e-6 + between.flops / 1e10 + static_cast<double>(between.bytes) / 1e9));
  CHECK(known(between) == Known::interpolated);
  CHECK(known(beyond) == Known::extrapolated);
  CHECK(known(below) == Known::extrapolated);
  CHECK(how_known({KernelOp::rope}, between, Format::fp32, chip.software.kernels) == Known::assumed);
}

TEST_CASE("measured speeds price the rank of the busiest experts, for which all others wait",
          "[calibration]") {
  Job even = tiny_job({1, 1, 2}, tiny_variant("mixtral"));
  even.strategy.templates[0].stages[0].expert_parallel = 2;
  Job skewed = even;
  skewed.train.expert_skew = 1;
  const Program balanced = compile(even), uneven = compile(skewed);
  int grouped = 0;
  for (const BlockId block : IdRange<BlockId>(2))
    for (std::size_t i = 0; i < balanced.program_of(Rank(0)).blocks[block].kernels.size(); ++i) {
      const Kernel& before = balanced.program_of(Rank(0)).blocks[block].kernels[i];
      const Kernel& after = uneven.program_of(Rank(0)).blocks[block].kernels[i];
      REQUIRE(before.op == after.op);
      CHECK(after.flops == before.flops);
      CHECK(priced_flops(before) == Approx(before.flops).epsilon(1e-12));
      if (before.groups == 0) continue;
      ++grouped;
      const double load = static_cast<double>(after.m) / static_cast<double>(before.m);
      CHECK(load > 1);
      CHECK(priced_flops(after) == Approx(load * before.flops).epsilon(1e-12));
      CHECK(shape_of(after).flops == priced_flops(after));
      KernelRates rates;
      rates.rates[{before.op}] = {.flops_per_s = 1e9};
      CHECK(rated_time({before.op}, after, Format::fp32, rates)->seconds ==
            Approx(load * rated_time({before.op}, before, Format::fp32, rates)->seconds));
    }
  CHECK(grouped > 0);
}

TEST_CASE("speeds that were measured in one format hold for that format alone", "[calibration]") {
  Chip chip = measured_chip();
  chip.software.kernels.format = Format::bf16;
  const Kernel kernel = product(32, 32, 32);
  Chip plain = chip;
  plain.software.kernels = {};
  CHECK(kernel_time(kernel, Format::fp32, chip, nullptr).seconds ==
        kernel_time(kernel, Format::fp32, plain, nullptr).seconds);
  CHECK(kernel_time(kernel, Format::bf16, chip, nullptr).seconds == 1e-4);
  CHECK(how_known({KernelOp::matmul}, kernel, Format::fp32, chip.software.kernels) == Known::assumed);
}

TEST_CASE("more work never takes less time at the same speeds", "[calibration]") {
  std::mt19937 random(4);
  const auto uniform = [&] { return static_cast<double>(random() % 1000 + 1); };
  for (int i = 0; i < 2000; ++i) {
    const KernelRate rate{.overhead_s = 1e-9 * uniform(),
                          .flops_per_s = random() % 2 == 0 ? 0 : 1e9 * uniform(),
                          .bytes_per_s = random() % 2 == 0 ? 0 : 1e9 * uniform(),
                          .pairs_per_s = random() % 2 == 0 ? 0 : 1e6 * uniform()};
    KernelWork less{1e6 * uniform(), 1e6 * uniform(), 1e3 * uniform()}, more = less;
    more.flops *= 1 + uniform() / 1000;
    more.bytes *= 1 + uniform() / 1000;
    more.pairs *= 1 + uniform() / 1000;
    CHECK(rate.seconds(more) >= rate.seconds(less));
    KernelRate faster = rate;
    faster.flops_per_s *= 2;
    faster.bytes_per_s *= 2;
    faster.pairs_per_s *= 2;
    CHECK(faster.seconds(less) <= rate.seconds(less));
  }
}
