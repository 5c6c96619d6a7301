// The files that a fit writes: they say what was fitted, and only files of the fitted software change.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "models/base/data_files.hpp"
#include "models/base/text_file.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/software.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/fit_world.hpp"
#include "tools/fit/publish.hpp"

using namespace motley;
using namespace motley::fit;
namespace fs = std::filesystem;

namespace {

// A copy of the files of fits that ship; the destructor removes it.
class Shipped {
 public:
  Shipped() : folder_(fs::temp_directory_path() / ("motley-fit-shipped-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "platforms");
    for (const char* part : {"platforms/published", "platforms/software"})
      fs::copy(fs::path(data_folder()) / part, folder_ / part, fs::copy_options::recursive);
  }
  Shipped(const Shipped&) = delete;
  Shipped& operator=(const Shipped&) = delete;
  ~Shipped() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }
  std::map<std::string, std::string> texts() const {
    std::map<std::string, std::string> text_by_path;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.is_regular_file())
        text_by_path[fs::relative(entry.path(), folder_).string()] = read_text_file(entry.path().string());
    return text_by_path;
  }

 private:
  fs::path folder_;
};

// Predictions for tests: every run takes a second, and its place in the list decides how wrong its prediction is.
std::vector<RunOutcome> off_by_some(const PublishedRules&, const std::vector<const PublishedRun*>& runs,
                                    bool) {
  std::vector<RunOutcome> outcomes;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RunOutcome& each = outcomes.emplace_back();
    each.id = runs[i]->id;
    each.set = runs[i]->set;
    each.measured_s = 1;
    each.predicted.seconds = 1 + 0.01 * static_cast<double>(i % 11);
    each.unseen = Prediction{1 + 0.02 * static_cast<double>(i % 11), 0, 0};
  }
  return outcomes;
}

const Table& table() {
  static const Table shipped_table =
      read_table(data_folder() + "/tests/validation/published_runs.csv", shipped_plan());
  return shipped_table;
}

struct Fitted {
  Figures figures{shipped_plan(), table().runs};
  std::vector<FitRun> runs;
  std::unique_ptr<Fit> fit;
  explicit Fitted(const std::string& only = {}) {
    std::set<std::string> moving;
    for (const std::string& each : figures.software())
      if (only.empty() || only == each) moving.insert(each);
    for (const FitRun& run : table().runs)
      if (moving.contains(run.software)) runs.push_back(run);
    PowerWorld world(figures, runs, figures.prior().mean + 0.2 * random_vector(figures.count(), 1, 6));
    fit = std::make_unique<Fit>(figures, runs, moving);
    fit->run(world, figures.values_in(data_folder() + "/platforms/software"), 1);
  }
};

// The lines of a software's file that say on what it was measured.
std::vector<std::string> places_in(const std::string& text) {
  std::vector<std::string> places;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  - {chip: ")) {
      std::erase(line, '"');
      places.push_back(line);
    }
  return places;
}

}  // namespace

TEST_CASE("what is written reads back as the figures that were fitted, to four digits", "[slow]") {
  const Fitted fitted;
  const Shipped shipped;
  const Publication publication =
      publish(fitted.figures, *fitted.fit, table(), off_by_some, shipped.path(), "2031-05");
  replace_shipped(publication.files, shipped.path());
  const Eigen::VectorXd read = fitted.figures.values_in(shipped.path() + "/platforms/software");
  CHECK((read - fitted.fit->values()).cwiseAbs().maxCoeff() < 6e-4);
  CHECK((read - fitted.figures.prior().mean).cwiseAbs().maxCoeff() > 0.05);
  // A trial has the same figures as the file, and the reader of such files accepts it.
  const TrialFigures trial = fitted.figures.trial(fitted.fit->values());
  for (const std::string& software : fitted.figures.software()) {
    INFO(software);
    Cluster by_file = load_cluster("dgx-a100"), by_trial = by_file;
    const Interval interval =
        use_figures(read_yaml(shipped.path() + "/platforms/software/" + software + ".yaml"), by_file);
    use_figures(trial.software.at(software), by_trial);
    CHECK(interval.low <= 1);
    for (const auto member :
         {&ChipSoftware::gemm_efficiency, &ChipSoftware::layer_launch, &ChipSoftware::collective_share})
      CHECK((by_file.groups[0].chip.software.*member).value ==
            (by_trial.groups[0].chip.software.*member).value);
  }
  int left_out = 0;
  for (const auto& [name, text] : publication.files) {
    if (name.find("left_out") == std::string::npos) continue;
    CHECK_NOTHROW(parse_yaml(text, name));
    ++left_out;
  }
  CHECK(left_out > 2);
}

TEST_CASE(
    "the same fit gives the same bytes, and no file of an earlier one stays among those that left runs out",
    "[slow]") {
  const Fitted fitted;
  const Shipped shipped;
  std::ofstream(shipped.path() + "/platforms/published/left_out/sizes-99.yaml") << "runs: []\nsoftware: {}\n";
  const Publication publication =
      publish(fitted.figures, *fitted.fit, table(), off_by_some, shipped.path(), "2031-05");
  CHECK(publication.files ==
        publish(fitted.figures, *fitted.fit, table(), off_by_some, shipped.path(), "2031-05").files);
  replace_shipped(publication.files, shipped.path());
  const auto texts = shipped.texts();
  CHECK_FALSE(texts.contains("platforms/published/left_out/sizes-99.yaml"));
  for (const auto& [name, text] : publication.files) CHECK(texts.at(name) == text);
  CHECK(texts.contains("platforms/published/fit.yaml"));
  CHECK(texts.contains("platforms/software/sailor-2025.yaml"));  // not fitted here
}

TEST_CASE("figures say whether runs moved them, and unseen.yaml keeps what it says besides", "[slow]") {
  const Fitted fitted;
  const Shipped shipped;
  const Publication publication =
      publish(fitted.figures, *fitted.fit, table(), off_by_some, shipped.path(), "2031-05");
  const std::string& nemo = publication.files.at("platforms/software/nemo-2024.yaml");
  CHECK(nemo.starts_with(
      "# nemo-2024: what this software makes of chips and networks. Written by tools/fit-published.\n"
      "interval: {low: "));
  CHECK_THAT(nemo, Catch::Contains("source: \"fitted: dgxc, nemo of published runs, 2031-05; +-"));
  CHECK_THAT(nemo, Catch::Contains("\n    gemm_backward: {value: 1.23, source: \"step-time studies"));
  const std::string& unseen = publication.files.at("platforms/published/unseen.yaml");
  const std::string before = read_text_file(shipped.path() + "/platforms/published/unseen.yaml");
  CHECK(unseen.substr(0, unseen.find("left_out:")) == before.substr(0, before.find("left_out:")));
  CHECK_THAT(unseen,
             Catch::Contains(std::to_string(table().runs.size()) + " runs of 12 sets, each predicted without "
                                                                   "its own, 2031-05; made of the other"));
  CHECK(publication.intervals.size() == 4);
  CHECK(publication.intervals[1].starts_with("interval: {low: "));
  CHECK(publication.intervals[2].starts_with("own: {low: "));
  const std::string& usual = publication.files.at("platforms/software/usual.yaml");
  const ChipSoftware neutral = neutral_figures(parse_yaml(usual, "usual.yaml"));
  CHECK(neutral.gemm_efficiency.value > 0);
  CHECK(neutral.gemm_efficiency.value <= 1);
  CHECK(neutral.unfused_attention.value == 0);
  CHECK(nemo.find("\nmeasured:\n  - {chip: \"gb200\", ") != std::string::npos);
  CHECK(std::count(unseen.begin(), unseen.end(), '\n') == std::count(before.begin(), before.end(), '\n'));
}

TEST_CASE("a file of software names each place of its runs once, as the files that ship do", "[slow]") {
  const Fitted fitted;
  const Shipped shipped;
  const Publication publication =
      publish(fitted.figures, *fitted.fit, table(), off_by_some, shipped.path(), "2031-05");
  std::size_t several = 0;
  for (const std::string& software : fitted.figures.software()) {
    INFO(software);
    const std::string file = "platforms/software/" + software + ".yaml";
    const std::vector<std::string> places = places_in(publication.files.at(file));
    CHECK(places == places_in(read_text_file(shipped.path() + "/" + file)));
    CHECK(std::set(places.begin(), places.end()).size() == places.size());
    several += places.size() > 1;
  }
  CHECK(several > 2);
}

TEST_CASE("software that is fitted alone leaves the files of all other as they are", "[slow]") {
  const Fitted fitted("megatron-2023");
  const Shipped shipped;
  const auto before = shipped.texts();
  const Publication publication =
      publish(fitted.figures, *fitted.fit, table(), off_by_some, shipped.path(), "2031-05");
  replace_shipped(publication.files, shipped.path());
  std::set<std::string> changed;
  for (const auto& [name, text] : shipped.texts())
    if (!before.contains(name) || before.at(name) != text) changed.insert(name);
  CHECK(changed.erase("platforms/published/unseen.yaml") == 1);
  CHECK(changed.erase("platforms/published/left_out/set-zb.yaml") == 1);
  CHECK(changed.erase("platforms/software/megatron-2023.yaml") == 1);
  CHECK(changed.erase("platforms/software/usual.yaml") == 1);
  CHECK_FALSE(changed.empty());
  for (const std::string& name : changed) CHECK_THAT(name, Catch::Contains("only-megatron-2023-sizes-"));
  for (const auto& [name, text] : before) CHECK(shipped.texts().contains(name));
}

TEST_CASE("a run that one generation's own fit left out is predicted by that, not by an older fit of all",
          "[slow]") {
  const Fitted fitted("megatron-2023");
  const Shipped shipped;
  const PublishedRun* zb = nullptr;
  for (const PublishedRun* const each : table().taking_part)
    if (each->set == "zb") zb = each;
  REQUIRE(zb != nullptr);
  std::set<double> seen;
  const PredictRuns look = [&](const PublishedRules& rules, const std::vector<const PublishedRun*>& runs,
                               bool unseen) {
    const auto read = rules.read(*zb, table().rows);
    if (const Measured* const measured = std::get_if<Measured>(&read); measured != nullptr && unseen)
      seen.insert(measured->scenario.job.cluster.groups[0].chip.software.elementwise_passes.value);
    return off_by_some(rules, runs, unseen);
  };
  const Publication publication =
      publish(fitted.figures, *fitted.fit, table(), look, shipped.path(), "2031-05");
  REQUIRE(seen.size() == 1);
  bool is_left_out = false;
  for (const auto& [name, text] : publication.files)
    if (name.find("only-megatron-2023") != std::string::npos && text.find(zb->id) != std::string::npos) {
      const Yaml chips =
          parse_yaml(text, name)->find("software")->value->find("megatron-2023")->value->find("on")->value;
      const Yaml value =
          chips->find("a100-80gb-sxm")->value->find("elementwise_passes")->value->find("value")->value;
      CHECK(*seen.begin() == Approx(std::stod(value->text)));
      is_left_out = true;
    }
  CHECK(is_left_out);
}

TEST_CASE("results that cannot be kept anywhere are refused") {
  CHECK(tests::refusal_on_page([] { new_folder_in("/nowhere"); }) ==
        tests::expected_refusal("unwritable-file: no folder for the results of a fit"));
  CHECK(tests::refusal_on_page([] {
          write_files({{"fit.yaml", ""}}, "/dev/null/nowhere");
        }) == tests::expected_refusal("unwritable-file: results of a fit in no folder"));
}
