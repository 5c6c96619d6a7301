#include "models/base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/base/text_file.hpp"

namespace motley {
namespace {

// Far above what a table says in one cell; regular expressions over it stay within the stack.
constexpr std::size_t kMostCellBytes = 8192;

// Every whole number up to this one is exact as a double.
constexpr std::int64_t kMostExact = std::int64_t{1} << 53;

[[noreturn]] void refuse(const Location& where, std::string message, std::string hint,
                         RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "bad-csv", where, std::move(message), std::move(hint), site);
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& file) : text_(text), here_{file, 1, 1} {}

  bool at_end() const { return next_ == text_.size(); }
  std::vector<CsvCell> row() {
    std::vector<CsvCell> cells;
    do cells.push_back(cell());
    while (take(','));
    take('\r');
    if (!at_end() && !take('\n'))
      refuse(here_, "a quoted cell goes on after its quote", "double the quotes inside a quoted cell");
    return cells;
  }

 private:
  const std::string& text_;
  std::size_t next_ = 0;
  Location here_;

  void advance() {
    here_.column = text_[next_] == '\n' ? 1 : here_.column + 1;
    here_.line += text_[next_] == '\n' ? 1 : 0;
    ++next_;
  }
  bool take(char wanted) {
    if (at_end() || text_[next_] != wanted) return false;
    advance();
    return true;
  }
  CsvCell cell() {
    CsvCell cell = read_cell();
    if (cell.text.size() > kMostCellBytes)
      refuse(cell.where, fmt::format("a cell of {} bytes", cell.text.size()),
             fmt::format("at most {}", kMostCellBytes));
    return cell;
  }
  CsvCell read_cell() {
    CsvCell cell{"", here_};
    if (take('"')) return quoted(std::move(cell));
    while (!at_end() && text_[next_] != ',' && text_[next_] != '\n' && text_[next_] != '\r') {
      if (text_[next_] == '"') refuse(here_, "a quote inside a cell", "quote the whole cell, and double it");
      cell.text += text_[next_];
      advance();
    }
    return cell;
  }
  CsvCell quoted(CsvCell cell) {
    for (;;) {
      if (at_end()) refuse(cell.where, "a quote that is not closed", "a `\"` at the cell's end");
      if (take('"')) {
        if (!take('"')) return cell;
        cell.text += '"';
        continue;
      }
      cell.text += text_[next_];
      advance();
    }
  }
};

}  // namespace

const CsvCell* CsvRow::find(std::string_view column) const {
  const auto name = std::find(columns_->begin(), columns_->end(), column);
  return name == columns_->end() ? nullptr : &cells_[static_cast<std::size_t>(name - columns_->begin())];
}

const std::string& CsvRow::operator[](std::string_view column) const {
  static const std::string none;
  const CsvCell* const cell = find(column);
  return cell == nullptr ? none : cell->text;
}

Location CsvRow::where(std::string_view column) const {
  const CsvCell* const cell = find(column);
  return cell == nullptr ? cells_.at(0).where : cell->where;
}

double to_number(const CsvRow& row, std::string_view column, NumberRange range) {
  double value = 0;
  if (read_number(row[column], value) != NumberFault::none)
    refuse(row.where(column), fmt::format("`{}` in column `{}` is no number", shortened(row[column]), column),
           "a plain number");
  if (!(value >= range.least && value <= range.most))
    refuse(row.where(column),
           fmt::format("`{}` in column `{}` is out of bounds", shortened(row[column]), column),
           fmt::format("must be {} to {}", range.least, range.most));
  return value;
}

std::int64_t to_count(const CsvRow& row, std::string_view column, IntegerRange range) {
  MOTLEY_CHECK(range.most <= kMostExact);
  const double value =
      to_number(row, column, {static_cast<double>(range.least), static_cast<double>(range.most)});
  if (value != std::floor(value))
    refuse(row.where(column),
           fmt::format("`{}` in column `{}` is no whole number", shortened(row[column]), column),
           fmt::format("must be {} to {}", range.least, range.most));
  return static_cast<std::int64_t>(value);
}

std::vector<CsvRow> parse_csv_table(const std::string& text, const std::string& file) {
  refuse_not_utf8(text, file);
  Reader reader(text, file);
  if (reader.at_end()) refuse({file, 1, 1}, "an empty table", "its first line names the columns");
  const auto columns = std::make_shared<std::vector<std::string>>();
  for (CsvCell& cell : reader.row()) {
    if (std::find(columns->begin(), columns->end(), cell.text) != columns->end())
      refuse(cell.where, fmt::format("column `{}` is named twice", cell.text), "each once");
    columns->push_back(std::move(cell.text));
  }
  std::vector<CsvRow> rows;
  while (!reader.at_end()) {
    std::vector<CsvCell> cells = reader.row();
    if (cells.size() == 1 && cells[0].text.empty()) continue;  // an empty line
    if (cells.size() != columns->size())
      refuse(cells[0].where,
             fmt::format("{} cells, and the first line names {} columns", cells.size(), columns->size()),
             "quote a cell that holds a comma");
    rows.emplace_back(columns, std::move(cells));
  }
  return rows;
}

}  // namespace motley
