// Programs of models whose layers vary from Llama's: windows, chunks, sinks, caps, further norms and biases. Read next:
// models/compile/layer.cpp, models/compile/attention.cpp.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/transformer/transformer.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

std::vector<std::string> all_variant_names() {
  std::vector<std::string> names = tests::variants();
  for (const std::string& name : tests::simulated_variants()) names.push_back(name);
  return names;
}

// How many kernels of an operation all blocks of a Program have, those of recomputed forwards left out.
std::map<KernelOp, int> kernels_of(const Transformer& transformer) {
  std::map<KernelOp, int> counted;
  const Program program = compile(tests::tiny_job({1, 1, 1}, transformer));
  for (const RankProgram& rank_program : program.rank_programs)
    for (const Block& block : rank_program.blocks)
      for (const Kernel& kernel : block.kernels)
        if (!kernel.recompute) ++counted[kernel.op];
  return counted;
}

}  // namespace

TEST_CASE("every variant compiles to programs that end, fit, free all they take and are read back equal") {
  for (const std::string& name : all_variant_names())
    for (const tests::Degrees degrees : {tests::Degrees{1, 1, 1}, {2, 1, 1}, {2, 2, 1}})
      for (const Recompute& recompute : {Recompute(Recompute::none), Recompute(Recompute::full)})
        for (const bool sequence_parallel : {false, true}) {
          if (sequence_parallel && degrees.tp == 1) continue;
          Job job = tests::tiny_job(degrees, tests::tiny_variant(name));
          job.strategy.recompute = recompute;
          job.strategy.sequence_parallel = sequence_parallel;
          INFO(name << " " << print(job.strategy));
          const Program program = compile(job);
          REQUIRE_NOTHROW(check(program, job.cluster));
          REQUIRE(parse_program(print(program)) == program);
        }
}

TEST_CASE("recomputed norms of a variant are checked like all others") {
  for (const std::string& name : all_variant_names()) {
    Job job = tests::tiny_job({2, 1, 1}, tests::tiny_variant(name));
    job.strategy.recompute = Recompute::none;
    job.strategy.recompute.add(Module::norms);
    INFO(name);
    if (job.transformer.norms_inputs())
      REQUIRE_NOTHROW(check(compile(job), job.cluster));
    else
      REQUIRE(find_complaint(job.transformer, job.train, job.strategy));  // there are none to compute again
  }
}

TEST_CASE("all ranks together hold each parameter of a simulated variant once") {
  for (const std::string& name : tests::simulated_variants()) {
    const Job job = tests::tiny_job({2, 2, 1}, tests::tiny_variant(name));
    const Program program = compile(job);
    std::int64_t held = 0;
    for (const Rank rank : program.ranks.ids())
      for (const Tensor& tensor : program.program_of(rank).tensors) {
        if (tensor.role != TensorRole::parameter) continue;
        const Parameter parameter = parameters(job.transformer)[at(tensor.parameter.value())];
        if (parameter.cut != Cut::replicated || program.ranks[rank].tensor_index == 0)
          held += tensor.bytes / bytes_of(tensor.format);
      }
    INFO(name);
    CHECK(held == parameter_count(job.transformer));
  }
}

TEST_CASE("norms of outputs, caps and a scaled embedding are kernels of their own") {
  const Transformer plain = tests::tiny_transformer(Family::llama);
  const auto before = kernels_of(plain);
  Transformer t = plain;
  const int layers = static_cast<int>(plain.layers);
  t.norms = NormPlaces::both;
  auto after = kernels_of(t);
  CHECK(after[KernelOp::norm] == before.at(KernelOp::norm) + 2 * layers);
  CHECK(after[KernelOp::norm_backward] == before.at(KernelOp::norm_backward) + 2 * layers);
  t.norms = NormPlaces::after;
  after = kernels_of(t);
  CHECK(after[KernelOp::norm] == before.at(KernelOp::norm));
  CHECK(after[KernelOp::norm_backward] == before.at(KernelOp::norm_backward));
  CHECK(after[KernelOp::add_residual] == before.at(KernelOp::add_residual) + 2 * layers);
  t = plain;
  t.logit_softcap = 30;
  after = kernels_of(t);
  CHECK(after[KernelOp::softcap] == 1);
  CHECK(after[KernelOp::softcap_backward] == 1);
  t = plain;
  t.embedding_scale = 2;
  CHECK(kernels_of(t)[KernelOp::scale] == 2);
}

TEST_CASE("layers without rotation have neither its kernel nor a norm of queries that goes with it") {
  Transformer t = tests::tiny_variant("llama4");
  auto counted = kernels_of(t);
  CHECK(counted[KernelOp::rope] == 3);  // of four layers
  CHECK(counted[KernelOp::qk_norm] == 3);
  CHECK(counted[KernelOp::accumulate] == 0);  // no weights
  t.full_attention_rope = true;
  counted = kernels_of(t);
  CHECK(counted[KernelOp::rope] == 4);
  CHECK(counted[KernelOp::qk_norm] == 4);
}

TEST_CASE("attention that sees less computes less, and holds the same tensors") {
  double before = 1e300;
  for (const std::int64_t window : {0, 8, 4, 1}) {
    Transformer t = tests::tiny_transformer(Family::llama);
    t.sliding_window = window;
    double flops = 0;
    const Program program = compile(tests::tiny_job({1, 1, 1}, t));
    for (const Block& block : program.rank_programs.begin()->blocks)
      for (const Kernel& kernel : block.kernels)
        if (is_attention(kernel.op)) flops += kernel.flops;
    CHECK(flops < before);
    before = flops;
  }
}

TEST_CASE("real ranks refuse what they do not compute, by its key") {
  const std::map<std::string, std::string> keys = {{"gemma2-experts", "activation: gelu"},
                                                   {"gpt-oss", "activation: clamped_silu"},
                                                   {"llama4", "qk_norm_form: unweighted"},
                                                   {"olmo2", "qk_norm_form: all_heads"}};
  for (const auto& [name, key] : keys) CHECK(simulated_only(tests::tiny_variant(name)) == key);
  for (const std::string& name : tests::variants()) CHECK(simulated_only(tests::tiny_variant(name)).empty());
  Transformer t = tests::tiny_transformer(Family::llama);
  t.activation = GateActivation::gelu;
  CHECK(simulated_only(t).empty());
  t.experts.count = 2;
  CHECK(simulated_only(t) == "activation: gelu");
}

TEST_CASE(
    "recomputing as many layers as each stage has is recomputing the stage, further predictions and all") {
  for (const char* name : {"deepseek-v3", "mixtral"}) {
    Job whole = tests::tiny_job({1, 2, 1}, tests::with_extra_predictions(tests::tiny_variant(name)));
    whole.strategy.recompute = Recompute::full;
    Job counted = whole, fewer = whole;
    for (Stage& stage : counted.strategy.templates[0].stages)
      stage.recompute_layers = stage.last_layer - stage.first_layer;
    Stage& last = fewer.strategy.templates[0].stages.back();
    last.recompute_layers = last.last_layer - last.first_layer - 1;
    Program program = compile(counted);
    program.strategy_hash = compile(whole).strategy_hash;
    INFO(name);
    REQUIRE(program == compile(whole));
    const auto& blocks =
        program.program_of(Rank(1)).blocks;  // of the last stage, with the further predictions
    REQUIRE(std::any_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return std::any_of(block.kernels.begin(), block.kernels.end(), [&](const Kernel& kernel) {
        return kernel.recompute && kernel.layer >= whole.transformer.layers;
      });
    }));
    REQUIRE(compile(fewer).rank_programs != compile(whole).rank_programs);
  }
}
