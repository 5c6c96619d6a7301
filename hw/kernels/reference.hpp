// The kernels of a dense Transformer as plain loops on fp32. They define the meaning and stay for ever: every faster
// kernel is compared with them. Sums are kept in double, so that the order of summation hardly matters. They are not
// fast and know nothing about ranks beyond a shard's offset. models/program/program.hpp says what each one takes. Read
// next: hw/kernels/run_kernel.hpp.
//
// Letters: N = B*T rows, C hidden, H query heads and G key/value heads of this rank, D width of a head, F inner width
// of this rank, R vocabulary rows of this rank. Matrices are row-major. "+=" accumulates.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/transformer/sequence_layout.hpp"

namespace motley::reference {

// Token and position tables. The rows [first, first + R) of the vocabulary are this rank's; other tokens give zero.
struct EmbedShape {
  std::int64_t B = 0, T = 0, C = 0, R = 0, first = 0;
  // Places of the T rows that this rank holds; default: they are the whole sequence.
  SequenceLayout layout = {};
};
// x(N,C) = token[tokens] (+ position, unless null). tokens(N).
void embed(const EmbedShape& s, const std::int32_t* tokens, const float* token, const float* position,
           float* x);
// dtoken(R,C) += rows of dx(N,C); dposition(T,C) += sum over sequences (unless null).
void embed_backward(const EmbedShape& s, const std::int32_t* tokens, const float* dx, float* dtoken,
                    float* dposition);

// LayerNorm (arXiv:1607.06450): statistics(N,2) = mean, 1/std. RMSNorm (arXiv:1910.07467): statistics(N,1) = 1/rms.
struct NormShape {
  std::int64_t N = 0, C = 0;
  double epsilon = 1e-5;
  bool centred = true;      // true: LayerNorm; false: RMSNorm
  std::int64_t stride = 0;  // elements in a row of x, dresidual and dx, the first C of which are normed; 0: C
  std::int64_t width() const { return stride > 0 ? stride : C; }
};
void norm(const NormShape& s, const float* x, const float* weight, const float* bias, float* y,
          float* statistics);
// dx = gradient through the norm (0 beyond C) (+ dresidual, unless null); dweight += ; dbias += (unless null).
void norm_backward(const NormShape& s, const float* dy, const float* x, const float* statistics,
                   const float* dresidual, const float* weight, float* dx, float* dweight, float* dbias);

struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
};
// y(m,n) = x(m,k) weight(n,k)' (+ bias(n), unless null)
void matmul(const MatmulShape& s, const float* x, const float* weight, const float* bias, float* y);
// dx(m,k) = dy(m,n) weight(n,k)
void matmul_input_gradient(const MatmulShape& s, const float* dy, const float* weight, float* dx);
// dweight(n,k) += dy(m,n)' x(m,k); dbias(n) += column sums of dy (unless null)
void matmul_weight_gradient(const MatmulShape& s, const float* dy, const float* x, float* dweight,
                            float* dbias);

// qkv(N, (H+G)*D + G*V): a row is [H query heads | G key heads | G value heads]; query head h reads key head h*G/H.
struct HeadShape {
  std::int64_t B = 0, T = 0, H = 0, G = 0, D = 0;
  std::int64_t window = 0;  // tokens that a query sees, with its own (arXiv:2310.06825); 0: all before it
  std::int64_t value_width = 0;  // V; 0: D
  // Places of the T rows that this rank holds; default: they are the whole sequence.
  SequenceLayout layout = {};
  std::int64_t chunk = 0;        // tokens of a chunk, beyond which a query sees nothing; 0: no chunks
  std::int64_t score_width = 0;  // scores are divided by its root; 0: D
  double softcap = 0;            // scores become softcap * tanh(scores / softcap); 0: they stay
  std::int64_t rotated = 0;      // elements of a head that RoPE rotates, the first ones; 0: D
  double score_scale() const {
    return 1.0 / std::sqrt(static_cast<double>(score_width > 0 ? score_width : D));
  }
  double capped(double score) const { return softcap > 0 ? softcap * std::tanh(score / softcap) : score; }
  // The gradient of capped(), from its value.
  double slope_of_cap(double capped) const {
    return softcap > 0 ? 1 - capped / softcap * (capped / softcap) : 1;
  }
  std::int64_t turning() const { return rotated > 0 ? rotated : D; }
  std::int64_t V() const { return value_width > 0 ? value_width : D; }
  std::int64_t row() const { return (H + G) * D + G * V(); }
  std::int64_t key_row() const { return G * (D + V()); }
  // The first place that the query at `place` sees; the last is `place` itself.
  std::int64_t first_seen(std::int64_t place) const {
    const std::int64_t begin = layout.begin(place);
    if (chunk > 0) return place - (place - begin) % chunk;
    return window > 0 && place - begin >= window ? place - window + 1 : begin;
  }
  // Tokens of a whole sequence.
  std::int64_t tokens() const { return layout.parts > 1 ? layout.sequence : T; }
};
// Rotates q and k by position (RoPE, arXiv:2104.09864) in the half-rotating layout of Hugging Face's Llama: element i
// of the first half of a head is paired with element i of the second. `sign` -1 rotates back, which is the gradient.
void rope(const HeadShape& s, double theta, double sign, const float* qkv, float* turned);
// RMSNorm of each query head and each key head over its D elements; values are copied unchanged. statistics(N, H+G) =
// 1/rms, queries first; the weights are (D).
void qk_norm(const HeadShape& s, double epsilon, const float* q_weight, const float* k_weight,
             const float* qkv, float* normed, float* statistics);
// dweights(2,D) = gradients of q_weight and k_weight; not accumulated.
void qk_norm_backward(const HeadShape& s, const float* dnormed, const float* qkv, const float* statistics,
                      const float* q_weight, const float* k_weight, float* dqkv, float* dweights);
// y(N, H*V) = softmax(capped(q k' * score_scale()), causal, windowed) v; lse(B,H,T) = log of the sum of exponentials of
// the scores.
// `keys`: the keys and values of all ranks, as place_keys lays them out; null: this rank holds the whole sequence.
void attention(const HeadShape& s, const float* qkv, float* y, float* lse, const float* keys = nullptr);
// Recomputes the probabilities from lse (FlashAttention, arXiv:2205.14135). dqkv has the shape of qkv. With `keys`,
// dqkv is only the gradient of the queries, (N, H*D), and dkeys gets what these queries add to every key and value.
void attention_backward(const HeadShape& s, const float* dy, const float* qkv, const float* y,
                        const float* lse, float* dqkv, const float* keys = nullptr, float* dkeys = nullptr);
// keys(P*N, G*(D+V)) has the rows of P ranks, one rank after the other, each in the order of qkv; a row is
// [G key heads | G value heads]. Fills the rows of this rank.
void place_keys(const HeadShape& s, const float* qkv, float* keys);
// Puts dqkv together from dq and this rank's rows of dkeys.
void take_keys(const HeadShape& s, const float* dq, const float* dkeys, float* dqkv);

struct InnerShape {
  std::int64_t N = 0, F = 0;
};
// y(N,F) = GELU(u(N,F)), tanh form (arXiv:1606.08415, section 2).
void gelu(const InnerShape& s, const float* u, float* y);
void gelu_backward(const InnerShape& s, const float* dy, const float* u, float* du);
// y(N,F) = SiLU(gate) * up; a row of u(N,2F) is [gate | up] (arXiv:2002.05202).
void swiglu(const InnerShape& s, const float* u, float* y);
void swiglu_backward(const InnerShape& s, const float* dy, const float* u, float* du);
// y(N,F) = GELU(gate) * up, tanh form; rows of u as above (arXiv:2002.05202).
void geglu(const InnerShape& s, const float* u, float* y);
void geglu_backward(const InnerShape& s, const float* dy, const float* u, float* du);

// y(N,C) = x + residual (+ bias(C), unless null)
void add_residual(std::int64_t N, std::int64_t C, const float* x, const float* residual, const float* bias,
                  float* y);
// dbias(C) += column sums of dy(N,C)
void add_bias_gradient(std::int64_t N, std::int64_t C, const float* dy, float* dbias);

// Vocabulary-parallel cross-entropy (arXiv:1909.08053). Only the columns below `exist` of the R columns are real: the
// last shard is padded. `first`: vocabulary index of column 0. targets(N).
struct LogitsShape {
  std::int64_t N = 0, R = 0, first = 0, exist = 0;
};
// maximum(N) over this shard; -infinity if the shard has no real column.
void logits_maximum(const LogitsShape& s, const float* logits, float* maximum);
// sums(N,2) = sum of exp(logit - maximum), the target's logit (0 if another shard has it).
void logits_sum(const LogitsShape& s, const float* logits, const float* maximum, const std::int32_t* targets,
                float* sums);
// losses(N) from maximum and sums over all shards.
void loss(std::int64_t N, const float* maximum, const float* sums, float* losses);
// y(N,R) = cap * tanh(x / cap); dx(N,R) = dy * (1 - (y / cap)^2) (arXiv:2408.00118, section 2)
void softcap(std::int64_t count, double cap, const float* x, float* y);
void softcap_backward(std::int64_t count, double cap, const float* dy, const float* y, float* dx);
// dlogits(N,R) = (softmax - onehot) * scale; 0 in columns that do not exist.
void loss_backward(const LogitsShape& s, double scale, const float* logits, const float* maximum,
                   const float* sums, const std::int32_t* targets, float* dlogits);

}  // namespace motley::reference
