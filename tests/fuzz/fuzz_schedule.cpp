// Fuzz target: a schedule is read as CSV; a sound one is printed, drawn, and compiled and run for a small model.
#include <fmt/format.h>

#include <algorithm>

#include "models/plan/prepare.hpp"
#include "models/schedule/schedule.hpp"
#include "sim/workers/child.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {
namespace {

int micro_batches_of(const Timetable& timetable) {
  int most = 0;
  for (const auto& actions : timetable.ranks)
    for (const Action& action : actions) most = std::max(most, action.micro_batch + 1);
  return most;
}

std::int64_t action_count(const Timetable& timetable) {
  std::int64_t count = 0;
  for (const auto& actions : timetable.ranks) count += static_cast<std::int64_t>(actions.size());
  return count;
}

void run_schedule(const std::string& path, int micro_batches) {
  const std::string text = fmt::format(
      "{{model: {{family: gpt2, layers: 8, hidden: 32, heads: 2, vocabulary: 64, max_positions: 16}}, "
      "cluster: {}, "
      "train: {{global_batch: {}, micro_batch: 1, sequence: 8, precision: fp32}}, "
      "strategy: {{schedule: {{csv: {}}}}}}}",
      "{groups: [" + small_group("a", "host-core", 8) + "]}", micro_batches, path);
  const Prepared prepared = prepare(read_scenario(parse_yaml(text, "input.yaml"), "input.yaml"));
  simulate(prepared.scenario.job, prepared.program, {.null = true});
  simulate_in_child(prepared.scenario.job, prepared.program);
}

}  // namespace

void take(const std::string& input) {
  const Timetable timetable = parse_csv(input, "input.csv");
  const int micro_batches = micro_batches_of(timetable);
  if (find_complaint(timetable, micro_batches)) return;
  MOTLEY_CHECK(parse_csv(to_csv(timetable), "printed.csv") == timetable);
  static_cast<void>(to_grid(timetable, {}));
  if (action_count(timetable) <= kMostInstructions) run_schedule(file_with(input), micro_batches);
}

}  // namespace motley::tests
