// The Report for a terminal: the figures, how each stage spent its step, memory, what the step loses most to, and what
// was simulated against that.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/check/memory_text.hpp"
#include "models/report/interval_text.hpp"
#include "models/report/report.hpp"
#include "models/report/spending_text.hpp"

namespace motley {
namespace {

struct Column {
  Purpose purpose;
  const char* name;
  bool may_be_missing;  // true: the column is left out where it is 0
};
constexpr std::array<Column, kPurposes> kColumns = {{
    {Purpose::compute, "compute", false},
    {Purpose::recompute, "recompute", false},
    {Purpose::bubble, "bubble", false},
    {Purpose::waiting, "waiting for slower", true},
    {Purpose::tensor_parallel, "exposed TP", false},
    {Purpose::expert_parallel, "exposed EP", true},
    {Purpose::context_parallel, "exposed CP", true},
    {Purpose::pipeline, "exposed PP", false},
    {Purpose::data_parallel, "exposed DP", false},
    {Purpose::offload, "exposed offload", true},
    {Purpose::optimizer, "optimizer", false},
}};

// The least share of the step that a table shows: less rounds to 0.0 %.
constexpr double kShown = 0.0005;
// Share of the step from which a stage that waits for slower ranks has a line, and the most lines.
constexpr double kWorthALine = 0.01;
constexpr std::size_t kMostLines = 4;

std::vector<Column> columns_of(const Report& report) {
  std::vector<Column> columns;
  for (const Column& column : kColumns)
    if (!column.may_be_missing ||
        std::any_of(
            report.breakdown.begin(), report.breakdown.end(),
            [&](const StageBreakdown& row) { return row[column.purpose] > kShown * report.iteration_s; }) ||
        share_of(report, column.purpose) > kShown)
      columns.push_back(column);
  return columns;
}

std::string print_place(const StandsOn& on) { return fmt::format("{} ({})", on.group, on.chip); }

// "rank 24 (stage 0, s, v100-32gb-sxm)"
std::string print_rank(Rank rank, const StandsOn& on, int stage) {
  return fmt::format("rank {} (stage {}, {}, {})", rank, stage, on.group, on.chip);
}

std::string print_breakdown(const Report& report) {
  const SecondsColumn seconds(report.iteration_s);
  std::vector<std::string> header = {"stage", "rank"}, mean = {"all chips", ""}, path = {"path", ""};
  std::string alignment = "lr";
  if (report.has_unlike_groups) {
    for (auto* row : {&header, &mean, &path}) row->emplace_back(row == &header ? "on" : "");
    alignment += "l";
  }
  const std::vector<Column> columns = columns_of(report);
  for (const Column& column : columns) {
    header.emplace_back(column.name);
    mean.push_back(format_percent(share_of(report, column.purpose)));
    path.push_back(format_percent(report.critical_path[column.purpose] / report.iteration_s));
  }
  header.emplace_back("sum");
  mean.emplace_back("");
  path.emplace_back("");
  Table table(alignment + std::string(columns.size() + 1, 'r'), header);
  for (const StageBreakdown& row : report.breakdown) {
    std::vector<std::string> cells = {fmt::to_string(row.stage), fmt::to_string(row.rank)};
    if (report.has_unlike_groups) cells.push_back(print_place(row.on));
    for (const Column& column : columns) cells.push_back(seconds.print(row[column.purpose]));
    cells.push_back(seconds.print(row.sum_s()));
    table.add(cells);
  }
  table.add(mean);
  table.add(path);
  return fmt::format("where the step went, in {}, of the rank of each stage that works most:\n{}{}",
                     seconds.unit(), table.print(), print_waits(report));
}

std::string print_memory(const Report& report) {
  const bool beyond = std::any_of(report.memory.begin(), report.memory.end(),
                                  [](const StageMemory& row) { return beyond_tensors(row) > 0; });
  std::vector<std::string> header = {"stage", "parameters", "gradients", "optimizer", "activations"};
  if (beyond) header.emplace_back("beyond");
  header.insert(header.end(), {"peak", "capacity", "used"});
  Table table(fmt::format("l{:r>{}}", "", header.size() - 1), header);
  for (const StageMemory& row : report.memory) {
    std::vector<std::string> cells = {fmt::to_string(row.stage)};
    std::vector<std::int64_t> figures = {row.parameters, row.gradients, row.optimizer, row.activations_peak};
    if (beyond) figures.push_back(beyond_tensors(row));
    figures.insert(figures.end(), {row.peak, row.capacity});
    for (std::int64_t bytes : figures) cells.push_back(format_bytes(static_cast<double>(bytes)));
    cells.push_back(format_percent(
        row.capacity > 0 ? static_cast<double>(row.peak) / static_cast<double>(row.capacity) : 0));
    table.add(cells);
  }
  return "memory a chip, at its peak:\n" + table.print() + print_memory_notes(report.memory);
}

// A pipeline runs at the pace of its slowest stage: differences of a tenth or more are printed.
std::string print_imbalance(const Report& report) {
  const auto work_s = [](const StageBreakdown& row) {
    return row.compute_s + row.recompute_s + row.tensor_parallel_s + row.expert_parallel_s +
           row.context_parallel_s;
  };
  const auto [least, most] =
      std::minmax_element(report.breakdown.begin(), report.breakdown.end(),
                          [&](const auto& a, const auto& b) { return work_s(a) < work_s(b); });
  if (report.breakdown.size() < 2 || work_s(*most) < 1.1 * work_s(*least) || work_s(*least) <= 0) return "";
  return fmt::format("; stage {} works {:.2f} times as long as stage {}", most->stage,
                     work_s(*most) / work_s(*least), least->stage);
}

// Tells how much memory is free to keep activations instead of computing them again.
std::string print_room(const Report& report) {
  double fullest = 0;
  for (const StageMemory& row : report.memory)
    if (row.capacity > 0)
      fullest = std::max(fullest, static_cast<double>(row.peak) / static_cast<double>(row.capacity));
  return fmt::format("; the fullest stage uses {} of its memory", format_percent(fullest));
}

// What the step loses most to, and where that points.
std::string print_finding(const Report& report) {
  const Purpose purpose = bound_by(report);
  const std::string computing = format_percent(share_of(report, Purpose::compute));
  if (purpose == Purpose::compute) return fmt::format("bound by compute: {} of the step\n", computing);
  std::string more;
  if (purpose == Purpose::bubble) more = print_imbalance(report);
  if (purpose == Purpose::recompute) more = print_room(report);
  const auto column = std::find_if(kColumns.begin(), kColumns.end(),
                                   [&](const Column& each) { return each.purpose == purpose; });
  return fmt::format("computing is {} of the step; most is lost to {} ({}){}\n", computing, column->name,
                     format_percent(share_of(report, purpose)), more);
}

std::string print_advice(const Report& report) {
  const Advice& advice = report.advice;
  if (advice.simulated == 0) return "`motley explain` simulates what would make the step shorter\n";
  if (advice.change.empty())
    return fmt::format(
        "{} simulated and did not make the step shorter; `motley explain` tries more\n",
        advice.simulated == 1 ? "1 change was" : fmt::format("{} changes were", advice.simulated));
  return fmt::format("`{}`: {} a step, {:+.1f} %, simulated; `motley explain` tries more\n", advice.change,
                     format_seconds(advice.step_s), 100 * (advice.step_s / report.iteration_s - 1));
}

}  // namespace

std::string print_waits(const Report& report) {
  std::vector<StageWait> longest = report.waits;
  std::stable_sort(longest.begin(), longest.end(),
                   [](const StageWait& a, const StageWait& b) { return a.waiting_s > b.waiting_s; });
  std::string text;
  for (std::size_t i = 0; i < std::min(longest.size(), kMostLines); ++i) {
    const StageWait& wait = longest[i];
    const double share = wait.waiting_s / report.iteration_s;
    if (share < kWorthALine) break;
    text += fmt::format("  {} waits {} of the step for slower ranks, longest for {}\n",
                        print_rank(wait.rank, wait.on, wait.stage), format_percent(share),
                        print_rank(wait.slower, wait.slower_on, wait.slower_stage));
  }
  return text;
}

std::string describe(const RouteDraws& draws) {
  std::string text = draws.repeated
                         ? "by hash: leaves that are otherwise alike repeat one draw (not with --no-fold)"
                         : "by hash: each flow has a draw of its own";
  if (draws.others > 0)
    text += fmt::format("; {} other draws take {} to {}", draws.others, format_seconds(draws.least_s),
                        format_seconds(draws.most_s));
  return text;
}

// Adds which computes were measured, and what moved.
void add_real(const RealPart& real, Table& figures) {
  constexpr std::size_t kMostRanks = 8;
  std::vector<std::int32_t> shown;
  for (std::size_t i = 0; i < std::min(kMostRanks, real.ranks.size()); ++i)
    shown.push_back(real.ranks[i].value());
  const std::size_t more = real.ranks.size() - shown.size();
  figures.add(
      {"measured",
       fmt::format("computes of rank{} {}{}, {}", real.ranks.size() == 1 ? "" : "s", fmt::join(shown, ", "),
                   more == 0 ? "" : fmt::format(" and {} more", more),
                   real.for_class ? "each for all ranks that must behave like it" : "each for itself")});
  if (real.moved > 0)
    figures.add({"", fmt::format("{} transfers and collectives among them moved {}{}{}", real.moved,
                                 format_bytes(static_cast<double>(real.moved_bytes)),
                                 real.paths.empty() ? "" : fmt::format(" ({})", print(real.paths)),
                                 real.measured ? ", and take as long as that took"
                                               : "; their time is the price on the scenario's fabric, as "
                                                 "`transfers: measured` was not asked for")});
  if (real.filled_in > 0)
    figures.add(
        {"", fmt::format(
                 "{} transfers and collectives with simulated ranks, whose part is filled in, are priced: {}",
                 real.filled_in, format_bytes(static_cast<double>(real.filled_in_bytes)))});
}

// Adds how the step spreads: "5.3 s on average, 5.2 s to 5.5 s in 9 of 10 draws".
void add_spread(const StepSpread& spread, Table& figures) {
  figures.add(
      {"variation", fmt::format("{}: {} on average, {} to {} in 9 of 10 draws; {} if all were alike",
                                spread.parts, format_seconds(spread.mean_s), format_seconds(spread.p5_s),
                                format_seconds(spread.p95_s), format_seconds(spread.alike_s))});
  for (const StepSpread::Part& part : spread.slowest)
    figures.add({"slowest", fmt::format("{} stand for the slowest of all, at {:.3g} times the usual speed",
                                        part.name, part.speed)});
  if (spread.drawn.empty()) return;
  const auto count = static_cast<double>(spread.drawn.size());
  figures.add(
      {"drawn",
       fmt::format("{} clusters with every speed drawn: {} on average, {} to {}", count,
                   format_seconds(std::accumulate(spread.drawn.begin(), spread.drawn.end(), 0.0) / count),
                   format_seconds(spread.drawn.front()), format_seconds(spread.drawn.back()))});
}

// How far the prediction lies from the run that the scenario says.
static std::string describe_measured(const Report& report) {
  const double error = report.iteration_s / report.measured_s - 1;
  std::string text = fmt::format("{}: the prediction is {:.1f} % too {}", format_seconds(report.measured_s),
                                 100 * std::abs(error), error > 0 ? "slow" : "fast");
  if (!report.interval) return text;
  const double times = report.measured_s / report.iteration_s;
  const bool is_inside = times >= report.interval->low && times <= report.interval->high;
  return text + (is_inside ? ", and the run inside what is likely" : ", and the run outside what is likely");
}

std::string to_text(const Report& report) {
  Table figures("ll", {"iteration", format_seconds(report.iteration_s)});
  if (report.interval) figures.add({"likely", describe(*report.interval, report.iteration_s)});
  if (report.measured_s > 0) figures.add({"measured", describe_measured(report)});
  if (report.coverage) figures.add({"rests on", describe(*report.coverage)});
  if (report.own_s > 0)
    figures.add({"at best", fmt::format("{}, by the chips' own figures: a bound, software comes on top",
                                        format_seconds(report.own_s))});
  if (report.real) add_real(*report.real, figures);
  if (report.spread) add_spread(*report.spread, figures);
  if (report.draws) figures.add({"routes", describe(*report.draws)});
  figures.add({"tokens", fmt::format("{}/s, {}/s a chip", format_count(report.tokens_per_s),
                                     format_count(report.tokens_per_s_per_chip))});
  figures.add({"model FLOPs", fmt::format("{} a chip on {} chips",
                                          format_flops(report.tflops_per_chip * 1e12), report.chips)});
  figures.add({"MFU", format_percent(report.mfu)});
  figures.add({"HFU", format_percent(report.hfu) + ", recompute counted"});
  add_spending(report.spending, figures, report.interval);
  figures.add({"formula", report.flop_formula});
  figures.add({"strategy", report.strategy_hash});
  figures.add({"program", report.program_hash});
  for (const std::string& note : report.notes) figures.add({"note", note});
  const std::string verdict = report.breakdown.empty() ? "" : print_finding(report) + print_advice(report);
  return fmt::format("{}{}{}\n{}{}\n{}\n{}", report.scenario, report.scenario.empty() ? "" : "\n",
                     figures.print(), print_run(report.spending, report.interval), print_breakdown(report),
                     print_memory(report), verdict);
}

}  // namespace motley
