// Two worlds: the same Program really run (host kernels, loopback) and imagined (SimGrid). Both traces hold the same
// events with the same matching, membership, bytes, flops and allocations, in the same order per stream, and the same
// peak memory within 2 %. Durations are not compared: tests never depend on timing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// The most bytes of activations that are live at once on each rank, from the trace alone: an instruction holds its peak
// while it runs and leaves what it allocated less what it freed.
std::map<Rank, double> peak_by_rank(const Trace& trace) {
  struct Change {
    double at_s;
    int order;  // sorts changes at one instant: ends come before begins
    std::int64_t bytes;
  };
  std::map<Rank, std::vector<Change>> changes;
  for (const TraceEvent& event : trace.events) {
    changes[event.step.rank].push_back({event.begin_s, 1, event.peak});
    changes[event.step.rank].push_back({event.end_s, 0, event.allocated - event.freed - event.peak});
  }
  std::map<Rank, double> peaks;
  for (auto& [rank, list] : changes) {
    std::stable_sort(list.begin(), list.end(), [](const Change& a, const Change& b) {
      return a.at_s != b.at_s ? a.at_s < b.at_s : a.order < b.order;
    });
    std::int64_t live = 0, peak = 0;
    for (const Change& change : list) {
      live += change.bytes;
      peak = std::max(peak, live);
    }
    REQUIRE(live == 0);
    peaks[rank] = static_cast<double>(peak);
  }
  return peaks;
}

// All instructions with their bytes, in the order of each stream, from the trace alone.
std::vector<std::string> moves(const Program& program, const Trace& trace) {
  std::vector<std::string> list;
  for (const TraceEvent& event : trace.events)
    list.push_back(describe(program, event.step.rank, event.step.stream, event.step.index) + " " +
                   std::to_string(event.bytes));
  return list;
}

double in_flight(const RankProgram& rank_program, const Strategy& strategy) {
  double largest = 0;
  for (const Shard& shard : rank_program.shards) {
    double bytes = 0;
    for (TensorId id : shard.gradients) bytes += static_cast<double>(rank_program.tensors[id].bytes);
    largest = std::max(largest, bytes);
  }
  return largest * (strategy.zero >= 3 ? 2 + strategy.prefetch : 1);
}

// Bytes of activations that wait for their copy to the host, or were copied back before their backward needs them: at
// most two micro-batches of each.
double on_their_way(const RankProgram& rank_program) {
  double largest = 0;
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& each : stream.instructions)
      if (each.op() == Op::copy && each.micro_batch != kNoMicroBatch)
        largest = std::max(largest, static_cast<double>(payload_bytes(each)));
  return 4 * largest;
}

void check_two_worlds(const Job& job) {
  INFO(print(job.strategy));
  const Program program = compile(job);
  const auto memory = check(program, job.cluster);
  const auto [real, imagined] = tests::check_same_structure(job, program);
  REQUIRE(moves(program, real.trace) == moves(program, imagined));
  const auto peaks = peak_by_rank(imagined);
  for (Rank rank : program.ranks.ids()) {
    INFO("rank " << rank.value());
    const double states = static_cast<double>(program.program_of(rank).static_bytes);
    const double really = static_cast<double>(real.peak_bytes[rank]);
    if (job.strategy.zero >= 2 || on_their_way(program.program_of(rank)) > 0) {
      // Timing decides which parameters are gathered ahead and which gradients are still being reduced; in_flight()
      // bounds their bytes.
      const double timing = (job.strategy.zero >= 2 ? in_flight(program.program_of(rank), job.strategy) : 0) +
                            on_their_way(program.program_of(rank));
      REQUIRE(std::abs(states + peaks.at(rank) - really) <= timing + 0.02 * really);
      continue;
    }
    REQUIRE(states + peaks.at(rank) == Approx(really).epsilon(0.02));
    const int stage = program.ranks[rank].stage;
    REQUIRE(static_cast<double>(memory[at(stage)].peak) == Approx(really).epsilon(0.02));
  }
}

// A job twice as wide as in tests/support/tiny_job.hpp. With p2p overlapped, timing decides how many messages wait in
// buffers at the peak; in this width they are less than 2 % of a rank's memory.
Job widened(Job job) {
  job.transformer.hidden *= 2;
  job.transformer.head_dim *= 2;
  job.transformer.ffn *= 2;
  return job;
}

void check_worlds_agree(Family family) {
  std::vector<Job> jobs = tests::every_small_job(family);
  for (const Job& job : tests::every_scheduled_job(family)) jobs.push_back(job);
  for (const Job& job : jobs) check_two_worlds(widened(job));
}

}  // namespace

TEST_CASE("every small GPT-2 strategy does the same in the real and the imagined world") {
  check_worlds_agree(Family::gpt2);
}

TEST_CASE("every small Llama strategy does the same in the real and the imagined world", "[slow]") {
  check_worlds_agree(Family::llama);
}

// Routing decides what the experts of one rank compute, so compare() checks the sum of FLOPs over all experts.
TEST_CASE("divided experts do the same in both worlds, and all together the same FLOPs", "[slow]") {
  for (Job& job : tests::every_expert_job(tests::tiny_variant("mixtral"))) {
    job.strategy.schedule = Schedule::one_f_one_b;
    job.strategy.overlap_p2p = false;
    check_two_worlds(job);
  }
}

TEST_CASE("forwards and backwards side by side do the same in both worlds") {
  for (Job& job : tests::every_overlapped_expert_job(tests::tiny_variant("mixtral"))) {
    CAPTURE(print(job.strategy));
    check_two_worlds(widened(job));
  }
}

TEST_CASE("experts that replicas divide do the same in both worlds", "[slow]") {
  for (Job& job : tests::every_divided_expert_job(tests::tiny_variant("mixtral"))) {
    job.strategy.schedule = Schedule::one_f_one_b;
    job.strategy.overlap_p2p = false;
    check_two_worlds(job);
  }
}

TEST_CASE("routed experts and latent attention do the same in the real and the imagined world") {
  const std::string name = GENERATE("mixtral", "qwen2-moe", "deepseek-v3");
  INFO(name);
  for (tests::Degrees degrees : {tests::Degrees{2, 2, 1}, {1, 2, 2}}) {
    Job job = tests::tiny_job(degrees, tests::tiny_variant(name));
    job.strategy.overlap_p2p = false;
    job.fidelity.tensor_parallel = CollectiveLevel::fluid;
    check_two_worlds(job);
  }
}

TEST_CASE("stages cut in unlike ways do the same in the real and the imagined world", "[slow]") {
  for (Job job : tests::every_resharded_job(Family::llama)) {
    job.strategy.p2p_buffers = 1;  // fewer messages wait, because all else is smaller here
    check_two_worlds(widened(widened(job)));
  }
}

TEST_CASE("stages replicated more and less often do the same in the real and the imagined world", "[slow]") {
  for (Job job : tests::every_job_of_unlike_replicas(Family::llama)) {
    job.strategy.p2p_buffers = 1;
    check_two_worlds(widened(widened(job)));
  }
}

TEST_CASE("what replicas divide is divided alike in the real and the imagined world", "[slow]") {
  for (Job job : tests::every_divided_job(Family::gpt2)) check_two_worlds(widened(job));
}

TEST_CASE("what the node's memory keeps goes and comes alike in the real and the imagined world", "[slow]") {
  for (Job job : tests::every_offloaded_job(Family::llama)) {
    const Schedule schedule = job.strategy.schedule;
    job.strategy.overlap_p2p = schedule != Schedule::one_f_one_b && schedule != Schedule::gpipe;
    check_two_worlds(widened(job));
  }
}
