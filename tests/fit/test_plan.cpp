// The plan that ships, and plans and tables that are refused.
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "models/base/data_files.hpp"
#include "models/base/text_file.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/fit_world.hpp"
#include "tools/fit/plan.hpp"
#include "tools/fit/usual.hpp"

using namespace motley;
using namespace motley::fit;

namespace {

const std::string kShipped = read_text_file(data_folder() + "/platforms/published/fit.yaml");
const std::string kTable = data_folder() + "/tests/validation/published_runs.csv";

std::string kind_of(const std::function<void()>& refused) {
  try {
    refused();
  } catch (const Refusal& refusal) {
    return refusal.kind();
  }
  return "not refused";
}
std::string edited(const std::string& from, const std::string& to) {
  std::string text = kShipped;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}
std::string kind_of_edited(const std::string& from, const std::string& to) {
  return kind_of([&] { read_plan(parse_yaml(edited(from, to), "fit.yaml")); });
}
std::string told_of_edited(const std::string& from, const std::string& to) {
  std::string told = tests::refusal_on_page([&] { read_plan(parse_yaml(edited(from, to), "fit.yaml")); });
  const std::size_t line = told.find(':'), rest = told.find(' ');  // the plan that ships may change
  return told.substr(0, line) + ":" + told.substr(rest);
}

}  // namespace

TEST_CASE("priors are what the plan says, of the chip and of the software where it says so") {
  std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  const auto prior = [&](const FitRun& run, const char* kind) {
    const Eigen::Index at = figures.index(run, kind);
    REQUIRE(at >= 0);
    return std::exp(figures.prior().mean[at]);
  };
  const FitRun &zb = runs[0], &nemo = runs[60], &mpt = runs[160];
  REQUIRE(mpt.set == "mpt");
  CHECK(prior(zb, "layer_launch") == Approx(0.6e-3));
  CHECK(prior(zb, "unfused_attention") == Approx(1));
  CHECK(figures.index(zb, "attention_efficiency") == -1);
  CHECK(figures.index(nemo, "unfused_attention") == -1);
  CHECK(prior(nemo, "gemm_efficiency") == Approx(load_chip("h100-80gb-sxm").software.gemm_efficiency.value));
  CHECK(prior(nemo, "attention_efficiency") ==
        Approx(1.5 * load_chip("h100-80gb-sxm").software.attention_efficiency.value));
  CHECK(prior(mpt, "attention_efficiency") ==
        Approx(0.5 * load_chip("a100-40gb-sxm").software.attention_efficiency.value));
  CHECK(prior(nemo, "collective_share") == Approx(0.5));
  CHECK(prior(zb, "collective_share") == Approx(1));
  // One figure on two chips.
  CHECK(figures.index(runs[60], "network") == figures.index(runs[130], "network"));
}

TEST_CASE(
    "software that drains chips at messages has an overhead of passes, other software one of micro-batches") {
  const std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  int draining = 0;
  for (const FitRun& run : runs) {
    const bool drains = figures.plan().software_named(run.software).drains;
    CHECK((figures.index(run, "pass_overhead") >= 0) == drains);
    CHECK((figures.index(run, "micro_batch_overhead") >= 0) == !drains);
    draining += drains ? 1 : 0;
  }
  CHECK(draining > 0);
}

TEST_CASE("a software's own held figure replaces the plan's, and whole products keep their prior time") {
  const std::vector<FitRun> runs = some_runs();
  const Figures figures(shipped_plan(), runs);
  const Plan& plan = figures.plan();
  int own = 0;
  for (const SoftwarePlan& software : plan.software) {
    const std::vector<HeldFigure> held = plan.held_of(software.name);
    REQUIRE(held.size() >= plan.held.size());
    for (std::size_t i = plan.held.size(); i < held.size(); ++i) CHECK(held[i].kind == "launch_wait");
    for (std::size_t i = 0; i < plan.held.size(); ++i) {
      CHECK(held[i].kind == plan.held[i].kind);
      bool is_own = false;
      for (const HeldFigure& each : software.held) is_own = is_own || each.kind == held[i].kind;
      CHECK((held[i].source != plan.held[i].source) == is_own);
      own += is_own ? 1 : 0;
    }
  }
  CHECK(own > 0);
  // A forward and two backwards of a product, over those at the chip's own efficiency.
  for (const FitRun& run : runs) {
    double backward = 0, plan_backward = 0;
    for (const HeldFigure& held : plan.held_of(run.software))
      if (held.kind == "gemm_backward") backward = held.value;
    for (const HeldFigure& held : plan.held)
      if (held.kind == "gemm_backward") plan_backward = held.value;
    const double prior = std::exp(figures.prior().mean[figures.index(run, "gemm_efficiency")]),
                 chips_own = load_chip(run.chip).software.gemm_efficiency.value;
    CHECK((1 + 2 * backward) / prior == Approx((1 + 2 * plan_backward) / chips_own));
  }
}

TEST_CASE("launch times of software whose launches wait are no part of the usual one") {
  const std::vector<FitRun> runs = some_runs();
  Plan plan = shipped_plan();
  const std::string waiting = runs[0].software, other = runs[60].software;
  REQUIRE(waiting != other);
  for (SoftwarePlan& software : plan.software) {
    std::erase_if(software.held, [](const HeldFigure& held) { return held.kind == "launch_wait"; });
    if (software.name == waiting) software.held.push_back({"launch_wait", 1, "a test"});
  }
  CHECK(plan.launches_wait(waiting));
  CHECK_FALSE(plan.launches_wait(other));
  const Figures figures(plan, runs);
  const auto usual_with = [&](const FitRun& run, const char* kind) {
    Eigen::VectorXd values = figures.prior().mean;
    values[figures.index(run, kind)] += 0.5;
    return usual_text(figures, values, "", "2026-11", 1);
  };
  const std::string usual = usual_text(figures, figures.prior().mean, "", "2026-11", 1);
  CHECK(usual_with(runs[0], "layer_launch") == usual);
  CHECK(usual_with(runs[0], "step_overhead") != usual);
  CHECK(usual_with(runs[60], "layer_launch") != usual);
  CHECK(usual.find("launch_wait") == std::string::npos);
}

TEST_CASE("a plan with what is not known, said twice or of no use is refused") {
  CHECK(kind_of_edited("error: 0.05", "eror: 0.05") == "unknown-key");
  CHECK(kind_of_edited("spread: 0.07", "spred: 0.07") == "unknown-key");
  CHECK(kind_of_edited("spread: 0.07", "spread: 0") == "out-of-bounds");
  CHECK(kind_of_edited("folds: 6", "folds: 1") == "out-of-bounds");
  CHECK(told_of_edited("all: 0.2", "all: 0.4") ==
        tests::expected_refusal("out-of-bounds: a fit that leaves no variance to a figure"));
  CHECK(told_of_edited("sets: [vtm]", "sets: [sc21]") ==
        tests::expected_refusal("listed-twice: a set of two generations of software"));
  CHECK(kind_of_edited("attention: triton", "attention: tritton") == "unknown-value");
  CHECK(kind_of_edited("prior: 0.6 ms", "prior: 0.6 GB") == "unknown-unit");
  CHECK(kind_of_edited("messages: drain", "messages: drian") == "unknown-value");
  CHECK(told_of_edited("held:\n      gemm_backward", "held:\n      gemm_backwards") ==
        tests::expected_refusal("unknown-value: a figure that software holds and the plan does not"));
  CHECK(told_of_edited("prior: 0.02141", "prior: chip") ==
        tests::expected_refusal("unknown-value: a prior that no chip has"));
  CHECK(told_of_edited("prior: 0.02141", "prior: software") ==
        tests::expected_refusal("unknown-value: a prior that no software has"));
  CHECK(kind_of_edited("error: 0.05", "error: 0.05 ") == "not refused");
}

TEST_CASE("software that is not planned is refused with the nearest that is") {
  CHECK(tests::refusal_on_page([] { static_cast<void>(shipped_plan().software_named("nemo-2042")); }) ==
        tests::expected_refusal("unknown-value: software that is not fitted"));
}

TEST_CASE("of the shipped table every set that is planned has runs, without experts, of its software",
          "[slow]") {
  const Plan plan = shipped_plan();
  static const Table table = read_table(kTable, plan);
  std::map<std::string, int> rows;
  std::map<std::string, std::set<std::string>> sets_of_size;
  REQUIRE(table.runs.size() == table.taking_part.size());
  for (std::size_t i = 0; i < table.runs.size(); ++i) {
    const FitRun& run = table.runs[i];
    ++rows[run.set];
    sets_of_size[run.size].insert(run.set);
    CHECK(run.id == table.taking_part[i]->id);
    CHECK(run.software == plan.of_set(run.set)->name);
    CHECK(run.measured_s > 0);
    CHECK(run.set != "vts");  // composed, not measured
  }
  CHECK(rows.size() == plan.sets().size());
  CHECK(table.with_experts.size() > 50);
  // Runs of one size are left out of several sets at once. A set without hidden sizes has sizes of its own.
  std::size_t most = 0;
  for (const auto& [size, sets] : sets_of_size) {
    most = std::max(most, sets.size());
    if (size.starts_with("ievo") || size.starts_with("simu")) CHECK(sets.size() == 1);
  }
  CHECK(most > 2);
}

TEST_CASE("a table of which no run takes part is refused, and a plan of other software than the rules") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("motley-fit-table-" + std::to_string(getpid()) + ".csv"))
          .string();
  std::ofstream(path) << "id,accelerator\nvts-0001,A100\n";
  const Plan plan = shipped_plan();
  std::string told = tests::refusal_on_page([&] { read_table(path, plan); }, path.substr(0, path.rfind('/')));
  const std::string sets = fmt::format("{}", fmt::join(plan.sets(), ", "));
  told.replace(told.find(sets), sets.size(), "sc21").replace(0, told.find(':'), "runs.csv");
  CHECK(told == tests::expected_refusal("bad-csv: a table of runs of which none takes part in the fit"));
  std::filesystem::remove(path);
  std::string text = kShipped;
  text.replace(text.find("sets: [vtm]"), 11, "sets: [fms]");
  CHECK(tests::refusal_on_page([&] { read_table(kTable, read_plan(parse_yaml(text, "fit.yaml"))); }) ==
        tests::expected_refusal("unknown-value: a set that the rules say is of other software"));
}
