#include "tools/fit/publish.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "models/base/text_file.hpp"
#include "tools/fit/usual.hpp"

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

// Every software predicted as if it were unnamed: by the usual software, made of all others.
class Unnamed {
 public:
  using Predict = std::function<std::vector<Ratio>(const TrialFigures&)>;
  Unnamed(const Figures& figures, const Fit& fit, const Table& table, const std::string& month,
          const Predict& predict)
      : figures_(figures), month_(month) {
    for (const std::string& software : figures.software())
      values_[software] = fit.leave_out_software(software).values;
    const auto runs_at = [&](double scale) {
      const std::vector<Ratio> ratios = predict(trial([=](const std::string&) { return scale; }));
      std::vector<UsualRun> runs;
      for (std::size_t i = 0; i < ratios.size(); ++i)
        runs.push_back({table.runs.at(i).software, ratios[i].set, -std::log(ratios[i].value)});
      return runs;
    };
    at_one_ = runs_at(1);
    at_other_ = runs_at(kOther);
    ratios_ = predict(trial([&](const std::string& software) { return scale_without(software); }));
  }
  const std::vector<Ratio>& ratios() const { return ratios_; }
  // The scale of all software, if `left_out` is empty.
  double scale_without(const std::string& left_out) const {
    return scale_without_bias(at_one_, at_other_, kOther, left_out);
  }

 private:
  static constexpr double kOther = 0.9;
  const Figures& figures_;
  std::string month_;
  std::map<std::string, Eigen::VectorXd> values_;  // fitted without that software
  std::vector<UsualRun> at_one_, at_other_;
  std::vector<Ratio> ratios_;

  TrialFigures trial(const std::function<double(const std::string& software)>& scale) const {
    TrialFigures trial;
    for (const auto& [software, values] : values_)
      trial.software[software] = parse_yaml(usual_text(figures_, values, software, month_, scale(software)),
                                            "the usual software without " + software);
    return trial;
  }
};

std::string usual_file(const Figures& figures, const Fit& fit, const std::string& month, double gemm_scale) {
  return "# usual: what is predicted for a scenario that names no software. Written by tools/fit-published.\n"
         "# Shares (gemm_efficiency, attention_efficiency) are factors on the chip's own.\n" +
         usual_text(figures, fit.values(), "", month, gemm_scale);
}

void add_interval(Publication& publication, std::string& text, const std::string& key,
                  const std::vector<Ratio>& ratios, const std::string& told, const Bounds& at_least = {}) {
  if (ratios.empty()) return;
  text = with_interval(text, key, ratios, told, at_least);
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
  const auto predict_with = [&](const TrialFigures& trial) {
    PublishedRules others;
    others.use(trial);
    return ratios_of(predict(others, table.taking_part, false));
  };
  const Unnamed unnamed(figures, fit, table, month, predict_with);
  const std::vector<Ratio> own = predict_with(no_figures(figures.plan()));
  publication.unnamed = table_of(unnamed.ratios());
  // Who does not name the software knows less than who names one without runs.
  add_interval(publication, unseen, "interval", unnamed.ratios(),
               fmt::format("{} sets, predicted by the usual software made of all other, {}",
                           sets_in(unnamed.ratios()), month),
               by_set.empty() ? Bounds{} : interval_of(by_set).bounds);
  add_interval(publication, unseen, "own", own,
               fmt::format("{} sets, predicted by their chips' own figures, {}", sets_in(own), month));
  add_interval(publication, unseen, "experts", ratios_of(predict(rules, table.with_experts, false)),
               fmt::format("models with experts, of which none took part, {}", month));
  publication.files[kUnseen] = unseen;
  publication.files["platforms/software/usual.yaml"] =
      usual_file(figures, fit, month, unnamed.scale_without(""));

  for (const std::string& software : fit.moving()) {
    std::vector<Ratio> its_own;
    for (std::size_t i = 0; i < table.runs.size(); ++i)
      if (table.runs[i].software == software) its_own.push_back(by_size[i]);
    publication.files["platforms/software/" + software + ".yaml"] = software_file(
        figures, fit, software, table.runs, interval_of_software(its_own, by_size, month), month);
  }
  return publication;
}

void replace_shipped(const Files& files, const std::string& shipped) {
  for (const auto& [name, text] : left_out_of(shipped))
    if (!files.contains(name)) std::filesystem::remove(std::filesystem::path(shipped) / name);
  write_files(files, shipped);
}

}  // namespace motley::fit
