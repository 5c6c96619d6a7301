#include "tools/fit/publish.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/base/text_file.hpp"

namespace motley::fit {
namespace {

constexpr const char* kLeftOut = "platforms/published/left_out";
constexpr const char* kUnseen = "platforms/published/unseen.yaml";

std::string left_out_path(const std::string& stem) { return fmt::format("{}/{}.yaml", kLeftOut, stem); }

Files left_out_of(const std::string& shipped) {
  Files files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(shipped + "/" + kLeftOut, none))
    if (entry.path().extension() == ".yaml")
      files[std::string(kLeftOut) + "/" + entry.path().filename().string()] = read_text_file(entry.path());
  return files;
}

// Whether all software is fitted. If so, no file of an earlier fit stays; otherwise those of other software stay.
bool moves_all(const Figures& figures, const Fit& fit) {
  return fit.moving().size() == figures.plan().software.size();
}

// The name without number of fits of one software. It sorts before the fits of all software (sizes-1 and so on),
// because a run is predicted by the first fit that left it out.
std::string stem_alone(const std::string& software) { return "only-" + software + "-sizes"; }

LeftOut of_software_alone(const LeftOut& fit, const std::string& software, const std::vector<FitRun>& runs) {
  LeftOut alone{{}, {}, {software}, fit.values};
  const std::set<std::string> ids(fit.ids.begin(), fit.ids.end());
  for (const FitRun& run : runs)
    if (run.software == software && ids.contains(run.id)) alone.ids.push_back(run.id);
  return alone;
}

Files left_out_now(const Figures& figures, const Fit& fit, const std::vector<FitRun>& runs,
                   const std::string& shipped, const std::string& month) {
  Files files;
  const bool all = moves_all(figures, fit);
  if (!all) files = left_out_of(shipped);
  for (const std::string& software : fit.moving())
    std::erase_if(files, [&](const auto& each) {
      return each.first.starts_with(fmt::format("{}/{}-", kLeftOut, stem_alone(software)));
    });
  int fold = 0;
  for (const LeftOut& each : fit.leave_out()) {
    if (!each.set.empty()) {
      files[left_out_path("set-" + each.set)] = left_out_text(figures, each, month);
      continue;
    }
    ++fold;
    if (all) files[left_out_path(fmt::format("sizes-{}", fold))] = left_out_text(figures, each, month);
    for (const std::string& software : each.software)
      if (!all)
        files[left_out_path(fmt::format("{}-{}", stem_alone(software), fold))] =
            left_out_text(figures, of_software_alone(each, software, runs), month);
  }
  return files;
}

TrialFigures trial_of(const Figures& figures, const Fit& fit, const Files& left_out) {
  TrialFigures trial = figures.trial(fit.values());
  std::erase_if(trial.software, [&](const auto& each) { return !fit.moving().contains(each.first); });
  for (const auto& [name, text] : left_out) trial.left_out.push_back(parse_yaml(text, name));
  return trial;
}

std::vector<Ratio> ratios_of(const std::vector<RunOutcome>& outcomes) {
  std::vector<Ratio> ratios;
  for (const RunOutcome& each : outcomes)
    if (each.passed_over.empty())
      ratios.push_back({each.measured_s / each.predicted.seconds, each.set, each.set});
  return ratios;
}

ErrorTable table_of(const std::vector<Ratio>& ratios) {
  std::vector<double> errors;
  std::vector<std::string> sets;
  for (const Ratio& each : ratios) {
    errors.push_back(-std::log(each.value));
    sets.push_back(each.set);
  }
  return fit::table_of(errors, sets);
}

std::size_t sets_in(const std::vector<Ratio>& ratios) {
  std::set<std::string> sets;
  for (const Ratio& each : ratios) sets.insert(each.set);
  return sets.size();
}

void add_interval(Publication& publication, std::string& text, const std::string& key,
                  const std::vector<Ratio>& ratios, const std::string& told) {
  if (ratios.empty()) return;
  text = with_interval(text, key, ratios, told);
  publication.intervals.push_back(text.substr(text.rfind('\n', text.size() - 2) + 1));
}

}  // namespace

Publication publish(const Figures& figures, const Fit& fit, const Table& table, const PredictRuns& predict,
                    const std::string& shipped, const std::string& month) {
  Publication publication;
  publication.files = left_out_now(figures, fit, table.runs, shipped, month);
  PublishedRules rules;
  rules.use(trial_of(figures, fit, publication.files));

  const std::vector<RunOutcome> told = predict(rules, table.taking_part, true);
  refuse_passed_over(told);
  std::vector<Ratio> by_size = ratios_of(told), by_set;
  MOTLEY_CHECK(by_size.size() == table.runs.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    by_size[i].group = table.runs[i].size;
    if (told[i].unseen)
      by_set.push_back({told[i].measured_s / told[i].unseen->seconds, told[i].set, told[i].set});
  }
  publication.by_size = table_of(by_size);
  publication.by_set = table_of(by_set);

  std::string unseen = read_text_file(shipped + "/" + kUnseen);
  add_interval(publication, unseen, "left_out", by_set,
               fmt::format("{} sets, each predicted without its own, {}", sets_in(by_set), month));
  PublishedRules nobodys = rules;
  nobodys.forget_software();
  const std::vector<Ratio> alone = ratios_of(predict(nobodys, table.taking_part, false));
  add_interval(publication, unseen, "interval", alone,
               fmt::format("{} sets, predicted by their chips' own figures, {}", sets_in(alone), month));
  add_interval(publication, unseen, "experts", ratios_of(predict(rules, table.with_experts, false)),
               fmt::format("models with experts, of which none took part, {}", month));
  publication.files[kUnseen] = unseen;

  for (const std::string& software : fit.moving()) {
    std::vector<Ratio> own;
    for (std::size_t i = 0; i < table.runs.size(); ++i)
      if (table.runs[i].software == software) own.push_back(by_size[i]);
    publication.files["platforms/software/" + software + ".yaml"] =
        software_file(figures, fit, software, table.runs, interval_of_software(own, by_size, month), month);
  }
  return publication;
}

void replace_shipped(const Files& files, const std::string& shipped) {
  for (const auto& [name, text] : left_out_of(shipped))
    if (!files.contains(name)) std::filesystem::remove(std::filesystem::path(shipped) / name);
  write_files(files, shipped);
}

}  // namespace motley::fit
