// The jobs that a calibration measures, and the judgement of a machine that keeps still.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>

#include "models/calibration/probe.hpp"
#include "models/calibration/stillness.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/rated_kernels.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// What decides which code computes a kernel on a host: its kind, and how many tensors it reads, because some kernels
// compute more where one more tensor comes in. "attention of 2" has its keys gathered.
using Codes = std::set<std::string>;
void add_codes(const RankProgram& rank_program, Codes& codes) {
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      if (!is_collective(kernel.op) && !is_share_of_attention(kernel))
        codes.insert(fmt::format("{} of {}", name_of(rated_kernel(rank_program, kernel)), kernel.in.size()));
}

Codes probed_codes() {
  Codes codes;
  std::mt19937_64 random(12);
  for (int i = 0; i < 600; ++i)
    add_codes(compile(draw_probe({}, tiny_chip(), random).job).program_of(Rank(0)), codes);
  return codes;
}

// Every transformer whose training is tested, with adapters or without, cut as a random job is.
Job trained_job(unsigned seed) {
  Dice dice(seed + 1'000'000);  // other choices than those of any_job
  if (dice.once_in(2)) return any_job(seed);
  const std::string name =
      dice.one_of({"llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen2-moe", "deepseek-v3", "latent"});
  const Transformer variant = tiny_variant(name);
  const std::int64_t tp = dice.one_of({1, 2}), pp = dice.one_of({1, 2}), dp = dice.one_of({1, 2}),
                     cp = variant.latent.used() ? 1 : dice.one_of({1, 2});
  Job job = tiny_job({1, 1, 1}, variant);
  if (dice.once_in(3)) {
    job.transformer.lora = {.rank = 3, .alpha = 6, .on = {"proj", "gate_up", "fc2"}};
    if (!variant.latent.used()) job.transformer.lora.on.push_back("qkv");
  }
  job.cluster = tiny_cluster(static_cast<int>(tp * pp * dp * cp));
  job.strategy = expand(job.transformer, job.train, tp, pp, dp, cp);
  job.strategy.recompute = dice.one_of({Recompute::none, Recompute::full, Recompute::selective});
  job.strategy.sequence_parallel = tp > 1 && dice.once_in(2);
  job.strategy.zero = dice.one_of({0, 1, 3});
  job.strategy.expert_weights = dice.one_of({ExpertWeights::combine, ExpertWeights::activation});
  if (variant.experts.count > 0)
    for (Stage& stage : job.strategy.templates[0].stages)
      stage.expert_parallel = dice.one_of<std::int64_t>({1, dp});
  return job;
}

}  // namespace

TEST_CASE("every drawn probe compiles, is small, and together they have every kernel of a rank",
          "[calibration]") {
  const ProbeRange range;
  std::map<RatedKernel, std::set<MeasuredShape>> shapes;
  std::mt19937_64 random(11);
  for (int i = 0; i < 400; ++i) {
    const Probe probe = draw_probe(range, tiny_chip(), random);
    INFO(probe.name);
    const Program program = compile(probe.job);
    check_indices(program);
    const RankProgram& rank_program = program.program_of(Rank(0));
    double flops = 0;
    for (const Block& block : rank_program.blocks)
      for (const Kernel& kernel : block.kernels) {
        flops += kernel.flops;
        shapes[rated_kernel(rank_program, kernel)].insert(shape_of(kernel));
      }
    CHECK(flops < 3 * range.most_flops);
    CHECK(probe.job.transformer.hidden <= range.most_hidden);
    CHECK(probe.job.transformer.vocabulary <= range.most_vocabulary);
  }
  // What probes lack: factors of adapters and further predictions, gradients that are divided, and caps on logits.
  const std::set<KernelOp> elsewhere = {KernelOp::scale, KernelOp::clear, KernelOp::softcap,
                                        KernelOp::softcap_backward};
  for (const RatedKernel& kernel : rated_kernels()) {
    if (elsewhere.contains(kernel.op)) continue;
    INFO(name_of(kernel));
    CHECK(shapes[kernel].size() >= 3);
  }
}

TEST_CASE("every kernel of a rank runs code that probes measure", "[calibration]") {
  const Codes probed = probed_codes();
  // Known holes: codes that no probe runs. A hole that probes now cover fails the test, so that it leaves this list.
  const Codes holes = {// Factors of adapters and of further predictions.
                       "scale of 1"};
  Codes met;
  int jobs = 0;
  for (unsigned seed = 0; seed < (kSanitized ? 100U : 400U); ++seed) {
    const Job job = trained_job(seed);
    if (find_complaint(job.transformer, job.train, job.strategy)) continue;
    ++jobs;
    Codes codes;
    const Program program = compile(job);
    for (const RankProgram& rank_program : program.rank_programs) add_codes(rank_program, codes);
    met.insert(codes.begin(), codes.end());
    INFO("seed " << seed << "\n" << written_out(job));
    for (const std::string& code : codes) {
      INFO(code);
      CHECK((probed.contains(code) || holes.contains(code)));
    }
  }
  CHECK(jobs > 50);
  for (const std::string& code : holes) {
    INFO(code);
    CHECK(met.contains(code));
    CHECK_FALSE(probed.contains(code));
  }
}

TEST_CASE("equal seeds draw equal probes, and others draw others", "[calibration]") {
  std::mt19937_64 a(3), b(3), c(4);
  int equal = 0;
  for (int i = 0; i < 20; ++i) {
    const Probe one = draw_probe({}, tiny_chip(), a), same = draw_probe({}, tiny_chip(), b),
                other = draw_probe({}, tiny_chip(), c);
    CHECK(one.name == same.name);
    CHECK(one.job.transformer == same.job.transformer);
    equal += one.name == other.name;
  }
  CHECK(equal < 5);
}

TEST_CASE("a machine that is disturbed is noticed, and one that keeps still is not", "[calibration]") {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    Stillness stillness;
    const auto quiet = [&] {
      const double sentinel_s = 1e-3 * (1 + 0.05 * static_cast<double>(random() % 100) / 100);
      return Surroundings{
          .before_s = sentinel_s, .after_s = sentinel_s, .share_on_processor = 1, .seconds = 1};
    };
    for (int i = 0; i < 10; ++i) CHECK(stillness.judge(quiet()).empty());
    Surroundings slow = quiet(), shared = quiet(), stolen = quiet();
    slow.after_s *= 1.4;
    shared.share_on_processor = 0.5;
    stolen.taken_s = 0.1;
    CHECK(stillness.judge(slow).find("sentinel") != std::string::npos);
    CHECK(stillness.judge(shared).find("50.0 %") != std::string::npos);
    CHECK(stillness.judge(stolen).find("stolen") != std::string::npos);
    CHECK(stillness.judge(quiet()).empty());
    // Most times may be disturbed: the sentinel's usual time is that of a quiet machine all the same.
    for (int i = 0; i < 12; ++i) {
      Surroundings seen = quiet();
      seen.before_s *= 2;
      CHECK_FALSE(stillness.judge(seen).empty());
    }
    CHECK(stillness.usual_s() < 1.1e-3);
  }
}

TEST_CASE("a machine that does not keep still is refused with what disturbed the last measurement") {
  const std::string last = "other processes took 52.0 % of the processor's time";
  CHECK(tests::refusal_on_page([&] { refuse_all_disturbed(3, 2, last); }) ==
        tests::expected_refusal("never-still: a calibration of which nothing is left"));
  CHECK(tests::refusal_on_page([&] { refuse_disturbed("0003 tiny-gpt2", 11, last); }) ==
        tests::expected_refusal("never-still: a calibration that gives up"));
}
