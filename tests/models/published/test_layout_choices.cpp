// Which of the measured layouts of a job a prediction would choose, and what that choice loses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "models/published/layout_choices.hpp"

using namespace motley;

namespace {

struct LayoutRun {
  std::string id;
  int chips = 8, tensor_parallel = 1;
  double measured_s = 1, predicted_s = 1;
  std::string passed_over = {};
  bool fits = true;
  int hidden = 1024;
};

std::vector<LayoutChoice> choices(const std::vector<LayoutRun>& layouts) {
  std::string table = "id,model_name,accelerator,n_accelerators,seq_len,global_batch,precision,tp,hidden\n";
  std::vector<RunOutcome> outcomes;
  for (const LayoutRun& each : layouts) {
    table += each.id + ",GPT,A100," + std::to_string(each.chips) + ",2048,64,bf16," +
             std::to_string(each.tensor_parallel) + "," + std::to_string(each.hidden) + "\n";
    RunOutcome& outcome = outcomes.emplace_back();
    outcome.id = each.id;
    outcome.set = each.id.substr(0, each.id.find('-'));
    outcome.measured_s = each.measured_s;
    outcome.predicted.seconds = each.predicted_s;
    outcome.passed_over = each.passed_over;
    outcome.fits = each.fits;
  }
  std::vector<PublishedRun> runs;
  for (CsvRow& row : parse_csv_table(table, "layouts.csv")) {
    const std::string id = row["id"];
    runs.push_back({id, id.substr(0, id.find('-')), std::move(row)});
  }
  return layout_choices(runs, outcomes);
}

}  // namespace

TEST_CASE("a job's choice is the layout predicted fastest, and its regret what that was measured to lose") {
  const auto listed =
      choices({{"a-1", 8, 1, 10, 9}, {"a-2", 8, 2, 8, 9.5}, {"a-3", 8, 4, 12, 13}, {"a-4", 8, 8, 20, 19}});
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].chosen().ids == std::vector<std::string>{"a-1"});
  CHECK(listed[0].fastest == 1);
  CHECK(listed[0].regret_pct() == Approx(25));
  CHECK(listed[0].chance_regret_pct() == Approx((25 + 0 + 50 + 150) / 4.0));
  const ChoiceSummary summary = summarise(listed);
  CHECK(summary.jobs == 1);
  CHECK(summary.mean_regret_pct == Approx(25));
  CHECK(summary.fastest_first_pct == 0);
  CHECK(summary.fastest_in_three_pct == 100);
  CHECK(summary.chance_in_three_pct == Approx(75));
}

TEST_CASE("repeats of a layout are one layout, and other jobs, sets and runs passed over do not count") {
  // The second run of a-1's layout makes it slower in the mean than a-2's.
  std::vector<LayoutRun> layouts = {{"a-1", 8, 1, 8, 8},
                                    {"a-5", 8, 1, 12, 8},
                                    {"a-2", 8, 2, 9, 9},
                                    {"a-3", 8, 4, 12, 13},
                                    {"a-6", 16, 8, 1, 1},
                                    {"b-1", 8, 8, 1, 1},
                                    {"a-7", 8, 8, 1, 1, "`seq_len` is not printed"}};
  CHECK(choices(layouts).empty());  // three layouts
  layouts.push_back({"a-4", 8, 8, 20, 19});
  const auto listed = choices(layouts);
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].layouts.size() == 4);
  CHECK(listed[0].chosen().ids == std::vector<std::string>{"a-1", "a-5"});
  CHECK(listed[0].chosen().measured_s == Approx(10));
  CHECK(listed[0].regret_pct() == Approx(100.0 * (10.0 / 9 - 1)));
}

TEST_CASE("right predictions regret nothing, and a factor on all of them changes no choice") {
  std::mt19937 draw(7);
  std::uniform_real_distribution<double> seconds(1, 5);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<LayoutRun> layouts;
    for (int i = 0; i < 6; ++i) {
      const double measured_s = seconds(draw);
      layouts.push_back({"a-" + std::to_string(i), 8, i, measured_s, measured_s});
    }
    CHECK(choices(layouts)[0].regret_pct() == 0);
    for (LayoutRun& each : layouts) each.predicted_s = seconds(draw);
    const double regret_pct = choices(layouts)[0].regret_pct();
    CHECK(regret_pct >= 0);
    for (LayoutRun& each : layouts) each.predicted_s *= 1.7;
    CHECK(choices(layouts)[0].regret_pct() == regret_pct);
    std::shuffle(layouts.begin(), layouts.end(), draw);
    CHECK(choices(layouts)[0].regret_pct() == regret_pct);
  }
}

TEST_CASE(
    "layouts predicted not to fit are chosen last, and models of one name and unlike shapes are unlike "
    "jobs") {
  std::vector<LayoutRun> layouts = {
      {"a-1", 8, 1, 10, 9, {}, false}, {"a-2", 8, 2, 8, 9.5}, {"a-3", 8, 4, 12, 13}, {"a-4", 8, 8, 20, 19}};
  const auto listed = choices(layouts);
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].chosen().ids == std::vector<std::string>{"a-2"});
  CHECK(listed[0].layouts.back().ids == std::vector<std::string>{"a-1"});
  CHECK(summarise(listed).infeasible == 1);
  layouts[3].hidden = 2048;
  CHECK(choices(layouts).empty());
}
