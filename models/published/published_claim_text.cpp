// Claims beside predictions, as text and as JSON: keys in a fixed order, a key is never renamed within a schema.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/published_claim.hpp"
#include "models/table.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(const ClaimKnob& knob) {
  return knob.network ? std::string(motley::name_of(*knob.network)) : "compute";
}

std::string what_of(const ClaimRow& row) {
  if (!row.says.empty()) return row.says;
  if (!row.bound.empty()) return fmt::format("{}, share of its bound", row.run);
  return row.over.empty() ? row.run : fmt::format("{} / {}", row.run, row.over);
}

std::string figure(const ClaimRow& row, double value) {
  return row.is_ratio() ? fmt::format("{:.3f}", value) : fmt::format("{:.1f}", value);
}

std::vector<std::string> cells(const ClaimOutcomes& of, const ClaimOutcome& each) {
  const ClaimRow& row = *each.row;
  if (!row.order.empty())
    return {of.claim->name,
            what_of(row),
            "holds",
            each.within() ? "holds" : "does not",
            "",
            each.within() ? "yes" : "no"};
  const std::string error = row.is_ratio() ? fmt::format("{:+.3f}", each.predicted - row.stated)
                                           : fmt::format("{:+.1f} %", each.error_pct());
  const std::string within = each.turned                         ? "turned for it"
                             : row.tolerance > 0 || row.at_least ? (each.within() ? "yes" : "no")
                                                                 : "";
  return {of.claim->name,
          what_of(row),
          fmt::format("{}{}", row.at_least ? ">= " : "", figure(row, row.stated)),
          figure(row, each.predicted),
          error,
          within};
}

Json json_of(const ClaimOutcome& each) {
  const ClaimRow& row = *each.row;
  Json made = {{"says", what_of(row)}};
  if (row.order.empty()) {
    made[row.at_least ? "stated_at_least" : "stated"] = row.stated;
    made["predicted"] = each.predicted;
    made["error"] = each.predicted - row.stated;
    made["error_pct"] = each.error_pct();
    made["tolerance"] = row.tolerance > 0 ? Json(row.tolerance) : Json(nullptr);
  } else {
    made["order"] = row.order;
    made["holds"] = each.within();
    made["seen"] = each.seen;
  }
  made["calibrated"] = each.turned;
  made["missing"] = row.missing;
  return made;
}

}  // namespace

std::string to_text(const std::vector<ClaimOutcomes>& outcomes) {
  Table table("llrrrl", {"claim", "what", "stated", "predicted", "error", "within"});
  for (const ClaimOutcomes& of : outcomes)
    for (const ClaimOutcome& each : of.rows) table.add(cells(of, each));
  std::string text = table.print();
  for (const ClaimOutcomes& of : outcomes) {
    text += fmt::format("\n{}: {}\n  source: {}\n  trust: {}\n", of.claim->name, of.claim->says,
                        of.claim->source, of.claim->trust);
    for (const auto& [knob, value] : of.knobs)
      text += knob.network
                  ? fmt::format("  turned: {} NICs reach {:.2f} of their line, for {}\n", name_of(knob),
                                value, knob.run)
                  : fmt::format("  turned: the chips' efficiencies, times {:.3f}, for {}\n", value, knob.run);
    for (const ClaimOutcome& each : of.rows) {
      if (!each.seen.empty()) text += fmt::format("  {}: {}\n", what_of(*each.row), each.seen);
      if (!each.row->missing.empty())
        text += fmt::format("  {}: {}\n", what_of(*each.row), each.row->missing);
    }
  }
  return text;
}

std::string to_json(const std::vector<ClaimOutcomes>& outcomes) {
  Json claims = Json::array();
  for (const ClaimOutcomes& of : outcomes) {
    Json knobs = Json::array(), rows = Json::array(), runs = Json::object();
    for (const auto& [knob, value] : of.knobs)
      knobs.push_back({{"turned", name_of(knob)}, {"for", knob.run}, {"value", value}});
    for (const ClaimOutcome& each : of.rows) rows.push_back(json_of(each));
    for (const auto& [run, value] : of.throughput) runs[run] = value;
    claims.push_back({{"claim", of.claim->name},
                      {"says", of.claim->says},
                      {"source", of.claim->source},
                      {"trust", of.claim->trust},
                      {"calibrated", knobs},
                      {"tflops_per_chip", runs},
                      {"rows", rows}});
  }
  const Json whole = {{"schema", "motley.validate-claims/1"}, {"claims", claims}};
  return whole.dump(2) + "\n";
}

}  // namespace motley
