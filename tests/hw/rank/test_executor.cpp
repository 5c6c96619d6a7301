// The executor of Mixed: runs the computes of any rank alone, step after step, and leaves nothing behind.
#include <catch2/catch.hpp>
#include <cmath>

#include "hw/rank/executor.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// Requires that the kernels are those of the compute, one after the other within its seconds.
void check_spans(const std::vector<KernelSpan>& spans, const Compute& compute, double seconds, double flops) {
  REQUIRE(spans.size() == static_cast<std::size_t>(compute.last_kernel - compute.first_kernel));
  double now_s = 0, done = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    REQUIRE(spans[i].kernel == compute.first_kernel + static_cast<std::int32_t>(i));
    REQUIRE(spans[i].begin_s >= now_s);
    REQUIRE(spans[i].end_s >= spans[i].begin_s);
    now_s = spans[i].end_s;
    done += spans[i].flops;
  }
  REQUIRE(now_s <= seconds);
  REQUIRE(done == Approx(flops));
}

}  // namespace

TEST_CASE("any rank of any small strategy can be executed alone, and all it allocated is freed") {
  for (Family family : {Family::gpt2, Family::llama})
    for (const Job& job : tests::every_small_job(family)) {
      const Program program = compile(job);
      for (Rank rank : program.ranks.ids()) {
        HostExecutor executor(program, job.transformer, job.train, rank);
        const auto& instructions = program.program_of(rank).streams[kComputeStream].instructions;
        int executed = 0;
        for (int training_step = 0; training_step < 2; ++training_step)
          for (std::size_t i = 0; i < instructions.size(); ++i)
            if (instructions[i].op() == Op::compute || instructions[i].op() == Op::optimizer) {
              const double seconds =
                  executor.execute({rank, kComputeStream, static_cast<std::int32_t>(i)}, instructions[i]);
              REQUIRE(seconds >= 0);
              if (const auto* compute = instructions[i].as<Compute>())
                check_spans(executor.kernels(), *compute, seconds, instructions[i].flops);
              ++executed;
            }
        INFO(print(job.strategy) << " rank " << rank.value());
        REQUIRE(executed >= 2 * 3);  // in each step a forward, a backward and the optimizer
        REQUIRE(executor.memory().live_bytes() == executor.memory().static_bytes());
      }
    }
}

TEST_CASE("what the executor makes up stays finite") {
  const Job job = tests::tiny_job({2, 4, 1});
  const Program program = compile(job);
  HostExecutor executor(program, job.transformer, job.train, 3_rank);
  const auto& rank_program = program.program_of(3_rank);
  const auto& instructions = rank_program.streams[kComputeStream].instructions;
  for (std::size_t i = 0; i < instructions.size(); ++i)
    executor.execute({3_rank, kComputeStream, static_cast<std::int32_t>(i)}, instructions[i]);
  for (TensorId id : rank_program.tensors.ids())
    if (rank_program.tensors[id].role == TensorRole::parameter) {
      const float* values = executor.memory().at(id, kNoMicroBatch);
      for (std::int64_t j = 0; j < executor.memory().count(id); ++j) REQUIRE(std::isfinite(values[j]));
    }
}
