// Claims beside predictions, as text and as JSON: keys in a fixed order; a key is never renamed within a schema.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/published/published_claim.hpp"

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

std::vector<std::string> cells(const ClaimOutcomes& claim, const ClaimOutcome& each) {
  const ClaimRow& row = *each.row;
  if (!row.order.empty())
    return {claim.claim->name,           what_of(row), "holds", each.within() ? "holds" : "does not", "",
            each.within() ? "yes" : "no"};
  const std::string error = row.is_ratio() ? fmt::format("{:+.3f}", each.predicted - row.stated)
                                           : fmt::format("{:+.1f} %", each.error_pct());
  const std::string within = each.turned                         ? "turned for it"
                             : row.tolerance > 0 || row.at_least ? (each.within() ? "yes" : "no")
                                                                 : "";
  return {claim.claim->name,
          what_of(row),
          fmt::format("{}{}", row.at_least ? ">= " : "", figure(row, row.stated)),
          figure(row, each.predicted),
          error,
          within};
}

Json json_of(const ClaimOutcome& each) {
  const ClaimRow& row = *each.row;
  Json json = {{"says", what_of(row)}};
  if (row.order.empty()) {
    json[row.at_least ? "stated_at_least" : "stated"] = row.stated;
    json["predicted"] = each.predicted;
    json["error"] = each.predicted - row.stated;
    json["error_pct"] = each.error_pct();
    json["tolerance"] = row.tolerance > 0 ? Json(row.tolerance) : Json(nullptr);
  } else {
    json["order"] = row.order;
    json["holds"] = each.within();
    json["seen"] = each.seen;
  }
  json["calibrated"] = each.turned;
  json["missing"] = row.missing;
  return json;
}

}  // namespace

std::string to_text(const std::vector<ClaimOutcomes>& outcomes) {
  Table table("llrrrl", {"claim", "what", "stated", "predicted", "error", "within"});
  for (const ClaimOutcomes& claim : outcomes)
    for (const ClaimOutcome& each : claim.rows) table.add(cells(claim, each));
  std::string text = table.print();
  for (const ClaimOutcomes& claim : outcomes) {
    text += fmt::format("\n{}: {}\n  source: {}\n  trust: {}\n", claim.claim->name, claim.claim->says,
                        claim.claim->source, claim.claim->trust);
    for (const auto& [knob, value] : claim.knobs)
      text += knob.network
                  ? fmt::format("  turned: {} NICs reach {:.2f} of their line, for {}\n", name_of(knob),
                                value, knob.run)
                  : fmt::format("  turned: the chips' efficiencies, times {:.3f}, for {}\n", value, knob.run);
    for (const ClaimOutcome& each : claim.rows) {
      if (!each.seen.empty()) text += fmt::format("  {}: {}\n", what_of(*each.row), each.seen);
      if (!each.row->missing.empty())
        text += fmt::format("  {}: {}\n", what_of(*each.row), each.row->missing);
    }
  }
  return text;
}

std::string to_json(const std::vector<ClaimOutcomes>& outcomes) {
  Json claims = Json::array();
  for (const ClaimOutcomes& claim : outcomes) {
    Json knobs = Json::array(), rows = Json::array(), runs = Json::object();
    for (const auto& [knob, value] : claim.knobs)
      knobs.push_back({{"turned", name_of(knob)}, {"for", knob.run}, {"value", value}});
    for (const ClaimOutcome& each : claim.rows) rows.push_back(json_of(each));
    for (const auto& [run, value] : claim.throughput) runs[run] = value;
    claims.push_back({{"claim", claim.claim->name},
                      {"says", claim.claim->says},
                      {"source", claim.claim->source},
                      {"trust", claim.claim->trust},
                      {"calibrated", knobs},
                      {"tflops_per_chip", runs},
                      {"rows", rows}});
  }
  const Json whole = {{"schema", "motley.validate-claims/1"}, {"claims", claims}};
  return json_text(whole);
}

}  // namespace motley
