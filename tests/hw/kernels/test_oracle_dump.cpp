// Writes what one rank computed, so that tests/hw/torch_oracle.py can compare it with PyTorch. That script runs the
// hidden test "[oracle dump]" with the file to write in MOTLEY_DUMP and the family (gpt2, or a tests::tiny_variant) in
// MOTLEY_DUMP_FAMILY. The file is JSON:
//
//   transformer: heads, kv_heads, head_dim, norm_epsilon, rope_theta, family, tied, qk_norm, windows, chunks,
//     thetas (by layer; 0: the layer does not rotate), rotated, gelu (of the gate), score_width,
//     attention_softcap, logit_softcap, embedding_scale,
//     latent {rank, rope, value}, experts {layers, count, per_token, ...}
//   train: learning_rate, beta1, beta2, epsilon, weight_decay
//   parameters, final: {name: {shape, decays, values}} before the first and after the last step
// gradients: {name: values} of the first step      logits: [values] of the first step, one for each micro-batch
//   steps: [{tokens: [[..]], targets: [[..]], loss}]
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hw/rank/work.hpp"
#include "hw/world/train.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/tiny_job.hpp"
#include "tests/support/tiny_text.hpp"

using namespace motley;
using nlohmann::json;

namespace {

constexpr std::int64_t kSteps = 5;

json values_of(RankWork& work, TensorId tensor, int micro_batch) {
  const auto values = work.values(tensor, micro_batch);
  return std::vector<float>(values.begin(), values.end());
}

json parameters_of(RankWork& work, const std::vector<Parameter>& all) {
  json dumped;
  const auto& tensors = work.rank_program().tensors;
  for (TensorId id : tensors.ids())
    if (tensors[id].role == TensorRole::parameter)
      dumped[tensors[id].name] = {{"shape", tensors[id].shape},
                                  {"decays", all[at(tensors[id].parameter.value())].decays},
                                  {"values", values_of(work, id, kNoMicroBatch)}};
  return dumped;
}

json gradients_of(RankWork& work) {
  json dumped;
  const auto& tensors = work.rank_program().tensors;
  for (TensorId id : tensors.ids())
    if (const std::optional<TensorId> gradient = work.memory().gradient_of(id))
      dumped[tensors[id].name] = values_of(work, *gradient, kNoMicroBatch);
  return dumped;
}

json data_of(const Job& job, const Text& text, std::int64_t step) {
  json ahead = json::array();  // item i: the tokens that are i places ahead
  for (std::int64_t distance = 0; distance < 2 + job.transformer.trained_extra(); ++distance) {
    json sequences = json::array();
    for (std::int64_t sequence = 0; sequence < job.train.global_batch; ++sequence) {
      std::vector<std::int32_t> tokens;
      text.append(job.train, step, sequence, distance, tokens);
      sequences.push_back(tokens);
    }
    ahead.push_back(sequences);
  }
  return {{"ahead", ahead}};
}

json describe_experts(const Transformer& t) {
  const Experts& e = t.experts;
  json layers = json::array();
  for (std::int64_t layer = 0; layer <= t.layers + t.trained_extra(); ++layer)
    if (layer != t.layers && t.has_experts(layer)) layers.push_back(layer);
  return {{"layers", layers},
          {"count", e.count},
          {"per_token", e.per_token},
          {"scale", e.scale},
          {"sigmoid", e.scores == RouterScores::sigmoid},
          {"groups", e.groups},
          {"groups_per_token", e.groups_per_token},
          {"normalise", e.normalise}};
}

json describe(const Job& job) {
  const Transformer& t = job.transformer;
  json windows = json::array(), chunks = json::array(), thetas = json::array();
  for (std::int64_t layer = 0; layer <= t.layers + t.trained_extra(); ++layer) {
    windows.push_back(t.window(layer));
    chunks.push_back(t.chunk(layer));
    thetas.push_back(t.rotates(layer) ? t.rope_theta_of(layer) : 0);
  }
  return {{"transformer",
           {{"family", t.family == Family::gpt2 ? "gpt2" : "llama"},
            {"layers", t.layers},
            {"heads", t.heads},
            {"kv_heads", t.kv_heads},
            {"head_dim", t.head_dim},
            {"norm_epsilon", t.norm_epsilon},
            {"rope_theta", t.rope_theta},
            {"qk_norm", t.qk_norm},
            {"windows", windows},
            {"chunks", chunks},
            {"thetas", thetas},
            {"rotated", t.rope_dim > 0 ? t.rope_dim : t.head_dim},
            {"score_width", t.score_width > 0 ? t.score_width : t.head_dim},
            {"gelu", t.activation == GateActivation::gelu},
            {"attention_softcap", t.attention_softcap},
            {"logit_softcap", t.logit_softcap},
            {"embedding_scale", t.embedding_scale},
            {"latent", {{"rank", t.latent.kv_rank}, {"rope", t.latent.rope_dim}, {"value", t.value_dim()}}},
            {"experts", describe_experts(t)},
            {"extra", t.trained_extra()},
            {"extra_weight", t.extra_prediction_weight},
            {"tied", t.tied_embeddings}}},
          {"train",
           {{"learning_rate", job.train.learning_rate},
            {"beta1", job.train.beta1},
            {"beta2", job.train.beta2},
            {"epsilon", job.train.epsilon},
            {"weight_decay", job.train.weight_decay}}}};
}

}  // namespace

TEST_CASE("dumps one rank's training", "[.][oracle dump]") {
  const char* const path = std::getenv("MOTLEY_DUMP");
  if (path == nullptr) return;  // only the oracle needs the file
  const std::string family = std::getenv("MOTLEY_DUMP_FAMILY");
  const std::string base = family.substr(0, family.find("-extra"));
  Transformer transformer = family == "gpt2" ? tests::tiny_transformer() : tests::tiny_variant(base);
  if (base != family) transformer = tests::with_extra_predictions(transformer);
  const Job job = tests::tiny_job({1, 1, 1}, transformer);
  const Text text = tests::tiny_text();
  const auto all = parameters(job.transformer);
  json dumped = describe(job);
  bool first_step = true;
  RankWork* work = nullptr;
  TrainOptions options;
  options.steps = kSteps;
  options.on_start = [&](Rank, RankWork& started) {
    work = &started;
    dumped["parameters"] = parameters_of(started, all);
    started.observer = [&](const Kernel& kernel, int micro_batch) {
      const KernelOp logits = job.transformer.logit_softcap > 0 ? KernelOp::softcap : KernelOp::matmul;
      if (first_step && kernel.op == logits && kernel.layer == job.transformer.layers)
        dumped["logits"].push_back(values_of(*work, kernel.out[0], micro_batch));
      if (first_step && kernel.op == KernelOp::embed_backward) dumped["gradients"] = gradients_of(*work);
    };
  };
  options.on_step = [&](std::int64_t step, double loss, std::optional<double>) {
    dumped["steps"].push_back(data_of(job, text, step));
    dumped["steps"].back()["loss"] = loss;
    first_step = false;
    if (step + 1 == kSteps) dumped["final"] = parameters_of(*work, all);
  };
  const TrainResult result = train_in_process(job, compile(job), text, options);
  for (std::size_t step = 0; step < result.extra_losses.size(); ++step)
    dumped["steps"][step]["extra_loss"] = result.extra_losses[step];
  std::ofstream(path) << dumped;
}
