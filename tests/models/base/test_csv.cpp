// Tables of comma-separated values: what a cell may hold, its line and column, what is refused.
#include <catch2/catch.hpp>

#include "models/base/csv.hpp"

using namespace motley;

TEST_CASE("cells may hold commas, quotes and lines, and know where they stand") {
  const auto rows = parse_csv_table("id,note\r\na,\"x, \"\"y\"\"\nz\"\r\n\nb,\n", "t.csv");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["id"] == "a");
  CHECK(rows[0]["note"] == "x, \"y\"\nz");
  CHECK(rows[0]["other"].empty());
  CHECK(rows[1]["id"] == "b");
  CHECK(rows[1]["note"].empty());
  CHECK(rows[1].where("id").line == 5);
  CHECK(rows[1].where("note").column == 3);
}

TEST_CASE("a malformed table is refused where it is malformed") {
  const auto [text, line, column] = GENERATE(table<std::string, int, int>({
      {"", 1, 1},              // an empty file
      {"a,a\n", 1, 3},         // a column twice
      {"a,b\n1,2,3\n", 2, 1},  // one cell too many
      {"a,b\n1\n", 2, 1},      // one cell too few
      {"a\n\"x\n", 2, 1},      // a quote that does not end
      {"a\nx\"y\n", 2, 2},     // a quote inside a cell
      {"a\n\"x\"y\n", 2, 4},   // text after a quoted cell
  }));
  CAPTURE(text);
  try {
    parse_csv_table(text, "t.csv");
    FAIL("it was taken");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "bad-csv");
    CHECK(refusal.where().line == line);
    CHECK(refusal.where().column == column);
  }
}

TEST_CASE("a cell is read as a number within bounds, or refused with its line, column and name") {
  const auto row = [](const std::string& cell) {
    return parse_csv_table("a,b\nx," + cell + "\n", "t.csv").at(0);
  };
  CHECK(to_count(row("2e3"), "b", {1, 4096}) == 2000);
  CHECK(to_number(row("1.5"), "b", {0, 2}) == 1.5);
  for (const char* cell : {"0", "-1", "4097", "1.5", "1e308", "18446744073709551616", "nan", "x", ""}) {
    CAPTURE(cell);
    CHECK_THROWS_WITH(to_count(row(cell), "b", {1, 4096}),
                      Catch::StartsWith("t.csv:2:3: ") && Catch::Contains("`b`"));
  }
  CHECK_THROWS_AS(row(std::string(9000, 'x')), Refusal);
  CHECK_THROWS_AS(row("\xff"), Refusal);
}
