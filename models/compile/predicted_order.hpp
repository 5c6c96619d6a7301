// The schedule in a Program: which actions its ranks run in which order, and the times predicted for them. Read next:
// models/schedule/schedule.hpp.
#pragma once

#include "models/cluster/cluster.hpp"
#include "models/program/program.hpp"
#include "models/schedule/schedule.hpp"

namespace motley {

// Whether a kernel makes only weight gradients: no other rank waits for it, so a split backward can run it later.
bool only_weights(const Kernel& kernel);

// The timetable of template number `pipeline` of the strategy: that of one replica, because all run the same.
Timetable timetable_of(const Program& program, int pipeline);

// Predicted times of the passes of each virtual stage of that template, on its slowest replica, of the longest
// transfer between stages, and the memory that weight gradients hold. The Program need not have instructions yet.
// Assumes: a transfer does not share its route with others.
ScheduleTimes predicted_times(const Program& program, const Cluster& cluster, int pipeline);
// Whether the order depends on those times, because they decide when weight gradients run.
bool depends_on_times(Schedule schedule);

}  // namespace motley
