#include "models/published/layout_choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "models/base/json_text.hpp"
#include "models/base/table.hpp"
#include "models/published/prediction_errors.hpp"

namespace motley {
namespace {

using Json = nlohmann::ordered_json;

// The shape stands beside the name: a table may call all its models alike.
constexpr std::array kJobColumns = {"model_name",     "hidden",   "ffn_hidden",   "layers",
                                    "heads",          "kv_heads", "vocab",        "accelerator",
                                    "n_accelerators", "seq_len",  "global_batch", "precision"};
constexpr std::array kLayoutColumns = {
    "micro_batch", "tp", "pp", "vpp", "dp", "cp", "ep", "schedule", "zero_stage_or_fsdp", "recompute"};

std::vector<std::string> cells_of(const CsvRow& row, const auto& columns) {
  std::vector<std::string> cells;
  for (const char* column : columns) cells.push_back(row[column]);
  return cells;
}

// The runs of one layout, whose means are not taken yet.
struct LayoutRuns {
  std::vector<std::string> ids;
  std::vector<double> measured_s, predicted_s;
  bool fits = true;
};
struct JobRuns {
  const RunOutcome* first = nullptr;
  std::vector<LayoutRuns> layouts;                            // in the order of the table
  std::map<std::vector<std::string>, std::size_t> by_layout;  // index in `layouts`
};

LayoutChoice choice_among(const JobRuns& job) {
  LayoutChoice choice{job.first->set, job.first->model, job.first->accelerator, job.first->chips, {}, 0};
  for (const LayoutRuns& runs : job.layouts)
    choice.layouts.push_back({runs.ids, mean_of(runs.measured_s), mean_of(runs.predicted_s), runs.fits});
  std::stable_sort(choice.layouts.begin(), choice.layouts.end(),
                   [](const MeasuredLayout& a, const MeasuredLayout& b) {
                     return std::tuple(!a.fits, a.predicted_s) < std::tuple(!b.fits, b.predicted_s);
                   });
  const auto fastest = std::min_element(
      choice.layouts.begin(), choice.layouts.end(),
      [](const MeasuredLayout& a, const MeasuredLayout& b) { return a.measured_s < b.measured_s; });
  choice.fastest = static_cast<std::size_t>(fastest - choice.layouts.begin());
  return choice;
}

}  // namespace

double LayoutChoice::chance_regret_pct() const {
  std::vector<double> regrets;
  for (const MeasuredLayout& layout : layouts)
    regrets.push_back(100 * (layout.measured_s / layouts[fastest].measured_s - 1));
  return mean_of(regrets);
}

std::vector<LayoutChoice> layout_choices(const std::vector<PublishedRun>& runs,
                                         const std::vector<RunOutcome>& outcomes, std::size_t fewest) {
  std::vector<JobRuns> jobs;
  std::map<std::vector<std::string>, std::size_t> by_job;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunOutcome& outcome = outcomes[i];
    if (!outcome.passed_over.empty()) continue;
    std::vector<std::string> key = cells_of(runs[i].row, kJobColumns);
    key.push_back(runs[i].set);
    const auto [place, is_new_job] = by_job.try_emplace(std::move(key), jobs.size());
    if (is_new_job) jobs.emplace_back().first = &outcome;
    JobRuns& job = jobs[place->second];
    const auto [layout, is_new] =
        job.by_layout.try_emplace(cells_of(runs[i].row, kLayoutColumns), job.layouts.size());
    if (is_new) job.layouts.emplace_back();
    LayoutRuns& same = job.layouts[layout->second];
    same.ids.push_back(outcome.id);
    same.measured_s.push_back(outcome.measured_s);
    same.predicted_s.push_back(outcome.predicted.seconds);
    same.fits = same.fits && outcome.fits;
  }
  std::vector<LayoutChoice> choices;
  for (const JobRuns& job : jobs)
    if (job.layouts.size() >= fewest) choices.push_back(choice_among(job));
  return choices;
}

ChoiceSummary summarise(const std::vector<LayoutChoice>& choices) {
  ChoiceSummary summary;
  summary.jobs = choices.size();
  if (choices.empty()) return summary;
  std::vector<double> regrets, by_chance, first, in_three, chance_in_three;
  for (const LayoutChoice& choice : choices) {
    regrets.push_back(choice.regret_pct());
    by_chance.push_back(choice.chance_regret_pct());
    first.push_back(choice.fastest == 0 ? 100 : 0);
    in_three.push_back(choice.fastest < 3 ? 100 : 0);
    chance_in_three.push_back(100 * std::min(1.0, 3 / static_cast<double>(choice.layouts.size())));
    for (const MeasuredLayout& layout : choice.layouts) summary.infeasible += layout.fits ? 0 : 1;
  }
  summary.mean_regret_pct = mean_of(regrets);
  summary.chance_regret_pct = mean_of(by_chance);
  summary.fastest_first_pct = mean_of(first);
  summary.fastest_in_three_pct = mean_of(in_three);
  summary.chance_in_three_pct = mean_of(chance_in_three);
  regrets.erase(std::max_element(regrets.begin(), regrets.end()));
  summary.without_worst_pct = mean_of(regrets);
  return summary;
}

std::string to_json(const std::vector<LayoutChoice>& choices) {
  Json jobs = Json::array();
  for (const LayoutChoice& choice : choices) {
    Json layouts = Json::array();
    for (const MeasuredLayout& layout : choice.layouts)
      layouts.push_back({{"runs", layout.ids},
                         {"measured_s", layout.measured_s},
                         {"predicted_s", layout.predicted_s},
                         {"fits", layout.fits}});
    jobs.push_back({{"set", choice.set},
                    {"model", choice.model},
                    {"accelerator", choice.accelerator},
                    {"chips", choice.chips},
                    {"regret_pct", choice.regret_pct()},
                    {"chance_regret_pct", choice.chance_regret_pct()},
                    {"place_of_fastest", choice.fastest + 1},
                    {"layouts", std::move(layouts)}});
  }
  const ChoiceSummary summary = summarise(choices);
  const Json whole = {{"schema", "motley.validate-choices/1"},
                      {"summary",
                       {{"jobs", summary.jobs},
                        {"mean_regret_pct", summary.mean_regret_pct},
                        {"without_worst_pct", summary.without_worst_pct},
                        {"chance_regret_pct", summary.chance_regret_pct},
                        {"fastest_first_pct", summary.fastest_first_pct},
                        {"fastest_in_three_pct", summary.fastest_in_three_pct},
                        {"chance_in_three_pct", summary.chance_in_three_pct},
                        {"infeasible", summary.infeasible}}},
                      {"jobs", std::move(jobs)}};
  return json_text(whole);
}

std::string to_text(const std::vector<LayoutChoice>& choices) {
  if (choices.empty())
    return fmt::format("no job of these runs has {} or more layouts that can be predicted\n", kFewestLayouts);
  std::string text =
      "published jobs with several layouts: how much longer the layout predicted fastest was measured to "
      "take\n"
      "than the fastest measured one (regret), beside the mean of all layouts (chance)\n\n";
  Table table("llrrrrrll", {"set", "model", "chips", "layouts", "regret %", "chance %", "place of fastest",
                            "chosen", "fastest"});
  for (const LayoutChoice& choice : choices)
    table.add({choice.set, choice.model, std::to_string(choice.chips), std::to_string(choice.layouts.size()),
               percent(choice.regret_pct()), percent(choice.chance_regret_pct()),
               std::to_string(choice.fastest + 1), choice.chosen().ids.front(),
               choice.layouts[choice.fastest].ids.front()});
  const ChoiceSummary summary = summarise(choices);
  text += table.print();
  text += fmt::format("\njobs: {}, mean regret {} %, without the worst {} %, by chance {} %\n", summary.jobs,
                      percent(summary.mean_regret_pct), percent(summary.without_worst_pct),
                      percent(summary.chance_regret_pct));
  text += fmt::format(
      "the fastest is chosen in {:.0f} %, and among the first three in {:.0f} % (by chance {:.0f} %)\n",
      summary.fastest_first_pct, summary.fastest_in_three_pct, summary.chance_in_three_pct);
  if (summary.infeasible > 0)
    text += fmt::format("{} layouts that ran are predicted not to fit\n", summary.infeasible);
  return text;
}

}  // namespace motley
