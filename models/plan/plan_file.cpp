#include "models/plan/plan_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Whether the line belongs to the key above it: it is indented, or an item of a list.
bool continues(const std::string& line) { return line.starts_with(' ') || line.starts_with('-'); }

void refuse_other_forms(const Yaml& root, const std::vector<std::string>& lines) {
  std::set<int> begun;
  for (const YamlEntry& entry : root->entries)
    if (entry.where.column != 1 || !begun.insert(entry.where.line).second ||
        entry.where.line > static_cast<int>(lines.size()))
      throw Refusal(
          Exit::usage, "not-in-lines", entry.where,
          "a scenario with a plan's strategy can be written only if each of its keys begins a line",
          "write `model: ...`, `cluster: ...` and the others in lines of their own, without braces");
}

}  // namespace

std::string with_strategy(const std::string& text, const Yaml& root, const Strategy& strategy,
                          std::optional<TransportPolicy> transport) {
  const std::vector<std::string> lines = lines_of(text);
  refuse_other_forms(root, lines);
  std::string block;
  if (transport) block += fmt::format("transport: {}\n", name_of(*transport));
  block += "strategy:\n";
  for (const std::string& line : lines_of(print(strategy))) block += "  " + line + "\n";
  std::string written;
  bool is_written = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto entry = std::find_if(root->entries.begin(), root->entries.end(),
                                    [&](const YamlEntry& each) { return at(each.where.line) == i + 1; });
    const bool is_plan = entry != root->entries.end() && (entry->key == "plan" || entry->key == "strategy");
    if (!is_plan && !(transport && entry != root->entries.end() && entry->key == "transport")) {
      written += lines[i] + "\n";
      continue;
    }
    if (is_plan && !is_written) written += block;
    is_written = is_written || is_plan;
    while (i + 1 < lines.size() && (continues(lines[i + 1]) || lines[i + 1].empty())) ++i;
  }
  return is_written ? written : written + block;
}

}  // namespace motley
