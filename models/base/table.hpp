// Tables for a terminal, with columns as wide as their widest cell. A table does not know what its cells mean.
#pragma once

#include <string>
#include <vector>

namespace motley {

class Table {
 public:
  // `aligned` has one letter for each column: 'l' or 'r'. A header is aligned like its column.
  Table(std::string aligned, std::vector<std::string> header);
  void add(std::vector<std::string> row);  // a row has as many cells as there are columns
  std::string print(int indent = 2) const;

 private:
  std::string aligned_;
  std::vector<std::vector<std::string>> rows_;
};

// A column of times in one unit, so that the eye can compare them.
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
