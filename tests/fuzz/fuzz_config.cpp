// Fuzz target: a model, as a Hugging Face config.json or in Motley's own keys, is read, printed and read back, counted,
// and compiled for two chips.
#include <fmt/format.h>

#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

void compile_small(const Transformer& transformer) {
  static const Scenario small = read_scenario(parse_yaml(small_scenario(), "small.yaml"), "small.yaml");
  Job job = small.job;
  job.transformer = transformer;
  Stage& first = job.strategy.templates[0].stages[0];
  Stage& last = job.strategy.templates[0].stages[1];
  first.last_layer = last.first_layer = transformer.layers / 2;
  last.last_layer = transformer.layers;
  const Program program = compile(job);
  for (const StageMemory& stage : memory_by_stage(program, job.cluster)) MOTLEY_CHECK(stage.peak >= 0);
}

}  // namespace

void take(const std::string& input) {
  const Yaml node = parse_yaml(input, "input.json");
  const Transformer transformer = read_transformer(node, "input");
  const std::string text = print(transformer);
  check_finite(text);
  MOTLEY_CHECK(parse_transformer(text) == transformer);
  MOTLEY_CHECK(parameter_count(transformer) >= active_parameter_count(transformer));
  check_finite(fmt::format("{}", model_flops_per_sequence(transformer, transformer.max_positions)));
  compile_small(transformer);
}

}  // namespace motley::tests
