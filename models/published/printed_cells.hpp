// The cells of one published row as text, counts and numbers. pass_over() ends the reading of a row that lacks a
// needed cell which no rule supplies. Private to models/published. Read next: models/published/printed_row.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/published/published_run.hpp"

namespace motley {

// Thrown by pass_over(), and caught by PublishedRules::read(), which returns the reason.
struct UnknownRun {
  std::string reason;
};
[[noreturn]] void pass_over(std::string reason);

std::string lower(std::string text);
// A name in lower case, with letters and digits only: "Qwen3_30B_a3B" becomes qwen330ba3b.
std::string bare_name(const std::string& text);
bool contains(const std::string& text, const char* part);

class PrintedCells {
 public:
  explicit PrintedCells(const CsvRow& row) : row_(row) {}

  const std::string& text(const char* column) const { return row_[column]; }
  Location where(const char* column) const { return row_.where(column); }
  // Refuses ("bad-csv") a text that is no number, and what no run can have measured.
  double number(const char* column) const;
  // Returns `otherwise` for an empty cell. Refuses ("bad-csv") a text that is no whole number, and a number out of the
  // column's bounds.
  std::int64_t count_or(const char* column, std::int64_t otherwise) const;
  // Passes over the run if the cell is empty.
  std::int64_t count(const char* column) const;
  // The number behind a form such as "dense_layers=" among the notes; nothing: the notes do not have it. Refuses
  // ("bad-csv") a number out of bounds.
  std::optional<double> noted(const char* form, NumberRange range) const;

 private:
  const CsvRow& row_;
};

}  // namespace motley
