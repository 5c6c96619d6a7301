// The cells of one published row as text, counts and numbers. What a cell does not print and nobody knows ends the
// reading of the row: pass_over(). Private to models/published. Read next: models/published/printed_row.hpp.
#pragma once

#include <cstdint>
#include <string>

#include "models/published/published_run.hpp"

namespace motley {

// Thrown by pass_over(), and caught by PublishedRules::read(), which returns the reason.
struct UnknownRun {
  std::string reason;
};
[[noreturn]] void pass_over(std::string reason);

std::string lower(std::string text);
// A name in lower case, without signs: "Qwen3_30B_a3B" is qwen330ba3b.
std::string bare_name(const std::string& text);
bool contains(const std::string& text, const char* part);

class PrintedCells {
 public:
  explicit PrintedCells(const CsvRow& row) : row_(row) {}

  const std::string& text(const char* column) const { return row_[column]; }
  Location where(const char* column) const { return row_.where(column); }
  // Refuses ("bad-csv") what is no number.
  double number(const char* column) const;
  // `otherwise` where the cell is empty. Refuses ("bad-csv") what is no whole number, or is negative.
  std::int64_t count_or(const char* column, std::int64_t otherwise) const;
  // Passes over the run where the cell is empty.
  std::int64_t count(const char* column) const;
  // The value of "dense_layers=1" among the notes; `otherwise` where they do not name it.
  std::int64_t noted(const char* name, std::int64_t otherwise) const;

 private:
  const CsvRow& row_;
};

}  // namespace motley
