#include "models/published/planned_jobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

// Two simulations of one strategy differ by rounding alone.
constexpr double kRounding = 1e-9;

bool is_no_slower(const PlannedJob& job) { return job.planned_s > 0 && job.ratio() <= 1 + kRounding; }

}  // namespace

PlannedSummary summarise(const std::vector<PlannedJob>& jobs) {
  PlannedSummary summary;
  summary.jobs = jobs.size();
  for (const PlannedJob& job : jobs) {
    if (!job.fits()) {
      ++summary.not_fitting;
      summary.no_slower_not_fitting += is_no_slower(job) ? 1 : 0;
      continue;
    }
    if (job.planned_s <= 0) {
      ++summary.without_plan;
      continue;
    }
    summary.no_slower += is_no_slower(job) ? 1 : 0;
    summary.mean_ratio += job.ratio();
    summary.worst_ratio = std::max(summary.worst_ratio, job.ratio());
  }
  const std::size_t planned = jobs.size() - summary.not_fitting - summary.without_plan;
  if (planned > 0) summary.mean_ratio /= static_cast<double>(planned);
  return summary;
}

std::string to_json(const std::vector<PlannedJob>& jobs) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PlannedJob& job : jobs) {
    nlohmann::ordered_json row = {{"set", job.set},
                                  {"model", job.model},
                                  {"chips", job.chips},
                                  {"run", job.run},
                                  {"layouts", job.layouts},
                                  {"published_s", job.published_s},
                                  {"short_gib", job.short_bytes / 0x1p30}};
    if (job.planned_s > 0) {
      row["planned_s"] = job.planned_s;
      row["bound_s"] = job.bound_s;
      row["ratio"] = job.ratio();
      row["degrees"] = job.degrees;
      row["ended_early"] = job.ended_early;
    } else {
      row["refused"] = job.refused;
    }
    rows.push_back(std::move(row));
  }
  const PlannedSummary summary = summarise(jobs);
  return json_text(nlohmann::ordered_json{{"schema", "motley.validate-plans/1"},
                                          {"summary",
                                           {{"jobs", summary.jobs},
                                            {"no_slower", summary.no_slower},
                                            {"without_plan", summary.without_plan},
                                            {"not_fitting", summary.not_fitting},
                                            {"no_slower_not_fitting", summary.no_slower_not_fitting},
                                            {"mean_ratio", summary.mean_ratio},
                                            {"worst_ratio", summary.worst_ratio}}},
                                          {"jobs", std::move(rows)}});
}

std::string to_text(const std::vector<PlannedJob>& jobs, bool rows) {
  std::string text =
      "published jobs, planned anew: seconds of the plan, and of the published layout that is predicted "
      "fastest of those that fit their chips\n\n";
  Table table("llrlrrrrrl",
              {"set", "model", "chips", "run", "layouts", "published", "short", "planned", "ratio", "plan"});
  for (const PlannedJob& job : jobs) {
    if (!rows && is_no_slower(job)) continue;
    const bool planned = job.planned_s > 0;
    table.add({job.set, job.model, std::to_string(job.chips), job.run, std::to_string(job.layouts),
               format_seconds(job.published_s), job.fits() ? "-" : format_bytes(job.short_bytes),
               planned ? format_seconds(job.planned_s) : "-",
               planned ? fmt::format("{:.3f}", job.ratio()) : "-", planned ? job.degrees : job.refused});
  }
  const PlannedSummary summary = summarise(jobs);
  if (rows || summary.no_slower + summary.no_slower_not_fitting < summary.jobs) text += table.print() + "\n";
  const std::size_t fitting = summary.jobs - summary.not_fitting;
  text += fmt::format("jobs: {}; the plan is no slower in {}, slower in {}, and there is none for {}\n",
                      fitting, summary.no_slower, fitting - summary.no_slower - summary.without_plan,
                      summary.without_plan);
  if (summary.not_fitting > 0)
    text += fmt::format(
        "{} more, whose published layouts need more memory than their chips have, as far as their sources "
        "say what is recomputed and sharded: the plan is no slower in {}\n",
        summary.not_fitting, summary.no_slower_not_fitting);
  const auto early =
      std::count_if(jobs.begin(), jobs.end(), [](const PlannedJob& job) { return job.ended_early; });
  if (early > 0)
    text += fmt::format(
        "{} searches ended once their plan was no slower: their ratios could be lower still\n", early);
  text += fmt::format("planned / published: mean {:.3f}, worst {:.3f}\n", summary.mean_ratio,
                      summary.worst_ratio);
  return text;
}

}  // namespace motley
