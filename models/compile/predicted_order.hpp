// The schedule that stands in a Program: which actions its ranks run in which order, and what they are predicted to
// take. Read next: models/schedule.hpp.
#pragma once

#include "models/cluster.hpp"
#include "models/program.hpp"
#include "models/schedule.hpp"

namespace motley {

// Nothing but weights' gradients comes of it, so nobody waits for it: what a split backward puts off.
bool only_weights(const Kernel& kernel);

// Of a template of the strategy; one of its replicas, as all run the same.
Timetable timetable_of(const Program& program, int pipeline);

// What the passes of each virtual stage of a template's pipelines are predicted to take, on its slowest replica, and
// its longest transfer between stages. The Program may be without instructions yet.
// Assumes: a transfer has its route to itself.
ScheduleTimes predicted_times(const Program& program, const Cluster& cluster, int pipeline);
// Whether those times decide about the order: where weight gradients stand.
bool depends_on_times(Schedule schedule);

}  // namespace motley
