// What sequence parallelism and partial recompute keep in memory and move, compared with the counts of their paper.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/row_jobs.hpp"

using namespace motley;

namespace {

struct RowCounts {
  int all_reduces = 0, all_gathers = 0, reduce_scatters = 0;
};
RowCounts collectives_in(const Block& block, int layer) {
  RowCounts counts;
  for (const Kernel& kernel : block.kernels) {
    if (kernel.layer != layer) continue;
    if (kernel.op == KernelOp::all_reduce) ++counts.all_reduces;
    if (kernel.op == KernelOp::all_gather) ++counts.all_gathers;
    if (kernel.op == KernelOp::reduce_scatter) ++counts.reduce_scatters;
  }
  return counts;
}

// The bytes of activations that a layer's forward keeps for its backward: it makes them and does not free them.
std::int64_t kept_bytes(const RankProgram& rank_program, int layer) {
  std::int64_t bytes = 0;
  for (const Kernel& kernel : rank_program.blocks.front().kernels) {
    if (kernel.layer != layer) continue;
    if (!is_collective(kernel.op))
      for (TensorId id : kernel.out) bytes += rank_program.tensors[id].bytes;
    for (TensorId id : kernel.frees) bytes -= rank_program.tensors[id].bytes;
  }
  return bytes;
}

Job gpt(bool rows, Recompute recompute) {
  Job job = tests::tiny_job({4, 1, 1});
  job.transformer.ffn = 4 * job.transformer.hidden;
  job.train.precision = Format::bf16;
  job.strategy.sequence_parallel = rows;
  job.strategy.recompute = recompute;
  return job;
}

}  // namespace

TEST_CASE(
    "divided rows replace each all-reduce by its two halves, and gather inputs again for the backward") {
  const Program whole = compile(gpt(false, Recompute::none)), rows = compile(gpt(true, Recompute::none));
  // arXiv:2205.05198, section 4.2.2: two all-reduces in each layer and pass; g and its conjugate, twice each.
  const RowCounts forward = collectives_in(whole.rank_programs.front().blocks.front(), 1);
  CHECK(forward.all_reduces == 2);
  const RowCounts halves = collectives_in(rows.rank_programs.front().blocks.front(), 1);
  CHECK(halves.all_reduces == 0);
  CHECK(halves.all_gathers == 2);
  CHECK(halves.reduce_scatters == 2);
  const RowCounts backward = collectives_in(rows.rank_programs.front().blocks[BlockId(1)], 1);
  CHECK(backward.all_reduces == 0);
  CHECK(backward.reduce_scatters == 2);
  CHECK(backward.all_gathers == 4);  // the two gradients, and again the two inputs
}

// Counted as in arXiv:2205.05198, section 4.2.2, without dropout and with attention that keeps no scores: every rank
// has the whole outputs of two norms, the sum between them and the layer's output, unless rows are divided; all else is
// cut anyway.
TEST_CASE("divided rows cut what a layer keeps whole by the tensor parallel degree") {
  const Program whole = compile(gpt(false, Recompute::none)), rows = compile(gpt(true, Recompute::none));
  const std::int64_t N = 2 * 16, C = 32, t = 4;
  const std::int64_t statistics = 2 * N * 2 * 4;  // mean and deviation of two norms, fp32
  const std::int64_t cut = (3 * C + C + 4 * C + 4 * C) / t * N * 2 + N * 4 / t * 4;  // qkv to activated; lse
  // The outputs of the norms, the sum between them, and the output, which is the next layer's input.
  CHECK(kept_bytes(whole.rank_programs.front(), 1) == 4 * N * C * 2 + statistics + cut);
  CHECK(kept_bytes(rows.rank_programs.front(), 1) == (4 * N * C * 2 + statistics) / t + cut);
}

TEST_CASE(
    "selective recompute keeps neither attention's output nor its normaliser, and computes only them again") {
  const Program none = compile(gpt(true, Recompute::none)), again = compile(gpt(true, Recompute::selective));
  const std::int64_t N = 2 * 16, C = 32, t = 4;
  CHECK(kept_bytes(none.rank_programs.front(), 1) - kept_bytes(again.rank_programs.front(), 1) ==
        N * C / t * 2 + N * 4 / t * 4);
  int repeated = 0;
  for (const Kernel& kernel : again.rank_programs.front().blocks[BlockId(1)].kernels)
    if (kernel.recompute) {
      CHECK(kernel.op == KernelOp::attention);
      ++repeated;
    }
  CHECK(repeated == 4);  // once in each layer
}

TEST_CASE("recompute_layers recomputes the first layers of a chunk and no other") {
  Job job = gpt(false, Recompute::full);
  job.strategy.templates[0].stages[0].recompute_layers = 3;
  const Program program = compile(job);
  std::vector<bool> repeated(4);
  for (const Kernel& kernel : program.rank_programs.front().blocks[BlockId(1)].kernels)
    if (kernel.recompute) repeated[at(kernel.layer)] = true;
  CHECK(repeated == std::vector<bool>{true, true, true, false});
}

TEST_CASE("the more layers are recomputed, the less memory and the more arithmetic a step takes") {
  double peak = 0, flops = 0;
  for (std::int64_t layers : {0, 1, 2, 4}) {
    Job job = gpt(false, layers == 0 ? Recompute::none : Recompute::full);
    if (layers > 0) job.strategy.templates[0].stages[0].recompute_layers = layers;
    const Program program = compile(job);
    const double new_peak = static_cast<double>(check(program, job.cluster)[0].peak);
    double new_flops = 0;
    for (const Instruction& instruction : program.rank_programs.front().streams[kComputeStream].instructions)
      new_flops += instruction.flops;
    INFO(layers << " layers");
    if (layers > 0) {
      CHECK(new_peak < peak);
      CHECK(new_flops > flops);
    }
    peak = new_peak;
    flops = new_flops;
  }
}

TEST_CASE("what crosses stages is cut by the tensor parallel degree where rows are divided") {
  Job job = tests::tiny_job({2, 2, 1});
  const auto sent = [](const Program& program) {
    std::int64_t bytes = 0;
    for (const RankProgram& rank_program : program.rank_programs)
      for (const Stream& stream : rank_program.streams)
        for (const Instruction& instruction : stream.instructions)
          if (const auto* send = instruction.as<Send>()) bytes += send->bytes;
    return bytes;
  };
  const std::int64_t whole = sent(compile(job));
  job.strategy.sequence_parallel = true;
  CHECK(2 * sent(compile(job)) == whole);
}

TEST_CASE("every job with divided rows or partial recompute passes check, prints and parses back") {
  for (const Transformer& transformer :
       {tests::tiny_transformer(Family::gpt2), tests::tiny_variant("deepseek-v3")}) {
    auto jobs = tests::every_row_job(transformer);
    for (const Job& job : tests::every_recomputing_job(transformer)) jobs.push_back(job);
    for (const Job& job : jobs) {
      INFO(print(job.strategy));
      const Program program = compile(job);
      REQUIRE_NOTHROW(check(program, job.cluster));
      REQUIRE(parse_program(print(program)) == program);
      REQUIRE(parse_strategy(print(job.strategy)) == job.strategy);
    }
  }
}

TEST_CASE("rows that do not divide, and gathering what is divided, are refused") {
  Job job = tests::tiny_job({4, 1, 1});
  job.train.sequence = 9;
  job.train.micro_batch = 1;
  job.strategy = expand(job.transformer, job.train, 4, 1, 1);
  job.strategy.sequence_parallel = true;
  CHECK_THROWS_AS(validate(job.transformer, job.train, job.strategy), Refusal);
  Job gathering = tests::tiny_job({2, 2, 1});
  gathering.strategy.sequence_parallel = true;
  gathering.strategy.templates[0].stages[1].resharding = Resharding::gather;
  CHECK_THROWS_AS(validate(gathering.transformer, gathering.train, gathering.strategy), Refusal);
}
