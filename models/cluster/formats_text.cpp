#include "models/cluster/formats_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"

namespace motley {

std::string formats_text(const std::vector<Chip>& chips) {
  std::vector<std::string> header = {"chip"};
  for (Format format : kFormats) header.emplace_back(name_of(format));
  Table table(fmt::format("l{:r>{}}", "", kFormats.size()), header);
  for (const Chip& chip : chips) {
    std::vector<std::string> cells = {chip.name};
    for (Format format : kFormats) {
      const auto peak = chip.peak_flops.find(format);
      cells.push_back(peak == chip.peak_flops.end() ? "-" : fmt::format("{:.5g}", peak->second.value / 1e12));
    }
    table.add(cells);
  }
  return "dense matrix products, in TFLOP/s; - where the chip has no units for the format:\n" + table.print();
}

std::string formats_json(const std::vector<Chip>& chips) {
  nlohmann::ordered_json json;
  json["schema"] = "motley.formats/1";
  auto& list = json["chips"] = nlohmann::ordered_json::array();
  for (const Chip& chip : chips) {
    nlohmann::ordered_json formats = nlohmann::ordered_json::object();
    for (const auto& [format, peak] : chip.peak_flops)
      formats[std::string(name_of(format))] = {{"flops", peak.value}, {"source", peak.source}};
    list.push_back({{"name", chip.name}, {"formats", formats}});
  }
  return json_text(json);
}

}  // namespace motley
