// An explanation for a terminal: where the step goes, the gains of better parts and other strategies, and what to do
// first. Every figure is in Explained; only the limits below which a figure is not listed are set here. Read next:
// models/explain/explain_json.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/explain/explain.hpp"

namespace motley {
namespace {

constexpr double kWorthARow = 0.001;    // share of the step from which a part of the path is listed
constexpr double kWorthALine = 0.0005;  // share of the step from which a gain is listed: less rounds to 0.0 %

std::string spent_on(Spent spent, bool recompute) {
  return recompute ? "recompute" : std::string(name_of(spent));
}

struct Row {
  std::string what, where;
  double a_s = 0, b_s = 0;
};

// Adds a row, or adds it to a row with the same text: all parts recomputed on the same chips form one row.
void add_row(std::vector<Row>& rows, const Row& row) {
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& each) {
    return each.what == row.what && each.where == row.where;
  });
  if (same == rows.end()) {
    rows.push_back(row);
  } else {
    same->a_s += row.a_s;
    same->b_s += row.b_s;
  }
}

std::string where_of(const PathPart& part) {
  if (part.on.empty()) return "";
  return part.group.empty() ? part.on : fmt::format("{} ({})", part.group, part.on);
}

std::string signed_percent(double fraction) {
  // A value that rounds to nothing has no sign.
  return std::abs(fraction) < kWorthALine ? "0.0 %" : fmt::format("{:+.1f} %", 100 * fraction);
}

std::string print_path(const Explained& explained) {
  const double step_s = explained.report.iteration_s;
  const SecondsColumn seconds(step_s);
  std::vector<Row> rows;
  for (const PathPart& part : explained.path)
    add_row(rows, {spent_on(part.spent, part.recompute), where_of(part), part.seconds, 0});
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return x.a_s > y.a_s; });
  Table table("llrr", {"spent on", "where", seconds.unit(), "share"});
  const auto add = [&](const std::string& what, const std::string& where, double spent_s) {
    table.add({what, where, seconds.print(spent_s), format_percent(spent_s / step_s)});
  };
  double small_s = 0, sum_s = 0;
  for (const Row& row : rows) {
    sum_s += row.a_s;
    if (row.a_s < kWorthARow * step_s)
      small_s += row.a_s;
    else
      add(row.what, row.where, row.a_s);
  }
  if (small_s > 0) add("all else", "", small_s);
  add("sum", "", sum_s);
  return fmt::format(
      "where the step goes, along its critical path ({} instructions, each one waits for the one "
      "before):\n{}",
      explained.path_links, table.print());
}

// Chips beside the path wait while it computes; their waiting is not part of the path.
std::string print_waiting(const Explained& explained) {
  const auto& rows = explained.report.breakdown;
  const std::string for_slower = print_waits(explained.report);
  if (rows.size() < 2) return for_slower;
  const auto most = std::max_element(
      rows.begin(), rows.end(),
      [](const StageBreakdown& x, const StageBreakdown& y) { return x.bubble_s < y.bubble_s; });
  return fmt::format(
      "  not on the path: the stages wait for each other {} of the step, stage {} longest, {}\n{}",
      format_percent(stages_wait_share(explained)), most->stage,
      format_percent(most->bubble_s / explained.report.iteration_s), for_slower);
}

std::string print_value(const Lever& lever, double value) {
  if (!lever.dimension) return fmt::format("{:.3g}", value);
  if (lever.dimension == Dimension::flops) return format_flops(value);
  if (lever.dimension == Dimension::seconds) return format_seconds(value);
  constexpr double kGiga = 1e9, kBits = 8;
  return lever.in_bits ? fmt::format("{:.3g} Gb/s", value * kBits / kGiga) : format_rate(value);
}

std::string now_and_then(const Lever& lever, double factor) {
  if (lever.value <= 0) return "";
  return fmt::format("{} -> {}", print_value(lever, lever.value), print_value(lever, lever.better(factor)));
}

class LeverTable {
 public:
  explicit LeverTable(const Explained& explained)
      : explained_(explained),
        step_s_(explained.report.iteration_s),
        seconds_(step_s_),
        table_("lllrrr",
               {"part", "where", "now -> better", "step, " + seconds_.unit(), "change", "on the path"}) {}

  std::string print() {
    if (explained_.levers.empty()) return "";
    std::vector<const LeverGain*> gains;
    for (const auto* list : {&explained_.levers, &explained_.sets})
      for (const LeverGain& gain : *list) gains.push_back(&gain);
    std::stable_sort(gains.begin(), gains.end(),
                     [](const LeverGain* x, const LeverGain* y) { return x->step_s < y->step_s; });
    for (const LeverGain* gain : gains) add(*gain);
    if (explained_.all) add(*explained_.all);
    return fmt::format(
        "what each part brings if it is {:.4g} % better (each simulated):\n{}{}{}",
        (explained_.factor - 1) * 100, table_.print(), print_idle(),
        "  on the path: what the critical path alone would lose; the step loses less where another path is "
        "nearly as long\n");
  }

 private:
  double change(double step_s) const { return step_s / step_s_ - 1; }

  void add(const LeverGain& gain) {
    if (std::abs(change(gain.step_s)) < kWorthALine) {
      idle_[gain.lever.what].push_back(gain.lever.where);
      return;
    }
    shown_.insert(gain.lever.what);
    table_.add({gain.lever.what, gain.lever.where, now_and_then(gain.lever, explained_.factor),
                seconds_.print(gain.step_s), signed_percent(change(gain.step_s)),
                gain.on_path_s ? signed_percent(-*gain.on_path_s / step_s_) : "-"});
  }

  // Lists things without a gain, with their place if the same thing gains elsewhere.
  std::string print_idle() const {
    std::vector<std::string> texts;
    for (const auto& [what, where] : idle_)
      texts.push_back(shown_.contains(what) ? fmt::format("{} ({})", what, fmt::join(where, ", ")) : what);
    if (texts.empty()) return "";
    return fmt::format("  no gain (less than 0.05 %): {}\n", fmt::join(texts, "; "));
  }

  const Explained& explained_;
  double step_s_;
  SecondsColumn seconds_;
  Table table_;
  std::map<std::string, std::vector<std::string>> idle_;
  std::set<std::string> shown_;
};

// A message without the figures in brackets at its end.
std::string in_short(const std::string& refused) { return refused.substr(0, refused.find(" (")); }

std::string print_changes(const Explained& explained) {
  if (explained.changes.empty()) return "";
  const double step_s = explained.report.iteration_s;
  const SecondsColumn seconds(step_s);
  Table table("lrr", {"changed", "step, " + seconds.unit(), "change"});
  std::string refused;
  for (const ChangeGain& gain : explained.changes) {
    if (gain.trial.stands())
      table.add(
          {gain.what, seconds.print(gain.trial.step_s), signed_percent(gain.trial.step_s / step_s - 1)});
    else
      refused += fmt::format("  not possible: `{}`: {}\n", gain.what, in_short(gain.trial.refused));
  }
  return fmt::format("what other strategies bring on the same chips (each simulated):\n{}{}", table.print(),
                     refused);
}

bool is_of_chips(const Lever& lever) {
  return lever.what.rfind("chip ", 0) == 0 || lever.what == "kernel overhead";
}

// What to do first: the best change of the strategy, the best chips, the best of all other parts.
std::string print_advice(const Explained& explained) {
  const double step_s = explained.report.iteration_s;
  std::string text;
  if (!explained.changes.empty() && explained.changes[0].trial.stands() &&
      explained.changes[0].trial.step_s < (1 - kWorthALine) * step_s)
    text += fmt::format("to change first: `{}` ({})\n", explained.changes[0].what,
                        signed_percent(explained.changes[0].trial.step_s / step_s - 1));
  else if (!explained.changes.empty())
    text += "no strategy that was tried makes the step shorter\n";
  for (const bool of_chips : {true, false}) {
    const LeverGain* best = nullptr;
    for (const auto* list : {&explained.levers, &explained.sets})
      for (const LeverGain& gain : *list)
        if (is_of_chips(gain.lever) == of_chips && (best == nullptr || gain.step_s < best->step_s))
          best = &gain;
    if (best == nullptr || best->step_s >= (1 - kWorthALine) * step_s) continue;
    text += fmt::format("to buy first, of {}: {}, {} ({} for {:.4g} % better)\n",
                        of_chips ? "chips" : "all other parts", best->lever.what, best->lever.where,
                        signed_percent(best->step_s / step_s - 1), (explained.factor - 1) * 100);
  }
  return text;
}

std::string print_head(const Report& report) {
  return fmt::format("{}{} a step on {} chips, {} tokens/s, MFU {}\n",
                     report.scenario.empty() ? "" : report.scenario + ": ",
                     format_seconds(report.iteration_s), report.chips, format_count(report.tokens_per_s),
                     format_percent(report.mfu));
}

std::string print_keys(const std::vector<KeyDifference>& keys) {
  constexpr std::size_t kMost = 16, kWidth = 50;
  const auto cell = [](const std::string& value) {
    if (value.empty()) return std::string("-");
    return value.size() > kWidth ? value.substr(0, kWidth) + "..." : value;
  };
  if (keys.empty()) return "";
  Table table("lll", {"key", "A", "B"});
  for (std::size_t i = 0; i < std::min(keys.size(), kMost); ++i)
    table.add({keys[i].key, cell(keys[i].a), cell(keys[i].b)});
  return table.print(4) + (keys.size() > kMost ? fmt::format("    and {} more\n", keys.size() - kMost) : "");
}

std::string print_difference(const Why& why) {
  const double a_s = why.a.report.iteration_s, b_s = why.b.report.iteration_s;
  const SecondsColumn seconds(std::max(a_s, b_s));
  Table table("llrrr", {"spent on", "where", "A", "B", "B - A"});
  std::vector<Row> rows;
  for (const PathDifference& each : why.path)
    add_row(rows, {spent_on(each.spent, each.recompute), each.on, each.a_s, each.b_s});
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) {
    return std::abs(x.b_s - x.a_s) > std::abs(y.b_s - y.a_s);
  });
  const auto add = [&](const Row& row) {
    const double apart_s = row.b_s - row.a_s;
    std::string apart = seconds.print(std::abs(apart_s));
    if (apart != seconds.print(0)) apart = fmt::format("{}{}", apart_s > 0 ? "+" : "-", apart);
    table.add({row.what, row.where, seconds.print(row.a_s), seconds.print(row.b_s), apart});
  };
  Row rest{"all else", "", 0, 0}, sum{"sum", "", 0, 0};
  for (const Row& row : rows) {
    const bool worth = std::max(row.a_s, row.b_s) >= kWorthARow * std::max(a_s, b_s);
    if (worth) add(row);
    for (Row* to : {&sum, worth ? nullptr : &rest}) {
      if (to == nullptr) continue;
      to->a_s += row.a_s;
      to->b_s += row.b_s;
    }
  }
  if (rest.a_s + rest.b_s > 0) add(rest);
  add(sum);
  return fmt::format("along the critical paths, in {}:\n{}", seconds.unit(), table.print());
}

std::string print_exchange(const char* what, const Trial& trial, double step_s) {
  return fmt::format("    {}  {}\n", what,
                     trial.stands() ? fmt::format("{} ({})", format_seconds(trial.step_s),
                                                  signed_percent(trial.step_s / step_s - 1))
                                    : "not possible: " + in_short(trial.refused));
}

std::string print_parts(const Why& why) {
  if (why.parts.empty()) return "the two jobs are the same\n";
  std::string text =
      "what differs, and what each job would take with that part of the other (each simulated):\n";
  for (const PartDifference& part : why.parts) {
    const bool stands = part.a_with_b.stands() || part.b_with_a.stands();
    if (part.keys.empty() && !stands) continue;  // two parts that are refused together too
    text += fmt::format(
        "  {}\n{}{}{}", part.part, print_exchange("A with B's", part.a_with_b, why.a.report.iteration_s),
        print_exchange("B with A's", part.b_with_a, why.b.report.iteration_s), print_keys(part.keys));
  }
  return text;
}

}  // namespace

std::string to_text(const Explained& explained) {
  std::string text = print_head(explained.report);
  for (const std::string& section :
       {print_path(explained) + print_waiting(explained), LeverTable(explained).print(),
        print_changes(explained), print_advice(explained)})
    if (!section.empty()) text += "\n" + section;
  return text;
}

std::string to_text(const Why& why) {
  const Report &a = why.a.report, &b = why.b.report;
  std::string text = fmt::format("A  {}B  {}", print_head(a), print_head(b));
  const bool a_first = a.iteration_s <= b.iteration_s;
  const double less_s = std::min(a.iteration_s, b.iteration_s),
               more_s = std::max(a.iteration_s, b.iteration_s);
  if (less_s == more_s)
    text += "a step takes as long in both\n";
  else
    text += fmt::format("a step of {} takes {} less: {:.3f} of what one of {} takes\n", a_first ? "A" : "B",
                        format_seconds(more_s - less_s), less_s / more_s, a_first ? "B" : "A");
  if (why.a_tokens != why.b_tokens)
    text += fmt::format(
        "but the steps have unlike numbers of tokens: {} in A, {} in B; a token of B takes {:.3f} of what "
        "one of "
        "A takes\n",
        format_count(why.a_tokens), format_count(why.b_tokens), a.tokens_per_s / b.tokens_per_s);
  return fmt::format("{}\n{}\n{}", text, print_difference(why), print_parts(why));
}

}  // namespace motley
