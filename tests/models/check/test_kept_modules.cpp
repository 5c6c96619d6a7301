// What a forward keeps for its backward: with modules computed again, operands kept narrow, experts weighed inside.
#include <catch2/catch.hpp>

#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/row_jobs.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// Bytes that the forwards of all ranks' programs leave allocated for backwards.
std::int64_t kept_bytes(const Job& job) {
  const Program program = compile(job);
  std::int64_t bytes = 0;
  for (const RankProgram& rank_program : program.rank_programs)
    for (const Stream& stream : rank_program.streams)
      for (const Instruction& instruction : stream.instructions) {
        const Compute* const compute = instruction.as<Compute>();
        if (compute != nullptr && rank_program.blocks[compute->block].pass == Pass::forward)
          bytes += instruction.allocated - instruction.freed;
      }
  return bytes;
}

Job narrow_job(const Transformer& transformer, tests::Degrees degrees = {1, 1, 1}) {
  Job job = tests::tiny_job(degrees, transformer);
  job.train.precision = Format::bf16;
  job.train.matmuls = Format::fp8;
  Chip& chip = job.cluster.groups[0].chip;
  chip.kind = "gpu";
  chip.peak_flops[Format::fp8] = {2e11, "assumed"};
  return job;
}

std::vector<const Kernel*> kernels_of(const Program& program) {
  std::vector<const Kernel*> kernels;
  for (const RankProgram& rank_program : program.rank_programs)
    for (const Block& block : rank_program.blocks)
      for (const Kernel& kernel : block.kernels) kernels.push_back(&kernel);
  return kernels;
}

}  // namespace

TEST_CASE("one more module that is computed again never makes a forward keep more") {
  for (const std::string& name : tests::variants()) {
    const Transformer transformer = tests::tiny_variant(name);
    for (const tests::Degrees degrees : {tests::Degrees{1, 1, 1}, {2, 2, 1}}) {
      Job job = tests::tiny_job(degrees, transformer);
      job.strategy.recompute = Recompute::none;
      const std::int64_t everything = kept_bytes(job);
      std::int64_t before = everything;
      for (const Module module : tests::modules_of(transformer)) {
        job.strategy.recompute.add(module);
        const std::int64_t kept = kept_bytes(job);
        INFO(name << ", with " << text_of(job.strategy.recompute));
        // Where every layer has experts there is no dense product.
        CHECK((kept < before || (module == Module::inner && kept == before)));
        before = kept;
      }
      job.strategy.recompute = Recompute::full;
      CHECK(kept_bytes(job) < before);
    }
  }
}

TEST_CASE("operands of FP8 matmuls are kept in FP8, and nothing takes another time") {
  for (const std::string& name : tests::variants()) {
    Job job = narrow_job(tests::tiny_variant(name));
    job.train.kept_operands = KeptOperands::precision;
    const Program wide = compile(job);
    const std::int64_t kept_wide = kept_bytes(job);
    job.train.kept_operands = KeptOperands::matmuls;
    const Program narrow = compile(job);
    INFO(name);
    CHECK(kept_bytes(job) < kept_wide);
    const auto a = kernels_of(wide), b = kernels_of(narrow);
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(a[i]->op == b[i]->op);
      CHECK(a[i]->flops == b[i]->flops);
      CHECK(a[i]->bytes == b[i]->bytes);
    }
    job.train.matmuls.reset();
    CHECK(kept_bytes(job) == kept_wide);
  }
}

TEST_CASE("weight gradients that are put off keep narrow operands, computed again or not") {
  for (const Recompute& recompute :
       {Recompute::none, Recompute::full, Recompute{Recompute::bit(Module::activation)}}) {
    Job job = narrow_job(tests::tiny_variant("mixtral"), {1, 2, 1});
    job.strategy.schedule = Schedule::zb_h1;
    job.strategy.recompute = recompute;
    const Program program = compile(job);
    for (const RankProgram& rank_program : program.rank_programs)
      for (const Block& block : rank_program.blocks)
        for (const Kernel& kernel : block.kernels) {
          if (kernel.op != KernelOp::grouped_matmul_weight_gradient) continue;
          CHECK(rank_program.tensors[kernel.in.at(0)].format == Format::fp8);
          CHECK(rank_program.tensors[kernel.in.at(1)].format == Format::fp8);
        }
  }
}

TEST_CASE("a feed-forward's inner values are kept in half the bytes in FP8") {
  for (const char* name : {"llama", "mixtral", "deepseek-v3"}) {
    Job job = narrow_job(tests::tiny_variant(name));
    job.train.matmuls.reset();
    const std::int64_t wide = kept_bytes(job);
    std::int64_t inner = 0;
    for (const RankProgram& rank_program : compile(job).rank_programs)
      for (const Tensor& tensor : rank_program.tensors)
        if (tensor.role == TensorRole::activation && tensor.name.ends_with("inner")) inner += tensor.bytes;
    job.train.kept_inner = Format::fp8;
    INFO(name);
    REQUIRE(inner > 0);
    const auto micro_batches = job.strategy.templates[0].micro_batches;
    CHECK(kept_bytes(job) == wide - inner / 2 * micro_batches);
  }
}

TEST_CASE("experts that are weighed inside keep no outputs") {
  for (const char* name : {"mixtral", "qwen2-moe", "deepseek-v3"}) {
    Job job = tests::tiny_job({1, 1, 1}, tests::tiny_variant(name));
    const std::int64_t combined = kept_bytes(job);
    job.strategy.expert_weights = ExpertWeights::activation;
    INFO(name);
    CHECK(kept_bytes(job) < combined);
  }
}

TEST_CASE("without a stated room, accelerators hold 1.5 times the expected rows of experts; cores hold all") {
  Job job = narrow_job(tests::tiny_variant("deepseek-v3"), {1, 1, 4});
  job.train.matmuls.reset();
  for (Stage& stage : job.strategy.templates[0].stages) stage.expert_parallel = 4;
  const auto activations = [&] { return memory_by_stage(compile(job), job.cluster).at(0).activations_peak; };
  const std::int64_t accelerator = activations();
  job.train.expert_room = 1.5;
  const std::int64_t stated = activations();
  CHECK(accelerator == Approx(static_cast<double>(stated)).epsilon(0.01));
  job.train.expert_room = 1;
  CHECK(activations() < stated);
  job.train.expert_room = 0;
  job.cluster.groups[0].chip.kind = "cpu";
  CHECK(activations() > stated);
}

TEST_CASE("modules that the model does not have are refused where they stand") {
  for (const char* module : {"latent", "router"}) {
    Job job = tests::tiny_job({1, 1, 1}, tests::tiny_variant("llama"));
    job.strategy.recompute.add(*parse_word<Module>(module));
    const auto complaint = find_complaint(job.transformer, job.train, job.strategy);
    REQUIRE(complaint);
    CHECK(complaint->kind == "impossible-recompute");
    CHECK(complaint->message.find(module) != std::string::npos);
  }
}
