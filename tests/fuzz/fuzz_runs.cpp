// Fuzz target: a table of published runs is read, and each of its first runs is compiled and simulated.
#include "models/base/csv.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/published/published_run.hpp"
#include "models/published/validation.hpp"
#include "sim/workers/child.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

constexpr std::size_t kMostRuns = 4;

bool is_large_run(const PublishedRun& run) {
  double chips = 0;
  return read_number(run.row["n_accelerators"], chips) == NumberFault::none && chips > kMostPublishedChips;
}

void predict_run(const Measured& measured, RunOutcome& outcome) {
  const Job& job = measured.scenario.job;
  outcome.chips = job.cluster.chip_count();
  outcome.measured_s = measured.step_s;
  outcome.measured_bytes = measured.peak_bytes;
  if (estimated_passes(job.strategy) > kMostInstructions) return;
  const Program program = compile(job);
  for (const StageMemory& stage : memory_by_stage(program, job.cluster, job.train.fragmentation))
    outcome.predicted_bytes = static_cast<double>(peak_of(stage, measured.counted));
  if (instruction_count(program) > kMostInstructions) return;
  const double seconds = simulated_step_s(job, program);
  const Interval& interval = measured.scenario.interval;
  outcome.predicted = {seconds, interval.low * seconds, interval.high * seconds};
}

}  // namespace

void take(const std::string& input) {
  static const PublishedRules rules;
  const std::vector<PublishedRun> runs = read_published_runs(file_with(input));
  std::vector<RunOutcome> outcomes;
  for (const PublishedRun& run : runs) {
    if (outcomes.size() == kMostRuns) break;
    if (is_large_run(run)) continue;
    RunOutcome& outcome = outcomes.emplace_back();
    outcome.id = run.id;
    outcome.set = run.set;
    const auto measured = rules.read(run, runs);
    if (const auto* const passed = std::get_if<PassedOver>(&measured)) {
      outcome.passed_over = passed->reason;
      continue;
    }
    try {
      predict_run(std::get<Measured>(measured), outcome);
    } catch (const Refusal& refusal) {
      outcome.passed_over = refusal.message();
    }
  }
  static_cast<void>(to_text(outcomes, true));
  static_cast<void>(to_json(outcomes));
}

}  // namespace motley::tests
