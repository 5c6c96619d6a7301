// Fuzz target: the rows that a sweep has done are read, written and read back, joined with themselves, and shown in
// every form.
#include "models/sweep/sweep_plot.hpp"
#include "models/sweep/sweep_rows.hpp"
#include "tests/fuzz/target.hpp"

namespace motley::tests {

void take(const std::string& input) {
  constexpr std::size_t kMostShown = 1000;
  const SweepRows rows = parse_rows(input, "rows.jsonl");
  MOTLEY_CHECK(rows.whole_bytes <= input.size());
  std::string text = origin_line(rows.origin);
  for (const auto& [number, row] : rows.rows) text += row_line(number, row);
  const SweepRows again = parse_rows(text, "written.jsonl");
  MOTLEY_CHECK(again.rows.size() == rows.rows.size() && again.whole_bytes == text.size());
  if (scenario_count(rows.origin.axes) > kMostShown) return;
  SweepTable table = join_rows({rows, again}, {"rows.jsonl", "written.jsonl"});
  for (const bool has_front : {false, true}) {
    if (has_front) find_front(table, {SweepMeasure::time, SweepMeasure::price});
    check_finite(to_text(table));
    check_finite(to_csv(table));
    check_finite(to_json(table));
    check_finite(plot_of(table, true));
  }
}

}  // namespace motley::tests
