// Axes of a sweep, its rows on disk, its front.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "models/sweep/sweep_axis.hpp"
#include "models/sweep/sweep_plot.hpp"
#include "models/sweep/sweep_rows.hpp"
#include "models/sweep/sweep_table.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using tests::Dice;
using Values = std::vector<std::string>;

namespace {

// A whole number of that range, both ends included.
int whole_in(Dice& dice, int least, int most) {
  return least + static_cast<int>(dice.engine()() % static_cast<unsigned>(most - least + 1));
}

std::string axis_refusal(const std::string& text) {
  try {
    parse_axis(text);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "nothing";
}

SweepFigures drawn_figures(Dice& dice) {
  return {.step_s = 0.1 * whole_in(dice, 1, 9),
          .likely_least_s = whole_in(dice, 0, 1) == 0 ? 0.0 : 0.5,
          .likely_most_s = 0,
          .tokens_per_s = whole_in(dice, 1, 1000) / 7.0,
          .mfu = whole_in(dice, 1, 99) / 100.0,
          .memory_bytes = 1e9 * whole_in(dice, 1, 9),
          .memory_share = 0.5,
          .usd_billion_tokens = whole_in(dice, 0, 4) == 0 ? 0.0 : whole_in(dice, 1, 9) / 3.0,
          .kwh_billion_tokens = 0.5 * whole_in(dice, 1, 9),
          .chips = whole_in(dice, 1, 4096),
          .strategy_hash = "abc"};
}

SweepTable drawn_table(Dice& dice, int rows) {
  SweepTable table{.name = "drawn", .axes = {{"a", {}}}, .rows = {}};
  for (int i = 0; i < rows; ++i) {
    table.axes[0].values.push_back(std::to_string(i));
    SweepRow row{
        .values = {std::to_string(i)}, .figures = drawn_figures(dice), .refusal_kind = {}, .refusal = {}};
    if (whole_in(dice, 0, 5) == 0) row = {row.values, {}, "out-of-memory", "a,b \"c\"\nhint: d"};
    if (row.figures && row.figures->likely_least_s > 0) row.figures->likely_most_s = 2;
    if (row.figures && row.figures->likely_most_s == 0) row.figures->likely_least_s = 0;
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

TEST_CASE("the values of an axis are lists and ranges") {
  CHECK(parse_axis("k=2,4, 8").values == Values{"2", "4", "8"});
  CHECK(parse_axis("k=1..4").values == Values{"1", "2", "3", "4"});
  CHECK(parse_axis("k=100..800Gb/s:x2").values == Values{"100Gb/s", "200Gb/s", "400Gb/s", "800Gb/s"});
  CHECK(parse_axis("k=100..500 Gb/s:x2").values == Values{"100 Gb/s", "200 Gb/s", "400 Gb/s"});
  CHECK(parse_axis("k=0..1:+0.1").values.size() == 11);
  CHECK(parse_axis("k=0..1:+0.1").values[3] == "0.3");
  CHECK(parse_axis("k=none,full").values == Values{"none", "full"});
  CHECK(parse_axis("k=[1, 2],{csv: a,b},'x,y'").values == Values{"[1, 2]", "{csv: a,b}", "'x,y'"});
  CHECK(parse_axis("k=1..2,8").values == Values{"1", "2", "8"});
  CHECK(parse_axis("k=").values == Values{""});
  CHECK(parse_axis("k=0-11").values == Values{"0-11"});
}

TEST_CASE("an axis that cannot be read is refused at its place") {
  CHECK(axis_refusal("k=1..2.5") ==
        "--set k=1..2.5:1:3: `1..2.5` needs a step\n  hint: `1..2.5:x2` doubles each time, `1..2.5:+0.5` "
        "adds a half");
  CHECK(axis_refusal("k=100..800Gb/s").find("needs a step") != std::string::npos);
  CHECK(axis_refusal("k=8..1").find("`8..1` has no values") != std::string::npos);
  CHECK(axis_refusal("k=0..8:x2").find("has no values") != std::string::npos);
  CHECK(axis_refusal("k=1..8:x1").find("`x1` is no step") != std::string::npos);
  CHECK(axis_refusal("k=1..8:-1").find("`-1` is no step") != std::string::npos);
  CHECK(axis_refusal("k=1..1000000").find("more than 100000 values") != std::string::npos);
  CHECK(axis_refusal("k=1Gb/s..8GB/s:x2").find("two units") != std::string::npos);
  CHECK(axis_refusal("k=2,4,2").find("`2` is listed twice") != std::string::npos);
  CHECK(axis_refusal("=2").find("needs a key") != std::string::npos);
}

TEST_CASE("each value of every axis goes with each of the others, once") {
  Dice dice(3);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<SweepAxis> axes;
    for (int i = whole_in(dice, 1, 4); i > 0; --i) {
      axes.push_back({fmt::format("k{}", i), {}});
      for (int j = whole_in(dice, 1, 4); j > 0; --j) axes.back().values.push_back(std::to_string(j));
    }
    std::set<Values> all;
    for (std::size_t number = 0; number < scenario_count(axes); ++number) all.insert(values_of(axes, number));
    CHECK(all.size() == scenario_count(axes));
  }
}

TEST_CASE("the parts of a sweep have each scenario once") {
  for (std::size_t count = 1; count < 9; ++count)
    for (std::size_t number = 0; number < 40; ++number) {
      std::size_t owners = 0;
      for (std::size_t i = 0; i < count; ++i)
        if (parse_sweep_shard(fmt::format("{}/{}", i, count)).has(number)) ++owners;
      CHECK(owners == 1);
    }
  for (const char* const text : {"4/4", "-1/4", "1/0", "1", "a/b", ""}) {
    INFO(text);
    CHECK_THROWS_AS(parse_sweep_shard(text), Refusal);
  }
}

TEST_CASE("rows come back from their file as they were, and a line that was cut off is left out") {
  Dice dice(11);
  for (int trial = 0; trial < 40; ++trial) {
    const SweepTable table = drawn_table(dice, 12);
    const SweepOrigin origin{"drawn", table.axes, "0123"};
    std::string text = origin_line(origin);
    std::vector<std::size_t> ends = {text.size()};
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      text += row_line(i, table.rows[i]);
      ends.push_back(text.size());
    }
    const auto cut = static_cast<std::size_t>(whole_in(dice, 1, static_cast<int>(text.size())));
    const SweepRows rows = parse_rows(text.substr(0, cut), "f");
    const auto whole = static_cast<std::size_t>(
        std::count_if(ends.begin(), ends.end(), [&](std::size_t end) { return end <= cut; }));
    if (whole == 0) {
      CHECK(rows.whole_bytes == 0);
      continue;
    }
    CHECK(rows.whole_bytes == ends[whole - 1]);
    REQUIRE(rows.rows.size() == whole - 1);
    check_same_sweep(rows, origin, "f");
    for (const auto& [number, row] : rows.rows) {
      CHECK(row.figures == table.rows[number].figures);
      CHECK(row.refusal == table.rows[number].refusal);
      CHECK(row.values == table.rows[number].values);
    }
  }
}

TEST_CASE("files of rows that do not belong together are refused") {
  const SweepOrigin origin{"one", {{"a", {"1", "2"}}}, "0123"};
  SweepOrigin other = origin;
  const SweepRow row{.values = {"1"},
                     .figures = SweepFigures{.step_s = 1, .strategy_hash = "x"},
                     .refusal_kind = {},
                     .refusal = {}};
  const auto rows = [&](const SweepOrigin& of_sweep, const SweepRow& first) {
    return parse_rows(origin_line(of_sweep) + row_line(0, first), "f");
  };
  const auto kind_of_join = [&](const SweepRows& second) -> std::string {
    try {
      join_rows({rows(origin, row), second}, {"f", "g"});
    } catch (const Refusal& refusal) {
      return refusal.kind();
    }
    return "";
  };
  CHECK(kind_of_join(rows(origin, row)).empty());
  other.hash = "4567";
  CHECK(kind_of_join(rows(other, row)) == "other-sweep");
  other = origin;
  other.axes[0].values.push_back("3");
  CHECK(kind_of_join(rows(other, row)) == "other-sweep");
  SweepRow unlike = row;
  unlike.figures->step_s = 2;
  CHECK(tests::refusal_on_page([&] {
          join_rows({rows(origin, row), rows(origin, unlike)}, {"yours.rows", "mine.rows"});
        }) == tests::expected_refusal("unlike-rows: two files that differ in a row"));
  CHECK_THROWS_AS(parse_rows(origin_line(origin) + row_line(2, row), "f"), Refusal);
  CHECK_THROWS_AS(parse_rows("{}\n", "f"), Refusal);
  CHECK_THROWS_AS(parse_rows(origin_line(origin) + "{\"row\": 0}\n", "f"), Refusal);
}

TEST_CASE("the front has a row at least as good as any other, and none of it beats another") {
  Dice dice(5);
  for (int trial = 0; trial < 60; ++trial) {
    SweepTable table = drawn_table(dice, 20);
    const std::vector<SweepMeasure> measures = {
        every<SweepMeasure>()[static_cast<std::size_t>(whole_in(dice, 0, 3))],
        every<SweepMeasure>()[static_cast<std::size_t>(whole_in(dice, 0, 3))]};
    find_front(table, measures);
    const auto no_worse = [&](std::size_t a, std::size_t b) {
      for (const SweepMeasure measure : measures)
        if (measured(*table.rows[a].figures, measure) > measured(*table.rows[b].figures, measure))
          return false;
      return true;
    };
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      if (!table.rows[i].figures) continue;
      bool covered = false;
      for (const std::size_t best : table.front) covered = covered || no_worse(best, i);
      CHECK(covered);
    }
    for (const std::size_t a : table.front)
      for (const std::size_t b : table.front)
        if (a != b) CHECK_FALSE(no_worse(a, b));
  }
}

TEST_CASE("a plot has a point for each row that was simulated, on its paper") {
  Dice dice(9);
  for (const bool with_front : {false, true}) {
    SweepTable table = drawn_table(dice, 15);
    if (with_front) find_front(table, {SweepMeasure::time, SweepMeasure::memory});
    const std::string svg = plot_of(table, false);
    std::size_t points = 0, simulated = 0;
    for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1))
      ++points;
    for (const SweepRow& row : table.rows) simulated += row.figures ? 1 : 0;
    CHECK(points == simulated);
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
  }
}
