// Figures of a Program's text that nothing can be counted with are refused, whichever of a kernel's it is.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "models/base/refusal.hpp"
#include "models/check/program_figures.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

TEST_CASE(
    "a kernel with a size that is negative or overflows, or with FLOPs that are no number, is refused") {
  const Program program = compile(tests::tiny_job({1, 1, 1}));
  REQUIRE_NOTHROW(check_figures(program));
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::function<void(Kernel&)>> faults = {
      [](Kernel& kernel) { kernel.factor = -1; },   [](Kernel& kernel) { kernel.factor = std::nan(""); },
      [](Kernel& kernel) { kernel.flops = -1; },    [](Kernel& kernel) { kernel.flops = std::nan(""); },
      [](Kernel& kernel) { kernel.layer = -2; },    [](Kernel& kernel) { kernel.m = -1; },
      [](Kernel& kernel) { kernel.n = kHuge; },     [](Kernel& kernel) { kernel.k = kHuge; },
      [](Kernel& kernel) { kernel.groups = -1; },   [](Kernel& kernel) { kernel.busiest = -1; },
      [](Kernel& kernel) { kernel.ahead = -1; },    [](Kernel& kernel) { kernel.bytes = -1; },
      [](Kernel& kernel) { kernel.bytes = kHuge; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Program faulty = program;
    Kernel& kernel = faulty.rank_programs[RankProgramId(0)].blocks[BlockId(0)].kernels.front();
    kernel.m = kernel.n = kernel.k = 2;
    REQUIRE_NOTHROW(check_figures(faulty));
    faults[i](kernel);
    CAPTURE(i);
    CHECK_THROWS_AS(check_figures(faulty), Refusal);
  }
}
