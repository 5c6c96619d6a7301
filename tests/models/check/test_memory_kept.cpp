// Figures for what software keeps in memory in another way than a Program does, counted by hand.
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/check/memory_kept.hpp"
#include "models/compile/compile.hpp"
#include "models/scenario/software.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// A job in bf16 with a vocabulary so large that the peak is at the loss, where the activations of all layers are live.
Job wide_job(tests::Degrees degrees, Family family = Family::gpt2) {
  Job job = tests::tiny_job(degrees, family);
  job.transformer.vocabulary = 8192;
  job.train.precision = Format::bf16;
  Chip& chip = job.cluster.groups[0].chip;
  chip.kind = "gpu";
  chip.memory_bytes.value = 4e10;
  chip.peak_flops[Format::bf16] = {1e12, "assumed"};
  return job;
}

StageMemory memory_of(const Job& job, int stage = 0) {
  return memory_by_stage(compile(job), job.cluster).at(at(stage));
}

// How many more bytes a stage has with that figure, without fragmentation.
std::int64_t more_with(Job job, Sourced ChipSoftware::*figure, double value, int stage = 0) {
  const std::int64_t without = peak_of(memory_of(job, stage), Counted::allocated);
  job.cluster.groups[0].chip.software.*figure = {value, "assumed"};
  return peak_of(memory_of(job, stage), Counted::allocated) - without;
}

std::int64_t tokens_of(const Job& job) { return job.train.micro_batch * job.train.sequence; }

}  // namespace

TEST_CASE(
    "attention's scores are kept by every layer until its backward, and by one where all is computed again") {
  for (int tp : {1, 2}) {
    Job job = wide_job({tp, 1, 1});
    const Transformer& t = job.transformer;
    const std::int64_t a_layer = 5 * tokens_of(job) * job.train.sequence * t.heads / tp;
    CHECK(more_with(job, &ChipSoftware::kept_scores, 5) == t.layers * a_layer);
    job.strategy.recompute = Recompute::selective;
    CHECK(more_with(job, &ChipSoftware::kept_scores, 5) ==
          0);                         // the peak is at the loss, where no scores are live
    job.transformer.vocabulary = 64;  // now the peak is in a layer's backward
    const std::int64_t more = more_with(job, &ChipSoftware::kept_scores, 5);
    CHECK(more > 0);
    CHECK(more <= a_layer);
  }
}

TEST_CASE("of a sequence that several ranks have parts of, each keeps its queries' scores over all keys") {
  const Job whole = wide_job({1, 1, 1}, Family::llama);
  Job cut = wide_job({1, 1, 1}, Family::llama);
  cut.cluster = tests::tiny_cluster(2);
  cut.cluster.groups[0].chip = whole.cluster.groups[0].chip;
  cut.strategy = expand(cut.transformer, cut.train, 1, 1, 1, 2);
  CHECK(2 * more_with(cut, &ChipSoftware::kept_scores, 2) == more_with(whole, &ChipSoftware::kept_scores, 2));
}

TEST_CASE("dropout's two masks are as large as the rows of hidden width that a rank has") {
  for (const bool rows : {false, true}) {
    Job job = wide_job({2, 1, 1});
    job.strategy.sequence_parallel = rows;
    CHECK(more_with(job, &ChipSoftware::kept_masks, 1) ==
          job.transformer.layers * 2 * tokens_of(job) / (rows ? 2 : 1) * job.transformer.hidden);
  }
}

TEST_CASE(
    "logits are kept in so many bytes at the loss, less than the Program's where the gradient takes their "
    "place") {
  const Job job = wide_job({1, 2, 1}, Family::llama);
  const std::int64_t logits = tokens_of(job) * job.transformer.vocabulary;
  CHECK(more_with(job, &ChipSoftware::kept_logits, 12, 1) == (12 - 4) * logits);
  CHECK(more_with(job, &ChipSoftware::kept_logits, 4, 1) == 0);
  CHECK(more_with(job, &ChipSoftware::kept_logits, 2, 1) == -2 * logits);
  CHECK(more_with(job, &ChipSoftware::kept_logits, 12, 0) == 0);  // the first stage has no logits
}

TEST_CASE("a gradient that nobody reads lies there for each shape of a layer's weights, of all experts one") {
  const Job dense = wide_job({2, 1, 1}, Family::llama);
  const Transformer& t = dense.transformer;
  const std::int64_t C = t.hidden, heads = t.heads * t.head_dim;
  CHECK(more_with(dense, &ChipSoftware::kept_weight_gradients, 2) ==
        2 * ((heads + 2 * t.kv_heads * t.head_dim) * C / 2 + heads / 2 * C + 2 * t.ffn * C / 2 +
             t.ffn / 2 * C));
  Job experts = wide_job({1, 1, 1}, Family::llama);
  experts.transformer = tests::tiny_variant("mixtral");
  experts.transformer.vocabulary = 8192;
  Job more = experts;
  more.transformer.experts.count *= 2;
  const auto router = 2 * experts.transformer.experts.count * experts.transformer.hidden;
  CHECK(more_with(more, &ChipSoftware::kept_weight_gradients, 2) ==
        more_with(experts, &ChipSoftware::kept_weight_gradients, 2) + router);
}

TEST_CASE("where divided parameters are the master weights, no copy of them lies beside") {
  Job job = wide_job({1, 1, 2}, Family::llama);
  job.strategy.zero = 3;
  const std::int64_t parameters = memory_of(job).parameters;
  CHECK(parameters > 0);
  job.cluster.groups[0].chip.software.one_master = {true, "assumed"};
  CHECK(memory_of(job).parameters == 0);
  job.strategy.zero = 1;  // parameters are held whole, in 16 bits
  CHECK(memory_of(job).parameters > parameters);
}

TEST_CASE("an optimizer keeps so many bytes a parameter, whole or divided, instead of the Program's") {
  Job job = wide_job({2, 1, 2}, Family::llama);
  for (const int zero : {0, 1}) {
    job.strategy.zero = zero;
    const std::int64_t of_program = memory_of(job).optimizer;
    // 12 bytes beside 2 of the parameter.
    CHECK(of_program == (zero == 0 ? 6 : 3) * memory_of(job).parameters);
    CHECK(more_with(job, &ChipSoftware::kept_optimizer, 6) == -of_program / 2);
    CHECK(more_with(job, &ChipSoftware::kept_optimizer, 12) == 0);
  }
}

TEST_CASE("weights that are multiplied in fp8 take so many bytes, others two") {
  Job job = wide_job({2, 1, 1}, Family::llama);
  job.cluster.groups[0].chip.peak_flops[Format::fp8] = {2e12, "assumed"};
  job.cluster.groups[0].chip.peak_flops[Format::mxfp8] = {2e12, "assumed"};
  const Transformer& t = job.transformer;
  const std::int64_t C = t.hidden, heads = t.heads * t.head_dim;
  const std::int64_t weights = t.layers * ((2 * heads + 2 * t.kv_heads * t.head_dim) * C + 3 * t.ffn * C) / 2;
  CHECK(more_with(job, &ChipSoftware::kept_weights, 1) == 0);
  job.train.matmuls = Format::mxfp8;
  CHECK(more_with(job, &ChipSoftware::kept_weights, 1) == 0);
  job.train.matmuls = Format::fp8;
  CHECK(more_with(job, &ChipSoftware::kept_weights, 1) == -weights);
}

TEST_CASE("rows that are gathered for narrow matmuls are kept in the narrow format, each rank its own") {
  Job job = wide_job({2, 1, 1}, Family::llama);
  job.cluster.groups[0].chip.peak_flops[Format::fp8] = {2e12, "assumed"};
  job.train.matmuls = Format::fp8;
  const auto bytes_less = [](const Job& each) {
    const Program program = compile(each);
    const Program kept = as_kept(program, each.cluster);
    std::int64_t less = 0;
    const RankProgram &wide = program.program_of(Rank{0}), &narrow = kept.program_of(Rank{0});
    for (const TensorId id : wide.tensors.ids()) less += wide.tensors[id].bytes - narrow.tensors[id].bytes;
    return less;
  };
  CHECK(bytes_less(job) == 0);  // every rank has all rows, which are cast once
  job.strategy.sequence_parallel = true;
  CHECK(bytes_less(job) == job.transformer.layers * 2 * tokens_of(job) / 2 * job.transformer.hidden);
  job.train.kept_operands = KeptOperands::precision;
  CHECK(bytes_less(job) == 0);
  job.train.kept_operands = KeptOperands::matmuls;
  job.cluster.groups[0].chip.kind = "cpu";
  CHECK(bytes_less(job) == 0);
}

TEST_CASE("chips without such figures hold what the Program says, and what the Program does stays as it is") {
  Job job = wide_job({2, 2, 1});
  const Program program = compile(job);
  CHECK_FALSE(keeps_otherwise(program, job.cluster));
  CHECK(as_kept(program, job.cluster) == program);
  job.cluster.groups[0].chip.software.kept_scores = {5, "assumed"};
  REQUIRE(keeps_otherwise(program, job.cluster));
  CHECK(compile(job) == program);
  CHECK_NOTHROW(check(program, job.cluster));
  job.cluster.groups[0].chip.memory_bytes.value =
      static_cast<double>(memory_by_stage(program, job.cluster).at(0).peak - 1);
  CHECK_THROWS(check(program, job.cluster));
}

TEST_CASE("what an allocator took is less than what the device holds, and more than the tensors") {
  StageMemory stage;
  stage.peak = 100;
  stage.buffers = 20;
  stage.runtime = 10;
  stage.fragmentation = 5;
  CHECK(peak_of(stage, Counted::device) == 100);
  CHECK(peak_of(stage, Counted::reserved) == 70);
  CHECK(peak_of(stage, Counted::allocated) == 65);
}

TEST_CASE(
    "computing norms and the first product again keeps less than nothing again, and more than all again") {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Job job = wide_job({1, 1, 1}, family);
    job.transformer.layers = 8;
    job.strategy = expand(job.transformer, job.train, 1, 1, 1);
    const auto with = [&](Recompute recompute) {
      job.strategy.recompute = recompute;
      return memory_of(job).activations_peak;
    };
    const std::int64_t inner = family == Family::gpt2 ? job.transformer.ffn : 2 * job.transformer.ffn;
    CHECK(with(Recompute::none) - with(Recompute::alternate) >=
          job.transformer.layers * 2 * tokens_of(job) * (inner + 2 * job.transformer.hidden));
    CHECK(with(Recompute::alternate) > with(Recompute::full));
  }
}
