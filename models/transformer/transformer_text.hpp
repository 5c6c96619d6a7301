// Ranges, a reader and refusals that the readers of a Hugging Face config.json and of Motley's own keys share. Read
// next: models/transformer/transformer_config.cpp, models/transformer/transformer_text.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// The bounds exceed those of every published model 10 times or more, and products stay within int64.
inline constexpr IntegerRange kWidth{1, 1 << 20}, kRows{1, 1 << 22}, kLayers{1, 2'048}, kExperts{1, 1 << 14};

// Reads the keys of a map that its user asks for, and ignores the others; a null value counts as absent.
class Config {
 public:
  explicit Config(Yaml node) : node_(std::move(node)) {}

  Yaml find(std::string_view key) const;
  Location where(std::string_view key) const;  // of the value, or of the map that lacks it
  bool has_null(std::string_view key) const;   // whether the key is there without a value
  std::int64_t need(std::string_view key, IntegerRange range) const;
  std::int64_t integer(std::string_view key, IntegerRange range, std::int64_t otherwise) const;
  double number(std::string_view key, double otherwise) const;
  bool truth(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, const std::string& otherwise) const;
  // Reads layer numbers, ascending and each once.
  std::vector<std::int64_t> layers(std::string_view key) const;
  // Refuses ("unsupported-model") a value that would make the model compute another function than its family does.
  void require(std::string_view key, const std::vector<std::string>& supported) const;

 private:
  Yaml node_;
};

std::int64_t default_head_dim(const Transformer& t);  // 0: none
// Refuses shapes that no kernel could hold ("impossible-model").
void refuse_impossible(const Transformer& t, const Location& where);

// Reads `lora: {rank: 16, alpha: 32, on: [qkv, proj]}`. By default alpha is the rank, and `on` is every linear layer.
void read_lora(const Yaml& node, Transformer& t);

}  // namespace motley
