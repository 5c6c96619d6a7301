// What the readers of Hugging Face's config.json share: one reader for each `model_type`. Read next:
// models/transformer/transformer_config.cpp, models/transformer/config_variants.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "models/transformer/transformer_text.hpp"

namespace motley {

struct ConfigReader {
  const char* model_type;
  void (*read)(const Config&, Transformer&);
  const char* vocabulary_key = "vocab_size";
  std::int64_t vocabulary = 0;  // where the config may leave it out; 0: it may not
  const char* language_part =
      nullptr;  // model_type of the map `text_config`, which alone is read; null: no such map
};
// Readers of models whose layers have windows, further norms or other variants (config_variants.cpp).
std::vector<ConfigReader> variant_readers();

// Reads the keys that Llama and all families derived from it share, except those of the activation.
void read_shape(const Config& config, Transformer& t);
// The same of models with SwiGLU.
void read_block(const Config& config, Transformer& t);
// Reads `layer_types`, one for each layer: `windowed` or full_attention. Refuses all others ("unsupported-model").
// Returns false if the config does not have that key.
bool read_layer_types(const Config& config, Transformer& t, const char* windowed);
// Takes out a window, and what depends on it, if no layer has it.
void drop_unused_window(Transformer& t);
// Reads the part of a head that is rotated, by `partial_rotary_factor`.
void read_rotated_part(const Config& config, Transformer& t, double otherwise);
void read_latent_attention(const Config& config, Transformer& t);
// Reads experts as DeepSeek's models and those after them have them: shared ones, and dense layers first.
void read_deepseek_experts(const Config& config, Transformer& t);

}  // namespace motley
