// Schedules in Programs: compute streams hold the timetable, weight gradients are placed by predicted times, and what a
// split backward still needs for them stays alive until then.
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/predicted_order.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Job job_of(Schedule schedule, std::int64_t pp, std::int64_t global_batch) {
  Job job = tiny_job({1, 1, 1});
  job.transformer.layers = 8;
  job.cluster = tiny_cluster(static_cast<int>(pp));
  job.train.global_batch = global_batch;
  job.strategy = expand(job.transformer, job.train, 1, pp, 1);
  use_schedule(job.transformer, job.strategy, schedule, standard_chunks(schedule));
  return job;
}

std::int64_t most_activations(const Job& job) {
  std::int64_t most = 0;
  for (const StageMemory& stage : memory_by_stage(compile(job), job.cluster))
    most = std::max(most, stage.activations_peak);
  return most;
}

std::vector<Action> without_weights(std::vector<Action> actions) {
  std::erase_if(actions, [](const Action& action) { return action.pass == Pass::weight_gradient; });
  return actions;
}

}  // namespace

TEST_CASE("a Program's compute streams hold the timetable of its schedule, filled for its predicted times") {
  int shifted = 0;
  for (const std::string& name : schedule_names()) {
    CAPTURE(name);
    const Schedule schedule = schedule_named(name);
    Job job = job_of(schedule, 4, 16);
    const PipelineShape shape{4, standard_chunks(schedule), 8};
    const Program program = compile(job);
    const ScheduleTimes times = predicted_times(program, job.cluster, 0);
    CHECK(timetable_of(program, 0) == make_timetable(schedule, shape, put_off_by_count(times)));
    CHECK_NOTHROW(check(program, job.cluster));
    job.strategy.put_off = PutOff::memory;
    const Program within_memory = compile(job);
    CHECK(timetable_of(within_memory, 0) == make_timetable(schedule, shape, times));
    CHECK_NOTHROW(check(within_memory, job.cluster));
    shifted += timetable_of(within_memory, 0) != timetable_of(program, 0) ? 1 : 0;
  }
  CHECK(shifted > 0);
}

TEST_CASE(
    "where weight gradients stand follows from predicted times, not from slots, and is the same every time") {
  for (const Schedule schedule : {Schedule::zb_h1, Schedule::zb_h2, Schedule::zb_v}) {
    Job job = job_of(schedule, 4, 32);
    CAPTURE(name_of(schedule));
    const Program even = compile(job);
    CHECK(compile(job) == even);
    job.cluster.groups[0].inside.bandwidth /= 100;  // now ranks wait a long time for every message
    build_topology(job.cluster);
    const Timetable slow = timetable_of(compile(job), 0);
    CHECK_FALSE(slow == timetable_of(even, 0));
    CHECK_FALSE(slow == make_timetable(schedule, {4, standard_chunks(schedule), 16}));  // equal pass times
    // Only weight gradients have moved.
    for (std::size_t rank = 0; rank < 4; ++rank)
      CHECK(without_weights(slow.ranks[rank]) == without_weights(timetable_of(even, 0).ranks[rank]));
  }
}

TEST_CASE("both halves of a backward have its kernels between them, and its time") {
  const Job whole_job = job_of(Schedule::one_f_one_b, 4, 16), split_job = job_of(Schedule::zb_h1, 4, 16);
  const Program whole = compile(whole_job), split = compile(split_job);
  for (RankProgramId stage : IdRange<RankProgramId>(4)) {
    const auto& blocks = split.rank_programs[stage].blocks;
    REQUIRE(blocks.size() == 3);
    const Block &input = blocks[BlockId(1)], &weight = blocks[BlockId(2)];
    CHECK(input.pass == Pass::input_gradient);
    CHECK(weight.pass == Pass::weight_gradient);
    CHECK(input.kernels.size() + weight.kernels.size() ==
          whole.rank_programs[stage].blocks[BlockId(1)].kernels.size());
    for (const Kernel& kernel : input.kernels) CHECK_FALSE(only_weights(kernel));
    for (const Kernel& kernel : weight.kernels) CHECK(only_weights(kernel));
  }
  const ScheduleTimes of_whole = predicted_times(whole, whole_job.cluster, 0);
  const ScheduleTimes of_split = predicted_times(split, split_job.cluster, 0);
  for (int stage = 0; stage < 4; ++stage)
    CHECK(of_split.pass_times(stage).duration(Pass::backward) ==
          Approx(of_whole.pass_times(stage).duration(Pass::backward)).epsilon(1e-12));
}

TEST_CASE("ZB-H1 takes more memory than 1F1B only by what put-off weight gradients read, ZB-H2 much more") {
  const std::int64_t one = most_activations(job_of(Schedule::one_f_one_b, 4, 32));
  const std::int64_t h1 = most_activations(job_of(Schedule::zb_h1, 4, 32));
  const std::int64_t h2 = most_activations(job_of(Schedule::zb_h2, 4, 32));
  CHECK(h1 >= one);
  CHECK(static_cast<double>(h1) < 1.5 * static_cast<double>(one));
  CHECK(h2 > h1);
}

TEST_CASE("a V has no transfer where it turns, and its first rank holds both ends of the model") {
  const Job job = job_of(Schedule::zb_v, 4, 16);
  const Program program = compile(job);
  CHECK(program.rank_programs.front().first_stage);
  CHECK(program.rank_programs.front().last_stage);
  using Peers = std::vector<std::optional<Rank>>;
  CHECK(program.ranks[0_rank].peers.items() == Peers{{}, 1_rank, 1_rank, {}});
  CHECK(program.ranks[3_rank].peers.items() == Peers{2_rank, {}, {}, 2_rank});
  for (const ChunkId chunk : {ChunkId(0), ChunkId(1)})
    CHECK(other_end(program, Rank(chunk.value()), next_slot(chunk)) == previous_slot(chunk));
  // The embedding has one copy.
  for (const Group& group : program.groups) CHECK(group.kind != GroupKind::embedding);
}

TEST_CASE("layers are spread over virtual stages in the order a micro-batch passes them") {
  const Strategy loop = job_of(Schedule::interleaved, 2, 16).strategy;
  CHECK(loop.templates[0].stages[0].more == std::vector<Layers>{{4, 6}});
  CHECK(loop.templates[0].stages[1].first_layer == 2);
  const Strategy v = job_of(Schedule::zb_v, 2, 16).strategy;
  CHECK(v.templates[0].stages[0].more == std::vector<Layers>{{6, 8}});
  CHECK(v.templates[0].stages[1].more == std::vector<Layers>{{4, 6}});
  CHECK(parse_strategy(print(v)) == v);
}
