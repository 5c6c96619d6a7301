// What a step and a whole run cost: rent, energy, electricity and carbon by closed forms; what is unknown stays
// unknown.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "models/report/spending_text.hpp"
#include "models/transformer/train_text.hpp"
#include "tests/support/timed_trace.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;
using nlohmann::json;

namespace {

// Four ranks in two groups, each of one node with two chips, as a pipeline: 16 sequences of 16 tokens in a step.
Job two_sites() {
  Job job = tiny_job({1, 4, 1});
  NodeGroup east = job.cluster.groups[0];
  east.name = "east";
  east.chips_per_node = 2;
  east.chip.price_per_hour = {36, "assumed"};  // one cent per second
  east.chip.watts = {1000, "assumed"};
  east.nics.push_back({NicKind::ethernet, 1, 1e9, 1e-5});
  NodeGroup west = east;
  west.name = "west";
  west.chip.name = "other";
  west.chip.price_per_hour = {72, "assumed"};
  west.chip.watts = {500, "assumed"};
  job.cluster.groups = {east, west};
  job.cluster.links = {{"east", "west", NicKind::ethernet}};
  build_topology(job.cluster);
  return job;
}

// How a step of ten seconds passes on every rank.
const ChipTime kTime = {.computing_s = 6, .communicating_s = 1, .waiting_s = 3};
constexpr double kMean = (6 * kComputingPower + kCommunicatingPower + 3 * kWaitingPower) / 10;
constexpr double kKwh = 1.0 / 3.6e6;  // kWh in a joule

Spending spend(const Job& job) { return find_spending(job, compile(job), {4, kTime}, 10); }

std::string text_of(const Spending& spending) {
  Table figures("ll", {"", ""});
  add_spending(spending, figures);
  return figures.print() + print_run(spending);
}

Yaml scalar(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.text = text;
  return std::make_shared<const YamlNode>(std::move(node));
}

}  // namespace

TEST_CASE("rent is chips times hours times list price; energy is bounded by the design power") {
  const Spending spending = spend(two_sites());
  CHECK(spending.step.usd.value() == Approx(2 * 0.1 + 2 * 0.2));
  CHECK(spending.billion_tokens.usd.value() == Approx(0.6 / 256 * 1e9));
  CHECK(spending.step.kwh_at_most.value() == Approx(3000 * 10 * kKwh));
  CHECK(spending.step.kwh.value() == Approx(3000 * 10 * kMean * kKwh));
  CHECK(spending.billion_tokens.kwh.value() == Approx(3000 * 10 * kMean * kKwh / 256 * 1e9));
  CHECK_FALSE(spending.beyond_chips);
  CHECK_FALSE(spending.run.has_value());
}

TEST_CASE("a chip draws least while it waits, and never more than its design power") {
  CHECK(0 < kWaitingPower);
  CHECK(kWaitingPower < kCommunicatingPower);
  CHECK(kCommunicatingPower < kComputingPower);
  CHECK(kComputingPower < 1);
}

TEST_CASE("each group pays for its own site, and a group's site replaces the cluster's") {
  Job job = two_sites();
  job.cluster.site = Site{.pue = 1.5, .electricity = 0.1, .carbon = 400, .node_watts = 0};
  job.cluster.groups[1].site = Site{.pue = 1, .electricity = 0.05, .carbon = 0, .node_watts = 300};
  const Spending spending = spend(job);
  const double east = 2000 * 10 * kMean * 1.5 * kKwh, west = (1000 * kMean + 300) * 10 * kKwh;
  CHECK(spending.beyond_chips);
  CHECK(spending.step.kwh.value() == Approx(east + west));
  CHECK(spending.step.kwh_at_most.value() == Approx((2000 * 1.5 + 1000 + 300) * 10 * kKwh));
  CHECK(spending.step.electricity_usd.value() == Approx(east * 0.1 + west * 0.05));
  // The west's electricity has no figure for carbon.
  CHECK(spending.step.kg_co2e.value() == Approx(east * 0.4));
  CHECK(spending.step.usd.value() == Approx(0.6));  // rent does not depend on the site
}

TEST_CASE("what one group does not say is unknown for all, and named") {
  Job job = two_sites();
  job.cluster.groups[0].site = Site{.pue = 1.2, .electricity = 0.1, .carbon = 400, .node_watts = 0};
  job.cluster.groups[1].site = Site{.pue = 1, .electricity = {}, .carbon = {}, .node_watts = 0};
  job.cluster.groups[1].chip.price_per_hour = {};
  job.train.tokens = 1e6;
  const Spending spending = spend(job);
  CHECK_FALSE(spending.step.usd);
  CHECK(spending.unpriced == std::vector<std::string>{"other"});
  CHECK(spending.step.kwh);
  CHECK_FALSE(spending.step.electricity_usd);
  CHECK_FALSE(spending.step.kg_co2e);
  CHECK(spending.no_carbon == std::vector<std::string>{"west"});
  CHECK(spending.run->bill.kwh);
  CHECK_FALSE(spending.run->bill.usd);
  const std::string text = text_of(spending);
  CHECK_THAT(text, Catch::Contains("unknown: no list price of `other`"));
  CHECK_THAT(text, Catch::Contains("unknown: no `site: {carbon: ...}` for group `west`"));
  CHECK_THAT(text, !Catch::Contains("electricity"));
  job.cluster.groups[0].site->carbon = {};
  CHECK_THAT(text_of(spend(job)),
             Catch::Contains("unknown: neither the scenario nor the cluster has `site: {carbon: ...}`"));
  // A site of the cluster that no group in use has.
  job.cluster.site = Site{.pue = 1, .electricity = {}, .carbon = 400, .node_watts = 0};
  CHECK_THAT(text_of(spend(job)),
             Catch::Contains("unknown: no `site: {carbon: ...}` for group `east`, `west`"));
}

TEST_CASE("without some chip's power there is no energy, and so no carbon, whatever its site says") {
  Job job = two_sites();
  job.cluster.site = Site{.pue = 1.5, .electricity = 0.1, .carbon = 400, .node_watts = 0};
  job.cluster.groups[0].chip.watts = {};
  const Spending spending = spend(job);
  CHECK_FALSE(spending.step.kwh);
  CHECK_FALSE(spending.step.kwh_at_most);
  CHECK_FALSE(spending.step.kg_co2e);
  CHECK(spending.step.usd);
  CHECK_THAT(text_of(spending), Catch::Contains("unknown: no power of `tiny`"));
}

TEST_CASE("only groups and nodes in use are paid for") {
  Job job = two_sites();
  job.cluster.groups[1].nodes = 5;
  job.cluster.groups[1].site = Site{.pue = 1, .electricity = {}, .carbon = {}, .node_watts = 300};
  job.cluster.groups.push_back(job.cluster.groups[0]);
  job.cluster.groups[2].name = "idle";
  job.cluster.groups[2].chip = tiny_chip();  // it has no price and no power
  build_topology(job.cluster);
  const Spending spending = spend(job);
  CHECK(spending.step.usd.value() == Approx(0.6));
  CHECK(spending.step.kwh.value() == Approx((3000 * kMean + 300) * 10 * kKwh));
}

TEST_CASE("a run of so many tokens takes whole steps; what goodput loses costs time, rent and energy") {
  Job job = two_sites();
  job.train.tokens = 1000;  // 3.9 steps of 256
  const Spending all = spend(job);
  CHECK(all.run->steps == 4);
  CHECK(all.run->seconds == Approx(40));
  CHECK(all.run->bill.usd.value() == Approx(2.4));
  CHECK(all.run->bill.kwh.value() == Approx(4 * 3000 * 10 * kMean * kKwh));
  CHECK_THAT(text_of(all), Catch::Contains("no failures, no evaluation, no checkpoints"));
  job.train.goodput = 0.8;
  const Spending lossy = spend(job);
  CHECK(lossy.run->steps == 4);
  CHECK(lossy.run->seconds == Approx(50));
  CHECK(lossy.run->bill.usd.value() == Approx(3));
  CHECK(lossy.run->bill.kwh_at_most.value() == Approx(4 * 3000 * 12.5 * kKwh));
  CHECK_THAT(text_of(lossy), Catch::Contains("50.0 s: 40.0 s of steps at a goodput of 0.8"));
}

TEST_CASE("the strategy is the same whatever is asked about the run, and wherever it stands") {
  const Job plain = tiny_job({1, 4, 1});
  Job asked = plain;
  asked.train.tokens = 1e12;
  asked.train.goodput = 0.9;
  asked.cluster.site = Site{.pue = 1.5, .electricity = {}, .carbon = 400, .node_watts = 0};
  CHECK(compile(asked).strategy_hash == compile(plain).strategy_hash);
  CHECK(compile(asked) == compile(plain));
}

TEST_CASE("the report splits each rank's step by what its chip does: computing, waiting in the bubble") {
  Job job = tiny_job({1, 4, 1});
  job.strategy.schedule = Schedule::gpipe;
  job.cluster.groups[0].chip.watts = {1000, "assumed"};
  job.train.tokens = 1e9;
  build_topology(job.cluster);
  const Program program = compile(job);
  const Trace trace = TimedRun(program, [](const Step&, const Instruction& i) {
                        return i.op() == Op::compute ? 1.0 : i.op() == Op::optimizer ? 0.5 : 0.0;
                      }).run();
  const Report report = make_report(job, program, trace);
  const auto m = static_cast<double>(program.rank_programs.front().micro_batches);
  const double computing_s = 2 * m + 0.5, bubble_s = 2 * 3;
  REQUIRE(report.iteration_s == Approx(computing_s + bubble_s));
  CHECK(report.spending.step.kwh.value() ==
        Approx(4000 * (computing_s * kComputingPower + bubble_s * kWaitingPower) * kKwh));
  const json spending = json::parse(to_json(report))["spending"];
  CHECK(spending["kwh_per_step"].get<double>() == Approx(*report.spending.step.kwh));
  CHECK(spending["kwh_per_step_at_tdp"].get<double>() == Approx(4 * report.iteration_s / 3600));
  CHECK(spending["usd_per_step"].is_null());
  CHECK(spending["unpriced"] == json({"tiny"}));
  CHECK(spending["run"]["tokens"] == 1e9);
  CHECK(spending["run"]["days"].get<double>() == Approx(report.spending.run->seconds / 86400));
  CHECK(spending["run"]["mwh"].get<double>() == Approx(*report.spending.run->bill.kwh / 1000));
  CHECK(spending["run"]["t_co2e"].is_null());
}

TEST_CASE("a folded trace takes the energy that the whole one does, of ranks that are not alike") {
  const Job job = [] {
    Job powered_job = tiny_job({2, 2, 2});
    powered_job.cluster.groups[0].chip.watts = {1000, "assumed"};
    build_topology(powered_job.cluster);
    return powered_job;
  }();
  const Program program = compile(job);
  // Replicas differ, tensor-parallel peers do not.
  const Trace whole = TimedRun(program, [&](const Step& step, const Instruction& i) {
                        if (i.op() != Op::compute) return 0.25;
                        return program.ranks[step.rank].replica == 0 ? 1.0 : 1.5;
                      }).run();
  Trace folded = whole;
  std::erase_if(folded.events,
                [&](const TraceEvent& event) { return program.ranks[event.step.rank].tensor_index != 0; });
  for (Rank rank : program.ranks.ids())
    if (program.ranks[rank].tensor_index == 0) folded.stand_ins.push_back({rank, 2});
  const double all = make_report(job, program, whole).spending.step.kwh.value();
  CHECK(make_report(job, program, folded).spending.step.kwh.value() == Approx(all).epsilon(1e-12));
  folded.stand_ins.front().count = 5;  // the counts of stand-ins matter
  CHECK(make_report(job, program, folded).spending.step.kwh.value() != Approx(all).epsilon(1e-6));
}

TEST_CASE("a rank that stands for more others counts more, and one that a trace lacks is as those it has") {
  Job job = tiny_job({1, 1, 4});
  job.cluster.groups[0].chip.watts = {1000, "assumed"};
  build_topology(job.cluster);
  const Program program = compile(job);
  const auto run = [&](double others_s) {
    return TimedRun(program,
                    [&](const Step& step, const Instruction& i) {
                      if (i.op() != Op::compute) return 0.25;
                      return step.rank == Rank(0) ? 1.0 : others_s;
                    })
        .run();
  };
  const auto without = [](Trace trace, Rank first) {
    std::erase_if(trace.events, [&](const TraceEvent& event) { return event.step.rank >= first; });
    return trace;
  };
  const auto kwh = [&](const Trace& trace) {
    return make_report(job, program, trace).spending.step.kwh.value();
  };
  Trace folded = without(run(1.5), Rank(2));
  folded.stand_ins = {{Rank(0), 1}, {Rank(1), 3}};
  CHECK(kwh(folded) == Approx(kwh(run(1.5))).epsilon(1e-12));
  CHECK(kwh(without(run(1), Rank(3))) == Approx(kwh(run(1))).epsilon(1e-12));
}

TEST_CASE("tokens are a count with a suffix or without, and nonsense is refused") {
  CHECK(to_tokens(scalar("15T")) == 15e12);
  CHECK(to_tokens(scalar("300 B")) == 300e9);
  CHECK(to_tokens(scalar("1.5e9")) == 1.5e9);
  CHECK(to_tokens(scalar("250000")) == 250000);
  for (const char* nonsense : {"0", "-1T", "15 tokens", "15t", "T", "1e30", "nan", "015T", "0.5", ""}) {
    INFO(nonsense);
    CHECK_THROWS_AS(to_tokens(scalar(nonsense)), Refusal);
  }
  CHECK(to_goodput(scalar("0.95")) == 0.95);
  for (const char* nonsense : {"0", "1.01", "95 %", "-0.5"})
    CHECK_THROWS_AS(to_goodput(scalar(nonsense)), Refusal);
}
