// Fuzz target: a table of measured collectives is read, and the first of them are simulated.
#include "models/cost/compute_cost.hpp"
#include "models/published/collective_errors.hpp"
#include "models/published/measured_collective.hpp"
#include "sim/workers/child.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  constexpr std::size_t kMostRows = 4;
  const std::vector<MeasuredCollective> rows = read_measured_collectives(file_with(input));
  std::vector<CollectiveOutcome> outcomes;
  for (const MeasuredCollective& row : rows) {
    if (outcomes.size() == kMostRows) break;
    if (row.chips > kMostPublishedChips) continue;
    const CollectiveRun run = make_run(row);
    std::string algorithm = "-";
    if (row.kind) {
      CostTable costs(run.program, run.job.cluster);
      algorithm = name_of(costs.algorithm_of(*row.kind, GroupId(0), row.algorithm, row.bytes));
    }
    outcomes.push_back({row, launch_s(row) + simulated_step_s(run.job, run.program), algorithm});
  }
  check_finite(to_text(outcomes, true));
  check_finite(to_json(outcomes));
}

}  // namespace motley::tests
