// Tables of comma-separated values (RFC 4180) whose first line names the columns. Every cell knows its line and
// column, and a malformed cell is refused there. Read next: models/published/published_run.hpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

struct CsvCell {
  std::string text;
  Location where;
};

class CsvRow {
 public:
  CsvRow(std::shared_ptr<const std::vector<std::string>> columns, std::vector<CsvCell> cells)
      : columns_(std::move(columns)), cells_(std::move(cells)) {}
  // Returns an empty text where the table has no such column.
  const std::string& operator[](std::string_view column) const;
  Location where(std::string_view column) const;

 private:
  std::shared_ptr<const std::vector<std::string>> columns_;
  std::vector<CsvCell> cells_;
  const CsvCell* find(std::string_view column) const;
};

// Each of these readers refuses ("bad-csv"), at the cell, a text that is no such number, and a number out of bounds. A
// count may be written as any number that is whole: 2048, 2048.0, 2e3.
double to_number(const CsvRow& row, std::string_view column, NumberRange range);
std::int64_t to_count(const CsvRow& row, std::string_view column, IntegerRange range);

// Refuses ("bad-csv") a row that has more or fewer cells than the first, a quote that is not closed or stands inside
// a cell, a cell longer than 8 KiB, a column named twice, and an empty text; ("not-utf8") bytes that are not text.
std::vector<CsvRow> parse_csv_table(const std::string& text, const std::string& file);

}  // namespace motley
