// Plans beside published layouts: what counts as no slower, and what a summary leaves out.
#include <catch2/catch.hpp>

#include "models/published/planned_jobs.hpp"

using namespace motley;

namespace {

PlannedJob job(const std::string& run, double published_s, double planned_s) {
  return {.set = "a",
          .model = "GPT",
          .run = run,
          .chips = 8,
          .layouts = 2,
          .published_s = published_s,
          .planned_s = planned_s,
          .bound_s = 1,
          .degrees = "tp 1 x pp 1 x dp 8"};
}

}  // namespace

TEST_CASE(
    "plans are counted by whether they are slower than what was published, those that are missing apart") {
  PlannedJob none = job("a-4", 10, 0);
  none.refused = "nothing fits";
  const PlannedSummary summary = summarise({job("a-1", 10, 9), job("a-2", 10, 10), job("a-3", 10, 12), none});
  CHECK(summary.jobs == 4);
  CHECK(summary.no_slower == 2);
  CHECK(summary.without_plan == 1);
  CHECK(summary.mean_ratio == Approx((0.9 + 1 + 1.2) / 3));
  CHECK(summary.worst_ratio == Approx(1.2));
}

TEST_CASE("published layouts that do not fit their chips are counted apart") {
  PlannedJob slower = job("a-2", 10, 12), faster = job("a-3", 10, 9);
  slower.short_bytes = faster.short_bytes = 1e9;
  const std::vector<PlannedJob> jobs = {job("a-1", 10, 9), slower, faster};
  const PlannedSummary summary = summarise(jobs);
  CHECK(summary.jobs == 3);
  CHECK(summary.no_slower == 1);
  CHECK(summary.not_fitting == 2);
  CHECK(summary.no_slower_not_fitting == 1);
  CHECK(summary.mean_ratio == Approx(0.9));
  CHECK(summary.worst_ratio == Approx(0.9));
  CHECK(to_text(jobs, false).find("a-2") != std::string::npos);
}

TEST_CASE("the text has the jobs whose plan is slower, and all where they are asked for") {
  const std::vector<PlannedJob> jobs = {job("a-1", 10, 9), job("a-3", 10, 12)};
  CHECK(to_text(jobs, false).find("a-1") == std::string::npos);
  CHECK(to_text(jobs, false).find("a-3") != std::string::npos);
  CHECK(to_text(jobs, true).find("a-1") != std::string::npos);
  CHECK(to_text(std::vector<PlannedJob>{}, true).find("jobs: 0;") != std::string::npos);
}

TEST_CASE(
    "searches that ended once their plan was no slower are counted, as their ratios are no least ones") {
  std::vector<PlannedJob> jobs = {job("a-1", 10, 9), job("a-2", 10, 10), job("a-3", 10, 8)};
  CHECK(to_text(jobs, false).find("ended once") == std::string::npos);
  jobs[0].ended_early = jobs[1].ended_early = true;
  CHECK(to_text(jobs, false).find("2 searches ended once") != std::string::npos);
  CHECK(to_json(jobs).find(R"("ended_early": true)") != std::string::npos);
}
