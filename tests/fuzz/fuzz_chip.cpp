// Fuzz target: a chip is read, printed and read back, its formats are listed, and it computes a small job.
#include "models/cluster/formats_text.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/costs_text.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

void compute_with(const Chip& chip) {
  static const Scenario small = read_scenario(parse_yaml(small_scenario(), "small.yaml"), "small.yaml");
  static const Program program = compile(small.job);
  Job job = small.job;
  for (NodeGroup& group : job.cluster.groups) group.chip = chip;
  const std::vector<PassCost> passes = price_passes(job, program);
  check_finite(costs_text(passes));
  check_finite(costs_json(passes, {}));
}

}  // namespace

void take(const std::string& input) {
  const Chip chip = read_chip(parse_yaml(input, "input.yaml"), "input");
  const std::string text = print(chip, "");
  check_finite(text);
  MOTLEY_CHECK(read_chip(parse_yaml(text, "printed.yaml"), "input") == chip);
  check_finite(formats_text({chip}));
  check_finite(formats_json({chip}));
  if (chip.peak_flops.contains(Format::fp32)) compute_with(chip);
}

}  // namespace motley::tests
