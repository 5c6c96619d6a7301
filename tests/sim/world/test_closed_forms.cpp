// Where a closed form exists, the Sim world agrees with it to 1e-6 or better.
#include <catch2/catch.hpp>
#include <limits>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/network_cost.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr CollectiveLevel kEveryLevel[] = {CollectiveLevel::formula, CollectiveLevel::fluid,
                                           CollectiveLevel::expanded};

HandMade ring_of(int ranks, Cluster cluster, CollectiveLevel level, std::int64_t bytes) {
  Fidelity fidelity;
  fidelity.data_parallel = level;
  HandMade p(std::move(cluster), fidelity);
  std::vector<Rank> members;
  for (Rank rank : IdRange<Rank>(at(ranks))) members.push_back(rank);
  p.group(GroupKind::data, kDataGroup, members);
  for (Rank rank : members) p.all_reduce(rank, kDataGroup, bytes);
  return p;
}

// A pipeline of equal virtual stages: every pass takes the given seconds, messages are free.
struct EqualStages {
  Schedule schedule = Schedule::gpipe;
  std::int64_t stages = 4, micro_batches = 8;
  PassTimes times = {0.5, 0.75, 0.5};
  PipelineShape shape() const {
    return {static_cast<int>(stages), standard_chunks(schedule), static_cast<int>(micro_batches)};
  }
  double work_s() const {  // the work of one rank
    return static_cast<double>(standard_chunks(schedule) * micro_batches) *
           (times.forward_s + times.duration(Pass::backward));
  }
};
struct Simulated {
  Program program;
  Trace trace;
};
Simulated simulate_program(const EqualStages& shape, bool steps_overlap = false) {
  Job job = tiny_job({1, 1, 1}, Family::llama);  // embeddings are untied, so they need no reduction
  job.transformer.layers = shape.stages * standard_chunks(shape.schedule);
  job.cluster = one_node(static_cast<int>(shape.stages), {FabricKind::loopback, 1e24, 0});
  job.train.global_batch = shape.micro_batches * job.train.micro_batch;
  job.strategy = expand(job.transformer, job.train, 1, shape.stages, 1);
  // Weight gradients are placed for these times, not for those of the tiny model's kernels.
  use_schedule(job.transformer, job.strategy,
               make_timetable(shape.schedule, shape.shape(), {{shape.times}, 0}));
  job.strategy.overlap_steps = steps_overlap;
  Program program = compile(job);
  for (RankProgram& rank_program : program.rank_programs) {
    for (Block& block : rank_program.blocks) {
      Kernel kernel;
      kernel.op = KernelOp::activation;
      kernel.bytes = static_cast<std::int64_t>(1e9 * shape.times.duration(block.pass));
      block.kernels = {kernel};
    }
    for (Instruction& instruction : rank_program.streams[kComputeStream].instructions)
      if (Compute* compute = instruction.as<Compute>()) compute->last_kernel = 1;
    rank_program.tensors.clear();  // the optimizer step is free
  }
  Trace trace = simulate_in_child(job, program);
  return {std::move(program), std::move(trace)};
}
Trace run(const EqualStages& shape) { return simulate_program(shape).trace; }

double busy_s(const Trace& trace, Rank rank) {
  double busy = 0;
  for (const TraceEvent& event : trace.events)
    if (event.step.rank == rank && event.step.stream == kComputeStream) busy += event.end_s - event.begin_s;
  return busy;
}

}  // namespace

TEST_CASE("a ring all-reduce on an idle fabric takes 2(R-1)(alpha + bytes/(R beta)) at every level") {
  for (int ranks : {2, 3, 4, 8})
    for (CollectiveLevel level : kEveryLevel) {
      const std::int64_t bytes = 24'000'000;
      const double closed = 2.0 * (ranks - 1) * (1e-5 + static_cast<double>(bytes) / (ranks * 1e9));
      CAPTURE(ranks, static_cast<int>(level));
      CHECK(end_of(ring_of(ranks, one_node(ranks), level, bytes).run()) == Approx(closed).epsilon(1e-9));
    }
}

TEST_CASE("formula and fluid agree on an idle fabric with software latency, odd sizes and unlike links") {
  Cluster cluster;
  cluster.name = "unlike";
  NodeGroup fast;
  fast.name = "fast";
  fast.nodes = 2;
  fast.chip = unit_chip();
  fast.chips_per_node = 2;
  fast.inside = {FabricKind::nvswitch, 1e9, 2e-6};
  fast.nics = {{NicKind::infiniband, 2, 1e8, 5e-6}, {NicKind::ethernet, 1, 3e7, 2e-5}};
  NodeGroup slow = fast;
  slow.name = "slow";
  slow.nics = {{NicKind::roce, 1, 5e7, 5e-6}, {NicKind::ethernet, 1, 2e7, 2e-5}};
  cluster.groups = {fast, slow};
  cluster.links = {{"fast", "slow", NicKind::ethernet}};
  build_topology(cluster);
  for (std::int64_t bytes : {std::int64_t{1}, std::int64_t{1001}, std::int64_t{123'456'789}}) {
    const double formula = end_of(ring_of(8, cluster, CollectiveLevel::formula, bytes).run());
    const double fluid = end_of(ring_of(8, cluster, CollectiveLevel::fluid, bytes).run());
    CAPTURE(bytes);
    CHECK(fluid == Approx(formula).epsilon(1e-9));
  }
}

TEST_CASE("a collective starts when its last member has come") {
  for (CollectiveLevel level : kEveryLevel) {
    Fidelity fidelity;
    fidelity.data_parallel = level;
    HandMade p(one_node(3), fidelity);
    p.group(GroupKind::data, kDataGroup, {0_rank, 1_rank, 2_rank});
    for (Rank rank : {0_rank, 1_rank, 2_rank}) {
      const After work = p.compute(rank, rank == 1_rank ? 2.0 : 1.0);
      p.all_reduce(rank, kDataGroup, 3'000'000, {work});
    }
    const Trace trace = p.run();
    CAPTURE(static_cast<int>(level));
    const TraceEvent& early = event_of(trace, 0_rank, {StreamId{1}, 0});
    CHECK(early.begin_s == Approx(1.0));
    CHECK(early.matched_s == Approx(2.0));
    CHECK(early.waited == Waited::peer);
    CHECK(early.waited_rank == 1_rank);
    CHECK(event_of(trace, 1_rank, {StreamId{1}, 0}).waited == Waited::step);
    if (level != CollectiveLevel::expanded)  // expanded: early members have already sent their first chunks
      CHECK(early.end_s == Approx(2.0 + 4 * (1e-5 + 1e-3)).epsilon(1e-9));
  }
}

TEST_CASE("GPipe and 1F1B with p equal stages and m micro-batches take m+p-1 of a stage's time") {
  for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b})
    for (std::int64_t stages : {1, 2, 4})
      for (std::int64_t micro_batches : {1, 2, 4, 8, 32}) {
        const EqualStages shape{schedule, stages, micro_batches, {}};
        const double one_s = shape.times.forward_s + shape.times.duration(Pass::backward);
        const auto m = static_cast<double>(micro_batches), p = static_cast<double>(stages);
        const Trace trace = run(shape);
        CAPTURE(static_cast<int>(schedule), stages, micro_batches);
        CHECK(end_of(trace) == Approx((m + p - 1) * one_s).epsilon(1e-6));
        for (Rank rank : IdRange<Rank>(at(stages)))  // the bubble is (p-1)/m of the work
          CHECK(end_of(trace) / busy_s(trace, rank) - 1 == Approx((p - 1) / m).epsilon(1e-6));
      }
}

TEST_CASE("every schedule of equal stages, simulated, has the bubble of its closed form") {
  for (std::int64_t p : {2, 4})
    for (std::int64_t m : {2 * p, 4 * p}) {
      CAPTURE(p, m);
      const auto bubble_s = [&](Schedule schedule, PassTimes times) {
        const EqualStages shape{schedule, p, m, times};
        return end_of(run(shape)) - shape.work_s();
      };
      const double others = static_cast<double>(p - 1);
      const PassTimes unequal{1, 1.25, 0.75}, equal{1, 1, 1};
      CHECK(bubble_s(Schedule::interleaved, unequal) == Approx(others * 3).epsilon(1e-6));  // (p-1)(F+B)
      CHECK(bubble_s(Schedule::zb_h1, unequal) == Approx(others * 1.5).epsilon(1e-6));      // (p-1)(F+I-W)
      CHECK(bubble_s(Schedule::dualpipe_v, equal) == Approx(others).epsilon(1e-6));
      // Ranks begin one forward after each other; within a rank there is no bubble.
      CHECK(bubble_s(Schedule::zb_h2, equal) == Approx(others).epsilon(1e-6));
      CHECK(bubble_s(Schedule::zb_v, equal) == Approx(others).epsilon(1e-6));
    }
}

TEST_CASE("steps of ZB-H2 follow each other without a bubble, those of 1F1B after the last rank's end") {
  for (std::int64_t p : {2, 4})
    for (std::int64_t m : {2 * p, 4 * p}) {
      CAPTURE(p, m);
      const EqualStages h2{Schedule::zb_h2, p, m, {1, 1, 1}}, plain{Schedule::one_f_one_b, p, m, {1, 1, 1}};
      CHECK(step_s(simulate_program(h2, true).trace) == Approx(h2.work_s()).epsilon(1e-6));
      CHECK(step_s(simulate_program(plain, true).trace) == Approx(end_of(run(plain))).epsilon(1e-6));
    }
}

TEST_CASE("every schedule, simulated, begins each compute when the recurrence says") {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = schedule_named(name);
    const EqualStages shape{schedule, 3, 9, {1, 1.25, 0.75}};
    const ScheduleTimes times{{shape.times}, 0};
    const auto expected = evaluate(make_timetable(schedule, shape.shape(), times), times, 2).value();
    const Trace trace = run(shape);
    CAPTURE(name);
    for (const TraceEvent& event : trace.events) {
      const auto& begins = expected.begin_s[at(event.step.rank)];
      const std::size_t index = at(event.step.index);
      if (event.step.stream == kComputeStream && index < begins.size())  // the last is the optimizer
        CHECK(event.begin_s == Approx(begins[index]).epsilon(1e-6).margin(1e-9));
    }
  }
}

TEST_CASE(
    "under fair sharing a faster compute can lengthen: two senders on one link, 20 s to 10 s, 120 to 130 s") {
  const auto makespan = [](double compute_s) {
    HandMade p(one_node(3, {FabricKind::loopback, 1e9, 0}));
    p.join(0_rank, 1_rank);
    p.join(1_rank, 2_rank);
    p.send(0_rank, kNext, 20'000'000'000);
    const After received = p.recv(1_rank, kPrevious, 20'000'000'000);
    p.compute(1_rank, 100, {received});
    const After work = p.compute(2_rank, compute_s);
    p.send(2_rank, kPrevious, 20'000'000'000, {work});
    p.recv(1_rank, kNext, 20'000'000'000);
    return end_of(p.run());
  };
  CHECK(makespan(20) == Approx(120).epsilon(1e-9));
  CHECK(makespan(10) == Approx(130).epsilon(1e-9));
}

TEST_CASE("a ring on unlike links frees no healthy link early") {
  // Ranks 0 and 1 share a node with rank 2. The ring 0-1-3 crosses a slow NIC, so it moves at the NIC's rate on the
  // links inside the node, too, and a message from rank 0 to rank 2 has the rest of rank 0's link during the whole
  // ring.
  Cluster cluster = one_node(3, {FabricKind::loopback, 1e9, 0});
  cluster.groups[0].chips_per_node = 2;
  cluster.groups[0].nodes = 2;
  cluster.groups[0].nics = {{NicKind::infiniband, 1, 1e8, 0}};
  build_topology(cluster);
  Fidelity fidelity;
  fidelity.data_parallel = CollectiveLevel::fluid;
  HandMade p(cluster, fidelity);
  p.group(GroupKind::data, kDataGroup, {0_rank, 1_rank, 2_rank});
  for (Rank rank : {0_rank, 1_rank, 2_rank}) p.all_reduce(rank, kDataGroup, 960'000'000);
  p.join(0_rank, 1_rank);
  p.send(0_rank, kNext, 1'000'000'000);
  const After received = p.recv(1_rank, kPrevious, 1'000'000'000);
  const Trace trace = p.run();
  // The ring's edge 0-1 is limited to 0.96e8 of 1e9 bytes/s.
  const double bystander_s = event_of(trace, 1_rank, received).end_s;
  CHECK(bystander_s == Approx(1e9 / (1e9 - 0.96e8)).epsilon(1e-2));
}

TEST_CASE("null <= infinite bandwidth <= sim") {
  for (Degrees degrees : {Degrees{2, 2, 2}, {1, 4, 1}, {4, 1, 2}})
    for (CollectiveLevel level : kEveryLevel) {
      Job job = tiny_job(degrees);
      job.fidelity = {level, level, false};
      const Program program = compile(job);
      SimOptions null;
      null.null = true;
      const double null_s = end_of(simulate_in_child(job, program, null));
      const double sim_s = end_of(simulate_in_child(job, program));
      job.cluster.groups[0].inside.bandwidth = 1e24;
      build_topology(job.cluster);
      const double infinite_s = end_of(simulate_in_child(job, program));
      CHECK(null_s == 0);
      CHECK(null_s < infinite_s);
      CHECK(infinite_s < sim_s);
    }
}

TEST_CASE("the same job simulated twice gives the same trace") {
  for (const Job& job : every_small_job(Family::gpt2)) {
    const Program program = compile(job);
    CHECK(simulate_in_child(job, program) == simulate_in_child(job, program));
  }
}

TEST_CASE("a refusal raised deep in a coroutine comes out as itself") {
  Job job = tiny_job({2, 1, 1});
  const Program program = compile(job);
  job.cluster.groups[0].chip.peak_flops.erase(Format::fp32);
  try {
    simulate_in_child(job, program);
    FAIL("priced without a peak");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "unsupported-format");
  }
}
