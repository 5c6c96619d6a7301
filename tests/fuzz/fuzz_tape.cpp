// Fuzz target: a tape is read, and replayed for the small job that it was recorded from.
#include "models/plan/prepare.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  static const Prepared small =
      prepare(read_scenario(parse_yaml(small_scenario(), "small.yaml"), "small.yaml"));
  const Job& job = small.scenario.job;
  Trace tape = read_trace(file_with(input));
  // A person's change of the job would change this too; the other checks of a tape are what is tried here.
  tape.program_hash = program_hash(small.program);
  const Trace trace = simulate_in_child(job, small.program, {.records_kernels = true, .tape = &tape});
  const Report report = make_report(job, small.program, trace, small.memory);
  check_finite(to_text(report));
  check_finite(to_json(report));
}

}  // namespace motley::tests
