// The max-plus recurrence: it never passes the simulation, is never below closed forms, and no better part makes it
// longer. On shipped scenarios it is nearly what the simulation says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/compile/compile.hpp"
#include "models/plan/levers.hpp"
#include "models/plan/work_bound.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Where SimGrid shares links it rounds rates; overlapping steps are simulated until they are alike to a millionth.
constexpr double kRounding = 1e-9, kSteady = 2e-6;

double tolerance(const Job& job) { return job.strategy.steps_overlap() ? kSteady : kRounding; }

// Every second random job is folded, and the steps of every third one overlap if those of its schedule do; every fifth
// one has a slow chip and a slow NIC, and on every seventh one communication slows computes.
Job drawn_job(unsigned seed) {
  Job job = any_job(seed);
  job.fidelity.fold = seed % 2 == 0;
  if (seed % 3 == 0) job.strategy.overlap_steps.reset();
  if (seed % 5 == 0) {
    job.cluster.slow = {Slow{.chip = 0, .factor = 0.7}, Slow{.node = 0, .factor = 1, .nics = 0.8}};
    build_topology(job.cluster);
  }
  if (seed % 7 == 0)
    for (NodeGroup& group : job.cluster.groups) group.chip.software.overlap_slowdown.value = 1.3;
  return job;
}

// How many recurrences are the simulated step.
struct EqualSteps {
  int jobs = 0, equal = 0;
  void add(bool is_equal) {
    ++jobs;
    equal += is_equal ? 1 : 0;
  }
  double share() const { return static_cast<double>(equal) / jobs; }
};

struct Closeness {
  double sum = 0;  // of the shares of the simulated step that recurrences are
  EqualSteps all;
  EqualSteps overlapping;  // of jobs whose steps overlap
  EqualSteps expanded;     // of jobs whose collectives run message by message
};

// Checks the three judges of each job, each a bound for the next.
Closeness check_judges(unsigned first, unsigned last) {
  Closeness closeness;
  for (unsigned seed = first; seed < last; ++seed) {
    const Job job = drawn_job(seed);
    const Program program = compile(job);
    const double least_s = recur(job, program).step_s;
    const double step_s = simulated_step_s(job, program);
    StagePricer pricer(job);
    const double work_s = work_bound_s(job, pricer);
    if (!(least_s <= step_s * (1 + tolerance(job)))) UNSCOPED_INFO(written_out(job));
    CAPTURE(seed, work_s, least_s, step_s, job.strategy.steps_overlap());
    CHECK(work_s <= least_s * (1 + kRounding));
    CHECK(least_s <= step_s * (1 + tolerance(job)));
    const bool is_equal = least_s >= step_s * (1 - kSteady);
    closeness.sum += least_s / step_s;
    closeness.all.add(is_equal);
    if (job.strategy.steps_overlap()) closeness.overlapping.add(is_equal);
    if (job.fidelity.data_parallel == CollectiveLevel::expanded ||
        job.fidelity.tensor_parallel == CollectiveLevel::expanded)
      closeness.expanded.add(is_equal);
  }
  return closeness;
}

// A bound far below every step would hold, too. The few jobs that a sanitized build draws say little of shares.
void check_is_close(const Closeness& closeness) {
  if (kSanitized) return;
  CHECK(closeness.sum / closeness.all.jobs > 0.9);
  CHECK(closeness.all.share() > 0.25);
  CHECK(closeness.overlapping.share() > 0.2);
  CHECK(closeness.expanded.share() > 0.2);  // 0.245 of ten thousand
}

}  // namespace

TEST_CASE("no simulated step is shorter than its recurrence, and that than the work bound",
          "[recurrence][slow]") {
  check_is_close(check_judges(20000, kSanitized ? 20060 : 20300));
}
TEST_CASE("no simulated step of ten thousand is shorter than its recurrence", "[.ten-thousand]") {
  check_is_close(check_judges(30000, 40000));
}

// What is left of contention is that for the processors that move the bytes of sockets, whose rate is no figure of a
// cluster.
TEST_CASE("on links so wide that no flow waits for another, a recurrence is the simulation", "[recurrence]") {
  constexpr double kWider = 1e7;
  EqualSteps all;
  for (unsigned seed = 24000; seed < (kSanitized ? 24030 : 24200); ++seed) {
    Job job = drawn_job(seed);
    for (NodeGroup& group : job.cluster.groups) {
      group.inside.bandwidth *= kWider;
      for (Nic& nic : group.nics) nic.bandwidth *= kWider;
      if (group.host) group.host->link *= kWider;
    }
    for (GroupLink& link : job.cluster.links)
      for (double* const rate : {&link.bandwidth, &link.per_flow}) *rate *= kWider;
    for (Network& network : job.cluster.networks)
      for (double* const rate : {&network.uplink, &network.local, &network.global}) *rate *= kWider;
    build_topology(job.cluster);
    const Program program = compile(job);
    const double least_s = recur(job, program).step_s, step_s = simulated_step_s(job, program);
    CAPTURE(seed, least_s, step_s, job.strategy.steps_overlap());
    if (seed % 7 == 0) continue;  // computes are slowed
    CHECK(least_s > 0.97 * step_s);
    all.add(least_s > (1 - 1e-4) * step_s);
  }
  CHECK(all.share() > (kSanitized ? 0.5 : 0.75));
}

namespace {

// The least that a stage's ranks take for the passes of one micro-batch.
struct StageTime {
  double forward_s = 0, backward_s = 0;
  double both_s() const { return forward_s + backward_s; }
};

StageTime passes_of(const Program& program, Rank rank, CostTable& costs) {
  const RankProgram& rank_program = program.program_of(rank);
  StageTime time;
  for (const Instruction& instruction : rank_program.streams[kComputeStream].instructions) {
    const auto* compute = instruction.as<Compute>();
    if (compute == nullptr || instruction.micro_batch != 0) continue;
    const bool is_forward = rank_program.blocks[compute->block].pass == Pass::forward;
    (is_forward ? time.forward_s : time.backward_s) += costs.price(rank, instruction).seconds();
  }
  return time;
}

// No 1F1B takes less: m micro-batches in the stage s, one of them in the stages before it, and what the R seconds of
// the stages behind it add while it has w in flight.
double two_sided_s(const std::vector<StageTime>& stages, double micro_batches) {
  double longest_s = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    double before_s = 0, behind_s = 0;
    for (std::size_t j = 0; j < stages.size(); ++j)
      if (j != s) (j < s ? before_s : behind_s) += stages[j].both_s();
    const double in_flight = std::min(micro_batches, static_cast<double>(stages.size() - s));
    const double fill_s = std::max(0.0, behind_s - (in_flight - 1) * stages[s].forward_s);
    const double drain_s = std::max(0.0, behind_s - (in_flight - 1) * stages[s].backward_s);
    const double waits_s = micro_batches > in_flight ? fill_s + drain_s : std::max(fill_s, drain_s);
    longest_s = std::max(longest_s, before_s + micro_batches * stages[s].both_s() + waits_s);
  }
  return longest_s;
}

}  // namespace

TEST_CASE("no recurrence of 1F1B is shorter than the two-sided closed form", "[recurrence]") {
  int checked = 0;
  double closest = 0;
  for (unsigned seed = 21000; seed < (kSanitized ? 21100 : 21400); ++seed) {
    const Job job = drawn_job(seed);
    if (job.strategy.schedule != Schedule::one_f_one_b) continue;
    const Program program = compile(job);
    CostTable costs(program, job.cluster);
    std::map<std::int32_t, std::map<std::int32_t, StageTime>> pipelines;  // by template, then stage
    std::map<std::int32_t, double> micro_batches;
    for (const Rank rank : program.ranks.ids()) {
      const RankProgram& rank_program = program.program_of(rank);
      const StageTime its = passes_of(program, rank, costs);
      const auto [kept, is_new] = pipelines[rank_program.pipeline].try_emplace(rank_program.stage, its);
      kept->second = {std::min(kept->second.forward_s, its.forward_s),
                      std::min(kept->second.backward_s, its.backward_s)};
      micro_batches[rank_program.pipeline] = static_cast<double>(rank_program.micro_batches);
    }
    const double least_s = recur(job, program).step_s;
    for (const auto& [pipeline, stages] : pipelines) {
      std::vector<StageTime> times;
      for (const auto& [stage, time] : stages) times.push_back(time);
      const double closed_s = two_sided_s(times, micro_batches[pipeline]);
      CAPTURE(seed, pipeline, closed_s, least_s);
      CHECK(closed_s <= least_s * (1 + kRounding));
      closest = std::max(closest, closed_s / least_s);
      ++checked;
    }
  }
  CHECK(checked > (kSanitized ? 10 : 50));
  CHECK(closest > 0.9);
}

TEST_CASE("no better chip or link makes a recurrence longer", "[recurrence]") {
  int tried = 0, shorter = 0;
  for (unsigned seed = 22000; seed < (kSanitized ? 22020 : 22150); ++seed) {
    const Job job = drawn_job(seed);
    const Program program = compile(job);
    const double before_s = recur(job, program).step_s;
    Dice dice(seed);
    std::vector<Lever> all = levers(job, program);
    dice.shuffle(all);
    for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 3); ++i) {
      const double factor = dice.one_of({1.02, 1.5, 8.0});
      const double after_s = recur(improved(job, all[i], factor), program).step_s;
      CAPTURE(seed, all[i].what, all[i].where, factor, before_s, after_s);
      CHECK(after_s <= before_s * (1 + kRounding));
      shorter += after_s < before_s * (1 - 1e-6) ? 1 : 0;
      ++tried;
    }
  }
  CHECK(shorter > tried / 4);
}

TEST_CASE("a recurrence is the simulation where it shares no links between classes", "[recurrence]") {
  // The recurrence of shipped scenarios, as a share of the simulated step: with computes that communication does not
  // slow, and as they ship.
  struct Row {
    std::string scenario;
    double unslowed, shipped;
  };
  for (const Row& row : {Row{"gpt3-175b-1024", 0.9996, 0.997}, Row{"mixed-fleet", 0.999, 0.997},
                         Row{"h2-four-types-1024", 0.997, 0.996}, Row{"hethub-768", 0.999, 0.996},
                         Row{"two-site-wan", 0.9999, 0.969}, Row{"holmes-hybrid", 0.999999, 0.971},
                         Row{"holmes-hybrid-8", 0.999999, 0.981}}) {
    Job job = load_scenario(MOTLEY_SOURCE_DIR "/scenarios/" + row.scenario + ".yaml").job;
    job.fidelity.fold = true;
    const auto share = [&] {
      const Program program = compile(job);
      const double least_s = recur(job, program).step_s, step_s = simulated_step_s(job, program);
      CHECK(least_s <= step_s * (1 + tolerance(job)));
      return least_s / step_s;
    };
    CAPTURE(row.scenario);
    CHECK(share() > row.shipped);
    for (NodeGroup& group : job.cluster.groups) group.chip.software.overlap_slowdown.value = 1;
    CHECK(share() > row.unslowed);
  }
}

TEST_CASE("a step is simulated only if its recurrence takes less than what is enough", "[recurrence]") {
  for (unsigned seed = 23000; seed < 23010; ++seed) {
    CAPTURE(seed);
    const Job job = drawn_job(seed);
    const Program program = compile(job);
    const double least_s = recur(job, program).step_s;
    const SimulatedOrBound bound = simulate_below(least_s * (1 - 1e-12), job, program);
    REQUIRE(std::holds_alternative<Recurrence>(bound));
    CHECK(std::get<Recurrence>(bound).step_s >= least_s * (1 - 1e-12));
    CHECK(std::get<Recurrence>(bound).step_s <= least_s);
    const double simulated_s = run_in_child(
        [&] { return step_s(std::get<Trace>(simulate_below(least_s * (1 + 1e-12), job, program))); });
    CHECK(simulated_s == simulated_step_s(job, program));
  }
}
