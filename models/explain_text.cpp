// What was explained, for a terminal: where the step goes, what better parts bring, what other strategies bring, and one
// line on what to do first. Every figure stands in the Explained; nothing is decided here but what is too little to be
// listed. Read next: models/explain_json.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/explain.hpp"
#include "models/table.hpp"

namespace motley {
namespace {

constexpr double kWorthARow = 0.001;    // of the step: parts of the path
constexpr double kWorthALine = 0.0005;  // gains: what rounds to 0.1 %

std::string spent_on(Spent spent, bool recompute) {
  return recompute ? fmt::format("recompute: {}", name_of(spent)) : std::string(name_of(spent));
}

std::string where_of(const PathPart& part) {
  if (part.on.empty()) return "";
  return part.group.empty() ? part.on : fmt::format("{} ({})", part.group, part.on);
}

std::string signed_percent(double fraction) {
  // No sign on what rounds to nothing.
  return std::abs(fraction) < kWorthALine ? "0.0 %" : fmt::format("{:+.1f} %", 100 * fraction);
}

std::string print_path(const Explained& explained) {
  const double step_s = explained.report.iteration_s;
  const SecondsColumn seconds(step_s);
  Table table("llrr", {"spent on", "where", seconds.unit(), "share"});
  double small_s = 0, sum_s = 0;
  int small = 0;
  for (const PathPart& part : explained.path) {
    sum_s += part.seconds;
    if (part.seconds < kWorthARow * step_s) {
      small_s += part.seconds;
      ++small;
      continue;
    }
    table.add({spent_on(part.spent, part.recompute), where_of(part), seconds.print(part.seconds),
               format_percent(part.seconds / step_s)});
  }
  if (small > 0)
    table.add(
        {fmt::format("{} smaller", small), "", seconds.print(small_s), format_percent(small_s / step_s)});
  table.add({"sum", "", seconds.print(sum_s), format_percent(sum_s / step_s)});
  return fmt::format(
      "where the step goes, along its critical path of {} instructions, each of which let the next "
      "begin:\n{}",
      explained.path_links, table.print());
}

// The path computes while the chips beside it wait: that is not on it.
std::string print_waiting(const Explained& explained) {
  const auto& rows = explained.report.breakdown;
  if (rows.size() < 2) return "";
  double sum_s = 0;
  const StageBreakdown* most = &rows[0];
  for (const StageBreakdown& row : rows) {
    sum_s += row.bubble_s;
    if (row.bubble_s > most->bubble_s) most = &row;
  }
  const double step_s = explained.report.iteration_s;
  return fmt::format("  beside it the stages wait for each other {} of the step, stage {} most, {}\n",
                     format_percent(sum_s / (step_s * static_cast<double>(rows.size()))), most->stage,
                     format_percent(most->bubble_s / step_s));
}

std::string print_value(const Lever& lever, double value) {
  return lever.dimension ? format_exact(value, *lever.dimension) : fmt::format("{:.4g}", value);
}

// As a person would write the better one: four digits.
double rounded(double value) {
  if (value <= 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

std::string now_and_then(const Lever& lever, double factor) {
  if (lever.value <= 0) return "";
  return fmt::format("{} -> {}", print_value(lever, lever.value),
                     print_value(lever, rounded(lever.better(factor))));
}

class Gains {
 public:
  explicit Gains(const Explained& explained)
      : explained_(explained),
        step_s_(explained.report.iteration_s),
        seconds_(step_s_),
        table_("lllrrr",
               {"part", "where", "now -> better", "step, " + seconds_.unit(), "change", "on the path"}) {}

  std::string print() {
    if (explained_.levers.empty()) return "";
    for (const LeverGain& gain : explained_.levers) add(gain);
    for (const LeverGain& gain : explained_.sets) add(gain);
    if (explained_.all) add(*explained_.all);
    return fmt::format("what parts that are {:.4g} % better bring, each simulated anew:\n{}{}",
                       (explained_.factor - 1) * 100, table_.print(), print_idle());
  }

 private:
  double change(double step_s) const { return step_s / step_s_ - 1; }

  void add(const LeverGain& gain) {
    if (std::abs(change(gain.step_s)) < kWorthALine) {
      idle_.push_back(&gain.lever);
      return;
    }
    table_.add({gain.lever.what, gain.lever.where, now_and_then(gain.lever, explained_.factor),
                seconds_.print(gain.step_s), signed_percent(change(gain.step_s)),
                gain.on_path_s ? signed_percent(-*gain.on_path_s / step_s_) : "-"});
  }

  // Alike things in one go: "roce latency (NICs of a, NICs of b)".
  std::string print_idle() const {
    std::vector<std::pair<std::string, std::vector<std::string>>> by_what;
    for (const Lever* lever : idle_) {
      const auto found = std::find_if(by_what.begin(), by_what.end(),
                                      [&](const auto& each) { return each.first == lever->what; });
      if (found == by_what.end())
        by_what.push_back({lever->what, {lever->where}});
      else
        found->second.push_back(lever->where);
    }
    std::vector<std::string> texts;
    for (const auto& [what, where] : by_what)
      texts.push_back(fmt::format("{} ({})", what, fmt::join(where, ", ")));
    if (texts.empty()) return "";
    return fmt::format("  no gain (less than 0.05 %): {}\n", fmt::join(texts, "; "));
  }

  const Explained& explained_;
  double step_s_;
  SecondsColumn seconds_;
  Table table_;
  std::vector<const Lever*> idle_;
};

std::string print_changes(const Explained& explained) {
  if (explained.changes.empty()) return "";
  const double step_s = explained.report.iteration_s;
  const SecondsColumn seconds(step_s);
  Table table("lrr", {"one key changed", "step, " + seconds.unit(), "change"});
  std::string refused;
  for (const ChangeGain& gain : explained.changes) {
    if (gain.trial.stands())
      table.add(
          {gain.what, seconds.print(gain.trial.step_s), signed_percent(gain.trial.step_s / step_s - 1)});
    else
      refused += fmt::format("  cannot be: `{}`: {}\n", gain.what, gain.trial.refused);
  }
  return fmt::format("what other strategies bring on the same chips, each simulated anew:\n{}{}",
                     table.print(), refused);
}

// What to do first: the best of each kind.
std::string print_advice(const Explained& explained) {
  const double step_s = explained.report.iteration_s;
  std::string text;
  if (!explained.changes.empty() && explained.changes[0].trial.stands() &&
      explained.changes[0].trial.step_s < (1 - kWorthALine) * step_s)
    text += fmt::format("to change first: `{}` ({})\n", explained.changes[0].what,
                        signed_percent(explained.changes[0].trial.step_s / step_s - 1));
  else if (!explained.changes.empty())
    text += "nothing tried of the strategy makes the step shorter\n";
  const LeverGain* best = explained.levers.empty() ? nullptr : &explained.levers[0];
  if (best != nullptr && best->step_s < (1 - kWorthALine) * step_s)
    text += fmt::format("to buy first: better {} of {} ({} for {:.4g} % better)\n", best->lever.what,
                        best->lever.where, signed_percent(best->step_s / step_s - 1),
                        (explained.factor - 1) * 100);
  return text;
}

std::string print_head(const Report& report) {
  return fmt::format("{}{} a step on {} chips, {} tokens/s, MFU {}\n",
                     report.scenario.empty() ? "" : report.scenario + ": ",
                     format_seconds(report.iteration_s), report.chips, format_count(report.tokens_per_s),
                     format_percent(report.mfu));
}

std::string print_lines(const char* side, const std::vector<std::string>& lines) {
  constexpr std::size_t kMost = 12, kWidth = 120;
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kMost); ++i)
    text += fmt::format("    {} {}{}\n", side, lines[i].substr(0, kWidth),
                        lines[i].size() > kWidth ? " ..." : "");
  if (lines.size() > kMost) text += fmt::format("    {} and {} more lines\n", side, lines.size() - kMost);
  return text;
}

std::string print_difference(const Why& why) {
  const double a_s = why.a.report.iteration_s, b_s = why.b.report.iteration_s;
  const SecondsColumn seconds(std::max(a_s, b_s));
  Table table("llrrr", {"spent on", "where", "A", "B", "B - A"});
  const auto row = [&](const std::string& what, const std::string& on, double a, double b) {
    const std::string apart = seconds.print(b - a);
    table.add({what, on, seconds.print(a), seconds.print(b), b > a ? "+" + apart : apart});
  };
  PathDifference rest, sum;
  for (const PathDifference& each : why.path) {
    sum.a_s += each.a_s;
    sum.b_s += each.b_s;
    if (std::max(each.a_s, each.b_s) < kWorthARow * std::max(a_s, b_s)) {
      rest.a_s += each.a_s;
      rest.b_s += each.b_s;
    } else {
      row(spent_on(each.spent, each.recompute), each.on, each.a_s, each.b_s);
    }
  }
  if (rest.a_s + rest.b_s > 0) row("smaller", "", rest.a_s, rest.b_s);
  row("sum", "", sum.a_s, sum.b_s);
  return fmt::format("along the critical paths, in {}:\n{}", seconds.unit(), table.print());
}

std::string print_parts(const Why& why) {
  if (why.parts.empty()) return "the two jobs are the same\n";
  const double a_s = why.a.report.iteration_s;
  std::string text = "what is not the same, and A with that part of B, simulated anew:\n";
  for (const PartDifference& part : why.parts) {
    text += fmt::format("  {}: {}\n", part.part,
                        part.a_with_b.stands() ? fmt::format("{} ({})", format_seconds(part.a_with_b.step_s),
                                                             signed_percent(part.a_with_b.step_s / a_s - 1))
                                               : "does not stand: " + part.a_with_b.refused);
    text += print_lines("A", part.only_a) + print_lines("B", part.only_b);
  }
  return text;
}

}  // namespace

std::string to_text(const Explained& explained) {
  std::string text = print_head(explained.report);
  for (const std::string& section :
       {print_path(explained) + print_waiting(explained), Gains(explained).print(), print_changes(explained),
        print_advice(explained)})
    if (!section.empty()) text += "\n" + section;
  return text;
}

std::string to_text(const Why& why) {
  const Report &a = why.a.report, &b = why.b.report;
  std::string text = fmt::format("A  {}B  {}", print_head(a), print_head(b));
  const bool a_first = a.iteration_s <= b.iteration_s;
  const double apart = std::abs(b.iteration_s - a.iteration_s),
               longer = a_first ? a.iteration_s : b.iteration_s;
  text +=
      fmt::format("{} is faster: {} a step less, {} of {}'s\n", a_first ? "A" : "B", format_seconds(apart),
                  format_percent(longer > 0 ? apart / longer : 0), a_first ? "A" : "B");
  if (why.a_tokens != why.b_tokens)
    text += fmt::format(
        "a step is not the same in both: {} tokens in A, {} in B; per token B takes {:.3f} of A\n",
        format_count(why.a_tokens), format_count(why.b_tokens), a.tokens_per_s / b.tokens_per_s);
  return fmt::format("{}\n{}\n{}", text, print_difference(why), print_parts(why));
}

}  // namespace motley
