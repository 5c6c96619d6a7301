// Names and placements of schedules, and the shapes for which each can be made. schedule_rules.hpp names the file of
// each rule.
#include "models/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/schedule/schedule_rules.hpp"

namespace motley {
namespace {

bool in_a_v(Schedule schedule) { return schedule == Schedule::zb_v || schedule == Schedule::dualpipe_v; }

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names(kWords<Schedule>.begin(), kWords<Schedule>.end() - 1);
  return names;
}

Schedule schedule_named(std::string_view name) {
  const std::optional<Schedule> schedule = parse_word<Schedule>(name);
  MOTLEY_CHECK(schedule.has_value());
  return *schedule;
}

bool overlaps_steps(Schedule schedule) {
  return schedule == Schedule::zb_h1 || schedule == Schedule::zb_h2 || in_a_v(schedule);
}

int standard_chunks(Schedule schedule) {
  return in_a_v(schedule) || schedule == Schedule::interleaved ? 2 : 1;
}

std::vector<int> placement(Schedule schedule, const PipelineShape& shape) {
  std::vector<int> ranks;
  for (int chunk = 0; chunk < shape.chunks; ++chunk)
    for (int i = 0; i < shape.ranks; ++i)
      ranks.push_back(in_a_v(schedule) && chunk % 2 == 1 ? shape.ranks - 1 - i : i);
  return ranks;
}

std::vector<int> placement(const Timetable& timetable) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < timetable.ranks.size(); ++rank)
    for (const Action& action : timetable.ranks[rank]) {
      const auto stage = static_cast<std::size_t>(action.virtual_stage);
      if (stage >= ranks.size()) ranks.resize(stage + 1, -1);
      ranks[stage] = static_cast<int>(rank);
    }
  return ranks;
}

double PassTimes::duration(Pass pass) const {
  switch (pass) {
    case Pass::forward:
      return forward_s;
    case Pass::input_gradient:
      return input_gradient_s;
    case Pass::weight_gradient:
      return weight_gradient_s;
    case Pass::backward:
      break;
  }
  return input_gradient_s + weight_gradient_s;
}

const PassTimes& ScheduleTimes::pass_times(int virtual_stage) const {
  static const PassTimes ones;
  if (stages.empty()) return ones;
  return stages.size() == 1 ? stages[0] : stages[static_cast<std::size_t>(virtual_stage)];
}

ScheduleTimes put_off_by_count(ScheduleTimes times) {
  for (PassTimes& stage : times.stages) stage.held_for_weights = std::min(stage.held_for_weights, 1.0);
  return times;
}

std::optional<std::string> find_complaint(Schedule schedule, const PipelineShape& shape) {
  const int p = shape.ranks, m = shape.micro_batches;
  const auto name = name_of(schedule);
  if (in_a_v(schedule) && shape.chunks != 2)
    return fmt::format("{} holds 2 virtual stages a rank, not {}", name, shape.chunks);
  if (!in_a_v(schedule) && schedule != Schedule::interleaved && shape.chunks != 1)
    return fmt::format("{} holds 1 virtual stage a rank, not {}", name, shape.chunks);
  if (schedule == Schedule::interleaved && m % p != 0)
    return fmt::format(
        "interleaved runs micro-batches in groups of the {} ranks of a pipeline; {} are no multiple", p, m);
  if (schedule == Schedule::dualpipe_v && m < 2 * p)
    return fmt::format("dualpipe-v on {} ranks wants {} micro-batches or more, not {}", p, 2 * p, m);
  return std::nullopt;
}

Timetable make_timetable(Schedule schedule, const PipelineShape& shape, const ScheduleTimes& times) {
  MOTLEY_CHECK(!find_complaint(schedule, shape));
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe(shape);
    case Schedule::one_f_one_b:
      return one_f_one_b(shape);
    case Schedule::interleaved:
      return interleaved(shape);
    case Schedule::zb_h1:
      return zero_bubble_h1(shape, times);
    case Schedule::zb_h2:
      return zero_bubble_h2(shape, times);
    case Schedule::zb_v:
      return zero_bubble_v(shape, times);
    case Schedule::dualpipe_v:
      return dualpipe_v(shape);
    case Schedule::custom:
      break;
  }
  MOTLEY_CHECK(!"a custom schedule is read, not made");
  return {};
}

}  // namespace motley
