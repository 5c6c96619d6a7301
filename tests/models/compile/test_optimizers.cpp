// What a Program holds for the optimizer, and for frozen weights in NF4, under every way of laying a job out.
#include <catch2/catch.hpp>

#include "models/check/check.hpp"
#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/program/program_names.hpp"
#include "models/transformer/optimizer.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// Bytes of that role on all ranks, on the chip or its host.
std::int64_t bytes_of_role(const Program& program, TensorRole role) {
  std::int64_t bytes = 0;
  for (const RankEntry& entry : program.ranks)
    for (const Tensor& tensor : program.rank_programs[entry.rank_program].tensors)
      if (tensor.role == role) bytes += tensor.bytes;
  return bytes;
}

// What every rank would keep if it divided nothing with its replicas.
std::int64_t undivided(const Job& job, const Program& program) {
  const auto all = parameters(job.transformer);
  std::int64_t bytes = 0;
  for (const RankEntry& entry : program.ranks) {
    const RankProgram& rank_program = program.rank_programs[entry.rank_program];
    for (const Tensor& tensor : rank_program.tensors) {
      if (tensor.role != TensorRole::parameter || tensor.on_host || !all[at(*tensor.parameter)].trained)
        continue;
      const Parameter& whole = all[at(*tensor.parameter)];
      bytes += optimizer_bytes(
          job.train.optimizer_rule(),
          whole.experts > 0 ? part_of_experts(whole, rank_program.expert_parallel) : whole, tensor.shape);
    }
  }
  return bytes;
}

bool is_matmul(const Kernel& kernel) {
  return kernel.op == KernelOp::matmul || kernel.op == KernelOp::matmul_input_gradient;
}
bool is_dequantize(const Kernel& kernel) { return kernel.op == KernelOp::scale && kernel.in.empty(); }

// Bytes that such kernels of the first rank move in a micro-batch.
std::int64_t bytes_of_kernels(const Program& program, bool (*is_such)(const Kernel&)) {
  std::int64_t bytes = 0;
  for (const Block& block : program.rank_programs.front().blocks)
    for (const Kernel& kernel : block.kernels)
      if (is_such(kernel)) bytes += kernel.bytes;
  return bytes;
}

std::vector<Job> some_jobs() {
  std::vector<Job> jobs;
  const auto take = [&](const std::vector<Job>& from, std::size_t step) {
    for (std::size_t i = 0; i < from.size(); i += step) jobs.push_back(from[i]);
  };
  take(tests::every_small_job(Family::llama), 17);
  take(tests::every_divided_job(Family::gpt2), 7);
  take(tests::every_offloaded_job(Family::llama), 11);
  take(tests::every_expert_job(tests::tiny_variant("mixtral")), 5);
  return jobs;
}

}  // namespace

TEST_CASE("every optimizer's state is held, divided and offloaded as AdamW's is") {
  for (Job job : some_jobs())
    for (const Optimizer optimizer : every<Optimizer>()) {
      job.train.optimizer = optimizer;
      job.train.precision = Format::bf16;
      CAPTURE(name_of(optimizer), print(job.strategy));
      const Program program = compile(job);
      CHECK_NOTHROW(check(program, job.cluster));
      CHECK(parse_program(print(program)) == program);
      const std::int64_t state = bytes_of_role(program, TensorRole::optimizer);
      if (job.strategy.zero == 0) {
        const std::int64_t undivided_bytes = undivided(job, program);
        CHECK(state >= undivided_bytes);  // offloaded parts have copies of their own
        CHECK(state <= undivided_bytes + undivided_bytes / 100);
      }
      job.train.master_weights = false;
      CHECK(bytes_of_role(compile(job), TensorRole::optimizer) < state);
      job.train.master_weights = true;
    }
}

TEST_CASE("replicas that divide the state hold it once, whichever the optimizer is") {
  Job job = tests::tiny_job({1, 1, 4}, Family::llama);
  for (const Optimizer optimizer : every<Optimizer>()) {
    CAPTURE(name_of(optimizer));
    job.train.optimizer = optimizer;
    job.strategy.zero = 0;
    const std::int64_t four_times = bytes_of_role(compile(job), TensorRole::optimizer);
    for (const int zero : {1, 2, 3}) {
      job.strategy.zero = zero;
      const std::int64_t once = bytes_of_role(compile(job), TensorRole::optimizer);
      CHECK(4 * once >= four_times);
      CHECK(once <= four_times / 4 + four_times / 100);
    }
  }
}

TEST_CASE("a step of an optimizer that keeps less is not slower, but for Muon's orthogonalization") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  const auto step_bytes = [&](Optimizer optimizer) {
    job.train.optimizer = optimizer;
    const Program program = compile(job);
    return optimizer_step_bytes(program, program.rank_programs.front());
  };
  CHECK(step_bytes(Optimizer::sgd) < step_bytes(Optimizer::adafactor));
  CHECK(step_bytes(Optimizer::adafactor) < step_bytes(Optimizer::adamw_8bit));
  CHECK(step_bytes(Optimizer::adamw_8bit) < step_bytes(Optimizer::adamw));
  CHECK(step_bytes(Optimizer::muon) < step_bytes(Optimizer::adamw));
  const auto flops = [&](Optimizer optimizer) {
    job.train.optimizer = optimizer;
    const Program program = compile(job);
    double all = 0;
    for (const Stream& stream : program.rank_programs.front().streams)
      for (const Instruction& instruction : stream.instructions)
        if (instruction.op() == Op::optimizer) all += instruction.flops;
    return all;
  };
  double expected = 0;
  for (const Parameter& parameter : parameters(job.transformer))
    expected += orthogonalization_flops(parameter, parameter.shape);
  CHECK(flops(Optimizer::adamw) == 0);
  CHECK(flops(Optimizer::muon) == Approx(expected));
}

TEST_CASE(
    "frozen weights in NF4 take as many bytes as their format, and one matrix at a time is dequantized") {
  for (const std::int64_t tp : {1, 2}) {
    Job job = tests::tiny_job({tp, 1, 1}, Family::llama);
    job.train.precision = Format::bf16;
    job.transformer.lora = {4, 8, {"qkv", "fc2"}};
    const Program wide = compile(job);
    job.train.frozen_weights = FrozenWeights::nf4;
    const Program narrow = compile(job);
    CHECK(parse_program(print(narrow)) == narrow);
    CHECK(bytes_of_role(narrow, TensorRole::optimizer) == bytes_of_role(wide, TensorRole::optimizer));
    CHECK(bytes_of_role(narrow, TensorRole::gradient) == bytes_of_role(wide, TensorRole::gradient));
    std::int64_t expected = 0, largest = 0, dequantized = 0;
    for (const Parameter& parameter : parameters(job.transformer)) {
      std::int64_t elements = 1;
      for (const std::int64_t extent : shard_shape(parameter, tp)) elements *= extent;
      const bool quantized = may_be_quantized(parameter);
      expected += tp * (quantized ? nf4_bytes(elements) : 2 * elements);
      if (!quantized) continue;
      largest = std::max(largest, 2 * elements);
      dequantized += tp * (nf4_bytes(elements) + 2 * elements);
    }
    CHECK(bytes_of_role(narrow, TensorRole::parameter) == expected);
    const StageMemory before = check(wide, job.cluster).front(), after = check(narrow, job.cluster).front();
    CHECK(after.activations_peak >= before.activations_peak);
    CHECK(after.activations_peak <= before.activations_peak + largest);
    CHECK(after.peak < before.peak);
    // Matmuls move weights in the precision of training; before them, each weight is read in NF4 and written.
    CHECK(bytes_of_kernels(narrow, is_matmul) == bytes_of_kernels(wide, is_matmul));
    CHECK(bytes_of_kernels(narrow, is_dequantize) ==
          2 * dequantized / tp);  // in the forward and in the backward
    CHECK(bytes_of_kernels(wide, is_dequantize) == 0);
  }
}

TEST_CASE("nothing is quantized where everything is trained") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  job.train.frozen_weights = FrozenWeights::nf4;
  CHECK_THROWS_WITH(validate(job.transformer, job.train, job.strategy),
                    Catch::Contains("all weights are trained"));
}
