#include "models/plan/findings_text.hpp"

#include <fmt/format.h>

#include "models/base/table.hpp"
#include "models/base/units.hpp"

namespace motley {

std::string ablations_text(const std::vector<Ablation>& ablations) {
  if (ablations.empty()) return {};
  std::vector<std::string_view> names;
  for (const Ablation each : ablations) names.push_back(name_of(each));
  return fmt::format(", ablated: {}", fmt::join(names, ", "));
}

std::string findings_text(const Plan& plan, std::string_view indent) {
  std::string text;
  for (const std::string& note : plan.notes) text += fmt::format("{}{}\n", indent, note);
  for (const VariantResult& each : plan.variants)
    text += fmt::format("{}{}: {}\n", indent, each.what,
                        each.step_s > 0 ? format_seconds(each.step_s) : "none that was tried fits");
  return text;
}

std::string baselines_text(double step_s, const std::vector<Baseline>& baselines) {
  if (baselines.empty()) return {};
  Table table("lrrl", {"group alone", "chips", "step", ""});
  std::vector<std::string> too_small;
  for (const Baseline& each : baselines) {
    const std::string how = fmt::format("{}{}", each.recomputes ? "recomputes" : "",
                                        each.offloads ? (each.recomputes ? ", offloads" : "offloads") : "");
    if (!each.step_s) too_small.push_back(fmt::format("`{}`", each.group));
    table.add({each.group, std::to_string(each.chips), each.step_s ? format_seconds(*each.step_s) : "-",
               !each.step_s  ? "cannot hold the model"
               : how.empty() ? "recomputes and offloads nothing"
                             : how});
  }
  const std::optional<double> ratio = speedup_ratio(step_s, baselines);
  const std::string summary =
      ratio ? fmt::format(
                  "the plan reaches {} of what all groups reach together, each alone with the same batch\n",
                  format_percent(*ratio))
            : fmt::format("{} cannot hold the model alone, so the plan has nothing to be compared with\n",
                          fmt::join(too_small, ", "));
  return fmt::format("\n{}{}", table.print(), summary);
}

}  // namespace motley
