// make_report(): how a rank spent its step. The compute stream of a stage's slowest rank is walked once; every second
// of it goes into exactly one column, so that a row adds up to the iteration. Definitions: report.hpp.
#include "models/report/report.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "models/base/index.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/report/published_metrics.hpp"
#include "models/trace/critical_path.hpp"

namespace motley {
namespace {

struct StepSpan {
  double begin_s = 0, end_s = 0;
  double overlap_s(double other_begin_s, double other_end_s) const {
    return std::max(0.0, std::min(end_s, other_end_s) - std::max(begin_s, other_begin_s));
  }
};

// The events of one rank. The Trace must be sorted by rank, stream, index.
class RankEvents {
 public:
  RankEvents(const Trace& trace, Rank rank) {
    const auto [first, last] = std::equal_range(trace.events.begin(), trace.events.end(), rank, ByRank{});
    events_ = {first, last};
  }
  std::span<const TraceEvent> stream(StreamId stream) const {
    const auto [first, last] = std::equal_range(events_.begin(), events_.end(), stream, ByStream{});
    return {first, last};
  }
  const TraceEvent* find(const Step& step) const {
    const auto events = stream(step.stream);
    const auto event =
        std::lower_bound(events.begin(), events.end(), step.index,
                         [](const TraceEvent& each, int index) { return each.step.index < index; });
    return event != events.end() && event->step == step ? &*event : nullptr;
  }

 private:
  struct ByRank {
    bool operator()(const TraceEvent& event, Rank rank) const { return event.step.rank < rank; }
    bool operator()(Rank rank, const TraceEvent& event) const { return rank < event.step.rank; }
  };
  struct ByStream {
    bool operator()(const TraceEvent& event, StreamId stream) const { return event.step.stream < stream; }
    bool operator()(StreamId stream, const TraceEvent& event) const { return stream < event.step.stream; }
  };
  std::span<const TraceEvent> events_;
};

// Assumes: a compute that took longer or shorter than its price did so evenly over its kernels.
template <class Row>
void attribute_compute(const ComputeTime& priced, double seconds, Row& row) {
  if (priced.seconds() <= 0) {
    row.compute_s += seconds;
    return;
  }
  const double recompute_s = seconds * (priced.recompute_s / priced.seconds());
  const double tensor_parallel_s = seconds * (priced.tensor_parallel_s / priced.seconds());
  row.recompute_s += recompute_s;
  row.tensor_parallel_s += tensor_parallel_s;
  row.compute_s += seconds - recompute_s - tensor_parallel_s;
}

const Group& group_of(const Program& program, Rank rank, const Collective& collective) {
  return program.groups[program.ranks[rank].groups[collective.slot].value()];
}

// The figure to which the seconds of a collective are added.
template <class Row>
double& figure_of(const Program& program, Rank rank, const Collective& collective, Row& row) {
  if (collective.slot == kTensorGroup) return row.tensor_parallel_s;
  if (collective.kind == CollectiveKind::all_to_all) return row.expert_parallel_s;
  return group_of(program, rank, collective).kind == GroupKind::context ? row.context_parallel_s
                                                                        : row.data_parallel_s;
}

// Adds the seconds in which an instruction worked, without those in which it waited.
template <class Row>
void attribute_work(CostTable& costs, const Program& program, Rank rank, const Instruction& instruction,
                    double seconds, Row& row) {
  switch (instruction.op()) {
    case Op::compute:
      return attribute_compute(costs.price(rank, instruction), seconds, row);
    case Op::optimizer:
      (moved_tensors(instruction).empty() ? row.optimizer_s : row.offload_s) += seconds;
      return;
    case Op::copy:
      row.offload_s += seconds;
      return;
    case Op::send:
    case Op::recv:
      row.pipeline_s += seconds;
      return;
    case Op::collective:
      figure_of(program, rank, std::get<Collective>(instruction.body), row) += seconds;
      return;
  }
}

PathBreakdown break_down(const Program& program, CostTable& costs, const CriticalPath& path) {
  PathBreakdown result;
  for (const CriticalLink& link : path.links)
    attribute_work(costs, program, link.step.rank,
                   program.at(link.step.rank, link.step.stream, link.step.index), link.end_s - link.begin_s,
                   result);
  result.gap_s = path.gap_s();
  result.links = static_cast<std::int64_t>(path.links.size());
  return result;
}

// How one rank spent its step, along its compute stream.
class ComputeStreamBreakdown {
 public:
  ComputeStreamBreakdown(const Program& program, CostTable& costs, const Trace& trace, Rank rank)
      : program_(program), costs_(costs), events_(trace, rank) {
    result_.stage = program.ranks[rank].stage;
    result_.rank = rank;
  }

  // Seconds within that span in which data of the rank moves to or from its host, or the host steps for it.
  double offloading_s(StepSpan within) const {
    std::vector<StepSpan> busy;
    const auto& streams = program_.program_of(result_.rank).streams;
    for (StreamId stream : streams.ids()) {
      if (streams[stream].kind < StreamKind::to_host) continue;
      for (const TraceEvent& event : events_.stream(stream))
        if (event.end_s > within.begin_s && event.begin_s < within.end_s)
          busy.push_back({event.begin_s, event.end_s});
    }
    std::sort(busy.begin(), busy.end(),
              [](const StepSpan& a, const StepSpan& b) { return a.begin_s < b.begin_s; });
    double sum_s = 0, reached_s = within.begin_s;
    for (const StepSpan& each : busy) {
      sum_s += StepSpan{reached_s, within.end_s}.overlap_s(each.begin_s, each.end_s);
      reached_s = std::max(reached_s, std::min(each.end_s, within.end_s));
    }
    return sum_s;
  }

  StageBreakdown run(StepSpan iteration) {
    double reached_s = iteration.begin_s;
    for (const TraceEvent& event : events_.stream(kComputeStream)) {
      attribute_idle(event, {reached_s, event.begin_s});
      attribute_event(event);
      reached_s = event.end_s;
    }
    const double offload_s = offloading_s({reached_s, iteration.end_s});
    result_.offload_s += offload_s;
    result_.bubble_s += iteration.end_s - reached_s - offload_s;
    return result_;
  }

 private:
  const Instruction& instruction_of(const TraceEvent& event) const {
    return program_.at(event.step.rank, event.step.stream, event.step.index);
  }

  bool at_boundary(const Instruction& instruction) const {
    const auto* collective = instruction.as<Collective>();
    return collective != nullptr && gathers_at_boundary(group_of(program_, result_.rank, *collective).kind);
  }

  // Idle time counts for the awaited transfer or collective only while that is on the wire; before, a peer was late.
  void attribute_idle(const TraceEvent& event, StepSpan idle) {
    double wire_s = 0;
    const TraceEvent* awaited = event.waited == Waited::step ? events_.find(event.waited_for) : nullptr;
    if (awaited != nullptr) {
      const Instruction& instruction = instruction_of(*awaited);
      const StreamKind stream = program_.program_of(result_.rank).streams[event.waited_for.stream].kind;
      if (stream >= StreamKind::to_host) {
        wire_s = offloading_s(idle);
        result_.offload_s += wire_s;
      } else if (instruction.message() != nullptr || at_boundary(instruction)) {
        wire_s = idle.overlap_s(awaited->matched_s, awaited->end_s);
        result_.pipeline_s += wire_s;
      } else if (const auto* collective = instruction.as<Collective>()) {
        const auto events = events_.stream(event.waited_for.stream);
        auto other = std::partition_point(events.begin(), events.end(),
                                          [&](const TraceEvent& e) { return e.end_s <= idle.begin_s; });
        for (; other != events.end() && other->begin_s < idle.end_s; ++other)
          if (instruction_of(*other).op() == Op::collective)
            wire_s += idle.overlap_s(other->matched_s, other->end_s);
        (collective->kind == CollectiveKind::all_to_all ? result_.expert_parallel_s
                                                        : result_.data_parallel_s) += wire_s;
      }
    }
    result_.bubble_s += idle.end_s - idle.begin_s - wire_s;
  }

  void attribute_event(const TraceEvent& event) {
    const double work_s = event.end_s - event.matched_s;
    attribute_work(costs_, program_, result_.rank, instruction_of(event), work_s, result_);
    result_.bubble_s += event.matched_s - event.begin_s;
  }

  const Program& program_;
  CostTable& costs_;
  RankEvents events_;
  StageBreakdown result_;
};

// For each stage, the rank whose last step ends last among those in the Trace (a folded one has representatives).
std::map<int, Rank> slowest_ranks(const Program& program, const Trace& trace) {
  std::map<int, std::pair<double, Rank>> slowest;
  for (const TraceEvent& event : trace.events) {
    const int stage = program.ranks[event.step.rank].stage;
    const auto [entry, is_new] = slowest.try_emplace(stage, event.end_s, event.step.rank);
    if (!is_new && event.end_s > entry->second.first) entry->second = {event.end_s, event.step.rank};
  }
  std::map<int, Rank> ranks;
  for (const auto& [stage, last] : slowest) ranks[stage] = last.second;
  return ranks;
}

// The span from the first instant a stream is free to the last end.
StepSpan iteration_of(const Trace& trace) {
  StepSpan iteration;
  if (!trace.events.empty()) iteration = {trace.events[0].free_s, trace.events[0].end_s};
  for (const TraceEvent& event : trace.events) {
    iteration.begin_s = std::min(iteration.begin_s, event.free_s);
    iteration.end_s = std::max(iteration.end_s, event.end_s);
  }
  return iteration;
}

// FLOPs of the instructions of all ranks, in the Trace or not, with recompute.
double executed_flops(const Program& program) {
  IdTable<RankProgramId, double> program_flops(program.rank_programs.size());
  for (RankProgramId id : program.rank_programs.ids())
    for (const Stream& stream : program.rank_programs[id].streams)
      for (const Instruction& instruction : stream.instructions) program_flops[id] += instruction.flops;
  double flops = 0;
  for (const RankEntry& entry : program.ranks) flops += program_flops[entry.rank_program];
  return flops;
}

double peak_flops(const Job& job, const Program& program) {
  double peak = 0;
  for (const RankEntry& entry : program.ranks) {
    const Chip& chip = job.cluster.chip_of(entry.chip);
    const auto of_format = chip.peak_flops.find(program.precision);
    if (of_format != chip.peak_flops.end()) peak += of_format->second.value;
  }
  return peak;
}

ChipTime chip_time(const StageBreakdown& row) {
  return {row.compute_s + row.recompute_s + row.optimizer_s,
          row.tensor_parallel_s + row.expert_parallel_s + row.context_parallel_s + row.pipeline_s +
              row.data_parallel_s,
          row.bubble_s + row.offload_s};
}

// Mean over ranks, each with a count.
struct MeanTime {
  ChipTime sum;
  double ranks = 0;
  void add(const ChipTime& time, double count) {
    sum.computing_s += time.computing_s * count;
    sum.communicating_s += time.communicating_s * count;
    sum.waiting_s += time.waiting_s * count;
    ranks += count;
  }
  ChipTime mean() const {
    return {sum.computing_s / ranks, sum.communicating_s / ranks, sum.waiting_s / ranks};
  }
};

// Times by rank. A rank that the Trace lacks gets the mean of the ranks it has (counted as often as they stand in for
// others) of the same rank program and group of chips, or of any group if there are none. Where these ranks are
// alike, sums are the same as if all were there.
IdTable<Rank, ChipTime> chip_times(const Job& job, const Program& program, CostTable& costs,
                                   const Trace& trace, StepSpan iteration) {
  std::map<Rank, double> held;
  for (const TraceEvent& event : trace.events)
    if (held.empty() || held.rbegin()->first != event.step.rank) held.try_emplace(event.step.rank, 1);
  for (const StandIn& each : trace.stand_ins) held[each.rank] = static_cast<double>(each.count);
  IdTable<Rank, ChipTime> times(program.ranks.size());
  std::map<std::pair<RankProgramId, int>, MeanTime> means;  // by program and group of chips; -1: all groups
  const auto group_of = [&](const RankEntry& entry) { return job.cluster.chip_group[at(entry.chip)]; };
  for (const auto& [rank, count] : held) {
    times[rank] = chip_time(ComputeStreamBreakdown(program, costs, trace, rank).run(iteration));
    const RankEntry& entry = program.ranks[rank];
    for (const int group : {group_of(entry), -1}) means[{entry.rank_program, group}].add(times[rank], count);
  }
  for (Rank rank : program.ranks.ids()) {
    if (held.contains(rank) && trace.stand_ins.empty()) continue;
    const RankEntry& entry = program.ranks[rank];
    auto mean = means.find({entry.rank_program, group_of(entry)});
    if (mean == means.end()) mean = means.find({entry.rank_program, -1});
    if (mean != means.end()) times[rank] = mean->second.mean();
  }
  return times;
}

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0; }

}  // namespace

Report make_report(const Job& job, const Program& program, const Trace& trace,
                   std::vector<StageMemory> memory) {
  Report report;
  report.strategy_hash = trace.strategy_hash;
  report.program_hash = trace.program_hash;
  report.chips = program.rank_count();
  report.memory =
      memory.empty() ? memory_by_stage(program, job.cluster, job.train.fragmentation) : std::move(memory);
  const StepSpan iteration = iteration_of(trace);
  report.iteration_s = iteration.end_s - iteration.begin_s;
  CostTable costs(program, job.cluster);
  for (const auto& [stage, rank] : slowest_ranks(program, trace))
    report.breakdown.push_back(ComputeStreamBreakdown(program, costs, trace, rank).run(iteration));
  report.critical_path = break_down(program, costs, find_critical_path(program, trace));

  const auto chips = static_cast<double>(report.chips);
  const double tokens = static_cast<double>(program.global_batch) * static_cast<double>(program.sequence);
  report.spending =
      find_spending(job, program, chip_times(job, program, costs, trace, iteration), report.iteration_s);
  report.tokens_per_s = ratio(tokens, report.iteration_s);
  report.tokens_per_s_per_chip = ratio(report.tokens_per_s, chips);
  const double model_flops =
      model_flops_per_sequence(job.transformer, program.sequence) * static_cast<double>(program.global_batch);
  report.flop_formula = flop_formula(job.transformer);
  const double peak = peak_flops(job, program);
  report.tflops_per_chip = ratio(model_flops, report.iteration_s * chips) / 1e12;
  report.sequences_per_s = ratio(static_cast<double>(program.global_batch), report.iteration_s);
  report.tflops_per_chip_megatron =
      megatron_flops_per_chip(job.transformer, program.sequence, report.sequences_per_s, report.chips) / 1e12;
  report.mfu = ratio(model_flops, report.iteration_s * peak);
  report.hfu = ratio(executed_flops(program), report.iteration_s * peak);
  return report;
}

}  // namespace motley
