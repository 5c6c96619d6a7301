// Laws of Mixed, over random jobs: times that are known come through it, a real rank may stand for its class, and with
// no real rank it is the simulation, byte for byte.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/trace/compare.hpp"
#include "sim/fold/fold.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/simulated_draw.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

std::string name_of_step(const Step& step) {
  return fmt::format("rank {} stream {} step {}", step.rank, step.stream, step.index);
}

const Instruction& instruction_of(const Program& program, const Step& step) {
  return program.at(step.rank, step.stream, step.index);
}

// All ranks that take part in the transfer or collective of a step, in ascending order; none: it is neither.
std::vector<Rank> taking_part(const Program& program, const Step& step) {
  const RankEntry& entry = program.ranks[step.rank];
  std::vector<Rank> ranks;
  if (const PeerMessage* message = instruction_of(program, step).message())
    ranks = {step.rank, *entry.peers[message->slot]};
  if (const auto* collective = instruction_of(program, step).as<Collective>())
    ranks = program.groups[*entry.groups[collective->slot]].ranks;
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// An executor whose seconds depend on what is computed alone, and which notes what ranks move among themselves.
class KnownSeconds : public Executor {
 public:
  explicit KnownSeconds(const Program& program) : program_(program) {}
  static std::int64_t nanoseconds(const Program& program, const Step& step) {
    const auto place = static_cast<std::uint64_t>(program.ranks[step.rank].rank_program.value()) * 7919 +
                       static_cast<std::uint64_t>(step.index) * 104729 + 17;
    return static_cast<std::int64_t>(1 + place * 2654435761U % 40'000);
  }
  double execute(const Step& step, const Instruction&) override {
    return 1e-9 * static_cast<double>(nanoseconds(program_, step));
  }
  // Of a transfer or collective, the same from every rank that takes part.
  static std::int64_t moved_nanoseconds(const Program& program, const Step& step) {
    const std::vector<Rank> ranks = taking_part(program, step);
    const Instruction& instruction = instruction_of(program, step);
    const auto seed = static_cast<std::uint64_t>(payload_bytes(instruction)) +
                      static_cast<std::uint64_t>(ranks.front().value()) * 104729 +
                      static_cast<std::uint64_t>(ranks.back().value()) * 7919 +
                      static_cast<std::uint64_t>(instruction.micro_batch + 2) * 31;
    return static_cast<std::int64_t>(1 + seed * 2654435761U % 30'000);
  }
  std::optional<double> communicate(const std::vector<Step>& together, bool complete) override {
    for (const Step& step : together) {
      if (!told_.insert(step).second) throw std::logic_error("told twice: " + name_of_step(step));
      if (complete) moved.push_back(name_of_step(step));
    }
    if (!complete || taking_part(program_, together.front()).empty()) return std::nullopt;
    return 1e-9 * static_cast<double>(moved_nanoseconds(program_, together.front()));
  }
  std::vector<std::string> moved;

 private:
  std::set<Step> told_;
  const Program& program_;
};

std::vector<Rank> some_ranks(const Program& program, Dice& dice) {
  std::vector<Rank> ranks;
  for (const Rank rank : program.ranks.ids())
    if (dice.once_in(3)) ranks.push_back(rank);
  if (ranks.empty()) ranks.emplace_back(static_cast<std::int32_t>(dice.engine()() % program.ranks.size()));
  return ranks;
}

bool contains(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// Seconds of the collectives inside a compute, as they are priced.
double collectives_s(CostTable& costs, const Program& program, const Step& step,
                     const Instruction& instruction) {
  double seconds = 0;
  if (instruction.op() != Op::compute) return seconds;
  for (const KernelSpan& span : costs.kernels(step.rank, instruction))
    if (is_collective(find_kernel(program, step, span.kernel)->op)) seconds += span.end_s - span.begin_s;
  return seconds;
}

// An executor that takes as long as the cost models say, times a factor.
class PricedSeconds : public Executor {
 public:
  PricedSeconds(const Job& job, const Program& program, double factor)
      : program_(program), costs_(program, job.cluster), factor_(factor) {}
  double execute(const Step& step, const Instruction& instruction) override {
    return factor_ * (costs_.price(step.rank, instruction).seconds() -
                      collectives_s(costs_, program_, step, instruction));
  }

 private:
  const Program& program_;
  CostTable costs_;
  const double factor_;
};

std::string refused_kind(const Job& job, const Program& program, const SimOptions& options) {
  try {
    simulate_in_child(job, program, options);
  } catch (const Refusal& refusal) {
    return refusal.kind();
  }
  return "simulated";
}

}  // namespace

TEST_CASE("known times come through any mixture to the nanosecond, every stream in its order") {
  int exact = 0, with_collectives = 0;
  for (unsigned seed = 0; seed < drawn_of(24U); ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& draw = simulated_draw(seed);
    Dice dice(seed);
    KnownSeconds known(draw.program);
    SimOptions options;
    options.executor = &known;
    options.real_ranks = some_ranks(draw.program, dice);
    const Trace mixed = simulate_in_child(draw.job, draw.program, options);
    CHECK(compare(draw.program, mixed, draw.trace).equal_structure());
    CostTable costs(draw.program, draw.job.cluster);
    const TraceEvent* before = nullptr;
    for (const TraceEvent& event : mixed.events) {
      const Step& step = event.step;
      if (before != nullptr && before->step.rank == step.rank && before->step.stream == step.stream)
        REQUIRE(before->end_s <= event.begin_s);
      before = &event;
      const Instruction& instruction = draw.program.at(step.rank, step.stream, step.index);
      if (instruction.op() != Op::compute && instruction.op() != Op::optimizer) continue;
      if (!contains(options.real_ranks, step.rank)) continue;
      const double priced_s = collectives_s(costs, draw.program, step, instruction);
      REQUIRE(
          std::llround((event.end_s - event.begin_s) * 1e9) ==
          std::llround(static_cast<double>(KnownSeconds::nanoseconds(draw.program, step)) + 1e9 * priced_s));
      ++(priced_s > 0 ? with_collectives : exact);
    }
    SimOptions replay;
    replay.tape = &mixed;
    REQUIRE(simulate_in_child(draw.job, draw.program, replay) == mixed);
  }
  CHECK(exact > least_of(300));
  CHECK(with_collectives > least_of(200));
}

TEST_CASE("tensors move where only real ranks take part, once") {
  std::size_t moved = 0, not_moved = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& draw = simulated_draw(seed);
    Dice dice(seed);
    const std::vector<Rank> real = some_ranks(draw.program, dice);
    std::vector<std::string> wanted;
    for (const Rank rank : real) {
      const auto& streams = draw.program.program_of(rank).streams;
      for (const StreamId stream : streams.ids())
        for (std::size_t i = 0; i < streams[stream].instructions.size(); ++i) {
          const Instruction& instruction = streams[stream].instructions[i];
          const Step step{rank, stream, static_cast<std::int32_t>(i)};
          const std::vector<Rank> others = taking_part(draw.program, step);
          if (others.empty() && instruction.op() != Op::copy) continue;
          const bool all_real =
              std::all_of(others.begin(), others.end(), [&](Rank other) { return contains(real, other); });
          if (all_real) wanted.push_back(name_of_step(step));
          ++(all_real ? moved : not_moved);
        }
    }
    std::vector<std::string> told = run_in_child([&] {
      KnownSeconds known(draw.program);
      SimOptions options;
      options.executor = &known;
      options.real_ranks = real;
      simulate(draw.job, draw.program, options);
      return known.moved;
    });
    std::sort(told.begin(), told.end());
    std::sort(wanted.begin(), wanted.end());
    REQUIRE(told == wanted);
  }
  CHECK(moved > 50);
  CHECK(not_moved > 50);
}

TEST_CASE("known times of transfers come through any mixture to the nanosecond, and through its tape") {
  int exact = 0, expanded = 0, priced = 0;
  const TemporaryFolder folder;
  for (unsigned seed = 0; seed < drawn_of(48U); ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& draw = simulated_draw(seed / 2);
    Job job = draw.job;
    if (seed % 2 == 1) job.fidelity.data_parallel = CollectiveLevel::expanded;
    Dice dice(seed);
    KnownSeconds known(draw.program);
    SimOptions options;
    options.executor = &known;
    options.real_ranks = some_ranks(draw.program, dice);
    options.measured_transfers = true;
    const Trace mixed = simulate_in_child(job, draw.program, options);
    CHECK(mixed.measured_transfers);
    CHECK(compare(draw.program, mixed, draw.trace).equal_structure());
    for (const TraceEvent& event : mixed.events) {
      const std::vector<Rank> others = taking_part(draw.program, event.step);
      if (others.empty() || !contains(options.real_ranks, event.step.rank)) continue;
      if (!std::all_of(others.begin(), others.end(),
                       [&](Rank other) { return contains(options.real_ranks, other); })) {
        ++priced;
        continue;
      }
      REQUIRE(std::llround((event.end_s - event.matched_s) * 1e9) ==
              KnownSeconds::moved_nanoseconds(draw.program, event.step));
      ++exact;
      const RankEntry& entry = draw.program.ranks[event.step.rank];
      if (const auto* collective = instruction_of(draw.program, event.step).as<Collective>())
        if (level_of(job.fidelity, draw.program.groups[*entry.groups[collective->slot]]) ==
            CollectiveLevel::expanded)
          ++expanded;
    }
    SimOptions replay;
    write_trace(mixed, draw.program, folder.path() + "/tape");
    const Trace tape = read_trace(folder.path() + "/tape");
    REQUIRE(tape == mixed);
    replay.tape = &tape;
    REQUIRE(simulate_in_child(job, draw.program, replay) == mixed);
  }
  CHECK(exact > least_of(300));
  CHECK(expanded > least_of(20));
  CHECK(priced > least_of(300));
}

TEST_CASE("mixed with every rank simulated writes the bytes of the simulation") {
  const TemporaryFolder folder;
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& draw = simulated_draw(seed);
    KnownSeconds known(draw.program);
    SimOptions options;
    options.executor = &known;
    options.measured_transfers = true;
    write_trace(simulate_in_child(draw.job, draw.program, options), draw.program, folder.path() + "/mixed");
    write_trace(draw.trace, draw.program, folder.path() + "/sim");
    REQUIRE(folder.read("mixed") == folder.read("sim"));
    REQUIRE(folder.read("mixed").size() > 1000);
  }
}

TEST_CASE("a real rank that stands for its class is all members of the class real with its times") {
  const TemporaryFolder folder;
  std::size_t stood_for = 0;
  for (unsigned seed = 0; seed < drawn_of(24U); ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& draw = simulated_draw(seed);
    Job folded_job = draw.job;
    folded_job.fidelity.fold = true;
    CostTable costs(draw.program, draw.job.cluster);
    const Partition<Rank> classes = fold(folded_job, draw.program, costs, {true, {}}).symmetry.ranks;
    Dice dice(seed);
    const Rank one(static_cast<std::int32_t>(dice.engine()() % draw.program.ranks.size()));
    KnownSeconds known(draw.program);
    SimOptions options;
    options.executor = &known;
    for (const Rank rank : draw.program.ranks.ids())
      if (classes.stand_in(rank) == classes.stand_in(one)) options.real_ranks.push_back(rank);
    const std::size_t members = options.real_ranks.size();
    const Trace all = simulate_in_child(draw.job, draw.program, options);
    options.real_ranks = {one};
    options.real_for_class = true;
    const Trace folded = simulate_in_child(folded_job, draw.program, options);
    CHECK(folded.measured_for_class);
    CHECK(folded.measured_ranks == std::vector<Rank>{one});
    for (const TraceEvent& event : folded.events) {
      const auto same = std::find_if(all.events.begin(), all.events.end(),
                                     [&](const TraceEvent& each) { return each.step == event.step; });
      REQUIRE(same != all.events.end());
      REQUIRE(std::abs(event.begin_s - same->begin_s) <= 1e-9 * step_s(all) + 1e-12);
      REQUIRE(std::abs(event.end_s - same->end_s) <= 1e-9 * step_s(all) + 1e-12);
    }
    if (folded.events.size() < all.events.size()) stood_for += members - 1;
    SimOptions replay;
    write_trace(folded, draw.program, folder.path() + "/tape");
    const Trace tape = read_trace(folder.path() + "/tape");
    REQUIRE(tape == folded);
    replay.tape = &tape;
    REQUIRE(simulate_in_child(folded_job, draw.program, replay) == folded);
  }
  CHECK(stood_for >= least_of(24U));
}

TEST_CASE("a rank stands for its class where ranks are folded, and alone") {
  Job job = tiny_job({1, 2, 2});
  const Program program = compile(job);
  KnownSeconds known(program);
  SimOptions options;
  options.executor = &known;
  options.real_ranks = {3_rank};
  options.real_for_class = true;
  CHECK(refused_kind(job, program, options) == "unfolded-class");
  job.fidelity.fold = true;
  CHECK(refused_kind(job, program, options) == "simulated");
  const Trace tape = simulate_in_child(job, program, options);
  options.real_ranks = {2_rank, 3_rank};
  CHECK(tests::refusal_on_page([&] { simulate_in_child(job, program, options); }) ==
        tests::expected_refusal("alike-real-ranks: two ranks that each stand for the one class"));
  options.real_for_class = false;
  CHECK(refused_kind(job, program, options) == "simulated");
  SimOptions replay;
  replay.tape = &tape;
  job.fidelity.fold = false;
  CHECK(refused_kind(job, program, replay) == "wrong-tape");
}

TEST_CASE("one real stage inside 1,024 simulated ranks gives the simulated step, for its class or not") {
  Transformer transformer = tiny_transformer(Family::llama);
  transformer.layers = 8;
  transformer.heads = transformer.kv_heads = 8;
  transformer.head_dim = 4;
  Job job = tiny_job({1, 1, 1}, transformer);
  job.cluster = tiny_cluster(1024);
  job.train.global_batch = 16 * 2 * 8;
  job.strategy = expand(job.transformer, job.train, 8, 8, 16);
  job.strategy.overlap_p2p = true;
  job.fidelity.fold = true;
  const Program program = compile(job);
  REQUIRE(program.rank_count() == 1024);
  const double simulated_s = step_s(simulate_in_child(job, program));
  std::int32_t computes = 0;  // of a rank; each is rounded to a nanosecond
  for (const Stream& stream : program.rank_programs[RankProgramId(0)].streams)
    computes += static_cast<std::int32_t>(stream.instructions.size());
  for (const Rank real : {0_rank, 517_rank, 1023_rank})
    for (const bool for_class : {false, true})
      for (const double factor : {1.0, 1.25}) {
        CAPTURE(real, for_class, factor);
        PricedSeconds priced(job, program, factor);
        SimOptions options;
        options.executor = &priced;
        options.real_ranks = {real};
        options.real_for_class = for_class;
        const double mixed_s = step_s(simulate_in_child(job, program, options));
        const double rounding_s = 1e-9 * computes * 8;  // along eight stages
        CHECK(mixed_s >= simulated_s - rounding_s);
        CHECK(mixed_s <= factor * simulated_s + rounding_s);
        if (factor > 1) CHECK(mixed_s > simulated_s + rounding_s);
      }
}
