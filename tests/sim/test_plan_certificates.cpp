// Jobs without a plan: what a certificate proves is true of every strategy of an exhaustive list, and the change that
// it proposes has a plan.
#include <catch2/catch.hpp>
#include <functional>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/certificate.hpp"
#include "models/plan/pins.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/priced_jobs.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

const Judge judge_simulated = simulating_judge(false);

bool fits(const Job& job) {
  try {
    validate(job.transformer, job.train, job.strategy);
    check(compile(job), job.cluster, job.train.fragmentation);
    return true;
  } catch (const Refusal&) {
    return false;
  }
}

// Whether a strategy stands is known before it is simulated.
std::vector<Verdict> judge_fitting(const std::vector<Job>& jobs) {
  std::vector<Verdict> verdicts;
  for (const Job& job : jobs) verdicts.push_back(fits(job) ? Verdict{1, ""} : Verdict{0, "does not fit"});
  return verdicts;
}

// A small job whose chips have about as much memory as its state needs, on one or two groups that may be apart.
Job tight_job(unsigned seed) {
  Dice dice(seed);
  Job job = tiny_job({1, 1, 1});
  job.strategy = {};
  job.transformer.layers = dice.one_of({2, 3});
  job.train.global_batch = dice.one_of({2, 4});
  job.train.micro_batch = 1;
  const int groups = dice.one_of({1, 2, 2});
  job.cluster.groups.clear();
  int chips = 0;
  for (int i = 0; i < groups; ++i) {
    NodeGroup group;
    group.name = std::string(1, static_cast<char>('a' + i));
    group.nodes = dice.one_of({1, 2});
    group.chips_per_node = dice.one_of({1, 2});
    group.chip = tiny_chip();
    group.inside = {FabricKind::loopback, 1e9, 1e-6};
    group.nics = {{NicKind::ethernet, 1, 1e8, 1e-6}};
    chips += group.nodes * group.chips_per_node;
    job.cluster.groups.push_back(group);
  }
  for (NodeGroup& group : job.cluster.groups)
    group.chip.memory_bytes.value =
        std::floor(state_bytes(job) / chips * dice.one_of({0.6, 0.9, 1.1, 1.3, 1.6, 2.5}));
  if (groups == 2 && !dice.once_in(3)) {
    GroupLink& link = job.cluster.links.emplace_back();
    link.from = "a";
    link.to = "b";
    link.over = NicKind::ethernet;
  }
  build_topology(job.cluster);
  return job;
}

// Calls `take` with every way to place the layers from `first` on in stages, each on one group with one cut.
void each_pipeline(const Job& job, std::vector<Stage>& stages, std::int64_t first,
                   const std::function<void()>& take) {
  if (first == job.transformer.layers) {
    take();
    return;
  }
  for (std::int64_t last = first + 1; last <= job.transformer.layers; ++last)
    for (const NodeGroup& group : job.cluster.groups)
      for (std::int64_t cut = 1; cut <= group.chips_per_node; cut *= 2) {
        Stage& stage = stages.emplace_back();
        stage.first_layer = first;
        stage.last_layer = last;
        stage.tensor_parallel = cut;
        stage.on = {group.name};
        each_pipeline(job, stages, last, take);
        stages.pop_back();
      }
}

// Whether some pipeline of equal replicas fits that saves memory in every other way: micro-batches of one sequence,
// full recomputation, states divided.
bool some_pipeline_fits(const Job& job) {
  bool one_fits = false;
  for (std::int64_t replicas = 1; replicas <= job.train.global_batch; replicas *= 2) {
    std::vector<Stage> stages;
    each_pipeline(job, stages, 0, [&] {
      for (const int zero : {1, 2, 3}) {
        if (one_fits || (replicas == 1 && zero > 1)) return;
        Job laid_out = job;
        laid_out.strategy = {};
        laid_out.strategy.zero = replicas == 1 ? 0 : zero;
        laid_out.strategy.recompute = Recompute::full;
        PipelineTemplate& pipeline = laid_out.strategy.templates.emplace_back();
        pipeline.replicas = replicas;
        pipeline.micro_batches = job.train.global_batch / replicas;
        pipeline.stages = stages;
        for (const Stage& stage : stages) laid_out.strategy.sequence_parallel |= stage.tensor_parallel > 1;
        one_fits = fits(laid_out);
      }
    });
  }
  return one_fits;
}

void check_certificates(unsigned first, unsigned last, bool simulates) {
  int proved = 0, planned = 0, missed = 0, unproved = 0, changed = 0;
  for (unsigned seed = first; seed < last; ++seed) {
    CAPTURE(seed);
    const Job job = tight_job(seed);
    PlanLimits limits;
    limits.evaluations = 2000;
    bool stands = false;  // the first strategy that stands is enough
    limits.has_time = [&] { return !stands; };
    limits.progress = [&](std::size_t, double best, double) { stands = best > 0; };
    try {
      const Plan best = plan(job, judge_fitting, limits);
      ++planned;
      CHECK(fits(best.job));
      continue;
    } catch (const Refusal& refusal) {
      REQUIRE(refusal.kind() == "no-plan");
    }
    StagePricer pricer(job);
    const Certificate certificate = certify(job, pricer, limits);
    CAPTURE(certificate.text);
    CHECK(certificate.missing() > 0);
    const bool one_fits = some_pipeline_fits(job);
    if (certificate.is_proved) {
      ++proved;
      CHECK_FALSE(one_fits);
    } else {
      ++unproved;
      if (one_fits) ++missed;
    }
    const auto change = find_smallest_change(job, judge_fitting, limits, certificate);
    if (!change) continue;
    ++changed;
    CAPTURE(change->what);
    PlanLimits with_pins;
    with_pins.pins = change->pins;
    with_pins.evaluations = simulates ? 60 : 1000;
    const Judge judge = simulates ? Judge(judge_simulated) : Judge(judge_fitting);
    CHECK(fits(plan(change->job, judge, with_pins).job));
  }
  CAPTURE(planned, proved, unproved, missed, changed);
  const int all = static_cast<int>(last - first);
  CHECK(proved > all / 10);
  CHECK(planned > all / 10);
  CHECK(changed == proved + unproved);
  CHECK(missed <= 1 + all / 50);  // jobs for which the search finds no plan although there is one
  if (all > 100)
    WARN("planned " << planned << ", proved " << proved << ", not proved " << unproved << ", missed "
                    << missed << ", changed " << changed);
}

}  // namespace

TEST_CASE("certificates hold against an exhaustive list of pipelines, and their changes have plans",
          "[plan][slow]") {
  check_certificates(1, kSanitized ? 4 : 13, true);
}
TEST_CASE("five hundred certificates hold against an exhaustive list of pipelines", "[.five-hundred]") {
  check_certificates(1000, 1500, false);
}

TEST_CASE("a certificate names the bound, the place and what is missing", "[plan]") {
  Job job = tight_job(1);
  job.cluster.groups.resize(1);
  job.cluster.links.clear();
  const double state = state_bytes(job);
  const auto certificate_of = [&](double share) {
    for (NodeGroup& group : job.cluster.groups) {
      group.nodes = 2;
      group.chips_per_node = 1;
      group.chip.memory_bytes.value = share * state;
    }
    build_topology(job.cluster);
    StagePricer pricer(job);
    return certify(job, pricer, {});
  };
  const Certificate together = certificate_of(0.375);
  CHECK(together.bound == CertificateBound::memory);
  CHECK(together.is_proved);
  CHECK(together.where == "the 2 chips of `tiny`");
  CHECK(together.missing() == Approx(0.25 * state));
  NodeGroup other = job.cluster.groups[0];
  other.name = "other";
  job.cluster.groups.push_back(other);
  const Certificate apart = certificate_of(0.375);
  CHECK(apart.bound == CertificateBound::links);
  CHECK(apart.is_proved);
  CHECK(apart.missing() == Approx(0.25 * state));
  CHECK(certificate_of(0.1).bound == CertificateBound::memory);
  job.cluster.groups.pop_back();
  const Certificate stage = certificate_of(0.51);  // no room for activations
  CHECK(stage.bound == CertificateBound::stage);
  CHECK_FALSE(stage.is_proved);
  CHECK(stage.missing() > 0);
}
