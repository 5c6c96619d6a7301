#include "tools/commands/group_algorithms.hpp"

#include <memory>
#include <mutex>

#include "models/cost/collective_cost.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {
namespace {

// Costs that several threads ask for.
struct SharedCosts {
  explicit SharedCosts(const Prepared& prepared) : costs(prepared.program, prepared.scenario.job.cluster) {}
  std::mutex mutex;
  CostTable costs;
};

}  // namespace

GroupAlgorithms algorithms_as_simulated(const Prepared& prepared) {
  const auto shared = std::make_shared<SharedCosts>(prepared);
  const Job& job = prepared.scenario.job;
  GroupAlgorithms algorithms;
  algorithms.per_node = [&prepared](GroupId group) {
    const Program& program = prepared.program;
    return members_per_node(program, prepared.scenario.job.cluster, program.groups[group]);
  };
  algorithms.choose = [shared, wanted = job.fidelity.algorithm](GroupId group, const GroupCall& call) {
    const std::lock_guard lock(shared->mutex);
    return shared->costs.algorithm_of(call.kind, group, wanted, call.bytes);
  };
  return algorithms;
}

}  // namespace motley
