#include "models/base/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {

Table::Table(std::string aligned, std::vector<std::string> header) : aligned_(std::move(aligned)) {
  add(std::move(header));
}

void Table::add(std::vector<std::string> row) {
  MOTLEY_CHECK(row.size() == aligned_.size());
  rows_.push_back(std::move(row));
}

std::string Table::print(int indent) const {
  std::vector<std::size_t> widths(aligned_.size());
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows_) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += aligned_[i] == 'l' ? fmt::format("{:<{}}", row[i], widths[i])
                                 : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

SecondsColumn::SecondsColumn(double largest_s) {
  const std::pair<double, const char*> units[] = {{1, "s"}, {1e3, "ms"}, {1e6, "us"}, {1e9, "ns"}};
  for (const auto& [scale, unit] : units) {
    scale_ = scale;
    unit_ = unit;
    if (largest_s * scale >= 1) break;
  }
}

std::string SecondsColumn::print(double seconds) const { return fmt::format("{:.3f}", seconds * scale_); }

std::string format_percent(double fraction) { return fmt::format("{:.1f} %", fraction * 100); }

}  // namespace motley
