// Invariants of every trace, checked from outside over random strategies on random clusters, with contention: order,
// matching, bytes on links, lower and upper bounds, sums. Each draw has a seed, which is printed with the drawn job if
// a check fails. How contention is shared is not checked here (tests/sim/world/test_laws.cpp compares two runs).
#include <cmath>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "models/trace/critical_path.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/simulated_draw.hpp"
#include "tests/support/timeline.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr unsigned kDraws = kSanitized ? 8 : 48;
constexpr double kClose = 1e-9;  // share of the iteration

template <class Check>
void for_every_draw(const Check& check) {
  for (unsigned seed = 0; seed < kDraws; ++seed) {
    CAPTURE(seed);
    const Job drawn = any_job(seed);
    INFO(written_out(drawn));
    const SimulatedDraw& run = simulated_draw(seed);
    Timeline timeline(run.job, run.program, run.trace);
    check(timeline);
  }
}

// The least seconds that a side of a meeting takes on an idle fabric: `together_s` after all sides have come, `own_s`
// after this side has come.
struct Idle {
  double together_s = 0, own_s = 0;
};
Idle idle_of(Timeline& timeline, const Meeting& meeting, const Step& side) {
  if (timeline.is_copy(meeting)) return {timeline.copy_s(side), 0};
  if (meeting.sides.size() == 1) return {timeline.work_s(side), 0};
  if (!meeting.group)
    return {timeline.message_s(meeting, meeting.sides[0], meeting.sides[1],
                               payload_bytes(timeline.instruction(side))),
            0};
  if (!timeline.is_expanded(meeting)) return {timeline.collective_s_of(meeting), 0};
  // In every round a member waits for its messages in both directions.
  std::map<int, double> rounds;
  for (const Timeline::Message& each : timeline.messages(meeting))
    if (each.from == side || each.to == side) {
      double& slowest_s = rounds[each.round];
      slowest_s = std::max(slowest_s, timeline.message_s(meeting, each.from, each.to, each.bytes));
    }
  double sum_s = timeline.setup_s(meeting);
  for (const auto& [round, slowest_s] : rounds) sum_s += slowest_s;
  return {0, sum_s};
}

// The seconds of a meeting whose messages go one after the other, alone on the fabric.
double alone_s(Timeline& timeline, const Meeting& meeting) {
  if (!meeting.group) return idle_of(timeline, meeting, meeting.sides[0]).together_s;
  double sum_s =
      timeline.is_expanded(meeting) ? timeline.setup_s(meeting) : timeline.collective_s_of(meeting);
  for (const Timeline::Message& each : timeline.messages(meeting))
    sum_s += timeline.message_s(meeting, each.from, each.to, each.bytes);
  return sum_s;
}

// Whether every rank of a tensor-parallel group does the same work: routers, and, if rows are not divided, the
// projections before a further prediction.
bool is_done_by_all(const RankProgram& rank_program, const Kernel& kernel) {
  const auto names = [&](const char* part) {
    return std::any_of(kernel.parameters.begin(), kernel.parameters.end(), [&](TensorId id) {
      return rank_program.tensors[id].name.find(part) != std::string::npos;
    });
  };
  return names(".router.weight") || (!rank_program.sequence_parallel && names(".from_"));
}

using FlowsOfLinks = std::map<int, std::vector<Flow>>;
FlowsOfLinks flows_of_links(Timeline& timeline) {
  FlowsOfLinks flows_by_link;
  for (const Meeting& meeting : timeline.meetings)
    if (meeting.sides.size() > 1 || timeline.is_copy(meeting))
      for (const Flow& flow : timeline.flows(meeting))
        for (int link : flow.route.links) flows_by_link[link].push_back(flow);
  return flows_by_link;
}
double capacity(const Job& job, int link) {
  const LinkProperties& properties = job.cluster.link_table[at(link)];
  return properties.bandwidth * properties.efficiency;
}

}  // namespace

// Of the seeds beyond the draws, each has `zero: 3` and overlapped parameters of which some are held whole.
TEST_CASE("a Program that the checker accepts ends in the World", "[invariants]") {
  std::vector<unsigned> seeds = {83, 425, 7373, 9035};
  for (unsigned seed = 0; seed < kDraws; ++seed) seeds.push_back(seed);
  for (const unsigned seed : seeds) {
    CAPTURE(seed);
    const Job job = any_job(seed);
    CHECK(find_deadlock(compile(job)).empty());
    CHECK_NOTHROW(simulated_draw(seed));
  }
}

TEST_CASE(
    "an instruction begins when its stream is free and all it waits for has ended, not an instant later",
    "[invariants]") {
  for_every_draw([](Timeline& timeline) {
    for (const TraceEvent& event : timeline.trace.events) {
      const Step before{event.step.rank, event.step.stream, event.step.index - 1};
      const double free_s = event.step.index == 0 ? 0 : timeline.event(before).end_s;
      double begin_s = free_s;
      for (const After& after : timeline.instruction(event.step).after)
        begin_s = std::max(begin_s, timeline.event({event.step.rank, after.stream, after.index}).end_s);
      REQUIRE(event.free_s == free_s);
      REQUIRE(event.begin_s == begin_s);
    }
  });
}

TEST_CASE("every send has one recv of the same bytes, every collective all its members, at one instant",
          "[invariants]") {
  for_every_draw([](Timeline& timeline) {
    std::size_t sides = 0;
    for (const Meeting& meeting : timeline.meetings) {
      sides += meeting.sides.size();
      double last_s = 0;
      for (const Step& side : meeting.sides) last_s = std::max(last_s, timeline.event(side).begin_s);
      for (const Step& side : meeting.sides) {
        const TraceEvent &one = timeline.event(side), &first = timeline.event(meeting.sides[0]);
        REQUIRE(one.matched_s == last_s);
        REQUIRE(one.bytes == first.bytes);
        REQUIRE(timeline.instruction(side).micro_batch == timeline.instruction(meeting.sides[0]).micro_batch);
        if (!timeline.is_expanded(meeting)) REQUIRE(one.end_s == first.end_s);
        REQUIRE(one.end_s >= last_s);
      }
    }
    REQUIRE(sides == timeline.trace.events.size());
  });
}

TEST_CASE("no link carries more than its bandwidth between any two instants", "[invariants]") {
  std::size_t shared = 0;
  for_every_draw([&](Timeline& timeline) {
    for (auto& [link, flows] : flows_of_links(timeline)) {
      std::sort(flows.begin(), flows.end(), [](const Flow& a, const Flow& b) { return a.end_s < b.end_s; });
      const double most = capacity(timeline.job, link);
      double worst = 0;  // the most of any window: bytes carried over bytes possible
      for (const Flow& first : flows) {
        double bytes = 0;  // the sum over flows that begin no earlier, in the order of their ends
        for (const Flow& flow : flows) {
          if (flow.begin_s < first.begin_s) continue;
          bytes += flow.bytes;
          const double could = most * (flow.end_s - first.begin_s);
          worst = std::max(worst, (bytes - 1e-3) / could);
          if (bytes > flow.bytes && bytes > 0.9 * could) ++shared;
        }
      }
      CHECK(worst <= 1 + 1e-6);
    }
  });
  CHECK(shared > kDraws);  // otherwise there was no contention
}

TEST_CASE("a transfer takes what it takes on an idle fabric, or more where others cross its links",
          "[invariants]") {
  std::size_t alone = 0, slowed = 0;
  for_every_draw([&](Timeline& timeline) {
    const FlowsOfLinks all = flows_of_links(timeline);
    const double close_s = kClose * end_of(timeline.trace);
    for (const Meeting& meeting : timeline.meetings) {
      if (meeting.sides.size() == 1 && !timeline.is_copy(meeting)) {
        const TraceEvent& work = timeline.event(meeting.sides[0]);
        REQUIRE(std::abs(work.end_s - work.begin_s - timeline.work_s(work.step)) <= close_s);
        continue;
      }
      for (const Step& side : meeting.sides) {
        const Idle idle = idle_of(timeline, meeting, side);
        REQUIRE(timeline.event(side).end_s - timeline.event(side).matched_s >= idle.together_s - close_s);
        REQUIRE(timeline.event(side).end_s - timeline.event(side).begin_s >= idle.own_s - close_s);
      }
      if (meeting.group) continue;
      const Flow flow = timeline.flows(meeting)[0];
      bool shares = false;
      for (int link : flow.route.links)
        for (const Flow& other : all.at(link))
          shares |= (other.begin_s != flow.begin_s || other.end_s != flow.end_s ||
                     other.bytes != flow.bytes || other.route.links != flow.route.links) &&
                    other.begin_s < flow.end_s && other.end_s > flow.begin_s;
      const double beyond_s =
          flow.end_s - flow.begin_s - idle_of(timeline, meeting, meeting.sides[0]).together_s;
      ++(beyond_s > close_s ? slowed : alone);
      if (!shares) REQUIRE(beyond_s <= close_s);
    }
  });
  CHECK(alone > kDraws);
  CHECK(slowed > kDraws);
}

TEST_CASE("the longest path over an idle fabric <= the iteration <= everything one after the other",
          "[invariants]") {
  double tightest = 0;
  for_every_draw([&](Timeline& timeline) {
    std::map<StepKey, Idle> idle;
    double serial_s = 0;
    for (const Meeting& meeting : timeline.meetings) {
      serial_s += alone_s(timeline, meeting);
      for (const Step& side : meeting.sides) idle[Timeline::key(side)] = idle_of(timeline, meeting, side);
    }
    const auto idle_at = [&](const Step& step) { return idle.at(Timeline::key(step)); };
    const auto path = timeline.recurrence([&](const Step& step) { return idle_at(step).together_s; },
                                          [&](const Step& step) { return idle_at(step).own_s; });
    const double iteration_s = end_of(timeline.trace);
    CHECK(path.last_s <= iteration_s * (1 + kClose));
    CHECK(iteration_s <= serial_s * (1 + kClose));
    for (const TraceEvent& event : timeline.trace.events)
      REQUIRE(path.end_s.at(Timeline::key(event.step)) <= event.end_s + kClose * iteration_s);
    tightest = std::max(tightest, path.last_s / iteration_s);
  });
  CHECK(tightest > 0.99);
}

TEST_CASE("the iteration is no shorter than the work of its busiest rank or the bytes of its busiest link",
          "[invariants]") {
  for_every_draw([](Timeline& timeline) {
    const double iteration_s = end_of(timeline.trace) * (1 + kClose);
    std::map<Rank, double> work_s;
    for (const TraceEvent& event : timeline.trace.events)
      work_s[event.step.rank] += timeline.work_s(event.step);
    for (const auto& [rank, seconds] : work_s) CHECK(seconds <= iteration_s);
    for (const auto& [link, flows] : flows_of_links(timeline)) {
      double bytes = 0;
      for (const Flow& flow : flows) bytes += flow.bytes;
      CHECK(bytes / capacity(timeline.job, link) <= iteration_s);
    }
  });
}

TEST_CASE("the breakdown of every stage and of the critical path adds up to the iteration", "[invariants]") {
  for_every_draw([](Timeline& timeline) {
    const Report report = make_report(timeline.job, timeline.program, timeline.trace);
    CHECK(report.iteration_s == end_of(timeline.trace));
    const auto adds_up = [&](std::vector<double> parts) {
      double sum_s = 0;
      for (double part : parts) {
        CHECK(part >= -kClose * report.iteration_s);
        sum_s += part;
      }
      CHECK(sum_s == Approx(report.iteration_s).epsilon(kClose));
    };
    REQUIRE(report.breakdown.size() == timeline.program.rank_programs.size());
    for (const StageBreakdown& stage : report.breakdown)
      adds_up({stage.compute_s, stage.recompute_s, stage.tensor_parallel_s, stage.expert_parallel_s,
               stage.context_parallel_s, stage.pipeline_s, stage.data_parallel_s, stage.offload_s,
               stage.bubble_s, stage.waiting_s, stage.optimizer_s});
    const PathBreakdown& path = report.critical_path;
    adds_up({path.compute_s, path.recompute_s, path.tensor_parallel_s, path.expert_parallel_s,
             path.context_parallel_s, path.pipeline_s, path.data_parallel_s, path.offload_s,
             path.optimizer_s});
    CHECK(path.gap_s == 0);
  });
}

TEST_CASE("what is allocated is freed, and the matrix products are the model's, once a sequence",
          "[invariants]") {
  for_every_draw([](Timeline& timeline) {
    std::map<Rank, std::int64_t> live;
    for (const TraceEvent& event : timeline.trace.events)
      live[event.step.rank] += event.allocated - event.freed;
    for (const auto& [rank, bytes] : live) CHECK(bytes == 0);
    double flops = 0, again = 0;
    for (const TraceEvent& event : timeline.trace.events) {
      const Compute* compute = timeline.instruction(event.step).as<Compute>();
      if (compute == nullptr) continue;
      flops += event.flops;
      const RankProgram& rank_program = timeline.program.program_of(event.step.rank);
      const Block& block = rank_program.blocks[compute->block];
      for (int i = compute->first_kernel; i < compute->last_kernel; ++i) {
        const Kernel& kernel = block.kernels[at(i)];
        if (kernel.recompute) again += kernel.flops;
        if (!kernel.recompute && is_done_by_all(rank_program, kernel))
          again += kernel.flops * (1 - 1.0 / static_cast<double>(rank_program.tensor_parallel));
        // The fused backward of attention computes the scores again: 10 products where the model needs 8.
        if (kernel.op == KernelOp::attention_backward) again += kernel.flops / 5;
      }
    }
    const Job& job = timeline.job;
    CHECK(flops - again == Approx(model_flops_per_sequence(job.transformer, job.train.sequence) *
                                  static_cast<double>(job.train.global_batch))
                               .epsilon(kClose));
  });
}
