// How far a simulated step may be from a measured one, for the commands that predict: what it rests on, the chips' own
// figures alone, and other draws of its routes. Read next: models/report/report.hpp, models/scenario/interval.hpp.
#pragma once

#include <optional>

#include "models/plan/prepare.hpp"
#include "models/report/report.hpp"

namespace motley {

// No published run is like one on host processors.
bool rests_on_published_runs(const Cluster& cluster);

// Seconds of the step without any software's figures; 0: the scenario names its software.
double simulate_own_figures(const Scenario& scenario);

// What other draws of the spines would give, where the job is small enough to try.
std::optional<RouteDraws> draws_of(const Job& job, bool try_others);

// What the prediction rests on, where a chip's kernels were measured; its interval then follows from that.
void add_coverage(const Prepared& prepared, const Trace& trace, Report& report);

}  // namespace motley
