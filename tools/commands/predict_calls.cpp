#include "tools/commands/predict_calls.hpp"

#include <fmt/format.h>

#include <numeric>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/one_call.hpp"
#include "sim/workers/child.hpp"

namespace motley {
namespace {

std::vector<int> first_chips(int count) {
  std::vector<int> chips(at(count));
  std::iota(chips.begin(), chips.end(), 0);
  return chips;
}

bool is_open(CollectiveAlgorithm algorithm) {
  return algorithm == CollectiveAlgorithm::automatic || algorithm == CollectiveAlgorithm::fastest;
}

}  // namespace

PredictedCalls::PredictedCalls(const std::string& cluster, int ranks)
    : file_(cluster),
      cluster_(load_cluster(cluster)),
      everyone_(program_of({CollectiveKind::all_reduce, 0}, first_chips(ranks))),
      costs_(everyone_, cluster_) {
  if (cluster_.chip_count() != ranks)
    throw Refusal(
        Exit::infeasible, "rank-count", {.file = cluster},
        fmt::format("{} ranks, and cluster `{}` has {} chips", ranks, cluster_.name, cluster_.chip_count()),
        "a cluster that describes the hosts of these ranks");
}

void PredictedCalls::require(const Inventory& inventory) const {
  require_inventory(everyone_, cluster_, inventory, {.file = file_},
                    "a cluster that describes the hosts of these ranks");
}

CollectiveAlgorithm PredictedCalls::fastest(CollectiveKind kind, std::size_t bytes) {
  return costs_.algorithm_of(kind, GroupId(0), CollectiveAlgorithm::fastest,
                             static_cast<std::int64_t>(bytes));
}

PredictedCalls::Key PredictedCalls::key_of(const TimedCall& call) {
  return {call.kind, call.kind ? static_cast<int>(call.chosen) : call.peer, call.bytes};
}

double PredictedCalls::simulated_s(const TimedCall& call) const {
  Job job;
  job.cluster = cluster_;
  job.fidelity.data_parallel = CollectiveLevel::fluid;
  job.fidelity.algorithm = call.chosen;
  const std::vector<int> chips = call.kind ? first_chips(everyone_.rank_count()) : std::vector{0, call.peer};
  return last_end_s(
      motley::simulate(job, program_of({call.kind, static_cast<std::int64_t>(call.bytes)}, chips)));
}

void PredictedCalls::simulate(TimeCallsOptions options) {
  const int ranks = everyone_.rank_count();
  options.hosts.clear();
  for (int chip = 0; chip < ranks; ++chip)
    options.hosts.push_back(fmt::format("node {}", cluster_.chip_node[at(chip)]));
  const GroupShape shape = shape_of(everyone_, cluster_, everyone_.groups[GroupId(0)]);
  std::map<Key, TimedCall> calls;
  for (const auto& kind : options.kinds)
    for (TimedCall call : calls_of(kind, options))
      for (const std::size_t bytes : options.bytes) {
        call.bytes = payload_for(kind, bytes, ranks);
        if (kind) call.chosen = is_open(call.algorithm) ? fastest(*kind, bytes) : call.algorithm;
        if (!kind || does(call.chosen, *kind, shape)) calls.emplace(key_of(call), call);
      }
  std::vector<TimedCall> all;
  for (const auto& [key, call] : calls) all.push_back(call);
  const std::vector<double> seconds =
      map_in_pool(all.size(), [&](std::size_t i) { return simulated_s(all[i]); });
  for (std::size_t i = 0; i < all.size(); ++i) seconds_[key_of(all[i])] = seconds[i];
}

std::optional<double> PredictedCalls::seconds_of(const TimedCall& call) const {
  const auto entry = seconds_.find(key_of(call));
  return entry == seconds_.end() ? std::nullopt : std::optional(entry->second);
}

}  // namespace motley
