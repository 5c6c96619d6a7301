// The jobs that a calibration measures, and the judgement of a machine that keeps still.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "models/calibration/probe.hpp"
#include "models/calibration/stillness.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/rated_kernels.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

TEST_CASE("every drawn probe compiles, is small, and together they have every kernel of a rank",
          "[calibration]") {
  const ProbeRange range;
  std::map<RatedKernel, std::set<MeasuredShape>> shapes;
  std::mt19937_64 random(11);
  for (int i = 0; i < 400; ++i) {
    const Probe probe = draw_probe(range, tiny_chip(), random);
    INFO(probe.name);
    const Program program = compile(probe.job);
    check_indices(program);
    const RankProgram& rank_program = program.program_of(Rank(0));
    double flops = 0;
    for (const Block& block : rank_program.blocks)
      for (const Kernel& kernel : block.kernels) {
        flops += kernel.flops;
        shapes[rated_kernel(rank_program, kernel)].insert(shape_of(kernel));
      }
    CHECK(flops < 3 * range.most_flops);
    CHECK(probe.job.transformer.hidden <= range.most_hidden);
    CHECK(probe.job.transformer.vocabulary <= range.most_vocabulary);
  }
  // What probes lack: factors of adapters and further predictions, and gradients that are divided.
  const std::set<KernelOp> elsewhere = {KernelOp::scale, KernelOp::clear};
  for (const RatedKernel& kernel : rated_kernels()) {
    if (elsewhere.contains(kernel.op)) continue;
    INFO(name_of(kernel));
    CHECK(shapes[kernel].size() >= 3);
  }
}

TEST_CASE("equal seeds draw equal probes, and others draw others", "[calibration]") {
  std::mt19937_64 a(3), b(3), c(4);
  int equal = 0;
  for (int i = 0; i < 20; ++i) {
    const Probe one = draw_probe({}, tiny_chip(), a), same = draw_probe({}, tiny_chip(), b),
                other = draw_probe({}, tiny_chip(), c);
    CHECK(one.name == same.name);
    CHECK(one.job.transformer == same.job.transformer);
    equal += one.name == other.name;
  }
  CHECK(equal < 5);
}

TEST_CASE("a machine that is disturbed is noticed, and one that keeps still is not", "[calibration]") {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    Stillness stillness;
    const auto quiet = [&] {
      const double sentinel_s = 1e-3 * (1 + 0.05 * static_cast<double>(random() % 100) / 100);
      return Surroundings{
          .before_s = sentinel_s, .after_s = sentinel_s, .share_on_processor = 1, .seconds = 1};
    };
    for (int i = 0; i < 10; ++i) CHECK(stillness.judge(quiet()).empty());
    Surroundings slow = quiet(), shared = quiet(), stolen = quiet();
    slow.after_s *= 1.4;
    shared.share_on_processor = 0.5;
    stolen.taken_s = 0.1;
    CHECK(stillness.judge(slow).find("sentinel") != std::string::npos);
    CHECK(stillness.judge(shared).find("50.0 %") != std::string::npos);
    CHECK(stillness.judge(stolen).find("stolen") != std::string::npos);
    CHECK(stillness.judge(quiet()).empty());
    // Most times may be disturbed: the sentinel's usual time is that of a quiet machine all the same.
    for (int i = 0; i < 12; ++i) {
      Surroundings seen = quiet();
      seen.before_s *= 2;
      CHECK_FALSE(stillness.judge(seen).empty());
    }
    CHECK(stillness.usual_s() < 1.1e-3);
  }
}
