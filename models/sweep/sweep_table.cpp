#include "models/sweep/sweep_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/sweep/sweep_json.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

// Axes with one value are the same in every row.
bool varies(const SweepAxis& axis) { return axis.values.size() != 1; }

bool is_in_front(const SweepTable& table, std::size_t row) {
  return std::find(table.front.begin(), table.front.end(), row) != table.front.end();
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + "\"";
}

std::string known(double value, const std::string& text) { return value > 0 ? text : "-"; }

const SweepRow* fastest(const SweepTable& table) {
  const SweepRow* best = nullptr;
  for (const SweepRow& row : table.rows)
    if (row.figures && (best == nullptr || row.figures->step_s < best->figures->step_s)) best = &row;
  return best;
}

// The last part of a key, which tells it from the others: "tensor_parallel".
std::string short_key(const SweepTable& table, std::size_t axis) {
  const std::string& key = table.axes[axis].key;
  std::string last = key.substr(key.rfind('.') + 1);
  for (std::size_t i = 0; i < table.axes.size(); ++i)
    if (i != axis && table.axes[i].key.ends_with("." + last)) return key;
  return last;
}

std::string summary(const SweepTable& table) {
  const auto simulated = std::count_if(table.rows.begin(), table.rows.end(),
                                       [](const SweepRow& row) { return row.figures.has_value(); });
  std::string text = fmt::format("{} simulated", simulated);
  if (const auto refused = static_cast<std::int64_t>(table.rows.size()) - simulated; refused > 0)
    text += fmt::format(", {} refused", refused);
  if (table.missing > 0) text += fmt::format(", {} not here", table.missing);
  if (const SweepRow* const best = fastest(table); best != nullptr && table.rows.size() > 1) {
    text += fmt::format("; fastest: {}", format_seconds(best->figures->step_s));
    for (std::size_t i = 0; i < best->values.size(); ++i)
      if (varies(table.axes[i])) text += fmt::format(", {} {}", short_key(table, i), best->values[i]);
  }
  if (!table.front_of.empty())
    text +=
        fmt::format("\n* no other has less of one and no more of any: {}", fmt::join(table.front_of, ", "));
  return text + "\n";
}

}  // namespace

SweepFigures figures_of(const Report& report) {
  SweepFigures figures{.step_s = report.iteration_s,
                       .tokens_per_s = report.tokens_per_s,
                       .mfu = report.mfu,
                       .usd_billion_tokens = report.spending.billion_tokens.usd.value_or(0),
                       .kwh_billion_tokens = report.spending.billion_tokens.kwh.value_or(0),
                       .chips = report.chips,
                       .strategy_hash = report.strategy_hash};
  if (report.interval) {
    figures.likely_least_s = report.interval->low * report.iteration_s;
    figures.likely_most_s = report.interval->high * report.iteration_s;
  }
  for (const StageMemory& stage : report.memory) {
    const double share =
        stage.capacity > 0 ? static_cast<double>(stage.peak) / static_cast<double>(stage.capacity) : 0;
    if (share < figures.memory_share) continue;
    figures.memory_share = share;
    figures.memory_bytes = static_cast<double>(stage.peak);
  }
  return figures;
}

SweepRow refused_row(std::vector<std::string> values, const Refusal& refusal) {
  return {std::move(values), {}, refusal.kind(), refusal.what()};
}

double measured(const SweepFigures& figures, SweepMeasure measure) {
  const auto or_unknown = [](double value) {
    return value > 0 ? value : std::numeric_limits<double>::infinity();
  };
  switch (measure) {
    case SweepMeasure::time:
      return figures.step_s;
    case SweepMeasure::price:
      return or_unknown(figures.usd_billion_tokens);
    case SweepMeasure::energy:
      return or_unknown(figures.kwh_billion_tokens);
    case SweepMeasure::memory:
      return figures.memory_bytes;
  }
  return 0;
}

void find_front(SweepTable& table, const std::vector<SweepMeasure>& measures) {
  const auto is_beaten = [&](std::size_t row, std::size_t by) {
    if (!table.rows[by].figures || row == by) return false;
    bool is_less = false;
    for (const SweepMeasure measure : measures) {
      const double a = measured(*table.rows[row].figures, measure),
                   b = measured(*table.rows[by].figures, measure);
      if (b > a) return false;
      is_less = is_less || b < a;
    }
    return is_less || by < row;
  };
  table.front.clear();
  table.front_of.clear();
  for (const SweepMeasure measure : measures) table.front_of.emplace_back(name_of(measure));
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (!table.rows[row].figures) continue;
    bool beaten = false;
    for (std::size_t by = 0; by < table.rows.size() && !beaten; ++by) beaten = is_beaten(row, by);
    if (!beaten) table.front.push_back(row);
  }
}

std::string to_text(const SweepTable& table) {
  std::string aligned;
  std::vector<std::string> header;
  for (std::size_t i = 0; i < table.axes.size(); ++i)
    if (varies(table.axes[i])) header.push_back(short_key(table, i));
  aligned.assign(header.size(), 'l');
  for (const char* const column :
       {"chips", "step", "likely", "tokens/s", "MFU", "memory", "USD/B tokens", ""}) {
    header.emplace_back(column);
    aligned += *column == '\0' ? 'l' : 'r';
  }
  Table lines(aligned, header);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const SweepRow& row = table.rows[i];
    std::vector<std::string> cells;
    for (std::size_t axis = 0; axis < row.values.size(); ++axis)
      if (varies(table.axes[axis])) cells.push_back(row.values[axis]);
    if (row.figures) {
      const SweepFigures& f = *row.figures;
      cells.insert(cells.end(),
                   {std::to_string(f.chips), format_seconds(f.step_s),
                    known(f.likely_most_s, fmt::format("{} to {}", format_seconds(f.likely_least_s),
                                                       format_seconds(f.likely_most_s))),
                    format_count(f.tokens_per_s), format_percent(f.mfu), format_percent(f.memory_share),
                    known(f.usd_billion_tokens, fmt::format("{:.4g}", f.usd_billion_tokens)),
                    is_in_front(table, i) ? "*" : ""});
    } else {
      const std::string reason = row.refusal.substr(0, row.refusal.find('\n'));
      cells.insert(cells.end(), {"-", "-", "-", "-", "-", "-", "-", reason});
    }
    lines.add(std::move(cells));
  }
  std::string text = table.name.empty() ? "" : table.name;
  for (const SweepAxis& axis : table.axes)
    if (!varies(axis)) text += fmt::format(", {} {}", axis.key, axis.values[0]);
  return (text.empty() ? "" : text + "\n") + lines.print() + "\n" + summary(table);
}

std::string to_csv(const SweepTable& table) {
  std::string text;
  for (const SweepAxis& axis : table.axes) text += csv_cell(axis.key) + ",";
  text +=
      "step_s,likely_least_s,likely_most_s,tokens_per_s,mfu,memory_bytes,memory_share,usd_billion_tokens,"
      "kwh_billion_tokens,chips,strategy_hash,front,refusal_kind,refusal\n";
  const auto number = [](double value) { return value > 0 ? format_exact(value) : std::string(); };
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const SweepRow& row = table.rows[i];
    for (const std::string& value : row.values) text += csv_cell(value) + ",";
    const SweepFigures f = row.figures.value_or(SweepFigures{});
    for (const double value :
         {f.step_s, f.likely_least_s, f.likely_most_s, f.tokens_per_s, f.mfu, f.memory_bytes, f.memory_share,
          f.usd_billion_tokens, f.kwh_billion_tokens, static_cast<double>(f.chips)})
      text += number(value) + ",";
    text += fmt::format("{},{},{},{}\n", f.strategy_hash, is_in_front(table, i) ? "yes" : "",
                        csv_cell(row.refusal_kind), csv_cell(row.refusal));
  }
  return text;
}

std::string to_json(const SweepTable& table) {
  Json axes = Json::array(), rows = Json::array();
  for (const SweepAxis& axis : table.axes) axes.push_back({{"key", axis.key}, {"values", axis.values}});
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const SweepRow& row = table.rows[i];
    Json json = {{"values", row.values}};
    if (row.figures)
      json["figures"] = figures_json(*row.figures);
    else
      json["refused"] = {{"kind", row.refusal_kind}, {"message", row.refusal}};
    if (!table.front_of.empty()) json["front"] = is_in_front(table, i);
    rows.push_back(std::move(json));
  }
  Json whole = {{"schema", "motley.sweep/1"}, {"scenario", table.name}, {"axes", axes}};
  if (table.missing > 0) whole["missing"] = table.missing;
  if (!table.front_of.empty()) whole["front_of"] = table.front_of;
  whole["rows"] = std::move(rows);
  return json_text(whole);
}

}  // namespace motley
