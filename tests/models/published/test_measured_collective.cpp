// Collectives that others timed: rows become Programs that check() accepts, and errors are computed as stated.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "models/base/data_files.hpp"
#include "models/base/refusal.hpp"
#include "models/published/collective_errors.hpp"
#include "models/scenario/scenario.hpp"

using namespace motley;

namespace {

const char* const kHeader =
    "id,collective,cluster,nodes,chips,bytes,seconds,bus_rate,algorithm,form,calls,source,library,measured_"
    "by,date\n";

// A file that only this process uses, because other tests run at the same time. The destructor removes it.
struct OwnFile {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("motley-collectives-" + std::to_string(getpid()) + ".csv");
  ~OwnFile() { std::filesystem::remove(path); }
};

std::vector<MeasuredCollective> read_rows(const std::string& rows) {
  const OwnFile file;
  std::ofstream(file.path) << kHeader << rows;
  return read_measured_collectives(file.path.string());
}

CollectiveOutcome outcome_of(const std::string& source, std::int64_t bytes, double measured_s,
                             double predicted_s) {
  CollectiveOutcome outcome;
  outcome.row.source = source;
  outcome.row.id = source + std::to_string(bytes);
  outcome.row.kind = CollectiveKind::all_reduce;
  outcome.row.chips = 8;
  outcome.row.bytes = bytes;
  outcome.row.seconds = measured_s;
  outcome.predicted_s = predicted_s;
  return outcome;
}

}  // namespace

TEST_CASE("a bus rate and the seconds of a collective are one by nccl-tests' count") {
  const auto rows = read_rows(
      "a,all_reduce,dgx-a100,1,8,1000000,,175,ring,,launched,x,l,m,2025\n"
      "b,all_gather,dgx-a100,1,8,1000000,1e-5,,,,queued,x,l,m,2025\n"
      "c,point_to_point,dgx-a100-4,2,4,1000000,1e-5,,,,queued,x,l,m,2025\n");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].seconds == Approx(1.75 * 1e6 / 175e9));
  CHECK(bus_rate(rows[1], rows[1].seconds) == Approx(87.5));
  CHECK(bus_rate(rows[2], rows[2].seconds) == Approx(200));  // two pairs exchange at once
  CHECK(launch_s(rows[0]) > launch_s(rows[1]));
}

TEST_CASE("a row of measured collectives says what can be, or is refused") {
  const auto [row, column] = GENERATE(table<std::string, std::string>(
      {{"a,all_reduce,dgx-a100,1,8,1000,,,,,launched,x,l,m,2025\n", "seconds"},  // neither a time nor a rate
       {"a,all_reduce,dgx-a100,1,8,1000,1,2,,,launched,x,l,m,2025\n", "seconds"},  // a time and a rate
       {"a,all_reduce,dgx-a100,3,8,1000,1,,,,launched,x,l,m,2025\n", "chips"},     // 8 chips on 3 nodes
       {"a,all_reduced,dgx-a100,1,8,1000,1,,,,launched,x,l,m,2025\n", "collective"},
       {"a,all_reduce,dgx-a100,1,8,1000.5,1,,,,launched,x,l,m,2025\n", "bytes"},
       {"a,all_reduce,dgx-a100,1,8,1000,1,,rings,,launched,x,l,m,2025\n", "algorithm"},
       {"a,all_reduce,dgx-a100,1,8,1000,1,,,,soon,x,l,m,2025\n", "calls"},
       {",all_reduce,dgx-a100,1,8,1000,1,,,,queued,x,l,m,2025\n", "id"}}));
  CAPTURE(row);
  CHECK_THROWS_WITH(read_rows(row),
                    Catch::Contains("`" + column + "`") || Catch::Contains("cannot be a " + column));
}

TEST_CASE("a collective on more chips of a node than it has is refused") {
  const auto rows = read_rows("a,all_reduce,dgx-a100,1,16,1000,1,,,,queued,x,l,m,2025\n");
  CHECK_THROWS_AS(make_run(rows[0]), Refusal);  // a node has eight
}

TEST_CASE("every collective that ships becomes a run on so many chips, and every form is known") {
  const auto rows = read_measured_collectives(data_folder() + "/tests/validation/collectives.csv");
  REQUIRE(rows.size() > 200);
  std::vector<CollectiveOutcome> outcomes;
  for (const MeasuredCollective& row : rows) {
    CAPTURE(row.id);
    const CollectiveRun run = make_run(row);
    CHECK(run.program.rank_count() == row.chips);
    std::set<int> chips, nodes;
    for (const RankEntry& entry : run.program.ranks) {
      chips.insert(entry.chip);
      nodes.insert(run.job.cluster.chip_node[static_cast<std::size_t>(entry.chip)]);
    }
    CHECK(chips.size() == static_cast<std::size_t>(row.chips));
    CHECK(nodes.size() == static_cast<std::size_t>(row.nodes));
    outcomes.push_back({row, row.seconds, "-"});
  }
  std::size_t summed_up = 0;
  for (const CollectiveErrors& errors : errors_by_form(outcomes)) summed_up += errors.errors.count();
  const auto with_form = std::count_if(rows.begin(), rows.end(),
                                       [](const MeasuredCollective& row) { return !row.form.empty(); });
  CHECK(with_form > 30);
  CHECK(summed_up == static_cast<std::size_t>(with_form));
}

TEST_CASE("errors of collectives are by source and size, and all sources count alike") {
  const std::vector<CollectiveOutcome> outcomes = {
      outcome_of("one", 1 << 20, 1.0, 1.1), outcome_of("one", 1 << 10, 1.0, 0.7),
      outcome_of("one", 2 << 20, 1.0, 2.0), outcome_of("two", 1 << 20, 1.0, 1.6)};
  const auto errors = errors_by_size(outcomes);
  REQUIRE(errors.size() == 5);
  CHECK(errors[0].errors.mean() == Approx(20));
  CHECK(errors[0].errors.worst() == Approx(-30));
  CHECK(errors[0].within());
  CHECK(errors[1].errors.worst() == Approx(100));
  CHECK(!errors[1].within());
  CHECK(!errors[2].within());
  CHECK(errors[3].what == errors[0].what);
  CHECK(errors[3].errors.mean() == Approx(40));  // the mean of 20 and 60
}
