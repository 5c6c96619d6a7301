// motley validate --collectives: predicts collectives that others timed, each on an idle cluster, and says how wrong
// the predictions are. Read next: models/published/collective_errors.hpp.
#include "tools/commands/validate_collectives.hpp"

#include "models/base/data_files.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/published/collective_errors.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/workers/child.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/progress.hpp"

namespace motley {
namespace {

// The prediction of a measured collective, which a child process sends.
struct Predicted {
  double seconds = 0;
  std::string algorithm = "-";
};
template <class T>
requires std::is_same_v<std::remove_const_t<T>, Predicted>
auto fields_of(T& predicted) {
  auto& [seconds, algorithm] = predicted;
  return std::tie(seconds, algorithm);
}

Predicted predict(const MeasuredCollective& measured) {
  const CollectiveRun run = make_run(measured);
  Predicted predicted;
  if (measured.kind) {
    CostTable costs(run.program, run.job.cluster);
    predicted.algorithm =
        name_of(costs.algorithm_of(*measured.kind, GroupId(0), measured.algorithm, measured.bytes));
  }
  predicted.seconds = launch_s(measured) + last_end_s(simulate(run.job, run.program));
  return predicted;
}

}  // namespace

std::string validate_collectives(const std::vector<std::string>& tables, bool rows, bool json) {
  std::vector<MeasuredCollective> all;
  if (tables.empty()) all = read_measured_collectives(data_folder() + "/tests/validation/collectives.csv");
  for (const std::string& table : tables)
    for (MeasuredCollective& each : read_measured_collectives(table)) all.push_back(std::move(each));
  Progress progress("predicting", static_cast<std::int64_t>(all.size()));
  PoolOptions pool;
  pool.name = [&](std::size_t i) { return all[i].id; };
  pool.progress = [&](std::size_t, std::size_t ended) { progress.show(static_cast<std::int64_t>(ended)); };
  const std::vector<Predicted> predicted = map_in_pool(
      all.size(), [&](std::size_t i) { return predict(all[i]); }, pool);
  std::vector<CollectiveOutcome> outcomes;
  for (std::size_t i = 0; i < all.size(); ++i)
    outcomes.push_back({all[i], predicted[i].seconds, predicted[i].algorithm});
  return json ? to_json(outcomes) : to_text(outcomes, rows);
}

}  // namespace motley
