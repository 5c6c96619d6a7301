// A rank that computes alone meets the numbers that it would meet among others: kernels are up to five times faster or
// slower where numbers are not normal, and their times are those of a calibration.
#include <malloc.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "hw/rank/executor.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

bool is_usual(float value) { return value == 0 || (std::isnormal(value) && std::abs(value) < 1e3F); }

// Memory that nobody has written holds -1.7e38 from now on.
class WrittenMemory {
 public:
  WrittenMemory() { mallopt(M_PERTURB, 1); }
  ~WrittenMemory() { mallopt(M_PERTURB, 0); }
};

// Requires that all activations are usual after every compute of a lone rank. Returns how many were looked at.
std::int64_t check_activations(const Job& job, Rank rank) {
  const Program program = compile(job);
  HostExecutor executor(program, job.transformer, job.train, rank);
  const RankProgram& rank_program = program.program_of(rank);
  const auto& instructions = rank_program.streams[kComputeStream].instructions;
  std::int64_t looked_at = 0;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].op() != Op::compute) continue;
    executor.execute({rank, kComputeStream, static_cast<std::int32_t>(i)}, instructions[i]);
    for (const TensorId id : rank_program.tensors.ids()) {
      const Tensor& tensor = rank_program.tensors[id];
      if (tensor.role != TensorRole::activation) continue;
      const float* const values = executor.memory().find(id, instructions[i].micro_batch);
      if (values == nullptr) continue;
      ++looked_at;
      const auto unusual = std::find_if_not(values, values + executor.memory().count(id), is_usual);
      INFO(print(job.strategy) << "rank " << rank.value() << ": " << tensor.name);
      REQUIRE(unusual == values + executor.memory().count(id));
    }
  }
  return looked_at;
}

}  // namespace

TEST_CASE("a lone rank meets usual numbers, whatever the others would have brought", "[calibration][slow]") {
  const WrittenMemory written;
  std::vector<Job> jobs;
  for (const Family family : {Family::gpt2, Family::llama}) {
    for (const Job& job : tests::every_context_job(family)) jobs.push_back(job);
    for (const Job& job : tests::every_divided_job(family)) jobs.push_back(job);
  }
  for (const std::string& variant : tests::variants())
    if (const Transformer transformer = tests::tiny_variant(variant); transformer.experts.count > 0)
      for (const Job& job : tests::every_expert_job(transformer)) jobs.push_back(job);
  std::int64_t looked_at = 0;
  for (const Job& job : jobs)
    for (const Rank rank : {0_rank, Rank(static_cast<std::uint32_t>(compile(job).rank_count() - 1))})
      looked_at += check_activations(job, rank);
  REQUIRE(looked_at > 1000);
}

#ifdef __GLIBC__
TEST_CASE("freed memory is kept while a rank computes, and no longer") {
  if (tests::kSanitized) return;  // sanitizers have an allocator of their own
  // Whether a large block is the system's own, which goes back to it at once.
  const auto goes_back = [] {
    constexpr std::size_t kBytes = std::size_t{32} << 20;
    const std::size_t before = mallinfo2().hblkhd;
    const std::vector<char> block(kBytes);
    return mallinfo2().hblkhd >= before + kBytes;
  };
  const Job job = tests::tiny_job({1, 1, 1});
  const Program program = compile(job);
  REQUIRE(goes_back());
  {
    const HostExecutor outer(program, job.transformer, job.train, 0_rank);
    REQUIRE_FALSE(goes_back());
    { const HostExecutor inner(program, job.transformer, job.train, 0_rank); }
    REQUIRE_FALSE(goes_back());
  }
  REQUIRE(goes_back());
}
#endif
