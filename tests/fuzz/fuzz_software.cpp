// Fuzz target: the figures of a software are read and given to a cluster of several vendors' chips, on which a small
// job is then priced.
#include <fmt/format.h>

#include "models/compile/compile.hpp"
#include "models/cost/costs_text.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/software.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  static const Scenario small =
      read_scenario(parse_yaml(small_scenario("bf16", "{groups: [" + small_group("a", "a100-80gb-sxm") +
                                                          ", " + small_group("b", "mi300x") +
                                                          "], links: [{between: [a, b], over: "
                                                          "ethernet}]}"),
                               "small.yaml"),
                    "small.yaml");
  static const Program program = compile(small.job);
  const Yaml software = parse_yaml(input, "input.yaml");
  Job job = small.job;
  const Interval interval = use_figures(software, job.cluster, "input");
  check_finite(fmt::format("{} {}", interval.low, interval.high));
  check_finite(print(job.cluster));
  check_finite(costs_text(price_passes(job, program)));
}

}  // namespace motley::tests
