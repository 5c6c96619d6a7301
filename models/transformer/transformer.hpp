// A decoder-only Transformer, dense or with routed experts: the model that is trained. Values and arithmetic only.
// Shapes use the letters of the papers: B sequences, T tokens in a sequence, C hidden, H heads, L layers, V
// vocabulary. Read next: models/strategy/strategy.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

enum class Family : std::uint8_t {
  gpt2,  // learned positions, LayerNorm, biases, GELU (tanh form), tied embeddings
  llama,  // RoPE, RMSNorm, no biases, SwiGLU, grouped-query attention. Mistral, Mixtral, Qwen, Phi-3, Gemma, gpt-oss,
          // Llama 4, OLMo 2, GLM-4 and DeepSeek are of this family, with some of the fields below
};
template <>
inline constexpr auto kWords<Family> = words("gpt2", "llama");

enum class NormPlaces : std::uint8_t {
  before,  // of the inputs of attention and of the feed-forward part: two norms in a layer
  both,  // of inputs and of outputs, before these are added to the residual: four (Gemma 2, arXiv:2408.00118)
  after  // of the outputs alone: two (OLMo 2, arXiv:2501.00656)
};
template <>
inline constexpr auto kWords<NormPlaces> = words("before", "both", "after");

// Activation of the gate in a gated feed-forward part and in experts.
enum class GateActivation : std::uint8_t {
  silu,         // SwiGLU (arXiv:2002.05202)
  gelu,         // GeGLU, tanh form
  clamped_silu  // g * sigmoid(1.702 g) * (up + 1), both clamped to 7 (gpt-oss, arXiv:2508.10925)
};
template <>
inline constexpr auto kWords<GateActivation> = words("silu", "gelu", "clamped_silu");

// What the RMSNorm of queries and keys goes over.
enum class QkNormForm : std::uint8_t {
  head,       // each head by itself, with one weight for all heads (Qwen3, Gemma 3)
  all_heads,  // all heads together, with a weight for each element (OLMo 2); tensor-parallel ranks sum the squares
  unweighted  // each head, without a weight, in layers that rotate (Llama 4)
};
template <>
inline constexpr auto kWords<QkNormForm> = words("head", "all_heads", "unweighted");

// Attention whose keys and values come from one narrow vector for each token (DeepSeek-V2, arXiv:2405.04434, section
// 2.1). kv_rank 0: not used.
struct LatentAttention {
  std::int64_t q_rank = 0;  // width of the narrow vector for queries; 0: queries come from the hidden vector
  std::int64_t kv_rank = 0;
  std::int64_t rope_dim = 0;   // part of head_dim that RoPE rotates; all heads share that part of the key
  std::int64_t value_dim = 0;  // width of a head's values

  bool operator==(const LatentAttention&) const = default;
  bool used() const { return kv_rank > 0; }
};

enum class RouterScores : std::uint8_t {
  softmax,  // softmax over all experts; the best experts are taken afterwards
  sigmoid   // sigmoid of each expert's own score (DeepSeek-V3, arXiv:2412.19437, section 2.1.2)
};
template <>
inline constexpr auto kWords<RouterScores> = words("softmax", "sigmoid");

// A feed-forward part with experts, of which each token passes some (arXiv:2101.03961). count 0: none.
struct Experts {
  std::int64_t count = 0;
  std::int64_t per_token = 0;              // routed experts that a token passes
  std::int64_t ffn = 0;                    // inner width of each expert
  std::int64_t shared_ffn = 0;             // inner width of the shared expert, which every token passes; 0:
                                           // none
  bool shared_gate = false;                // the shared expert's output is multiplied by a sigmoid of its own
                                           // (Qwen2-MoE)
  std::vector<std::int64_t> dense_layers;  // ascending numbers of the layers that have the ordinary
                                           // feed-forward part
  RouterScores scores = RouterScores::softmax;
  bool normalise = false;  // the scores of the chosen experts are divided by their sum
  double scale = 1.0;      // factor on the scores of the chosen experts
  // Each expert has a bias that is added to its score for the choice only; a rule moves it, not a gradient
  // (arXiv:2408.15664).
  bool balancing_bias = false;
  // Experts stand in `groups` equal groups; a token chooses from its best `groups_per_token` groups.
  std::int64_t groups = 1, groups_per_token = 1;
  bool bias = false;             // both matrices of each expert have biases (gpt-oss)
  bool router_bias = false;      // the router has a trained bias (gpt-oss)
  bool weighted_inputs = false;  // scores multiply what an expert takes, not what it gives (Llama 4)

  bool operator==(const Experts&) const = default;
};

// Low-rank adapters (LoRA, arXiv:2106.09685) beside each named linear layer: y = W x + alpha/rank * B A x. Only A and
// B are trained. rank 0: none.
struct Lora {
  std::int64_t rank = 0;
  double alpha = 0;
  // Linear layers: qkv, proj, fc2, gate_up or fc1; parts of them: q, k, v, gate, up.
  std::vector<std::string> on;

  bool operator==(const Lora&) const = default;
  bool used() const { return rank > 0; }
  bool beside(const std::string& linear) const;
  double scale() const { return alpha / static_cast<double>(rank); }
};

// What a layer's query sees: all tokens before it, those of a window, or those of its chunk (0: neither).
struct Sight {
  std::int64_t window = 0, chunk = 0;
};

struct Transformer {
  std::string name;
  Family family = Family::gpt2;
  std::int64_t vocabulary = 0;     // V, unpadded
  std::int64_t hidden = 0;         // C
  std::int64_t layers = 0;         // L
  std::int64_t heads = 0;          // H
  std::int64_t kv_heads = 0;       // equal to `heads` unless attention is grouped-query
  std::int64_t head_dim = 0;       // width of a head; by default C / H
  std::int64_t ffn = 0;            // inner width of the feed-forward part
  std::int64_t max_positions = 0;  // longest sequence
  bool tied_embeddings = true;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  bool qkv_bias = false, output_bias = false, ffn_bias = false;  // llama only; gpt2 has all three biases
  bool qk_norm = false;  // RMSNorm over queries and keys before RoPE (Qwen3)
  QkNormForm qk_norm_form = QkNormForm::head;
  NormPlaces norms = NormPlaces::before;
  GateActivation activation = GateActivation::silu;
  std::int64_t sliding_window =
      0;  // tokens that a query sees, with its own (arXiv:2310.06825); 0: all before
  // Sequences are cut in chunks of so many tokens, and a query sees those of its own chunk (Llama 4); 0: they are not.
  std::int64_t attention_chunk = 0;
  std::vector<std::int64_t> full_attention;  // ascending numbers of the layers without that window or chunk
  bool full_attention_rope = true;           // false: the layers of `full_attention` have no RoPE (Llama 4)
  double windowed_rope_theta = 0;            // rope_theta of the layers with a window (Gemma 3); 0: the same
  std::int64_t rope_dim =
      0;  // part of head_dim that RoPE rotates (GLM-4); 0: all of it. Not latent attention's
  bool attention_sinks =
      false;  // each head has a logit that takes part in the softmax and has no value (gpt-oss)
  std::int64_t score_width = 0;  // scores are divided by the root of it (Gemma); 0: head_dim
  // x becomes cap * tanh(x / cap), of the scores and of the logits (Gemma 2); 0: it stays.
  double attention_softcap = 0, logit_softcap = 0;
  double embedding_scale = 1;  // factor on the embedding (Gemma: the root of C)
  LatentAttention latent;
  Experts experts;
  // Number of modules that predict further tokens (arXiv:2412.19437, section 2.2), and the weight of the mean of
  // their losses beside the model's own loss; weight 0: training leaves the modules out.
  std::int64_t extra_predictions = 0;
  double extra_prediction_weight = 0;
  Lora lora;
  std::string source;  // source of the figures

  bool operator==(const Transformer&) const = default;
  bool learned_positions() const { return family == Family::gpt2; }
  bool biases() const { return family == Family::gpt2; }
  bool gated() const { return family == Family::llama; }
  bool has_experts(std::int64_t layer) const;
  bool has_equal_layers() const;                  // whether every layer does the same work
  std::int64_t window(std::int64_t layer) const;  // tokens that a query of this layer sees; 0: all before it
  std::int64_t chunk(std::int64_t layer) const;   // tokens of a chunk of this layer's attention; 0: no chunks
  bool sees_all(std::int64_t layer) const { return window(layer) == 0 && chunk(layer) == 0; }
  bool rotates(std::int64_t layer) const;  // whether RoPE rotates the queries and keys of this layer
  double rope_theta_of(std::int64_t layer) const;
  bool norms_heads(std::int64_t layer) const;  // whether a norm of queries and keys stands in this layer
  bool norms_inputs() const { return norms != NormPlaces::after; }
  bool norms_outputs() const { return norms != NormPlaces::before; }
  std::int64_t trained_extra() const { return extra_prediction_weight > 0 ? extra_predictions : 0; }
  // Number of tokens beyond the next that this layer predicts: k+1 for module k, whose layer has number L+1+k; 0 for
  // other layers.
  std::int64_t ahead(std::int64_t layer) const { return layer > layers ? layer - layers : 0; }
  Sight sight(std::int64_t layer) const { return {window(layer), chunk(layer)}; }
  std::int64_t value_dim() const { return latent.used() ? latent.value_dim : head_dim; }
};

// Pairs of query and key counted for a sequence of T tokens. By convention the masked half counts too: T*T pairs, and
// with a window of W < T twice the unmasked pairs, W*(2T - W).
double attention_pairs(std::int64_t T, std::int64_t window);

// The same of a sequence of T tokens that holds documents of these lengths, none of which sees another. Chunks begin
// at the begin of a document. Without lengths the sequence is one document.
double attention_pairs(const std::vector<std::int64_t>& documents, std::int64_t T, Sight sight);

// How tensor parallelism cuts a parameter (Megatron-LM, arXiv:1909.08053).
enum class Cut : std::uint8_t {
  replicated,  // every tensor-parallel rank holds the whole parameter
  rows,     // the first axis is cut in tp equal parts (column-parallel linear: weights are stored out x in)
  columns,  // the second axis is cut (row-parallel linear)
  vocabulary,  // the first axis is cut in parts of ceil(V/tp); the last part may be padded
  fused_rows,  // the first axis is a stack of `parts` matrices (q,k,v or gate,up), each cut by rows
};

// A parameter of the whole model. Weights are stored (out, in), as in PyTorch's Linear.
struct Parameter {
  std::string name;                 // "layers.3.qkv.weight"
  std::vector<std::int64_t> shape;  // shape of the whole parameter, unpadded
  int layer = -1;                   // -1: embedding; 0 to L-1: layers; L: head; from L+1: extra modules
  Cut cut = Cut::replicated;
  std::vector<std::int64_t> parts;  // fused_rows: rows of each stacked matrix (of one expert)
  std::int64_t experts = 0;         // number of routed experts stacked along the first axis; 0: the parameter
                                    // serves all tokens
  bool decays = false;              // weight decay applies: true for matrices, false for biases and norms
  double init_std = 0.0;            // standard deviation of the initial values; 0: all are `init_value`
  double init_value = 0.0;
  bool trained = true;   // false: the parameter gets no gradient
  bool adapter = false;  // the parameter is A or B of an adapter
  // The parameter stands between cut matmuls: under sequence parallelism a rank has the gradient from its own rows
  // only.
  bool by_rows = false;

  std::int64_t count() const;
  bool operator==(const Parameter&) const = default;
};

// Lists the parameters, in this order:
//   embedding.token.weight (V,C)  [embedding.position.weight (max_positions,C) if learned]
//   layers.i.norm1.weight [.bias] (C)   layers.i.qkv.weight ((H+2*kv)*head_dim, C) [.bias]
//   layers.i.proj.weight (C, H*head_dim) [.bias]   layers.i.norm2.weight [.bias]
//   layers.i.fc1.weight (ffn,C) [.bias]  -- gated: layers.i.gate_up.weight (2*ffn,C), gate rows first
//   layers.i.fc2.weight (C,ffn) [.bias]   head.norm.weight [.bias]   head.weight (V,C) unless tied
// with `norms: both` also layers.i.post_norm1.weight after proj and post_norm2.weight last; with `norms: after` these
//   instead of norm1 and norm2
// with qk_norm, after qkv: layers.i.q_norm.weight, layers.i.k_norm.weight (head_dim), over all heads (H*head_dim) and
//   (kv*head_dim), unweighted none; with attention_sinks then layers.i.sinks.weight (H)
// with latent attention, instead of qkv: layers.i.q_down.weight (q_rank,C), q_down_norm.weight,
//   q_up.weight (H*head_dim, q_rank), or q.weight (H*head_dim, C); kv_down.weight (kv_rank+rope_dim, C), latent first;
//   kv_down_norm.weight (kv_rank); kv_up.weight (H*(head_dim-rope_dim+value_dim), kv_rank), each head's key part first
// in a layer with experts, instead of the feed-forward matrices: layers.i.router.weight (experts,C) [router.bias],
//   [router.logit.bias (experts) if router_bias]
//   experts.gate_up.weight (experts*2*ffn, C), an expert's gate and up together; experts.down.weight (experts*C, ffn)
//   [each with .bias, of as many rows]
//   [shared.gate_up.weight, shared.down.weight, shared.gate.weight (1,C)]
// after a linear layer with an adapter: layers.i.qkv.a.weight (rank,C), qkv.b.weight (rows, rank); of q and v: stacked
// last, for each module k that predicts further tokens: extra.k.hidden_norm.weight, token_norm.weight (C),
//   from_hidden.weight, from_token.weight (C,C), the halves of its projection; a layer's, as above; norm.weight (C)
// Initial values: normal(0, 0.02); proj, fc2 and down normal(0, 0.02/sqrt(2L)); norms 1; biases 0
// (GPT-2's). An adapter's A is normal(0, 1/sqrt(3 C)), the deviation of PEFT's uniform draw; its B is 0.
std::vector<Parameter> parameters(const Transformer& transformer);

// Name of a layer: "embedding", "layers.3", "head", "extra.0".
std::string layer_name(const Transformer& transformer, std::int64_t layer);

// Rows and columns of the part of the parameter that one of `tp` ranks holds (padded for Cut::vocabulary).
std::vector<std::int64_t> shard_shape(const Parameter& parameter, std::int64_t tp);

// One of `parts` equal parts of a parameter that stacks experts, as a parameter of its own.
Parameter part_of_experts(const Parameter& parameter, std::int64_t parts);

// Number of parameters without adapters and without modules that predict further tokens; tied embeddings count once.
// tests/models/transformer/test_transformer.cpp compares it with published counts exactly.
std::int64_t parameter_count(const Transformer& transformer);

// Number of parameters that get a gradient: the adapters' where the model has adapters, else all.
std::int64_t trained_parameter_count(const Transformer& transformer);

// Number of parameters that one token passes: all except those of routed experts that the token does not choose.
std::int64_t active_parameter_count(const Transformer& transformer);

// Number of parameters of the modules that predict further tokens, trained or not: each has two norms, a (C,2C)
// matrix, a layer and its norm. They use the model's own embedding and head.
std::int64_t extra_prediction_count(const Transformer& transformer);

// Model FLOPs of one sequence of T tokens, forward and backward, without recomputation: 2*M*N*K for each matmul, with
// a token's own experts only; backward twice the forward; attention_pairs(); logits, but not embedding look-up; and
// the modules that predict further tokens where they are trained. With H*head_dim = C and ffn = 4C this is
// 72*L*T*C^2*(1 + T/(6C) + V/(12*L*C)): Narayanan et al. 2021 (arXiv:2104.04473), without its full-recompute factor
// 4/3. A frozen matrix has no weight gradient: 4*M*N*K instead of 6.
double model_flops_per_sequence(const Transformer& transformer, std::int64_t T);
std::string flop_formula(
    const Transformer& transformer);  // the formula of model_flops_per_sequence() in one line

// A key of a model that no real rank computes yet, as "attention_sinks: true"; empty: real ranks compute all of it.
std::string simulated_only(const Transformer& transformer);

std::string print(const Transformer& transformer);  // Motley's own keys; read_transformer() reads them back
                                                    // equal
Transformer parse_transformer(const std::string& text);
// Reads Motley's own keys, or those of a Hugging Face config.json if the map has `model_type`.
Transformer read_transformer(const Yaml& node, const std::string& default_name);
Transformer read_hugging_face(const Yaml& node, const std::string& default_name);
// Finds a shipped model by name, or a Hugging Face config.json by path, searched in `folder` first.
Transformer find_transformer(const std::string& name, const std::string& folder, const Location& asked_from);
Transformer load_transformer(const std::string& path_or_name);  // searched in the working directory first

}  // namespace motley
