#include "models/published/published_claim.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/base/yaml_reader.hpp"
#include "models/cluster/node_text.hpp"
#include "models/report/published_metrics.hpp"
#include "models/scenario/scenario.hpp"

namespace motley {
namespace {

std::string optional_text(const Fields& fields, const char* key) {
  const Yaml node = fields.find(key);
  return node ? to_text(node) : "";
}

ClaimRow read_row(const Yaml& node) {
  const Fields fields(
      node, "a row of a claim",
      {"says", "run", "over", "bound", "order", "stated", "at_least", "tolerance", "missing"});
  ClaimRow row;
  row.says = optional_text(fields, "says");
  row.run = optional_text(fields, "run");
  row.over = optional_text(fields, "over");
  row.missing = optional_text(fields, "missing");
  if (const Yaml order = fields.find("order"))
    for (const Yaml& item : to_sequence(order)) row.order.push_back(to_text(item));
  if (const Yaml bound = fields.find("bound"))
    for (const YamlEntry& part : bound->entries)
      row.bound.emplace_back(part.key, to_number(part.value, Sign::positive));
  row.at_least = fields.find("at_least") != nullptr;
  if (row.order.empty())
    row.stated = to_number(fields.need(row.at_least ? "at_least" : "stated"), Sign::positive);
  if (const Yaml tolerance = fields.find("tolerance"))
    row.tolerance = to_number(tolerance, Sign::not_negative);
  return row;
}

Claim read_claim(const Yaml& node) {
  const Fields fields(node, "a claim", {"name", "says", "source", "trust", "runs", "knobs", "rows"});
  Claim claim{to_text(fields.need("name")),
              to_text(fields.need("says")),
              to_text(fields.need("source")),
              to_text(fields.need("trust")),
              {},
              {},
              {},
              node->where};
  for (const YamlEntry& run : fields.need("runs")->entries)
    claim.runs.push_back({run.key, to_text(run.value)});
  if (const Yaml knobs = fields.find("knobs"))
    for (const Yaml& item : to_sequence(knobs)) {
      const Fields knob_fields(item, "a knob", {"turn", "until"});
      ClaimKnob knob{to_text(knob_fields.need("until")), std::nullopt};
      if (to_text(knob_fields.need("turn")) != "compute")
        knob.network = to_nic_kind(knob_fields.need("turn"));
      claim.knobs.push_back(knob);
    }
  for (const Yaml& item : to_sequence(fields.need("rows"))) claim.rows.push_back(read_row(item));
  return claim;
}

// The runs of one claim, with the knobs that are turned so far.
class Runs {
 public:
  Runs(const Claim& claim, const std::string& folder, const StepSeconds& step_s)
      : claim_(claim), folder_(folder), step_s_(step_s) {}

  double throughput(const std::string& name) {
    if (const auto entry = known_.find(name); entry != known_.end()) return entry->second;
    return known_[name] = with(name, knobs_);
  }
  void turn(const ClaimKnob& knob, double stated) {
    double low = 0.05, high = knob.network ? 1.0 : 1.6;
    for (int i = 0; i < 14; ++i) {
      const double middle = (low + high) / 2;
      auto tried = knobs_;
      tried.emplace_back(knob, middle);
      (with(knob.run, tried) < stated ? low : high) = middle;
    }
    knobs_.emplace_back(knob, (low + high) / 2);
    known_.clear();
  }
  const std::vector<std::pair<ClaimKnob, double>>& knobs() const { return knobs_; }
  const std::map<std::string, double>& known() const { return known_; }

 private:
  const Claim& claim_;
  const std::string folder_;
  const StepSeconds& step_s_;
  std::vector<std::pair<ClaimKnob, double>> knobs_;
  std::map<std::string, double> known_;
  std::map<std::string, Job> jobs_;

  const Job& job(const std::string& name) {
    const auto loaded = jobs_.find(name);
    if (loaded != jobs_.end()) return loaded->second;
    const auto run = std::find_if(claim_.runs.begin(), claim_.runs.end(),
                                  [&](const ClaimRun& each) { return each.name == name; });
    if (run == claim_.runs.end())
      throw Refusal(Exit::usage, "unknown-value", claim_.where,
                    fmt::format("claim {} has no run `{}`", claim_.name, name));
    try {
      jobs_[name] = load_scenario(folder_ + "/" + run->scenario).job;
    } catch (const Refusal& refusal) {
      throw located(refusal, claim_.where);  // a file that is not there
    }
    jobs_[name].fidelity.fold = true;
    return jobs_[name];
  }
  double with(const std::string& name, const std::vector<std::pair<ClaimKnob, double>>& knobs) {
    Job turned = job(name);
    for (const auto& [knob, value] : knobs)
      for (NodeGroup& group : turned.cluster.groups) {
        if (!knob.network) {
          for (Sourced ChipSoftware::*member :
               {&ChipSoftware::gemm_efficiency, &ChipSoftware::attention_efficiency,
                &ChipSoftware::bandwidth_efficiency})
            (group.chip.software.*member).value *= value;
        }
        for (Nic& nic : group.nics)
          if (knob.network == nic.kind) nic.reaches = nic.bandwidth * value;
      }
    build_topology(turned.cluster);
    const double sequences_per_s = static_cast<double>(turned.train.global_batch) / step_s_(turned);
    return megatron_flops_per_chip(turned.transformer, turned.train.sequence, sequences_per_s,
                                   turned.cluster.chip_count()) /
           1e12;
  }
};

double predicted_of(const ClaimRow& row, Runs& runs) {
  if (!row.over.empty()) return runs.throughput(row.run) / runs.throughput(row.over);
  if (row.bound.empty()) return runs.throughput(row.run);
  std::vector<HomogeneousRun> parts;
  std::int64_t chips = 0;
  for (const auto& [name, count] : row.bound) {
    parts.push_back({static_cast<std::int64_t>(count), runs.throughput(name)});
    chips += parts.back().chips;
  }
  return runs.throughput(row.run) * static_cast<double>(chips) / composite_throughput(parts);
}

ClaimOutcome order_of(const ClaimRow& row, Runs& runs) {
  ClaimOutcome outcome{&row};
  outcome.predicted = 1;
  std::vector<std::pair<double, std::string>> seen;
  for (const std::string& name : row.order) {
    if (!seen.empty() && runs.throughput(name) < seen.back().first) outcome.predicted = 0;
    seen.emplace_back(runs.throughput(name), name);
  }
  std::stable_sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [throughput, name] : seen)
    outcome.seen += fmt::format("{}{} {:.0f}", outcome.seen.empty() ? "" : " < ", name, throughput);
  return outcome;
}

}  // namespace

std::vector<Claim> read_claims(const std::string& path) {
  const Fields file(read_yaml(path), "the claims", {"claims"});
  std::vector<Claim> claims;
  for (const Yaml& node : to_sequence(file.need("claims"))) claims.push_back(read_claim(node));
  return claims;
}

bool ClaimOutcome::within() const {
  if (!row->order.empty()) return predicted == 1;
  if (row->at_least) return predicted >= row->stated && predicted <= 1;
  return std::abs(predicted - row->stated) <= row->tolerance;
}

ClaimOutcomes predict(const Claim& claim, const std::string& folder, const StepSeconds& step_s) {
  ClaimOutcomes outcomes;
  outcomes.claim = &claim;
  Runs runs(claim, folder, step_s);
  for (const ClaimKnob& knob : claim.knobs) {
    const auto row = std::find_if(claim.rows.begin(), claim.rows.end(), [&](const ClaimRow& each) {
      return each.run == knob.run && !each.is_ratio();
    });
    if (row == claim.rows.end())
      throw Refusal(
          Exit::usage, "unknown-value", claim.where,
          fmt::format("claim {} states nothing of `{}`, for which a knob is turned", claim.name, knob.run));
    runs.turn(knob, row->stated);
  }
  outcomes.knobs = runs.knobs();
  for (const ClaimRow& row : claim.rows) {
    if (!row.order.empty()) {
      outcomes.rows.push_back(order_of(row, runs));
      continue;
    }
    ClaimOutcome outcome{&row};
    outcome.predicted = predicted_of(row, runs);
    outcome.turned =
        !row.is_ratio() && std::any_of(claim.knobs.begin(), claim.knobs.end(),
                                       [&](const ClaimKnob& knob) { return knob.run == row.run; });
    outcomes.rows.push_back(outcome);
  }
  outcomes.throughput = runs.known();
  return outcomes;
}

}  // namespace motley
