// What the simulator predicts for the calls that `motley bench comm` times, on a cluster that describes its hosts, and
// which algorithm is the fastest there. Read next: hw/calibration/time_calls.hpp, models/compile/one_call.hpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "hw/calibration/time_calls.hpp"
#include "models/check/inventory.hpp"
#include "models/cluster/cluster.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {

// Ranks are the chips of the cluster, one after the other. Every rank makes one.
class PredictedCalls {
 public:
  // A name or a file, as in `cluster:` of a scenario. Throws Refusal("rank-count") where it has not as many chips.
  PredictedCalls(const std::string& cluster, int ranks);

  // Throws Refusal("inventory-differs") where the ranks' hosts are not the cluster's nodes.
  void require(const Inventory& inventory) const;
  // The fastest by the cluster's costs, for Communicator's ChooseAlgorithm.
  CollectiveAlgorithm fastest(CollectiveKind kind, std::size_t bytes);
  // Simulates all calls of these options, in processes of their own. The caller must have one thread.
  void simulate(TimeCallsOptions options);
  // Seconds of one call, or of a message one way. Nothing: simulate() has seen no such call.
  std::optional<double> seconds_of(const TimedCall& call) const;

 private:
  // The kind; the algorithm, or the other rank of a message; the bytes.
  using Key = std::tuple<std::optional<CollectiveKind>, int, std::size_t>;
  static Key key_of(const TimedCall& call);
  double simulated_s(const TimedCall& call) const;

  const std::string file_;
  const Cluster cluster_;
  const Program everyone_;  // an empty call of all ranks
  CostTable costs_;
  std::map<Key, double> seconds_;
};

}  // namespace motley
