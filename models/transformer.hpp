// A dense decoder-only Transformer: what is trained. Values and arithmetic only.
// Shapes use the letters of the papers: B sequences, T tokens a sequence, C hidden, H heads, L
// layers, V vocabulary. Read next: models/strategy.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley {

enum class Family : std::uint8_t {
  gpt2,   // learned positions, LayerNorm, biases, GELU (tanh form), tied embeddings
  llama,  // RoPE, RMSNorm, no biases, SwiGLU, grouped-query attention
};

struct Transformer {
  std::string name;
  Family family = Family::gpt2;
  std::int64_t vocabulary = 0;     // V, unpadded
  std::int64_t hidden = 0;         // C
  std::int64_t layers = 0;         // L
  std::int64_t heads = 0;          // H
  std::int64_t kv_heads = 0;       // = heads unless grouped-query
  std::int64_t head_dim = 0;       // C / H unless given
  std::int64_t ffn = 0;            // inner width of the feed-forward part
  std::int64_t max_positions = 0;  // longest sequence
  bool tied_embeddings = true;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  std::string source;  // where the figures come from

  bool operator==(const Transformer&) const = default;
  bool learned_positions() const { return family == Family::gpt2; }
  bool biases() const { return family == Family::gpt2; }
  bool gated() const { return family == Family::llama; }
};

// How tensor parallelism cuts a parameter (Megatron-LM, arXiv:1909.08053).
enum class Cut : std::uint8_t {
  replicated,  // every tensor-parallel rank holds the whole
  rows,        // first axis cut in tp equal parts (column-parallel linear: weights are stored out x in)
  columns,     // second axis cut (row-parallel linear)
  vocabulary,  // first axis cut in parts of ceil(V/tp); the last part may hold rows that do not
               // exist
  fused_rows,  // first axis is `parts` matrices stacked (q,k,v or gate,up), each cut by rows
};

// A parameter as the whole model has it. Weights are stored (out, in), as PyTorch's Linear.
struct Parameter {
  std::string name;                 // "layers.3.qkv.weight"
  std::vector<std::int64_t> shape;  // whole, unpadded
  int layer = -1;                   // -1 embedding, 0..L-1, L head
  Cut cut = Cut::replicated;
  std::vector<std::int64_t> parts;  // fused_rows: rows of each stacked matrix (sum = shape[0])
  bool decays = false;              // weight decay applies (matrices yes; biases and norms no)
  double init_std = 0.0;            // 0: constant `init_value`
  double init_value = 0.0;

  std::int64_t count() const;
  bool operator==(const Parameter&) const = default;
};

// Names, in this order:
//   embedding.token.weight (V,C)  [embedding.position.weight (max_positions,C) if learned]
//   layers.i.norm1.weight [.bias] (C)   layers.i.qkv.weight ((H+2*kv)*head_dim, C) [.bias]
//   layers.i.proj.weight (C, H*head_dim) [.bias]   layers.i.norm2.weight [.bias]
//   layers.i.fc1.weight (ffn,C) [.bias]  -- gated: layers.i.gate_up.weight (2*ffn,C), gate rows
//   first layers.i.fc2.weight (C,ffn) [.bias]   head.norm.weight [.bias]   head.weight (V,C) unless
//   tied
// Initial values: normal(0, 0.02); proj and fc2 normal(0, 0.02/sqrt(2L)); norms 1; biases 0
// (GPT-2's).
std::vector<Parameter> parameters(const Transformer& transformer);

// Rows x columns of what one of `tp` ranks holds of the parameter (padded for Cut::vocabulary).
std::vector<std::int64_t> shard_shape(const Parameter& parameter, std::int64_t tp);

// All parameters; tied embeddings count once. Published counts are reproduced exactly
// (tests/transformer).
std::int64_t parameter_count(const Transformer& transformer);

// Model FLOPs of one sequence of T tokens, forward + backward, no recompute:
// matmuls 2*M*N*K each, backward twice the forward; attention counted full (not causal-halved),
// logits included, embedding look-up not. With H*head_dim = C and ffn = 4C this is 72*L*T*C^2*(1 +
// T/(6C) + V/(12*L*C)): Narayanan et al. 2021 (arXiv:2104.04473), without its full-recompute factor
// 4/3.
double model_flops_per_sequence(const Transformer& transformer, std::int64_t T);
inline constexpr const char* kFlopFormula =
    "arXiv:2104.04473 eq. 3 without recompute: 6*matmul_parameters*tokens + "
    "12*L*T*H*head_dim*tokens (attention not halved)";

}  // namespace motley
