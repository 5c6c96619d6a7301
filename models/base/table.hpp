// Tables for a terminal: columns as wide as their widest cell. It knows nothing of what it prints.
#pragma once

#include <string>
#include <vector>

namespace motley {

class Table {
 public:
  // `aligned` has a letter a column: 'l' or 'r'. The header row is aligned like the column.
  Table(std::string aligned, std::vector<std::string> header);
  void add(std::vector<std::string> row);  // as many cells as columns
  std::string print(int indent = 2) const;

 private:
  std::string aligned_;
  std::vector<std::vector<std::string>> rows_;
};

// Seconds of one table in one unit, so that a column can be compared by eye.
class SecondsColumn {
 public:
  explicit SecondsColumn(double largest_s);  // picks s, ms, us or ns
  std::string print(double seconds) const;   // "1.234", no unit
  const std::string& unit() const { return unit_; }

 private:
  double scale_;
  std::string unit_;
};

std::string format_percent(double fraction);  // "46.6 %"

}  // namespace motley
