// Fuzz target: a Program is read as text, printed and read back, checked for the chips of one node, and run in no time
// and in virtual time; its trace, whose hash is that of the text, is compared with itself.
#include "models/check/check.hpp"
#include "models/scenario/scenario.hpp"
#include "models/trace/compare.hpp"
#include "sim/workers/child.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

// As those do who read a Program from a file.
void check_of_file(const Program& program, const Cluster& cluster) {
  try {
    check(program, cluster);
  } catch (const Refusal& refusal) {
    throw located(refusal, {.file = "input.program", .line = 1, .column = 1});
  }
}

}  // namespace

void take(const std::string& input) {
  static const Scenario small = read_scenario(
      parse_yaml(small_scenario("bf16", "{groups: [" + small_group("a", "b200", 8) + "]}"), "small.yaml"),
      "small.yaml");
  const Program program = parse_program(input);
  const std::string text = print(program);
  MOTLEY_CHECK(print(parse_program(text)) == text);
  check_of_file(program, small.job.cluster);
  if (instruction_count(program) > kMostInstructions) return;
  Job job = small.job;
  job.train.sequence = program.sequence;
  job.train.global_batch = program.global_batch;
  job.train.precision = program.precision;
  simulate(job, program, {.null = true});
  const Trace trace = simulate_in_child(job, program);
  check_finite(to_text(compare(program, trace, trace)));
}

}  // namespace motley::tests
