// Claims beside predictions: the claims that ship can be read and compiled, knobs are turned until a run gives its
// stated value, and no prediction outside its interval is said to be inside.
#include <catch2/catch.hpp>

#include "models/base/data_files.hpp"
#include "models/compile/compile.hpp"
#include "models/published/published_claim.hpp"
#include "models/report/published_metrics.hpp"
#include "models/scenario/scenario.hpp"
#include "tests/refusals/pages.hpp"

using namespace motley;

namespace {

std::string folder() { return data_folder() + "/tests/validation"; }

// Made-up seconds of a step: computing at the chips' peak, and a fixed number of bytes over NICs of Ethernet and RoCE.
double made_up_s(const Job& job) {
  const NodeGroup& group = job.cluster.groups[0];
  const double compute_s = static_cast<double>(job.train.global_batch) *
                           megatron_flops_per_sequence(job.transformer, job.train.sequence) /
                           static_cast<double>(job.cluster.chip_count()) /
                           (400e12 * group.chip.software.gemm_efficiency.value);
  const Nic& nic = group.nics[0];
  const double reached = nic.reaches > 0 ? nic.reaches : nic.bandwidth;
  return compute_s + (nic.kind == NicKind::infiniband ? 0 : 12e9 / (reached * nic.count));
}

}  // namespace

TEST_CASE("every run of the claims that ship compiles, and rows name runs") {
  const auto claims = read_claims(folder() + "/claims.yaml");
  REQUIRE(claims.size() >= 3);
  for (const Claim& claim : claims) {
    for (const ClaimRun& run : claim.runs) {
      CAPTURE(claim.name, run.name);
      const Job job = load_scenario(folder() + "/" + run.scenario).job;
      CHECK(compile(job).rank_count() == job.cluster.chip_count());
    }
    const ClaimOutcomes outcomes = predict(claim, folder(), made_up_s);
    CHECK(outcomes.rows.size() == claim.rows.size());
    CHECK(outcomes.knobs.size() == claim.knobs.size());
  }
}

TEST_CASE("a knob is turned until its run gives what is stated, and the others are predicted") {
  const auto claims = read_claims(folder() + "/claims.yaml");
  const auto claim =
      std::find_if(claims.begin(), claims.end(), [](const Claim& each) { return each.name == "O-4"; });
  REQUIRE(claim != claims.end());
  const ClaimOutcomes outcomes = predict(*claim, folder(), made_up_s);
  int turned = 0, predicted = 0;
  for (const ClaimOutcome& each : outcomes.rows) {
    CAPTURE(each.row->run);
    if (each.turned) {
      CHECK(each.predicted == Approx(each.row->stated).epsilon(2e-3));
      ++turned;
    } else if (each.row->run == "ib-8") {
      CHECK(each.predicted == Approx(197).epsilon(2e-3));  // it only computes, on chips of the same speed
      CHECK(each.error_pct() == Approx(100 * (197.0 / each.row->stated - 1)).margin(0.3));
      ++predicted;
    }
  }
  CHECK(turned == 3);
  CHECK(predicted == 1);
}

TEST_CASE("a ratio is within its tolerance or not, an order holds or not") {
  Claim claim{"C", "", "", "", {{"ib", "claims/holmes-ib-4.yaml"}, {"eth", "claims/holmes-ethernet-4.yaml"}},
              {},  {}};
  ClaimRow ratio, order;
  const std::string slow = "eth", fast = "ib";
  ratio.run = slow;
  ratio.over = fast;
  order.order = {slow, fast};
  order.stated = 1;
  claim.rows = {ratio, order, order};
  std::reverse(claim.rows[2].order.begin(), claim.rows[2].order.end());
  const double predicted = predict(claim, folder(), made_up_s).rows[0].predicted;
  CHECK(predicted < 1);
  claim.rows[0].stated = predicted + 0.02;
  claim.rows[0].tolerance = 0.03;
  const ClaimOutcomes outcomes = predict(claim, folder(), made_up_s);
  CHECK(outcomes.rows[0].within());
  CHECK(outcomes.rows[1].within());
  CHECK(!outcomes.rows[2].within());
  claim.rows[0].tolerance = 0.01;
  CHECK(!predict(claim, folder(), made_up_s).rows[0].within());
}

TEST_CASE(
    "a claim of a run that it does not have is refused, and a knob of a run of which it states nothing") {
  Claim claim{"C", "", "", "", {{"ib", "claims/holmes-ib-4.yaml"}}, {}, {}};
  const auto refused = [&] { return tests::refusal_on_page([&] { predict(claim, folder(), made_up_s); }); };
  claim.rows.emplace_back();
  claim.rows[0].run = "roce";
  CHECK(refused() == tests::expected_refusal("unknown-value: a claim of a run that it does not have"));
  claim.knobs.emplace_back();
  claim.knobs[0].run = "ib";
  CHECK(refused() == tests::expected_refusal("unknown-value: a knob of a run of which nothing is claimed"));
}
