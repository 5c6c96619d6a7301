// Fuzz target: a tape is read, and replayed for the small job that it was recorded from.
#include "models/plan/prepare.hpp"
#include "models/report/report.hpp"
#include "sim/workers/child.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

// As `simulate --tape` does it, which knows the file.
Trace replayed(const Job& job, const Program& program, const Trace& tape, const std::string& path) {
  try {
    return simulate_in_child(job, program, {.records_kernels = true, .tape = &tape});
  } catch (const Refusal& refusal) {
    if (refusal.kind() == "wrong-tape") throw located(refusal, {.file = path});
    throw;
  }
}

}  // namespace

void take(const std::string& input) {
  static const Prepared small =
      prepare(read_scenario(parse_yaml(small_scenario(), "small.yaml"), "small.yaml"));
  const Job& job = small.scenario.job;
  const std::string path = file_with(input);
  Trace tape = read_trace(path);
  // A person's change of the job would change this too; the other checks of a tape are what is tried here.
  tape.program_hash = program_hash(small.program);
  const Trace trace = replayed(job, small.program, tape, path);
  const Report report = make_report(job, small.program, trace, small.memory);
  check_finite(to_text(report));
  check_finite(to_json(report));
}

}  // namespace motley::tests
