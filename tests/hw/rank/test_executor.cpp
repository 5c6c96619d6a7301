// The executor of Mixed: runs the computes of any rank alone, step after step, and leaves nothing behind.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "hw/rank/executor.hpp"
#include "models/base/index.hpp"
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

TEST_CASE("any rank of any small strategy can be executed alone, and all it allocated is freed", "[slow]") {
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

TEST_CASE("repeats leave the state of one execution, bit for bit", "[slow]") {
  for (Family family : {Family::gpt2, Family::llama})
    for (const Job& job : tests::every_small_job(family)) {
      const Program program = compile(job);
      const Rank rank(program.rank_count() - 1);
      const RankProgram& rank_program = program.program_of(rank);
      HostExecutor once(program, job.transformer, job.train, rank);
      HostExecutor often(program, job.transformer, job.train, rank, {.repeats = {2, 4}});
      const auto& instructions = rank_program.streams[kComputeStream].instructions;
      INFO(print(job.strategy) << " rank " << rank.value());
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        if (instructions[i].op() != Op::compute && instructions[i].op() != Op::optimizer) continue;
        const Step step{rank, kComputeStream, static_cast<std::int32_t>(i)};
        once.execute(step, instructions[i]);
        const double seconds = often.execute(step, instructions[i]);
        if (const auto* compute = instructions[i].as<Compute>())
          check_spans(often.kernels(), *compute, seconds, instructions[i].flops);
        REQUIRE(often.memory().live_bytes() == once.memory().live_bytes());
        REQUIRE(often.memory().peak_bytes() == once.memory().peak_bytes());
        REQUIRE(often.work().loss_sum() == once.work().loss_sum());
        for (const TensorId id : rank_program.tensors.ids()) {
          const std::int32_t micro_batch = instructions[i].micro_batch;
          const float* const a = once.memory().find(id, micro_batch);
          const float* const b = often.memory().find(id, micro_batch);
          REQUIRE((a == nullptr) == (b == nullptr));
          if (a == nullptr) continue;
          const auto bytes = static_cast<std::size_t>(once.memory().count(id)) * sizeof(float);
          REQUIRE(std::memcmp(a, b, bytes) == 0);
        }
      }
    }
}

TEST_CASE("a collective inside a compute takes no time of its rank") {
  for (const Job& job : tests::every_small_job(Family::llama)) {
    const Program program = compile(job);
    const RankProgram& rank_program = program.program_of(0_rank);
    HostExecutor executor(program, job.transformer, job.train, 0_rank, {.repeats = {1, 2}});
    const auto& instructions = rank_program.streams[kComputeStream].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const auto* compute = instructions[i].as<Compute>();
      if (compute == nullptr) continue;
      executor.execute({0_rank, kComputeStream, static_cast<std::int32_t>(i)}, instructions[i]);
      for (const KernelSpan& span : executor.kernels())
        if (is_collective(rank_program.blocks[compute->block].kernels[at(span.kernel)].op))
          REQUIRE(span.end_s == span.begin_s);
    }
  }
}

TEST_CASE("what simulated ranks contribute may be zeros") {
  const Job job = tests::tiny_job({1, 2, 1});
  const Program program = compile(job);
  const RankProgram& rank_program = program.program_of(1_rank);
  const auto& first = rank_program.streams[kComputeStream].instructions[0];
  for (const Contribution contribution : {Contribution::zeros, Contribution::made_up}) {
    HostExecutor executor(program, job.transformer, job.train, 1_rank, {.contribution = contribution});
    std::size_t received = 0, zeros = 0;
    executor.work().observer = [&](const Kernel& kernel, std::int32_t micro_batch) {
      if (received > 0) return;  // the first kernel reads what the stage before would have sent
      for (const TensorId id : kernel.in)
        for (const float value : executor.work().values(id, micro_batch)) {
          ++received;
          if (value == 0) ++zeros;
        }
    };
    executor.execute({1_rank, kComputeStream, 0}, first);
    REQUIRE(received > 0);
    CHECK((zeros == received) == (contribution == Contribution::zeros));
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
