// The instructions of one rank of each stage on the axis of a step, for the page's timeline. Read next:
// models/trace/trace.hpp, models/page/page.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/words.hpp"
#include "models/program/program.hpp"
#include "models/trace/trace.hpp"

namespace motley {

enum class MarkKind : std::uint8_t {
  forward,
  backward,
  weight_gradient,
  optimizer,
  collective,
  transfer,
  offload,
};
template <>
inline constexpr auto kWords<MarkKind> = words("forward", "backward", "weight gradient", "optimizer",
                                               "collective", "transfer", "offload");

// One instruction. A transfer or collective begins when all sides have posted it.
struct Mark {
  MarkKind kind = MarkKind::forward;
  std::size_t name = 0;  // its place in TimelineRows::names
  std::int32_t micro_batch = kNoMicroBatch;
  double begin_s = 0, length_s = 0;
  std::int64_t bytes = 0;  // payload of a transfer, collective or copy
};

struct TimelineRow {
  int stage = 0;
  Rank rank;
  std::int64_t stands_for = 1;  // ranks that must behave alike, this one included
  std::vector<Mark> marks;      // by begin
};

struct TimelineRows {
  double step_s = 0;
  double span_s =
      0;  // to the last end; longer than the step where ranks begin the next step before others end
  std::vector<std::string> names;
  std::vector<TimelineRow> rows;
  std::int64_t left_out = 0;  // the shortest instructions, where there are more than `most_marks`
  double shortest_s = 0;      // that is shown
};

// `ranks`: those to show, in the order of the rows. The trace must be sorted.
TimelineRows timeline_rows(const Program& program, const Trace& trace, const std::vector<Rank>& ranks,
                           std::size_t most_marks = 40'000);

}  // namespace motley
