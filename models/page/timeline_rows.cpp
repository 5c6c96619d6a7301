#include "models/page/timeline_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace motley {
namespace {

MarkKind kind_of(const Program& program, Rank rank, const Instruction& instruction) {
  switch (instruction.op()) {
    case Op::compute:
      switch (program.program_of(rank).blocks[std::get<Compute>(instruction.body).block].pass) {
        case Pass::forward:
          return MarkKind::forward;
        case Pass::weight_gradient:
          return MarkKind::weight_gradient;
        default:
          return MarkKind::backward;
      }
    case Op::optimizer:
      return instruction.as<OptimizerStep>()->tensors.empty() ? MarkKind::optimizer : MarkKind::offload;
    case Op::collective:
      return MarkKind::collective;
    case Op::copy:
      return MarkKind::offload;
    default:
      return MarkKind::transfer;
  }
}

std::string name_of_compute(const RankProgram& rank_program, const Compute& compute) {
  const Block& block = rank_program.blocks[compute.block];
  if (compute.first_kernel == 0 && compute.last_kernel == static_cast<std::int32_t>(block.kernels.size()))
    return block.name;
  return fmt::format("{}, kernels {} to {} of {}", block.name, compute.first_kernel + 1, compute.last_kernel,
                     block.kernels.size());
}

std::string name_of_collective(const Program& program, Rank rank, const Collective& collective) {
  const Group& group = program.groups[program.ranks[rank].groups[collective.slot].value()];
  return fmt::format("{} of the {} group, {} ranks", name_of(collective.kind), name_of(group.kind),
                     group.ranks.size());
}

std::string name_of_mark(const Program& program, Rank rank, const Instruction& instruction) {
  const RankProgram& rank_program = program.program_of(rank);
  switch (instruction.op()) {
    case Op::compute:
      return name_of_compute(rank_program, std::get<Compute>(instruction.body));
    case Op::optimizer:
      return instruction.as<OptimizerStep>()->tensors.empty() ? "optimizer" : "optimizer on the host";
    case Op::collective:
      return name_of_collective(program, rank, std::get<Collective>(instruction.body));
    case Op::copy:
      return goes_to_host(rank_program, instruction) ? "copy to the host" : "copy from the host";
    case Op::send:
    case Op::recv: {
      const Rank peer = program.ranks[rank].peers[instruction.message()->slot].value();
      return fmt::format("{} rank {}, stage {}", instruction.op() == Op::send ? "send to" : "receive from",
                         peer, program.ranks[peer].stage);
    }
  }
  return "?";
}

// The marks of traces whose steps overlap come from one of many steps, long after the first.
void begin_with_first_mark(TimelineRows& timeline) {
  double first_s = timeline.span_s, last_s = 0;
  for (const TimelineRow& row : timeline.rows)
    for (const Mark& mark : row.marks) {
      first_s = std::min(first_s, mark.begin_s);
      last_s = std::max(last_s, mark.begin_s + mark.length_s);
    }
  for (TimelineRow& row : timeline.rows)
    for (Mark& mark : row.marks) mark.begin_s -= first_s;
  timeline.span_s = std::max(0.0, last_s - first_s);
}

// Leaves out the shortest marks, so that at most so many are left.
void leave_out_shortest(TimelineRows& timeline, std::size_t most_marks) {
  std::vector<double> lengths;
  for (const TimelineRow& row : timeline.rows)
    for (const Mark& mark : row.marks) lengths.push_back(mark.length_s);
  if (lengths.size() <= most_marks) return;
  const auto last_shown = lengths.begin() + static_cast<std::ptrdiff_t>(most_marks);
  std::nth_element(lengths.begin(), last_shown, lengths.end(), std::greater<>());
  timeline.shortest_s = *last_shown;
  for (TimelineRow& row : timeline.rows)
    timeline.left_out += static_cast<std::int64_t>(
        std::erase_if(row.marks, [&](const Mark& mark) { return mark.length_s <= timeline.shortest_s; }));
}

}  // namespace

TimelineRows timeline_rows(const Program& program, const Trace& trace, const std::vector<Rank>& ranks,
                           std::size_t most_marks) {
  const StepSpan span = span_of(trace);
  TimelineRows timeline;
  timeline.step_s = step_s(trace);
  timeline.span_s = span.seconds();
  std::map<std::string, std::size_t> places;
  for (const Rank rank : ranks) {
    TimelineRow row{program.ranks[rank].stage, rank, 1, {}};
    for (const StandIn& stand_in : trace.stand_ins)
      if (stand_in.rank == rank) row.stands_for = stand_in.count;
    const auto first = std::partition_point(trace.events.begin(), trace.events.end(),
                                            [&](const TraceEvent& event) { return event.step.rank < rank; });
    for (auto event = first; event != trace.events.end() && event->step.rank == rank; ++event) {
      const Instruction& instruction = program.at(rank, event->step.stream, event->step.index);
      const double begin_s = event->step.stream == kComputeStream ? event->begin_s : event->matched_s;
      if (event->end_s <= begin_s) continue;
      const auto [place, is_new] =
          places.try_emplace(name_of_mark(program, rank, instruction), timeline.names.size());
      if (is_new) timeline.names.push_back(place->first);
      row.marks.push_back({kind_of(program, rank, instruction), place->second, instruction.micro_batch,
                           begin_s - span.begin_s, event->end_s - begin_s, payload_bytes(instruction)});
    }
    std::stable_sort(row.marks.begin(), row.marks.end(),
                     [](const Mark& a, const Mark& b) { return a.begin_s < b.begin_s; });
    timeline.rows.push_back(std::move(row));
  }
  if (trace.period_s > 0) begin_with_first_mark(timeline);
  leave_out_shortest(timeline, most_marks);
  return timeline;
}

}  // namespace motley
