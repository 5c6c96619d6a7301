// The rules from which make_timetable() chooses, one paper in each file, and what they share. Private to
// models/schedule.
#pragma once

#include "models/schedule/schedule.hpp"

namespace motley {

Timetable gpipe(const PipelineShape& shape);                                       // schedule_gpipe.cpp
Timetable one_f_one_b(const PipelineShape& shape);                                 // schedule_1f1b.cpp
Timetable interleaved(const PipelineShape& shape);                                 // schedule_interleaved.cpp
Timetable zero_bubble_h1(const PipelineShape& shape, const ScheduleTimes& times);  // schedule_zero_bubble.cpp
Timetable zero_bubble_h2(const PipelineShape& shape, const ScheduleTimes& times);  // schedule_zero_bubble.cpp
Timetable zero_bubble_v(const PipelineShape& shape, const ScheduleTimes& times);   // schedule_zb_v.cpp
Timetable dualpipe_v(const PipelineShape& shape);                                  // schedule_dualpipe_v.cpp

// Forwards and backwards (or input gradients) in turn after `warm_up` forwards; the remaining ones come at the end.
std::vector<Action> in_turn(int virtual_stage, int micro_batches, int warm_up, Pass backward);

// Adds weight gradients to `ordered`, which holds forwards and input gradients. Each is placed where its rank would
// otherwise wait, for `times`, and as late as the memory of `in_flight` micro-batches (of a chunk each, on any rank)
// allows, of which one is in its backward. It tries gaps as long as the work, half as long, any gap, and no gap (at
// once after the input gradient). It takes the result that ends first (then the one that waits least, then the first
// one). Where steps overlap, "ends first" means: the longest time of a rank from its own begin to its own end is the
// shortest. schedule_fill.cpp
Timetable fill_with_weight_gradients(const Timetable& ordered, const ScheduleTimes& times, int in_flight,
                                     bool steps_overlap);

}  // namespace motley
