// Stages of one pipeline with different numbers of replicas: which rank has which sequences, and what crosses the
// boundaries, by closed form. tests/laws checks that they train the same function.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

std::vector<Job> jobs() { return tests::every_job_of_unlike_replicas(Family::llama); }

// The bytes that all ranks of a stage send in a step, to the next stage (true) and to the one before (false).
std::map<std::pair<int, bool>, double> sent_by_stage(const Program& program) {
  std::map<std::pair<int, bool>, double> sent;
  for (const RankEntry& entry : program.ranks)
    for (const Stream& stream : program.rank_programs[entry.rank_program].streams)
      for (const Instruction& instruction : stream.instructions)
        if (const auto* send = instruction.as<Send>())
          sent[{entry.stage, is_next(send->slot)}] += static_cast<double>(send->bytes);
  return sent;
}

}  // namespace

TEST_CASE("each stage has every sequence of a step once, however often it is replicated") {
  for (const Job& job : jobs()) {
    INFO(print(job.strategy));
    const Program program = compile(job);
    std::map<int, std::multiset<std::int64_t>> had;  // the sequences of each stage
    for (const RankEntry& entry : program.ranks) {
      const RankProgram& runs = program.rank_programs[entry.rank_program];
      const std::int64_t stride = runs.sequence_stride > 0 ? runs.sequence_stride : runs.micro_batch;
      for (std::int64_t m = 0; entry.tensor_index == 0 && m < runs.micro_batches; ++m)
        for (std::int64_t b = 0; b < runs.micro_batch; ++b)
          had[entry.stage].insert(entry.first_sequence + m * stride + b);
    }
    std::multiset<std::int64_t> all;
    for (std::int64_t i = 0; i < job.train.global_batch; ++i) all.insert(i);
    for (const auto& [stage, sequences] : had) CHECK(sequences == all);
  }
}

TEST_CASE(
    "a boundary of unlike replicas carries every row once, or once to each rank that is sent the whole") {
  for (const Job& job : jobs()) {
    INFO(print(job.strategy));
    const Program program = compile(job);
    check(program, job.cluster);
    REQUIRE(parse_program(print(program)) == program);
    const auto sent = sent_by_stage(program);
    const double rows =
        4.0 * static_cast<double>(job.train.global_batch * job.train.sequence * job.transformer.hidden);
    const PipelineTemplate& pipeline = job.strategy.templates[0];
    for (int s = 1; s < static_cast<int>(pipeline.stages.size()); ++s) {
      INFO("boundary before stage " << s);
      const auto after = pipeline.stages.begin() + s;
      const bool gathers = resharding_between(*(after - 1), *after) == Resharding::gather;
      const auto degree = [&](int stage) {
        return static_cast<double>(pipeline.stages[static_cast<std::size_t>(stage)].tensor_parallel);
      };
      CHECK(sent.at({s - 1, true}) == rows * (gathers ? 1 : degree(s)));
      CHECK(sent.at({s, false}) == rows * (gathers ? 1 : degree(s - 1)));
    }
  }
}

TEST_CASE("as many replicas written at each stage are the pipeline's own") {
  Job job = tests::tiny_job({1, 2, 2});
  Job written = job;
  for (Stage& stage : written.strategy.templates[0].stages) stage.replicas = 2;
  Program program = compile(written);
  program.strategy_hash = compile(job).strategy_hash;
  CHECK(program == compile(job));
}

TEST_CASE("each stage divides among its own replicas what they hold") {
  Job job = tests::tiny_job({1, 2, 1}, Family::llama);
  const Program whole = compile(job);
  job.strategy.templates[0].stages[1].replicas = 2;
  job.strategy.zero = 1;
  job.cluster = tests::tiny_cluster(3);
  const Program program = compile(job);
  CHECK(program.rank_programs.front().static_bytes == whole.rank_programs.front().static_bytes);
  // In fp32 8 of 16 bytes are optimizer state, and these are halved.
  CHECK(static_cast<double>(program.rank_programs[RankProgramId(1)].static_bytes) ==
        Approx(0.75 * static_cast<double>(whole.rank_programs[RankProgramId(1)].static_bytes)).epsilon(1e-3));
}
