// A schedule as data: which computes each pipeline rank does, in which order. It is made by name from its paper's
// rule, or read from CSV in the form of PyTorch's pipelining and torchtitan. It knows nothing of layers, bytes or
// chips: durations are given to it. Read next: models/compile/schedule.cpp, which makes it the compute streams of a
// Program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/words.hpp"

namespace motley {

// A backward is whole, or split (zero-bubble schedules) into the gradient of the input and later that of the weights.
enum class Pass : std::uint8_t { forward, backward, input_gradient, weight_gradient };
template <>
inline constexpr auto kWords<Pass> = words("forward", "backward", "input_gradient", "weight_gradient");

enum class Schedule : std::uint8_t {
  gpipe,        // schedule_gpipe.cpp
  one_f_one_b,  // "1f1b": schedule_1f1b.cpp
  interleaved,  // schedule_interleaved.cpp
  zb_h1,        // "zb-h1", "zb-h2": schedule_zero_bubble.cpp
  zb_h2,
  zb_v,        // "zb-v": schedule_zb_v.cpp
  dualpipe_v,  // "dualpipe-v": schedule_dualpipe_v.cpp
  custom       // read from CSV: schedule_text.cpp
};
template <>
inline constexpr auto kWords<Schedule> = words("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v",
                                               "dualpipe-v", "custom");
const std::vector<std::string>& schedule_names();  // all but custom
Schedule schedule_named(std::string_view name);    // one of schedule_names()

// Virtual stages have numbers in the order of a forward. "2F5" in text: forward of micro-batch 5 in virtual stage 2.
struct Action {
  Pass pass = Pass::forward;
  int virtual_stage = 0, micro_batch = 0;
  bool operator==(const Action&) const = default;
};

struct Timetable {
  std::vector<std::vector<Action>> ranks;  // the ranks of one pipeline, each with its actions in order
  bool operator==(const Timetable&) const = default;
};

struct PipelineShape {
  int ranks = 1;
  int chunks = 1;  // virtual stages of each rank
  int micro_batches = 1;
  // 1f1b, interleaved: number of additional forwards before the first backward, so that a forward and the backward
  // after it may run at the same time without waiting for another rank's.
  int ahead = 0;
  // Where weight gradients are placed: whether ranks begin the next step without waiting for others to end this one, so
  // that the longest time of one rank counts, and not that of all.
  bool steps_overlap = false;
};

// Whether ranks begin the next step without waiting for others to end this one, unless the strategy says otherwise.
// Assumes: gradients are clipped by the norm of all of them, and steps that overflow are left out; so ranks meet at the
// end of a step (Megatron-LM). Zero-bubble schedules were published, and measured, with an optimizer that is validated
// afterwards, as that meeting "makes zero bubble impossible" (arXiv:2401.10241, section 4; README of
// github:sail-sg/zero-bubble-pipeline-parallelism, `--enable-optimizer-post-validation`, 2024-05). DualPipe's authors
// print no optimizer; its half in a V is by the zero-bubble ones (hackmd.io/@ufotalent/r1lVXsa9Jg, 2025-02), so it is
// taken to be run as theirs.
bool overlaps_steps(Schedule schedule);

// Number of chunks of each rank by default: 2 if the schedule needs two, else 1.
int standard_chunks(Schedule schedule);

// The rank that holds each virtual stage: in a loop (0 1 2 0 1 2), or in a V (0 1 2 2 1 0) for zb-v and dualpipe-v.
std::vector<int> placement(Schedule schedule, const PipelineShape& shape);
// The rank that holds each virtual stage of a timetable. The timetable must be sound: find_complaint() finds nothing.
std::vector<int> placement(const Timetable& timetable);

// Times of the passes of a virtual stage, in seconds or any other unit. A whole backward takes the time of both
// gradients.
struct PassTimes {
  double forward_s = 1, input_gradient_s = 1, weight_gradient_s = 1;
  // Memory that is held between a micro-batch's input gradient and its weight gradient, because the latter reads it, as
  // a share of what a micro-batch in flight holds. It is more than 1 where gradients of outputs, and inputs that were
  // gathered or computed again, take more than the forward kept.
  double held_for_weights = 1;
  double duration(Pass pass) const;
};

struct ScheduleTimes {
  std::vector<PassTimes> stages;  // by virtual stage, or one for all stages; empty: every pass takes 1
  double transfer_s = 0;          // transfer between virtual stages on different ranks
  const PassTimes& pass_times(int virtual_stage) const;
};

// The same times, as if a weight gradient held no more than a micro-batch in flight: so that weight gradients are put
// off by their count.
ScheduleTimes put_off_by_count(ScheduleTimes times);

// Finds what is wrong with the shape for that schedule (too few micro-batches, chunks that it cannot use). Nothing:
// the schedule can be made.
std::optional<std::string> find_complaint(Schedule schedule, const PipelineShape& shape);

// Makes the schedule by its rule. find_complaint() must find nothing, and the schedule must not be custom. If
// backwards are split, `times` decide when each weight gradient runs; everything else depends only on the shape.
Timetable make_timetable(Schedule schedule, const PipelineShape& shape, const ScheduleTimes& times = {});

// Finds what is wrong with a timetable: an action missing or there twice, a stage on two ranks, a gradient before
// what it needs, micro-batches that overtake each other on the way to the next stage, ranks that wait for each other
// for ever.
std::optional<std::string> find_complaint(const Timetable& timetable, int micro_batches);

struct RankTimes {
  double first_s = 0, last_s = 0;  // begin of its first action, end of its last one
  double busy_s = 0;
  // Most micro-batches, counted in each chunk, whose forward has begun and whose gradients are not complete yet.
  int in_flight = 0;
  double idle_s() const { return last_s - first_s - busy_s; }
};
struct ScheduleResult {
  double makespan_s = 0;
  std::vector<RankTimes> ranks;
  std::vector<std::vector<double>> begin_s;  // [rank][action]
};
// The times if every action runs as early as its order and inputs allow. A receive is posted `p2p_buffers` actions of
// its chunk ahead, and as many sends of a boundary may be outstanding; 0: any number. Nothing: the timetable never
// ends.
std::optional<ScheduleResult> evaluate(const Timetable& timetable, const ScheduleTimes& times,
                                       int p2p_buffers = 0);

// One line for each rank, "0F0,0F1,1B0": PyTorch's pipelining calls this its compute-only format.
std::string to_csv(const Timetable& timetable);
// Reads such lines, also empty cells and overlapped pairs "(0F1;1B0)OVERLAP_F_B", of which the forward runs first.
// Refuses actions that only describe communication (Refusal, "bad-schedule"). find_complaint() checks the rest.
Timetable parse_csv(const std::string& text, const std::string& file_name);

// A picture: one row for each rank, time to the right, at most `columns` wide.
std::string to_grid(const Timetable& timetable, const ScheduleTimes& times, int columns = 160);

}  // namespace motley
