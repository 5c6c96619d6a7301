// Forwards and backwards that alternate while tokens travel to experts: what stays in order, what waits for what, and
// which strategies cannot do so.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/compile_passes.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Job job_of(Schedule schedule, std::int64_t pp, int chunks, std::int64_t global_batch) {
  Job job = tiny_job({1, 1, 1}, tiny_variant("mixtral"));
  job.transformer.layers = 12;
  job.cluster = tiny_cluster(static_cast<int>(2 * pp));
  job.train.global_batch = global_batch;
  job.strategy = expand(job.transformer, job.train, 1, pp, 2);
  for (Stage& stage : job.strategy.templates[0].stages) stage.expert_parallel = 2;
  use_schedule(job.transformer, job.strategy, schedule, chunks);
  job.strategy.overlap_experts = true;
  return job;
}

std::vector<Compute> pieces_of(const RankProgram& rank_program, int micro_batch, Pass pass) {
  std::vector<Compute> pieces;
  for (const Instruction& each : rank_program.streams[kComputeStream].instructions)
    if (const auto* compute = each.as<Compute>(); compute != nullptr && each.micro_batch == micro_batch &&
                                                  rank_program.blocks[compute->block].pass == pass)
      pieces.push_back(*compute);
  return pieces;
}

std::int64_t exchanges(const Stream& stream) {
  return std::count_if(stream.instructions.begin(), stream.instructions.end(), [](const Instruction& each) {
    const auto* collective = each.as<Collective>();
    return collective != nullptr && collective->kind == CollectiveKind::all_to_all;
  });
}

// The length of the longest run of computes that belong to one pass of one micro-batch.
std::size_t longest_stretch(const RankProgram& rank_program) {
  std::size_t longest = 0, now = 0;
  std::optional<std::pair<BlockId, std::int32_t>> before;  // block and micro-batch
  for (const Instruction& each : rank_program.streams[kComputeStream].instructions) {
    const auto* compute = each.as<Compute>();
    if (compute == nullptr) continue;
    const std::pair pass{compute->block, each.micro_batch};
    now = before == pass ? now + 1 : 1;
    longest = std::max(longest, now);
    before = pass;
  }
  return longest;
}

std::string kind_of_refusal(const Job& job) {
  try {
    compile(job);
  } catch (const Refusal& refusal) {
    return refusal.kind();
  }
  return "";
}

}  // namespace

TEST_CASE(
    "side by side, each pass keeps its order, every exchange has its own stream, and nobody waits for ever") {
  struct Shape {
    Schedule schedule;
    std::int64_t pp;
    int chunks;
    std::int64_t global_batch;
  };
  for (const Shape& shape : {Shape{Schedule::one_f_one_b, 1, 1, 16}, Shape{Schedule::one_f_one_b, 1, 1, 4},
                             Shape{Schedule::interleaved, 2, 2, 16}, Shape{Schedule::interleaved, 3, 2, 24},
                             Shape{Schedule::interleaved, 4, 3, 32}, Shape{Schedule::interleaved, 2, 3, 8},
                             Shape{Schedule::dualpipe_v, 2, 2, 16}, Shape{Schedule::dualpipe_v, 4, 2, 48}})
    for (int buffers : {1, 2}) {
      Job job = job_of(shape.schedule, shape.pp, shape.chunks, shape.global_batch);
      job.strategy.p2p_buffers = buffers;
      CAPTURE(name_of(shape.schedule), shape.pp, shape.chunks, shape.global_batch, buffers);
      const Program program = compile(job);
      CHECK_NOTHROW(check(program, job.cluster));
      job.strategy.overlap_experts = false;
      const Program plain = compile(job);
      for (RankProgramId id : program.rank_programs.ids()) {
        const RankProgram &rank_program = program.rank_programs[id], &before = plain.rank_programs[id];
        for (int m = 0; m < rank_program.micro_batches; ++m)
          for (Pass pass : {Pass::forward, Pass::backward})
            CHECK(pieces_of(rank_program, m, pass) == pieces_of(before, m, pass));
        CHECK(exchanges(rank_program.streams[kComputeStream]) == 0);
        const auto stream = find_stream(rank_program, StreamKind::exchange);
        REQUIRE(stream);
        CHECK(exchanges(rank_program.streams[*stream]) == exchanges(before.streams[kComputeStream]));
      }
    }
}

TEST_CASE("side by side, nobody waits for ever, however few micro-batches there are") {
  for (int pp : {2, 3, 4, 5})
    for (int micro_batches = pp; micro_batches <= 3 * pp; micro_batches += pp)
      for (const auto& [schedule, chunks] :
           {std::pair{Schedule::interleaved, 2}, {Schedule::interleaved, 3}, {Schedule::dualpipe_v, 2}}) {
        if (schedule == Schedule::dualpipe_v && micro_batches < 2 * pp) continue;
        for (int buffers : {1, 2}) {
          Job job = job_of(Schedule::one_f_one_b, 1, 1, 8);
          job.transformer.layers = pp * chunks;
          job.cluster = tiny_cluster(2 * pp);
          job.train.global_batch = 4 * micro_batches;
          job.strategy = expand(job.transformer, job.train, 1, pp, 2);
          for (Stage& stage : job.strategy.templates[0].stages) stage.expert_parallel = 2;
          use_schedule(job.transformer, job.strategy, schedule, chunks);
          job.strategy.overlap_experts = true;
          job.strategy.p2p_buffers = buffers;
          CAPTURE(pp, micro_batches, name_of(schedule), chunks, buffers);
          CHECK_NOTHROW(check(compile(job), job.cluster));
        }
      }
}

TEST_CASE("side by side, a piece of the one stands between two of the other") {
  const Program program = compile(job_of(Schedule::one_f_one_b, 1, 1, 16));
  const RankProgram& rank_program = program.rank_programs.front();
  std::vector<std::pair<int, Pass>> order;
  for (const Instruction& each : rank_program.streams[kComputeStream].instructions)
    if (const auto* compute = each.as<Compute>())
      order.emplace_back(each.micro_batch, rank_program.blocks[compute->block].pass);
  const auto first = [&](int m, Pass pass) {
    return std::find(order.begin(), order.end(), std::pair{m, pass}) - order.begin();
  };
  CHECK(first(0, Pass::forward) == 0);
  CHECK(first(0, Pass::backward) == first(1, Pass::forward) + 1);
  CHECK(order[at(first(1, Pass::forward)) + 2] == std::pair{1, Pass::forward});
  Job alone = job_of(Schedule::one_f_one_b, 1, 1, 16);
  alone.strategy.overlap_experts = false;
  // The first forward and the last backward run alone.
  CHECK(longest_stretch(rank_program) == longest_stretch(compile(alone).rank_programs.front()));
}

TEST_CASE(
    "computes wait for the exchange that brings their tokens, exchanges for the compute that packs them") {
  const Program program = compile(job_of(Schedule::interleaved, 2, 2, 16));
  for (const RankProgram& rank_program : program.rank_programs) {
    const StreamId stream = find_stream(rank_program, StreamKind::exchange).value();
    const auto& sent = rank_program.streams[stream].instructions;
    const auto& computes = rank_program.streams[kComputeStream].instructions;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const bool follows = i > 0 && sent[i].after.empty();  // it follows the one before
      if (!follows) {
        REQUIRE(sent[i].after.size() == 1);
        CHECK(sent[i].after[0].stream == kComputeStream);
        CHECK(computes[at(sent[i].after[0].index)].micro_batch == sent[i].micro_batch);
      } else {
        CHECK(sent[i - 1].micro_batch == sent[i].micro_batch);
      }
    }
    std::size_t awaited = 0;
    for (const Instruction& each : computes)
      for (const After& after : each.after)
        if (after.stream == stream) {
          ++awaited;
          CHECK(sent[at(after.index)].micro_batch == each.micro_batch);
        }
    CHECK(awaited > 0);
  }
}

TEST_CASE("what cannot run side by side is refused, with what can") {
  CHECK(kind_of_refusal(job_of(Schedule::one_f_one_b, 2, 1, 16)) == "impossible-schedule");
  CHECK(kind_of_refusal(job_of(Schedule::gpipe, 1, 1, 16)) == "impossible-schedule");
  CHECK(kind_of_refusal(job_of(Schedule::zb_v, 2, 2, 16)) == "impossible-schedule");
  Job job = job_of(Schedule::interleaved, 2, 2, 16);
  CHECK(kind_of_refusal(job).empty());
  job.strategy.zero = 2;
  CHECK(kind_of_refusal(job) == "impossible-sharding");
  job.strategy.zero = 1;
  CHECK(kind_of_refusal(job).empty());
  job.strategy.templates[0].stages[1].offload = Offload{0, 0.5};
  CHECK(kind_of_refusal(job) == "impossible-offload");
}

TEST_CASE("where every rank has all experts there is nothing to hide, and nothing changes") {
  Job job = job_of(Schedule::interleaved, 2, 2, 16);
  for (Stage& stage : job.strategy.templates[0].stages) stage.expert_parallel = 1;
  const Program with = compile(job);
  job.strategy.overlap_experts = false;
  CHECK(with.rank_programs == compile(job).rank_programs);
}

TEST_CASE("experts are divided over the ranks of stages that have some, and of no other") {
  Transformer transformer = tiny_variant("mixtral");
  transformer.layers = 4;
  transformer.experts.dense_layers = {0, 1};
  for (const std::int64_t cut : {1, 2, 3}) {  // layers in the first stage
    Job job = tiny_job({1, 2, 2}, transformer);
    std::vector<Stage>& stages = job.strategy.templates[0].stages;
    stages[0].last_layer = stages[1].first_layer = cut;
    for (Stage& stage : stages) stage.expert_parallel = 2;
    const Program program = compile(job);
    for (const Rank rank : program.ranks.ids()) {
      const RankProgram& rank_program = program.program_of(rank);
      const bool has_experts = rank_program.chunks[ChunkId(0)].last_layer > 2;
      CAPTURE(cut, rank.value());
      CHECK(rank_program.expert_parallel == (has_experts ? 2 : 1));
    }
  }
}
