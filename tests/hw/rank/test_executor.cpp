// The executor of Mixed: runs the computes of any rank alone, step after step, and leaves nothing behind.
#include <catch2/catch.hpp>
#include <cmath>

#include "hw/executor.hpp"
#include "tests/models/tiny_job.hpp"

using namespace motley;

TEST_CASE("any rank of any small strategy can be executed alone, and all it allocated is freed") {
  for (Family family : {Family::gpt2, Family::llama})
    for (const Job& job : tests::every_small_job(family)) {
      const Program program = compile(job);
      for (Rank rank = 0; rank < program.rank_count(); ++rank) {
        HostExecutor executor(program, job.transformer, job.train, rank);
        const auto& instructions = program.class_of(rank).streams[0].instructions;
        for (int training_step = 0; training_step < 2; ++training_step)
          for (std::size_t i = 0; i < instructions.size(); ++i)
            if (instructions[i].op == Op::compute || instructions[i].op == Op::optimizer) {
              const double seconds =
                  executor.execute({rank, 0, static_cast<std::int32_t>(i)}, instructions[i]);
              REQUIRE(seconds >= 0);
            }
        INFO(print(job.strategy) << " rank " << rank);
        REQUIRE(executor.memory().live_bytes() == executor.memory().static_bytes());
      }
    }
}

TEST_CASE("what the executor makes up stays finite") {
  const Job job = tests::tiny_job({2, 4, 1});
  const Program program = compile(job);
  HostExecutor executor(program, job.transformer, job.train, 3);
  const auto& of_class = program.class_of(3);
  for (std::size_t i = 0; i < of_class.streams[0].instructions.size(); ++i)
    executor.execute({3, 0, static_cast<std::int32_t>(i)}, of_class.streams[0].instructions[i]);
  for (std::size_t id = 0; id < of_class.tensors.size(); ++id)
    if (of_class.tensors[id].role == TensorRole::parameter) {
      const float* values = executor.memory().at(static_cast<int>(id), -1);
      for (std::int64_t j = 0; j < executor.memory().count(static_cast<int>(id)); ++j)
        REQUIRE(std::isfinite(values[j]));
    }
}
