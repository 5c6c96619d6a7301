// The Report for a terminal: the figures, how each stage spent its step, memory, and one line on what bounds the
// step. Advice follows rules from the breakdown alone; only a new simulation tells whether it helps.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/check/memory_text.hpp"
#include "models/report/report.hpp"
#include "models/report/spending_text.hpp"

namespace motley {
namespace {

struct Part {
  const char* name;
  double StageBreakdown::*seconds;
  const char* helps;
};
constexpr std::array<Part, 10> kParts = {{
    {"compute", &StageBreakdown::compute_s,
     "chips with more FLOP/s or larger kernels (a larger micro-batch, less tensor parallelism) would help"},
    {"recompute", &StageBreakdown::recompute_s,
     "`recompute: none` would help where memory allows, or more stages to make room"},
    {"bubble", &StageBreakdown::bubble_s, "more micro-batches a step or fewer stages would help"},
    {"exposed TP", &StageBreakdown::tensor_parallel_s,
     "less tensor parallelism, or a faster fabric inside the node, would help"},
    {"exposed EP", &StageBreakdown::expert_parallel_s,
     "a smaller expert_parallel, or one that stays inside the node, would help"},
    {"exposed CP", &StageBreakdown::context_parallel_s,
     "a smaller context_parallel, or a faster fabric between its ranks, would help"},
    {"exposed PP", &StageBreakdown::pipeline_s,
     "`overlap_p2p`, fewer stages or faster links between stages would help"},
    {"exposed DP", &StageBreakdown::data_parallel_s,
     "overlapping gradients with the backward, a larger batch or faster links between replicas would help"},
    {"exposed offload", &StageBreakdown::offload_s,
     "a smaller share of `offload`, or a faster link to the host, would help"},
    {"optimizer", &StageBreakdown::optimizer_s,
     "more tensor or pipeline parallelism (fewer parameters a chip) would help"},
}};
static_assert(kParts.size() * sizeof(double) + 2 * sizeof(int) == sizeof(StageBreakdown),
              "every column is printed");

double sum_of(const StageBreakdown& row) {
  double sum = 0;
  for (const Part& part : kParts) sum += row.*part.seconds;
  return sum;
}

// Mean of a part over the stages, as a share of the step.
double share_of(const Report& report, const Part& part) {
  double sum = 0;
  for (const StageBreakdown& row : report.breakdown) sum += row.*part.seconds;
  const double whole = report.iteration_s * static_cast<double>(report.breakdown.size());
  return whole > 0 ? sum / whole : 0;
}

// Columns of expert parallelism, context parallelism and offload are left out where they are 0.
std::vector<Part> columns_of(const Report& report) {
  std::vector<Part> columns;
  for (const Part& part : kParts)
    if ((part.seconds != &StageBreakdown::expert_parallel_s &&
         part.seconds != &StageBreakdown::context_parallel_s && part.seconds != &StageBreakdown::offload_s) ||
        share_of(report, part) > 0)
      columns.push_back(part);
  return columns;
}

std::string print_breakdown(const Report& report) {
  const SecondsColumn seconds(report.iteration_s);
  std::vector<std::string> header = {"stage", "rank"}, shares = {"mean", ""};
  const std::vector<Part> columns = columns_of(report);
  for (const Part& part : columns) {
    header.emplace_back(part.name);
    shares.push_back(format_percent(share_of(report, part)));
  }
  header.emplace_back("sum");
  shares.emplace_back("");
  Table table(fmt::format("l{:r>{}}", "", header.size() - 1), header);
  for (const StageBreakdown& row : report.breakdown) {
    std::vector<std::string> cells = {fmt::to_string(row.stage), fmt::to_string(row.rank)};
    for (const Part& part : columns) cells.push_back(seconds.print(row.*part.seconds));
    cells.push_back(seconds.print(sum_of(row)));
    table.add(cells);
  }
  table.add(shares);
  return fmt::format("where the step went, in {}, of each stage's slowest rank:\n{}", seconds.unit(),
                     table.print());
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
  return fmt::format("; stage {} works {:.2f} times as long as stage {}: layers moved off it would help",
                     most->stage, work_s(*most) / work_s(*least), least->stage);
}

// Tells how much memory is free to keep activations instead of computing them again.
std::string print_room(const Report& report) {
  double fullest = 0;
  for (const StageMemory& row : report.memory)
    if (row.capacity > 0)
      fullest = std::max(fullest, static_cast<double>(row.peak) / static_cast<double>(row.capacity));
  return fmt::format("; the fullest stage uses {} of its memory", format_percent(fullest));
}

// The largest loss; or computing, if it takes more than half of the step and no loss takes a tenth.
std::string print_verdict(const Report& report) {
  if (report.breakdown.empty()) return "";
  const Part& compute = kParts[0];
  const Part* worst = &kParts[1];
  for (const Part& part : kParts)
    if (&part != &compute && share_of(report, part) > share_of(report, *worst)) worst = &part;
  const std::string computing = format_percent(share_of(report, compute));
  if (share_of(report, *worst) < 0.1 && share_of(report, compute) > 0.5)
    return fmt::format("bound by compute ({} of the step): {}\n", computing, compute.helps);
  std::string more;
  if (worst->seconds == &StageBreakdown::bubble_s) more = print_imbalance(report);
  if (worst->seconds == &StageBreakdown::recompute_s) more = print_room(report);
  return fmt::format("computing is {} of the step; most is lost to {} ({}): {}{}\n", computing, worst->name,
                     format_percent(share_of(report, *worst)), worst->helps, more);
}

// Describes an interval: "5.1 s to 6.2 s, as 8 of 10 published runs of this software".
std::string describe(const Interval& interval, double seconds) {
  const char* const basis = interval.regime == Regime::calibrated ? "of this software"
                            : interval.regime == Regime::similar
                                ? "of any software: nothing is known of this one on these chips"
                                : "of any software: `software` in the scenario names yours";
  return fmt::format("{} to {} when measured, as 8 of 10 published runs {}",
                     format_seconds(interval.low * seconds), format_seconds(interval.high * seconds), basis);
}

}  // namespace

std::string to_text(const Report& report) {
  Table figures("ll", {"iteration", format_seconds(report.iteration_s)});
  if (report.interval) figures.add({"likely", describe(*report.interval, report.iteration_s)});
  figures.add({"tokens", fmt::format("{}/s, {}/s a chip", format_count(report.tokens_per_s),
                                     format_count(report.tokens_per_s_per_chip))});
  figures.add({"model FLOPs", fmt::format("{} a chip on {} chips",
                                          format_flops(report.tflops_per_chip * 1e12), report.chips)});
  figures.add({"MFU", format_percent(report.mfu)});
  figures.add({"HFU", format_percent(report.hfu) + ", recompute counted"});
  add_spending(report.spending, figures);
  figures.add({"formula", report.flop_formula});
  figures.add({"strategy", report.strategy_hash});
  figures.add({"program", report.program_hash});
  return fmt::format("{}{}{}\n{}{}\n{}\n{}", report.scenario, report.scenario.empty() ? "" : "\n",
                     figures.print(), print_run(report.spending), print_breakdown(report),
                     print_memory(report), print_verdict(report));
}

}  // namespace motley
