#include "tools/commands/likely_step.hpp"

#include <algorithm>
#include <string>

#include "models/cluster/switches.hpp"
#include "models/report/coverage.hpp"
#include "tools/commands/trials.hpp"

namespace motley {

bool rests_on_published_runs(const Cluster& cluster) {
  return std::none_of(cluster.groups.begin(), cluster.groups.end(),
                      [](const NodeGroup& group) { return group.chip.kind == "cpu"; });
}

double simulate_own_figures(const Scenario& scenario) {
  if (!scenario.own) return 0;
  Job job = scenario.job;
  job.fidelity.fold = true;
  use_own_figures(*scenario.own, job.cluster);
  return run_in_pool(1, [&](std::size_t) { return try_job(job, simulate_trial); }, {}).at(0).step_s;
}

std::optional<RouteDraws> draws_of(const Job& job, bool try_others) {
  const auto& networks = job.cluster.network_layout;
  if (std::none_of(networks.begin(), networks.end(), hashes_flows)) return std::nullopt;
  RouteDraws draws;
  draws.repeated = job.fidelity.fold.value_or(false);
  if (!try_others) return draws;
  constexpr std::size_t kOthers = 4;
  const auto redrawn = [&](std::size_t trial) {
    Job other = job;
    other.fidelity.fold = true;
    for (NetworkLayout& layout : other.cluster.network_layout) layout.draw = static_cast<int>(trial) + 1;
    return try_job(other, simulate_trial);
  };
  for (const Trial& trial : run_in_pool(kOthers, redrawn, {})) {
    if (!(trial.step_s > 0)) continue;  // it was refused
    draws.least_s = draws.others == 0 ? trial.step_s : std::min(draws.least_s, trial.step_s);
    draws.most_s = std::max(draws.most_s, trial.step_s);
    ++draws.others;
  }
  return draws;
}

void add_coverage(const Prepared& prepared, const Trace& trace, Report& report) {
  const Cluster& cluster = prepared.scenario.job.cluster;
  if (!has_measured_kernels(cluster)) return;
  report.coverage = coverage_of(prepared.program, cluster, trace);
  double noise = 0;
  std::string source;
  for (const NodeGroup& group : cluster.groups) {
    noise = std::max(noise, group.chip.software.kernels.noise);
    if (source.empty()) source = group.chip.software.kernels.source;
  }
  const double width = measured_half_width(*report.coverage, noise);
  report.interval = Interval{Regime::measured, std::max(0.0, 1 - width), 1 + width, source, ""};
}

}  // namespace motley
