// The Comparison for a terminal and as JSON (schema "motley.compare/1": a key is never renamed within a schema).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/trace/compare.hpp"

namespace motley {
namespace {

using nlohmann::ordered_json;

std::string_view name_of(Op op) {
  switch (op) {
    case Op::compute:
      return "compute";
    case Op::send:
      return "send";
    case Op::recv:
      return "recv";
    case Op::collective:
      return "collective";
    case Op::optimizer:
      return "optimizer";
    case Op::copy:
      return "copy";
  }
  return "?";
}

ordered_json json_of(const ComparedSide& side) {
  return {{"world", side.world},   {"strategy_hash", side.strategy_hash}, {"program_hash", side.program_hash},
          {"events", side.events}, {"iteration_s", side.iteration_s},     {"own_ranks", side.own_ranks}};
}
ordered_json json_of(const Step& step) {
  return {{"rank", step.rank}, {"stream", step.stream.value()}, {"index", step.index}};
}

// The ratio b / a; null if a is so short that it says nothing, because JSON has no infinity.
constexpr double kShortest_s = 1e-15;
ordered_json ratio(double a, double b) {
  return a > kShortest_s ? ordered_json(b / a) : ordered_json(nullptr);
}
std::string print_ratio(double a, double b) { return a > kShortest_s ? fmt::format("{:.3f}", b / a) : "-"; }

std::string print_differences(const Comparison& comparison) {
  if (!comparison.same_program)
    return fmt::format("programs differ ({} and {}): only the iterations are compared\n",
                       comparison.a.program_hash, comparison.b.program_hash);
  const std::string compared =
      fmt::format("{} instructions of {} ranks", comparison.compared, comparison.ranks);
  if (comparison.difference_count == 0)
    return fmt::format("structure: equal, {}: same bytes, flops, allocations; peaks within tolerance\n",
                       compared);
  Table table("lrrl", {"differs in", "A", "B", "instruction"});
  for (const Difference& difference : comparison.differences) {
    const bool missing = difference.what == "missing";
    const auto cell = [&](double value) {
      return missing ? std::string(value > 0 ? "there" : "missing") : format_exact(value);
    };
    table.add(
        {missing ? "presence" : difference.what, cell(difference.a), cell(difference.b), difference.where});
  }
  return fmt::format("structure: {} {} in {}; the first {}:\n{}", comparison.difference_count,
                     comparison.difference_count == 1 ? "difference" : "differences", compared,
                     comparison.differences.size(), table.print());
}

std::string print_totals(const Comparison& comparison) {
  if (comparison.totals.empty()) return "";
  double largest_s = 0;
  for (const OpTotal& total : comparison.totals) largest_s = std::max({largest_s, total.a_s, total.b_s});
  const SecondsColumn seconds(largest_s);
  Table table("lllrrrr", {"stage", "stream", "op", "count", "A", "B", "B/A"});
  for (const OpTotal& total : comparison.totals)
    table.add({fmt::to_string(total.stage), std::string(motley::name_of(total.stream)),
               std::string(name_of(total.op)), fmt::to_string(total.count), seconds.print(total.a_s),
               seconds.print(total.b_s), print_ratio(total.a_s, total.b_s)});
  return fmt::format("\nwork in {}; transfers and collectives are counted from when all sides are ready:\n{}",
                     seconds.unit(), table.print());
}

std::string print_deviations(const Comparison& comparison) {
  if (comparison.deviations.empty()) return "";
  Table table("rrrrl", {"A", "B", "B-A", "B/A", "instruction"});
  for (const Deviation& deviation : comparison.deviations)
    table.add({format_seconds(deviation.a_s), format_seconds(deviation.b_s),
               format_seconds(deviation.b_s - deviation.a_s), print_ratio(deviation.a_s, deviation.b_s),
               deviation.where});
  return fmt::format("\nlargest deviations:\n{}", table.print());
}

std::string print_kernels(const Comparison& comparison) {
  if (comparison.kernels.empty()) return "";
  const KernelTotal& longest = comparison.kernels.front();
  const SecondsColumn seconds(std::max(longest.a_s, longest.b_s));
  double a_s = 0, b_s = 0;
  for (const KernelTotal& total : comparison.kernels) {
    a_s += total.a_s;
    b_s += total.b_s;
  }
  Table table("lrrrrr", {"kernel", "count", "A", "B", "B/A", "share of B"});
  for (const KernelTotal& total : comparison.kernels)
    table.add({std::string(motley::name_of(total.op)), fmt::to_string(total.count), seconds.print(total.a_s),
               seconds.print(total.b_s), print_ratio(total.a_s, total.b_s),
               b_s > 0 ? format_percent(total.b_s / b_s) : "-"});
  table.add({"all", "", seconds.print(a_s), seconds.print(b_s), print_ratio(a_s, b_s), ""});
  return fmt::format("\nkernels in {}:\n{}", seconds.unit(), table.print());
}

std::string print_stages(const Comparison& comparison) {
  if (comparison.stages.empty()) return "";
  double largest_s = 0;
  for (const StageTotal& total : comparison.stages)
    for (const StageTime& time : {total.a, total.b})
      largest_s = std::max({largest_s, time.kernels_s, time.between_kernels_s, time.waiting_s});
  const SecondsColumn seconds(largest_s);
  Table table("rrrrrrr", {"stage", "kernels A", "B", "gaps A", "B", "waiting A", "B"});
  for (const auto& [stage, a, b] : comparison.stages)
    table.add({fmt::to_string(stage), seconds.print(a.kernels_s), seconds.print(b.kernels_s),
               seconds.print(a.between_kernels_s), seconds.print(b.between_kernels_s),
               seconds.print(a.waiting_s), seconds.print(b.waiting_s)});
  return fmt::format(
      "\ncompute streams of each stage in {}; gaps are inside computes, between their kernels:\n{}",
      seconds.unit(), table.print());
}

std::string print_kernel_deviations(const Comparison& comparison) {
  if (comparison.kernel_deviations.empty()) return "";
  Table table("rrrrrl", {"A", "B", "B - A", "B/A", "count", "kernel"});
  for (const KernelDeviation& each : comparison.kernel_deviations)
    table.add({format_seconds(each.a_s), format_seconds(each.b_s), format_seconds(each.b_s - each.a_s),
               print_ratio(each.a_s, each.b_s), fmt::to_string(each.count), each.kernel});
  return fmt::format("\nlargest deviations by kernel:\n{}", table.print());
}

std::string print_own_ranks(const char* name, const ComparedSide& side) {
  if (side.own_ranks.empty()) return "";
  return fmt::format("{} ranks are only in {}, the first is {}\n", side.own_ranks.size(), name,
                     side.own_ranks[0]);
}

}  // namespace

std::string to_text(const Comparison& comparison) {
  const ComparedSide &a = comparison.a, &b = comparison.b;
  Table sides("lllrr", {"", "world", "program", "events", "iteration"});
  for (const auto& [name, side] : {std::pair<const char*, const ComparedSide&>{"A", a}, {"B", b}})
    sides.add(
        {name, side.world, side.program_hash, fmt::to_string(side.events), format_seconds(side.iteration_s)});
  return fmt::format("strategy {}\n{}iteration: B/A = {}\n{}{}{}{}{}{}{}{}", a.strategy_hash, sides.print(0),
                     print_ratio(a.iteration_s, b.iteration_s), print_own_ranks("A", a),
                     print_own_ranks("B", b), print_differences(comparison), print_totals(comparison),
                     print_kernels(comparison), print_stages(comparison), print_deviations(comparison),
                     print_kernel_deviations(comparison));
}

namespace {

ordered_json json_of(const StageTime& time) {
  return {{"kernels_s", time.kernels_s},
          {"between_kernels_s", time.between_kernels_s},
          {"waiting_s", time.waiting_s}};
}

// Empty lists where a trace has no kernels.
void add_kernels(ordered_json& json, const Comparison& comparison) {
  auto& kernels = json["kernels"] = ordered_json::array();
  for (const KernelTotal& each : comparison.kernels)
    kernels.push_back({{"op", motley::name_of(each.op)},
                       {"count", each.count},
                       {"a_s", each.a_s},
                       {"b_s", each.b_s},
                       {"ratio", ratio(each.a_s, each.b_s)}});
  auto& stages = json["stages"] = ordered_json::array();
  for (const StageTotal& each : comparison.stages)
    stages.push_back({{"stage", each.stage}, {"a", json_of(each.a)}, {"b", json_of(each.b)}});
  auto& deviations = json["kernel_deviations"] = ordered_json::array();
  for (const KernelDeviation& each : comparison.kernel_deviations)
    deviations.push_back({{"kernel", each.kernel},
                          {"count", each.count},
                          {"a_s", each.a_s},
                          {"b_s", each.b_s},
                          {"ratio", ratio(each.a_s, each.b_s)}});
}

}  // namespace

std::string to_json(const Comparison& comparison) {
  ordered_json json;
  json["schema"] = "motley.compare/1";
  json["strategy_hash"] = comparison.a.strategy_hash;
  json["equal_structure"] = comparison.equal_structure();
  json["same_program"] = comparison.same_program;
  json["iteration_ratio"] = ratio(comparison.a.iteration_s, comparison.b.iteration_s);
  json["ranks_compared"] = comparison.ranks;
  json["instructions_compared"] = comparison.compared;
  json["difference_count"] = comparison.difference_count;
  json["a"] = json_of(comparison.a);
  json["b"] = json_of(comparison.b);
  auto& differences = json["differences"] = ordered_json::array();
  for (const Difference& each : comparison.differences) {
    ordered_json row = json_of(each.step);
    row.update({{"instruction", each.where}, {"what", each.what}, {"a", each.a}, {"b", each.b}});
    differences.push_back(row);
  }
  auto& totals = json["totals"] = ordered_json::array();
  for (const OpTotal& each : comparison.totals)
    totals.push_back({{"stage", each.stage},
                      {"stream", motley::name_of(each.stream)},
                      {"op", name_of(each.op)},
                      {"count", each.count},
                      {"a_s", each.a_s},
                      {"b_s", each.b_s},
                      {"ratio", ratio(each.a_s, each.b_s)}});
  auto& deviations = json["deviations"] = ordered_json::array();
  for (const Deviation& each : comparison.deviations) {
    ordered_json row = json_of(each.step);
    row.update({{"instruction", each.where},
                {"a_s", each.a_s},
                {"b_s", each.b_s},
                {"ratio", ratio(each.a_s, each.b_s)}});
    deviations.push_back(row);
  }
  add_kernels(json, comparison);
  return json_text(json);
}

}  // namespace motley
