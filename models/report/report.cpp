// make_report(): the rows of the table are ranks whose seconds models/report/attribution.hpp has attributed; totals
// follow from the Program.
#include "models/report/report.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "models/base/index.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/report/job_notes.hpp"
#include "models/report/published_metrics.hpp"

namespace motley {
namespace {

// FLOPs of the computes of all ranks, in the Trace or not, with recompute. What an optimizer multiplies is no part of
// the model's arithmetic.
double executed_flops(const Program& program) {
  IdTable<RankProgramId, double> program_flops(program.rank_programs.size());
  for (RankProgramId id : program.rank_programs.ids())
    for (const Stream& stream : program.rank_programs[id].streams)
      for (const Instruction& instruction : stream.instructions)
        if (instruction.op() == Op::compute) program_flops[id] += instruction.flops;
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

// How many ranks each rank of the Trace stands for, itself included.
std::map<Rank, double> stand_in_counts(const std::map<Rank, RankBreakdown>& rows, const Trace& trace) {
  std::map<Rank, double> counts;
  for (const auto& [rank, row] : rows) counts[rank] = 1;
  for (const StandIn& each : trace.stand_ins) counts[each.rank] = static_cast<double>(each.count);
  return counts;
}

ChipTime chip_time(const RankBreakdown& row) {
  const double computing_s = row.compute_s + row.recompute_s + row.optimizer_s;
  return {computing_s, row.communicating_s, row.sum_s() - computing_s - row.communicating_s};
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
IdTable<Rank, ChipTime> chip_times(const Job& job, const Program& program,
                                   const std::map<Rank, RankBreakdown>& rows, const Trace& trace) {
  const std::map<Rank, double> counts = stand_in_counts(rows, trace);
  IdTable<Rank, ChipTime> times(program.ranks.size());
  std::map<std::pair<RankProgramId, int>, MeanTime> means;  // by program and group of chips; -1: all groups
  const auto group_of = [&](const RankEntry& entry) { return job.cluster.chip_group[at(entry.chip)]; };
  for (const auto& [rank, count] : counts) {
    times[rank] = chip_time(rows.at(rank));
    const RankEntry& entry = program.ranks[rank];
    for (const int group : {group_of(entry), -1}) means[{entry.rank_program, group}].add(times[rank], count);
  }
  for (Rank rank : program.ranks.ids()) {
    if (counts.contains(rank) && trace.stand_ins.empty()) continue;
    const RankEntry& entry = program.ranks[rank];
    auto mean = means.find({entry.rank_program, group_of(entry)});
    if (mean == means.end()) mean = means.find({entry.rank_program, -1});
    if (mean != means.end()) times[rank] = mean->second.mean();
  }
  return times;
}

Breakdown mean_of_chips(const std::map<Rank, RankBreakdown>& rows, const Trace& trace) {
  const std::map<Rank, double> counts = stand_in_counts(rows, trace);
  Breakdown mean;
  double chips = 0;
  for (const auto& [rank, count] : counts) chips += count;
  for (const auto& [rank, count] : counts)
    for (int i = 0; i < kPurposes; ++i)
      mean[static_cast<Purpose>(i)] += rows.at(rank)[static_cast<Purpose>(i)] * (count / chips);
  return mean;
}

StandsOn stands_on(const Job& job, const Program& program, Rank rank) {
  const NodeGroup& nodes = job.cluster.groups[at(job.cluster.chip_group[at(program.ranks[rank].chip)])];
  return {nodes.chip.name, nodes.name};
}

// Times that differ by rounding alone are equal.
bool is_longer(double a_s, double b_s) { return a_s > b_s * (1 + 1e-9); }

// One row for each stage of the ranks: that of the rank for which `seconds` is largest.
std::map<int, Rank> most_by_stage(const Program& program, const std::map<Rank, RankBreakdown>& rows,
                                  double (*seconds)(const RankBreakdown&)) {
  std::map<int, Rank> most;
  for (const auto& [rank, row] : rows) {
    const auto [entry, is_new] = most.try_emplace(program.ranks[rank].stage, rank);
    if (!is_new && is_longer(seconds(row), seconds(rows.at(entry->second)))) entry->second = rank;
  }
  return most;
}

std::vector<StageBreakdown> stage_rows(const Job& job, const Program& program,
                                       const std::map<Rank, RankBreakdown>& rows) {
  std::vector<StageBreakdown> list;
  for (const auto& [stage, rank] : most_by_stage(program, rows, [](const RankBreakdown& row) {
         return row.compute_s + row.recompute_s + row.optimizer_s;
       })) {
    StageBreakdown& each = list.emplace_back();
    static_cast<Breakdown&>(each) = rows.at(rank);
    each.stage = stage;
    each.rank = rank;
    each.on = stands_on(job, program, rank);
  }
  return list;
}

std::vector<StageWait> stage_waits(const Job& job, const Program& program,
                                   const std::map<Rank, RankBreakdown>& rows) {
  std::vector<StageWait> list;
  for (const auto& [stage, rank] :
       most_by_stage(program, rows, [](const RankBreakdown& row) { return row.waiting_s; })) {
    const RankBreakdown& row = rows.at(rank);
    if (!row.slower) continue;
    list.push_back({stage, rank, stands_on(job, program, rank), row.waiting_s,
                    program.ranks[*row.slower].stage, *row.slower, stands_on(job, program, *row.slower),
                    row.for_slower_s});
  }
  return list;
}

PathBreakdown path_breakdown(const Attribution& attribution) {
  PathBreakdown result;
  static_cast<Breakdown&>(result) = attribution.of_path();
  result.gap_s = attribution.path().gap_s();
  result.links = static_cast<std::int64_t>(attribution.path().links.size());
  return result;
}

double ratio(double numerator, double denominator) { return denominator > 0 ? numerator / denominator : 0; }

}  // namespace

Report make_report(const Job& job, const Program& program, const Trace& trace,
                   std::vector<StageMemory> memory) {
  Report report;
  report.strategy_hash = trace.strategy_hash;
  report.program_hash = trace.program_hash;
  report.chips = program.rank_count();
  report.notes = job_notes(job, program);
  report.real = real_part(program, trace);
  report.memory =
      memory.empty() ? memory_by_stage(program, job.cluster, job.train.fragmentation) : std::move(memory);
  report.iteration_s = step_s(trace);
  CostTable costs(program, job.cluster);
  Attribution attribution(program, costs, trace);
  const std::map<Rank, RankBreakdown> rows = attribution.by_rank();
  report.breakdown = stage_rows(job, program, rows);
  report.all_chips = mean_of_chips(rows, trace);
  report.waits = stage_waits(job, program, rows);
  report.critical_path = path_breakdown(attribution);
  std::set<int> groups;
  for (const RankEntry& entry : program.ranks) groups.insert(job.cluster.chip_group[at(entry.chip)]);
  report.has_unlike_groups = groups.size() > 1;

  const auto chips = static_cast<double>(report.chips);
  const double tokens = static_cast<double>(program.global_batch) * static_cast<double>(program.sequence);
  report.spending = find_spending(job, program, chip_times(job, program, rows, trace), report.iteration_s);
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

Spending spending_of(const Job& job, const Program& program, const Trace& trace) {
  CostTable costs(program, job.cluster);
  Attribution attribution(program, costs, trace);
  return find_spending(job, program, chip_times(job, program, attribution.by_rank(), trace), step_s(trace));
}

double share_of(const Report& report, Purpose purpose) {
  return ratio(report.all_chips[purpose], report.iteration_s);
}

Purpose bound_by(const Report& report) {
  Purpose worst = Purpose::recompute;
  for (int i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    if (purpose != Purpose::compute && share_of(report, purpose) > share_of(report, worst)) worst = purpose;
  }
  const bool computes = share_of(report, worst) < 0.1 && share_of(report, Purpose::compute) > 0.5;
  return computes ? Purpose::compute : worst;
}

}  // namespace motley
