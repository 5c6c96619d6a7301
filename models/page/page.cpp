#include "models/page/page.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "models/base/json_text.hpp"
#include "models/base/markup.hpp"
#include "models/base/refusal.hpp"
#include "models/page/network_use.hpp"
#include "models/page/page_parts.hpp"
#include "models/page/roofline.hpp"
#include "models/page/sources.hpp"
#include "models/page/timeline_rows.hpp"
#include "models/report/interval_text.hpp"

namespace motley {
namespace {

using nlohmann::ordered_json;

// Whole nanoseconds: a timeline shows no less.
double rounded(double seconds) { return std::round(seconds * 1e9) / 1e9; }

ordered_json json_of(const TimelineRows& timeline) {
  ordered_json json = {{"step_s", timeline.step_s},     {"span_s", timeline.span_s},
                       {"left_out", timeline.left_out}, {"shortest_s", timeline.shortest_s},
                       {"kinds", kWords<MarkKind>},     {"names", timeline.names}};
  auto& rows = json["rows"] = ordered_json::array();
  for (const TimelineRow& row : timeline.rows) {
    // A column for each figure: numbers of one kind side by side are a fraction of the size of objects.
    ordered_json marks = {{"kind", ordered_json::array()},        {"name", ordered_json::array()},
                          {"micro_batch", ordered_json::array()}, {"begin_s", ordered_json::array()},
                          {"length_s", ordered_json::array()},    {"bytes", ordered_json::array()}};
    for (const Mark& mark : row.marks) {
      marks["kind"].push_back(static_cast<int>(mark.kind));
      marks["name"].push_back(mark.name);
      marks["micro_batch"].push_back(mark.micro_batch);
      marks["begin_s"].push_back(rounded(mark.begin_s));
      marks["length_s"].push_back(rounded(mark.length_s));
      marks["bytes"].push_back(mark.bytes);
    }
    rows.push_back({{"stage", row.stage},
                    {"rank", row.rank.value()},
                    {"stands_for", row.stands_for},
                    {"marks", std::move(marks)}});
  }
  return json;
}

ordered_json json_of(const std::vector<NetworkUse>& uses) {
  ordered_json list = ordered_json::array();
  for (const NetworkUse& use : uses)
    list.push_back({{"purpose", use.purpose},
                    {"on", use.on},
                    {"group", use.group},
                    {"rate", use.rate},
                    {"ranks", use.ranks},
                    {"count", use.count},
                    {"bytes", use.bytes},
                    {"busy_s", use.busy_s},
                    {"inside_computes", use.inside_computes}});
  return list;
}

ordered_json json_of(const ChipRoofline& roofline) {
  ordered_json json = {{"chip", roofline.chip},
                       {"memory_bandwidth", roofline.memory_bandwidth},
                       {"reachable_bandwidth", roofline.reachable_bandwidth},
                       {"network_s", roofline.network_s},
                       {"optimizer_s", roofline.optimizer_s}};
  auto& peaks = json["peaks"] = ordered_json::array();
  for (const RooflinePeak& peak : roofline.peaks)
    peaks.push_back({{"format", name_of(peak.format)}, {"flops", peak.flops}, {"reachable", peak.reachable}});
  auto& kernels = json["kernels"] = ordered_json::array();
  for (const RooflinePoint& point : roofline.kernels)
    kernels.push_back({{"kernel", point.kernel},
                       {"count", point.count},
                       {"flops", point.flops},
                       {"bytes", point.bytes},
                       {"seconds", point.seconds},
                       {"bound_by", name_of(point.bound)}});
  return json;
}

ordered_json json_of(const std::vector<UsedFigure>& figures) {
  ordered_json list = ordered_json::array();
  for (const UsedFigure& figure : figures)
    list.push_back({{"part", figure.part},
                    {"figure", figure.figure},
                    {"value", figure.value},
                    {"source", figure.source}});
  return list;
}

ordered_json json_of(const PageSide& side) {
  const Scenario& scenario = side.prepared.scenario;
  const Program& program = side.prepared.program;
  const Report& report = side.explained.report;
  ordered_json json = {{"scenario", report.scenario},
                       {"settings", scenario.settings},
                       {"model", scenario.job.transformer.name},
                       {"cluster", scenario.job.cluster.name},
                       {"schedule", name_of(scenario.job.strategy.schedule)},
                       {"degrees", degrees_of(scenario.job.strategy)},
                       {"ranks", program.rank_count()},
                       {"global_batch", program.global_batch},
                       {"sequence", program.sequence}};
  json["likely"] =
      report.interval ? ordered_json(describe(*report.interval, report.iteration_s)) : ordered_json(nullptr);
  json["simulate"] = ordered_json::parse(to_json(report));
  json["explain"] = ordered_json::parse(to_json(side.explained));
  std::vector<Rank> ranks;
  for (const StageBreakdown& row : report.breakdown) ranks.push_back(row.rank);
  json["timeline"] = json_of(timeline_rows(program, side.trace, ranks));
  json["network"] = json_of(network_use(scenario.job, program, side.trace));
  auto& roofs = json["rooflines"] = ordered_json::array();
  for (const ChipRoofline& roofline : rooflines(scenario.job, program)) roofs.push_back(json_of(roofline));
  json["figures"] = json_of(used_figures(scenario, program, report));
  return json;
}

ordered_json json_of(const Page& page) {
  ordered_json json = {{"schema", "motley.report/1"}, {"version", page.version}};
  auto& sides = json["scenarios"] = ordered_json::array();
  for (const PageSide& side : page.sides) sides.push_back(json_of(side));
  json["why"] = page.why ? ordered_json::parse(to_json(*page.why)).at("why") : ordered_json(nullptr);
  return json;
}

// JSON that may stand in a script element: no `<` in it can end or open one.
std::string embedded(const ordered_json& json) {
  std::string safe;
  for (const char c : json.dump()) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

}  // namespace

std::string plot_library_version() {
  const std::string_view text = page_parts::d3();
  constexpr std::string_view kBefore = "version:\"";
  const std::size_t place = text.find(kBefore);
  if (place == std::string_view::npos) return "";
  const std::size_t begin = place + kBefore.size();
  return std::string(text.substr(begin, text.find('"', begin) - begin));
}

void require_plots(const std::string& version) {
  if (version.empty())
    throw Refusal(Exit::missing, "missing-part", {}, "this build has no D3, which draws the page's plots",
                  "install libjs-d3 and build again; --json prints the page's data");
}

std::string to_json(const Page& page) { return json_text(json_of(page)); }

std::string to_html(const Page& page) {
  require_plots(plot_library_version());
  const ordered_json json = json_of(page);
  json_text(json);  // refuses figures that JSON cannot hold
  std::string title;
  for (const PageSide& side : page.sides)
    title += (title.empty() ? "" : " and ") + side.explained.report.scenario;
  const std::pair<std::string_view, std::string> parts[] = {
      {"{{title}}", escaped(title)},
      {"{{style}}", std::string(page_parts::style())},
      {"{{data}}", embedded(json)},
      {"{{d3}}", std::string(page_parts::d3())},
      {"{{script}}", std::string(page_parts::script())}};
  std::string_view frame = page_parts::frame();
  std::string html;
  for (const auto& [mark, part] : parts) {  // in the order of the frame
    const std::size_t place = frame.find(mark);
    MOTLEY_CHECK(place != std::string_view::npos);
    html += std::string(frame.substr(0, place)) + part;
    frame.remove_prefix(place + mark.size());
  }
  return html + std::string(frame);
}

}  // namespace motley
