// Parameter counts, shards and FLOPs of the models that ship. Read next: tests/models/test_cluster.cpp.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/scenario.hpp"
#include "models/transformer.hpp"

using namespace motley;

TEST_CASE("parameter counts are the published ones") {
  // As the model cards on the Hugging Face hub and torch's numel() give them; gpt3-175b: equation 2
  // of arXiv:2104.04473 rounded there to 174.6 B.
  const auto [name, published] = GENERATE(table<std::string, std::int64_t>({
      {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3.2-1b", 1'235'814'400},
      {"tinyllama-1.1b", 1'100'048'384},
      {"gpt3-175b", 174'615'846'912},
  }));
  INFO(name);
  CHECK(parameter_count(load_transformer(name)) == published);
}

TEST_CASE("model FLOPs are those of arXiv:2104.04473, without its recompute factor") {
  const Transformer t = load_transformer("gpt3-175b");
  const double L = 96, T = 2048, C = 12288, V = 51200;
  const double paper = 72 * L * T * C * C * (1 + T / (6 * C) + V / (12 * L * C));
  CHECK(model_flops_per_sequence(t, 2048) == Approx(paper).epsilon(1e-12));
}

TEST_CASE("tensor-parallel shards of cut parameters add up to the whole") {
  const Transformer t = load_transformer("llama-2-70b");
  for (const Parameter& parameter : parameters(t)) {
    std::int64_t shard = 1;
    for (std::int64_t extent : shard_shape(parameter, 8)) shard *= extent;
    INFO(parameter.name);
    CHECK(shard * (parameter.cut == Cut::replicated ? 1 : 8) == parameter.count());
  }
}

TEST_CASE("a vocabulary that does not divide is padded, not cut short") {
  const Transformer t = load_transformer("gpt2");
  const Parameter token = parameters(t)[0];
  CHECK(shard_shape(token, 8) == std::vector<std::int64_t>{6283, 768});
  CHECK(6283 * 8 >= t.vocabulary);
}

TEST_CASE("parameters have the names and order that the Program relies on") {
  const std::vector<Parameter> gpt2 = parameters(load_transformer("gpt2"));
  CHECK(gpt2[0].name == "embedding.token.weight");
  CHECK(gpt2[1].name == "embedding.position.weight");
  CHECK(gpt2[4].name == "layers.0.qkv.weight");
  CHECK(gpt2[4].parts == std::vector<std::int64_t>{768, 768, 768});
  CHECK(gpt2.back().name == "head.norm.bias");
  const std::vector<Parameter> llama = parameters(load_transformer("llama-3-8b"));
  CHECK(llama[2].shape == std::vector<std::int64_t>{4096 + 2 * 1024, 4096});
  CHECK(llama[5].name == "layers.0.gate_up.weight");
  CHECK(llama.back().name == "head.weight");
}
