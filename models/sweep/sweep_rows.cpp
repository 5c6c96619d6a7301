#include "models/sweep/sweep_rows.hpp"

#include <fmt/format.h>

#include "models/base/refusal.hpp"
#include "models/sweep/sweep_json.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "motley.sweep-rows/1";

[[noreturn]] void refuse_line(const std::string& file, int line, const std::string& message,
                              RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::usage, "bad-rows", {file, line, 1}, message,
                "`motley sweep --rows FILE` writes such a file; give another name, or remove this one", site);
}

SweepOrigin origin_from(const Json& json) {
  SweepOrigin origin{
      .name = json.at("scenario").get<std::string>(), .axes = {}, .hash = json.at("hash").get<std::string>()};
  for (const Json& axis : json.at("axes"))
    origin.axes.push_back(
        {axis.at("key").get<std::string>(), axis.at("values").get<std::vector<std::string>>()});
  return origin;
}

SweepRow row_from(const Json& json, std::vector<std::string> values) {
  SweepRow row{.values = std::move(values), .figures = {}, .refusal_kind = {}, .refusal = {}};
  if (const auto figures = json.find("figures"); figures != json.end()) {
    row.figures = figures_from(*figures);
    return row;
  }
  const Json& refused = json.at("refused");
  row.refusal_kind = refused.at("kind").get<std::string>();
  row.refusal = refused.at("message").get<std::string>();
  return row;
}

bool same_axes(const std::vector<SweepAxis>& a, const std::vector<SweepAxis>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].key != b[i].key || a[i].values != b[i].values) return false;
  return true;
}

}  // namespace

Json figures_json(const SweepFigures& figures) {
  Json json = {{"step_s", figures.step_s},
               {"tokens_per_s", figures.tokens_per_s},
               {"mfu", figures.mfu},
               {"memory_bytes", figures.memory_bytes},
               {"memory_share", figures.memory_share},
               {"chips", figures.chips},
               {"strategy_hash", figures.strategy_hash}};
  if (figures.likely_most_s > 0) json["likely_s"] = {figures.likely_least_s, figures.likely_most_s};
  if (figures.usd_billion_tokens > 0) json["usd_billion_tokens"] = figures.usd_billion_tokens;
  if (figures.kwh_billion_tokens > 0) json["kwh_billion_tokens"] = figures.kwh_billion_tokens;
  return json;
}

SweepFigures figures_from(const Json& json) {
  SweepFigures figures{.step_s = json.at("step_s").get<double>(),
                       .tokens_per_s = json.at("tokens_per_s").get<double>(),
                       .mfu = json.at("mfu").get<double>(),
                       .memory_bytes = json.at("memory_bytes").get<double>(),
                       .memory_share = json.at("memory_share").get<double>(),
                       .usd_billion_tokens = json.value("usd_billion_tokens", 0.0),
                       .kwh_billion_tokens = json.value("kwh_billion_tokens", 0.0),
                       .chips = json.at("chips").get<std::int64_t>(),
                       .strategy_hash = json.at("strategy_hash").get<std::string>()};
  if (const auto likely = json.find("likely_s"); likely != json.end()) {
    figures.likely_least_s = likely->at(0).get<double>();
    figures.likely_most_s = likely->at(1).get<double>();
  }
  return figures;
}

std::string origin_line(const SweepOrigin& origin) {
  Json axes = Json::array();
  for (const SweepAxis& axis : origin.axes) axes.push_back({{"key", axis.key}, {"values", axis.values}});
  const Json json = {
      {"schema", kSchema}, {"scenario", origin.name}, {"hash", origin.hash}, {"axes", std::move(axes)}};
  return json.dump() + "\n";
}

std::string row_line(std::size_t number, const SweepRow& row) {
  Json json = {{"row", number}};
  if (row.figures)
    json["figures"] = figures_json(*row.figures);
  else
    json["refused"] = {{"kind", row.refusal_kind}, {"message", row.refusal}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

SweepRows parse_rows(const std::string& text, const std::string& file) {
  SweepRows result;
  int line = 0;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // the process ended while it wrote this line
    try {
      const Json json = Json::parse(text.substr(begin, end - begin));
      if (line == 0) {
        if (json.value("schema", "") != kSchema) refuse_line(file, 1, "this is no file of a sweep's rows");
        result.origin = origin_from(json);
      } else {
        const auto number = json.at("row").get<std::size_t>();
        if (number >= scenario_count(result.origin.axes))
          refuse_line(file, line + 1, fmt::format("the sweep has no row {}", number));
        result.rows[number] = row_from(json, values_of(result.origin.axes, number));
      }
    } catch (const Json::exception&) {
      refuse_line(file, line + 1, "this is no row of a sweep");
    }
    begin = result.whole_bytes = end + 1;
  }
  return result;
}

void check_same_sweep(const SweepRows& rows, const SweepOrigin& origin, const std::string& file) {
  const auto refuse = [&](const std::string& why, RefusalSite site = RefusalSite::here()) {
    throw Refusal(Exit::usage, "other-sweep", {.file = file}, why,
                  "give another name, or remove the file to begin anew", site);
  };
  if (!same_axes(rows.origin.axes, origin.axes)) refuse("it has rows of a sweep over other values");
  if (rows.origin.name != origin.name || rows.origin.hash != origin.hash)
    refuse(
        fmt::format("it has rows of {}, which has changed since, or of another scenario", rows.origin.name));
}

SweepTable join_rows(const std::vector<SweepRows>& parts, const std::vector<std::string>& files) {
  const SweepOrigin& origin = parts.at(0).origin;
  std::map<std::size_t, const SweepRow*> joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_same_sweep(parts[i], origin, files[i]);
    for (const auto& [number, row] : parts[i].rows) {
      const SweepRow*& place = joined[number];
      if (place != nullptr && (place->figures != row.figures || place->refusal_kind != row.refusal_kind))
        throw Refusal(Exit::usage, "unlike-rows", {.file = files[i]},
                      fmt::format("row {} differs from the one in another file", number),
                      "the same sweep gives the same figures: one of the files was changed");
      place = &row;
    }
  }
  SweepTable table{.name = origin.name, .axes = origin.axes, .rows = {}};
  for (const auto& [number, row] : joined) table.rows.push_back(*row);
  table.missing = scenario_count(origin.axes) - joined.size();
  return table;
}

}  // namespace motley
