// The schedule that stands in a Program: which actions its ranks run in which order, and how long they are predicted to
// take. Read next: models/schedule/schedule.hpp.
#pragma once

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {

// Whether a kernel makes nothing but weights' gradients: no other rank waits for it, so a split backward puts it off.
bool only_weights(const Kernel& kernel);

// The timetable of the strategy's template number `pipeline`: one replica's, as all run the same.
Timetable timetable_of(const Program& program, int pipeline);

// How long the passes of each virtual stage of that template are predicted to take, on its slowest replica, and its
// longest transfer between stages. The Program may be without instructions yet.
// Assumes: a transfer has its route to itself.
ScheduleTimes predicted_times(const Program& program, const Cluster& cluster, int pipeline);
// Whether those times decide about the order: where weight gradients stand.
bool depends_on_times(Schedule schedule);

}  // namespace motley
