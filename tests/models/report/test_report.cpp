// The Report: every second of a step is in exactly one column, made-up durations are found again, and totals follow
// from the Program. Also the cost tables of `motley show costs`.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/costs_text.hpp"
#include "models/report/report.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/timed_trace.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;
using nlohmann::json;

namespace {

// A trace in which a compute takes one second, an optimizer step half a second, transfers and collectives as given.
Trace seconds_trace(const Program& program, double transfer_s, double collective_s) {
  return TimedRun(program,
                  [=](const Step&, const Instruction& i) {
                    if (i.op() == Op::compute) return 1.0;
                    if (i.op() == Op::optimizer) return 0.5;
                    return i.op() == Op::collective ? collective_s : transfer_s;
                  })
      .run();
}

// The predicted seconds of the first instruction on the rank that runs the block of this name.
double priced(const Job& job, const Program& program, Rank rank, const std::string& block) {
  const RankProgram& rank_program = program.program_of(rank);
  const RankEntry& entry = program.ranks[rank];
  RingCost ring;
  if (job.strategy.tp() > 1)
    ring = ring_cost(program, job.cluster, program.groups[entry.groups[kTensorGroup].value()]);
  for (const Instruction& i : rank_program.streams[kComputeStream].instructions)
    if (const auto* compute = i.as<Compute>();
        compute != nullptr && rank_program.blocks[compute->block].name == block)
      return compute_time(program, rank_program, i, job.cluster.chip_of(entry.chip), &ring).seconds();
  throw std::logic_error("no such block");
}

Job pipeline_job(Schedule schedule) {
  Job job = tiny_job({1, 4, 1});
  job.strategy.schedule = schedule;
  return job;
}

}  // namespace

TEST_CASE("the breakdown of every stage adds up to the iteration, for every small strategy") {
  for (Family family : {Family::gpt2, Family::llama})
    for (const Job& job : every_small_job(family)) {
      const Program program = compile(job);
      const Report report = make_report(job, program, timed_trace(program));
      CAPTURE(print(job.strategy));
      REQUIRE(report.breakdown.size() == static_cast<std::size_t>(job.strategy.pp()));
      for (const StageBreakdown& row : report.breakdown) {
        REQUIRE(row.sum_s() == Approx(report.iteration_s).epsilon(1e-12));
        for (int i = 0; i < kPurposes; ++i) REQUIRE(row[static_cast<Purpose>(i)] >= -1e-15);
        if (job.strategy.pp() == 1) REQUIRE(row.bubble_s == 0);
        REQUIRE((row.recompute_s > 0) == (job.strategy.recompute == Recompute::full));
        REQUIRE((row.tensor_parallel_s > 0) == (job.strategy.tp() > 1));
        REQUIRE(row.optimizer_s == Approx(1.0 / 3000));
      }
    }
}

TEST_CASE("equal stages and free transfers leave the bubble of the closed form: p - 1 of m + p - 1 slots") {
  for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
    const Job job = pipeline_job(schedule);
    const Program program = compile(job);
    const Report report = make_report(job, program, seconds_trace(program, 0, 0));
    const auto m = static_cast<double>(program.rank_programs.front().micro_batches);
    REQUIRE(report.iteration_s == Approx(2 * (m + 3) + 0.5));
    for (const StageBreakdown& row : report.breakdown) {
      REQUIRE(row.compute_s == Approx(2 * m));
      REQUIRE(row.bubble_s == Approx(2 * 3));
      REQUIRE(row.pipeline_s == Approx(0).margin(1e-12));
    }
  }
}

TEST_CASE("idle time is the transfers' while they are on the wire of the critical path, else the bubble") {
  Job job = tiny_job({1, 2, 1});
  job.train.global_batch = 2;
  job.strategy = expand(job.transformer, job.train, 1, 2, 1);
  const Program program = compile(job);
  const Report report = make_report(job, program, seconds_trace(program, 0.25, 0));
  // One micro-batch takes: forward, transfer, forward, backward, transfer, backward.
  REQUIRE(report.iteration_s == Approx(4 + 2 * 0.25 + 0.5));
  const StageBreakdown& first = report.breakdown[0];
  REQUIRE(first.pipeline_s == Approx(0.5));
  REQUIRE(first.bubble_s == Approx(2));  // the other stage's work
  const StageBreakdown& second = report.breakdown[1];
  REQUIRE(second.pipeline_s == Approx(0.5));
  REQUIRE(second.compute_s == Approx(2));
}

TEST_CASE("idle time is data parallelism's while gradients are on the wire") {
  const Job job = tiny_job({1, 1, 2});
  const Program program = compile(job);
  const Report report = make_report(job, program, seconds_trace(program, 0, 3));
  const auto m = static_cast<double>(program.rank_programs.front().micro_batches);
  REQUIRE(report.iteration_s == Approx(2 * m + 3 + 0.5));
  REQUIRE(report.breakdown[0].data_parallel_s == Approx(3));
  REQUIRE(report.breakdown[0].bubble_s == Approx(0).margin(1e-12));
}

TEST_CASE("a separated tensor-parallel collective is exposed from the instant all its members are there") {
  Job job = tiny_job({2, 1, 1});
  job.fidelity.tensor_parallel = CollectiveLevel::fluid;
  const Program program = compile(job);
  std::int64_t collectives = 0;
  for (const Instruction& i : program.program_of(0_rank).streams[kComputeStream].instructions)
    collectives += i.op() == Op::collective;
  REQUIRE(collectives > 0);
  const Trace trace = TimedRun(program, [](const Step& step, const Instruction& i) {
                        if (i.op() == Op::compute) return step.rank == 0_rank ? 1.0 : 1.5;
                        return i.op() == Op::collective ? 0.25 : 0.5;
                      }).run();
  const Report report = make_report(job, program, trace);
  REQUIRE(report.breakdown[0].rank == 1_rank);
  REQUIRE(report.breakdown[0].tensor_parallel_s == Approx(0.25 * static_cast<double>(collectives)));
  REQUIRE(report.breakdown[0].bubble_s == Approx(0).margin(1e-9));
  REQUIRE(report.breakdown[0].waiting_s == Approx(0).margin(1e-9));
  REQUIRE(report.waits.size() == 1);
  const double longer_s = report.breakdown[0].compute_s / 3;  // 1.5 s instead of 1 s
  REQUIRE(report.waits[0].rank == 0_rank);
  REQUIRE(report.waits[0].slower == 1_rank);
  REQUIRE(report.waits[0].waiting_s == Approx(longer_s));
  REQUIRE(report.waits[0].for_slower_s == Approx(longer_s - 0.5));  // no collective follows the last compute
  REQUIRE(report.all_chips.waiting_s == Approx(longer_s / 2));
}

TEST_CASE("throughput and MFU follow from the transformer, the batch and the peaks; HFU counts recompute") {
  Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  const Report report = make_report(job, program, timed_trace(program));
  const double flops = model_flops_per_sequence(job.transformer, 16) * 16;
  REQUIRE(report.chips == 2);
  REQUIRE(report.tokens_per_s == Approx(16 * 16 / report.iteration_s));
  REQUIRE(report.tokens_per_s_per_chip == Approx(report.tokens_per_s / 2));
  REQUIRE(report.tflops_per_chip == Approx(flops / report.iteration_s / 2 / 1e12));
  REQUIRE(report.mfu == Approx(flops / report.iteration_s / 2e11));

  job.strategy.recompute = Recompute::full;
  const Program again = compile(job);
  const Report recomputed = make_report(job, again, timed_trace(again));
  REQUIRE(recomputed.hfu * recomputed.iteration_s > 1.2 * report.hfu * report.iteration_s);
  REQUIRE(recomputed.mfu * recomputed.iteration_s == Approx(report.mfu * report.iteration_s));
}

TEST_CASE("a folded trace, of one rank a stage, reports the same but for the ranks it lacks") {
  const Job job = tiny_job({2, 2, 1});
  const Program program = compile(job);
  const Trace whole = seconds_trace(program, 0.125, 0.25);
  Trace folded = whole;
  folded.events.erase(
      std::remove_if(folded.events.begin(), folded.events.end(),
                     [&](const TraceEvent& e) { return program.ranks[e.step.rank].tensor_index != 0; }),
      folded.events.end());
  REQUIRE(folded.events.size() < whole.events.size());
  REQUIRE(to_json(make_report(job, program, folded)) == to_json(make_report(job, program, whole)));
}

TEST_CASE("the report's JSON has its keys in order and its text names what bounds the step") {
  const Job job = pipeline_job(Schedule::gpipe);
  const Program program = compile(job);
  Report report = make_report(job, program, seconds_trace(program, 0, 0));
  report.scenario = "tiny";
  const auto parsed = nlohmann::ordered_json::parse(to_json(report));
  std::vector<std::string> keys;
  for (const auto& [key, value] : parsed.items()) keys.push_back(key);
  REQUIRE(keys == std::vector<std::string>{"schema",
                                           "scenario",
                                           "strategy_hash",
                                           "program_hash",
                                           "iteration_s",
                                           "tokens_per_s",
                                           "tokens_per_s_per_chip",
                                           "sequences_per_s",
                                           "tflops_per_chip",
                                           "tflops_per_chip_megatron",
                                           "mfu",
                                           "hfu",
                                           "flop_formula",
                                           "chips",
                                           "breakdown",
                                           "all_chips",
                                           "waits",
                                           "memory",
                                           "spending",
                                           "critical_path",
                                           "finding",
                                           "advice"});
  REQUIRE(parsed["schema"] == "motley.simulate/1");
  REQUIRE(parsed["breakdown"].size() == 4);
  REQUIRE(parsed["memory"][3]["fraction"].get<double>() ==
          Approx(parsed["memory"][3]["peak"].get<double>() / 4e9));
  REQUIRE(to_text(report).find("computing is 71.1 % of the step; most is lost to bubble (26.7 %)") !=
          std::string::npos);
}

TEST_CASE("the report's JSON has the steps of whole draws where some were simulated") {
  const Job job = tiny_job({1, 1, 1});
  const Program program = compile(job);
  Report report = make_report(job, program, seconds_trace(program, 0, 0));
  report.spread.emplace();
  CHECK_FALSE(json::parse(to_json(report))["variation"].contains("drawn_s"));
  report.spread->drawn = {1, 2.5};
  CHECK(json::parse(to_json(report))["variation"]["drawn_s"] == json({1.0, 2.5}));
}

TEST_CASE("the cost tables price each pass as the sum of its kernels, and as compute_time() does") {
  for (Degrees degrees : {Degrees{1, 1, 1}, {2, 2, 1}}) {
    Job job = tiny_job(degrees);
    job.strategy.recompute = Recompute::full;
    const Program program = compile(job);
    const auto passes = price_passes(job, program);
    REQUIRE(passes.size() == static_cast<std::size_t>(3 * degrees.pp));  // forward, backward, optimizer
    for (const PassCost& pass : passes) {
      REQUIRE(pass.seconds > 0);
      if (pass.pass == "optimizer") continue;
      double seconds = 0;
      for (const KernelCost& kernel : pass.kernels) seconds += kernel.seconds;
      REQUIRE(pass.seconds == Approx(seconds));
      REQUIRE(pass.times == program.rank_programs.front().micro_batches);
      REQUIRE(pass.seconds == Approx(priced(job, program, pass.rank, pass.pass)));
    }
    const json parsed = json::parse(costs_json(passes, list_carriers(job, program)));
    REQUIRE(parsed["schema"] == "motley.costs/1");
    REQUIRE(parsed["passes"].size() == passes.size());
    REQUIRE(costs_text(passes).find("matmul (recompute)") != std::string::npos);
    REQUIRE((costs_text(passes).find("network") != std::string::npos) == (degrees.tp > 1));
  }
}

TEST_CASE("stages that cost the same are printed once, under the numbers of the first and last") {
  Job job = tiny_job({1, 4, 1});
  const Program program = compile(job);
  const std::string text = costs_text(price_passes(job, program));
  REQUIRE(text.find("stage 0 forward") != std::string::npos);
  REQUIRE(text.find("stages 1-2 forward") != std::string::npos);
  REQUIRE(text.find("stage 2 ") == std::string::npos);
  REQUIRE(text.find("stage 3 backward") != std::string::npos);
}
