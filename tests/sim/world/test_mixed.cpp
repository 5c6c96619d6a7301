// Mixed and Replay: measured seconds enter virtual time, and a tape repeats the same run.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/simulated_draw.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// An executor whose seconds no cost model gives and which differ each time. It uses some stack, as real kernels do.
class Device : public Executor {
 public:
  double execute(const Step& step, const Instruction&) override {
    volatile char scratch[1 << 20];
    for (std::size_t i = 0; i < sizeof scratch; i += 4096) scratch[i] = 1;
    return 1e-4 * (1 + step.index % 7) + 1e-10 / 3 * ++executed_;
  }

 private:
  int executed_ = 0;
};

// An executor of which every kernel takes a known time, a collective none, and 20 ns pass before, between and after
// kernels.
class Clockwork : public Executor {
 public:
  explicit Clockwork(const Program& program) : program_(program) {}
  static std::int64_t kernel_ns(std::int32_t place) { return 100 + 37 * (place % 11); }
  double execute(const Step& step, const Instruction& instruction) override {
    kernels_.clear();
    const auto* compute = instruction.as<Compute>();
    if (compute == nullptr) return 123e-9;
    std::int64_t now_ns = 20;
    for (std::int32_t i = compute->first_kernel; i < compute->last_kernel; ++i) {
      const Kernel& kernel = *find_kernel(program_, step, i);
      const std::int64_t end_ns = now_ns + (is_collective(kernel.op) ? 0 : kernel_ns(i));
      kernels_.push_back({i, 1e-9 * static_cast<double>(now_ns), 1e-9 * static_cast<double>(end_ns),
                          is_collective(kernel.op) ? 0 : kernel.flops});
      now_ns = end_ns + 20;
    }
    return 1e-9 * static_cast<double>(now_ns);
  }
  std::vector<KernelSpan> kernels() const override { return kernels_; }

 private:
  const Program& program_;
  std::vector<KernelSpan> kernels_;
};

class Broken : public Executor {
 public:
  double execute(const Step& step, const Instruction&) override {
    throw RunFailure(fmt::format("rank {} ran out of memory", step.rank));
  }
};

std::string refused(const Job& job, const Program& program, const Trace& tape) {
  SimOptions options;
  options.tape = &tape;
  options.records_kernels = true;
  return tests::refusal_on_page([&] { simulate_in_child(job, program, options); });
}

}  // namespace

TEST_CASE("mixed with every rank simulated is the simulation") {
  const Job job = tiny_job({2, 2, 1});
  const Program program = compile(job);
  Device device;
  SimOptions options;
  options.executor = &device;
  CHECK(simulate_in_child(job, program, options) == simulate_in_child(job, program));
}

TEST_CASE("the measured seconds of a real rank enter virtual time") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  Device device;
  SimOptions options;
  options.executor = &device;
  options.real_ranks = {1_rank};
  const Trace mixed = simulate_in_child(job, program, options);
  CHECK(mixed.measured_ranks == std::vector<Rank>{1_rank});
  CHECK(mixed.world == "sim");
  const TraceEvent& third = event_of(mixed, 1_rank, {kComputeStream, 2});
  CHECK(third.end_s - third.begin_s == Approx(3e-4).epsilon(1e-4));
  CHECK(mixed.events != simulate_in_child(job, program).events);
}

TEST_CASE("a tape of a mixed run replays to the same trace without an executor") {
  for (Degrees degrees : {Degrees{1, 4, 1}, {2, 2, 1}, {1, 2, 2}}) {
    const Job job = tiny_job(degrees);
    const Program program = compile(job);
    Device device;
    SimOptions options;
    options.executor = &device;
    options.real_ranks = {0_rank, 3_rank};
    const Trace tape = simulate_in_child(job, program, options);
    SimOptions replay;
    replay.tape = &tape;
    CHECK(simulate_in_child(job, program, replay) == tape);
  }
}

TEST_CASE("known times of kernels come through a mixed run to the nanosecond, and through its tape") {
  for (Degrees degrees : {Degrees{1, 4, 1}, {2, 2, 1}, {1, 2, 2}}) {
    const Job job = tiny_job(degrees);
    const Program program = compile(job);
    Clockwork clockwork(program);
    SimOptions options;
    options.executor = &clockwork;
    options.records_kernels = true;
    options.real_ranks = {0_rank, 3_rank};
    const Trace mixed = simulate_in_child(job, program, options);
    check_kernels(program, mixed);
    int exact = 0;
    for (const KernelEvent& event : mixed.kernels) {
      if (event.step.rank != 0_rank && event.step.rank != 3_rank) continue;
      if (is_collective(find_kernel(program, event.step, event.kernel)->op)) {
        REQUIRE(event.end_s - event.begin_s > 1e-6);  // it is priced
        continue;
      }
      REQUIRE(std::llround((event.end_s - event.begin_s) * 1e9) == Clockwork::kernel_ns(event.kernel));
      ++exact;
    }
    REQUIRE(exact > 50);
    SimOptions replay;
    replay.tape = &mixed;
    replay.records_kernels = true;
    CHECK(simulate_in_child(job, program, replay) == mixed);
  }
}

TEST_CASE("the kernels of a compute take as long as the compute is priced, for every kind of chip") {
  int computes = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    const Job job = any_job(seed);
    const Program program = compile(job);
    CostTable costs(program, job.cluster);
    for (const Rank rank : program.ranks.ids()) {
      const RankEntry& entry = program.ranks[rank];
      const RankProgram& rank_program = program.program_of(rank);
      const RingCost* ring = nullptr;
      if (entry.groups.has(kTensorGroup) && entry.groups[kTensorGroup])
        ring = &costs.ring(*entry.groups[kTensorGroup]);
      for (const Instruction& instruction : rank_program.streams[kComputeStream].instructions) {
        const auto* compute = instruction.as<Compute>();
        if (compute == nullptr || compute->first_kernel == compute->last_kernel) continue;
        const Chip& chip = job.cluster.chip_of(entry.chip);
        const auto spans = kernel_spans(program, rank_program, *compute, chip, ring);
        CHECK(
            spans.back().end_s ==
            Approx(compute_time(program, rank_program, instruction, chip, ring, 1).seconds()).epsilon(1e-12));
        ++computes;
      }
    }
  }
  CHECK(computes > 500);
}

TEST_CASE("kernels are recorded when they are asked for, and change nothing else") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& draw = simulated_draw(seed);
    REQUIRE(draw.trace.kernels.empty());
    SimOptions options;
    options.records_kernels = true;
    Trace traced = simulate_in_child(draw.job, draw.program, options);
    check_kernels(draw.program, traced);
    traced.kernels.clear();
    CHECK(traced == draw.trace);
  }
}

TEST_CASE("kernels are recorded of the ranks that are asked for, and of none where they would be too many") {
  const SimulatedDraw& draw = simulated_draw(0);
  SimOptions options;
  options.records_kernels = true;
  const Trace all = simulate_in_child(draw.job, draw.program, options);
  REQUIRE(!all.kernels.empty());
  options.most_kernels = static_cast<std::int64_t>(all.kernels.size());
  CHECK(simulate_in_child(draw.job, draw.program, options) == all);
  options.most_kernels -= 1;
  CHECK(simulate_in_child(draw.job, draw.program, options) == draw.trace);
  options.kernel_ranks = {all.kernels.back().step.rank};
  Trace some = all;
  std::erase_if(some.kernels,
                [&](const KernelEvent& each) { return each.step.rank != options.kernel_ranks[0]; });
  REQUIRE(some.kernels.size() < all.kernels.size());
  CHECK(simulate_in_child(draw.job, draw.program, options) == some);
}

TEST_CASE("what an executor throws ends the run") {
  const Job job = tiny_job({1, 2, 1});
  Broken broken;
  SimOptions options;
  options.executor = &broken;
  options.real_ranks = {1_rank};
  CHECK_THROWS_WITH(simulate_in_child(job, compile(job), options), "rank 1 ran out of memory");
}

TEST_CASE("a tape of another program, of unknown ranks or with gaps is refused") {
  const Job job = tiny_job({1, 2, 1});
  const Program program = compile(job);
  Trace tape = simulate_in_child(job, program);
  tape.measured_ranks = {1_rank};
  CHECK(refused(job, program, tape) == "accepted");
  Trace other = tape;
  other.program_hash = "0123456789abcdef";
  std::string of_another = refused(job, program, other);
  of_another.replace(of_another.find(program_hash(program)), 16, "fedcba9876543210");
  CHECK(of_another == tests::expected_refusal("wrong-tape: a tape of another Program"));
  Trace crowded = tape;
  crowded.measured_ranks = {7_rank};
  CHECK(refused(job, program, crowded) == tests::expected_refusal("wrong-tape: a rank that is not there"));
  Trace strange = tape;
  strange.kernels.push_back({{1_rank, kComputeStream, 0}, 1'000'000, 0, 0, 0, 0});
  CHECK(refused(job, program, strange) == tests::expected_refusal("wrong-tape: a kernel that is not there"));
  Trace gap = tape;
  std::erase_if(gap.events, [](const TraceEvent& event) {
    return event.step == Step{1_rank, kComputeStream, 3};
  });
  CHECK(refused(job, program, gap) == tests::expected_refusal("wrong-tape: a step that is not on the tape"));
}
