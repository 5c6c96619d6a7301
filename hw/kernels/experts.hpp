// The kernels of routed experts and of latent attention as plain loops on fp32. They define the meaning, as
// hw/kernels/reference.hpp does for all other kernels. Experts have no capacity: no token is dropped. Read next:
// hw/kernels/run_kernel.hpp.
//
// Letters beside those of hw/kernels/reference.hpp: E experts, K of them for each token, R = N*K rows (the copies of
// tokens, expert by expert). `taken`, `rows` and `counts` are whole numbers kept as floats.
#pragma once

#include <cstdint>

#include "hw/kernels/reference.hpp"
#include "models/transformer/transformer.hpp"

namespace motley::reference {

// Chooses K experts for each token, and their weights. Of experts with equal scores, the one with the lower number is
// taken. With groups, only experts of the groups whose two best scores have the largest sums can be taken
// (arXiv:2412.19437, section 2.1.2).
struct RouteShape {
  std::int64_t N = 0;
  const Experts* experts = nullptr;
  std::int64_t first = 0, last = N;  // only these tokens are copied
  // The number of ranks over which the experts are divided. The rows of each rank's experts begin at a multiple of
  // `segment_rows`.
  std::int64_t parts = 1, segment_rows = 0;
};
struct Routed {
  float* weights;  // (N,K)
  float* taken;    // (N,K): the number of each expert
  float* rows;     // (N,K): the row of each copy; -1: the token is not copied
  float* counts;   // (E): the number of rows of each expert
};
// `bias` (E), unless null, is added to the scores that experts are chosen by, not to those that give weights.
void route(const RouteShape& s, const float* logits, const float* bias, const Routed& out);
// dlogits(N,E) from the gradient of the weights.
void route_backward(const RouteShape& s, const float* dweights, const float* logits, const float* taken,
                    float* dlogits);

struct CopyShape {
  std::int64_t N = 0, K = 0, C = 0, R = N * K;
};
// copies(R,C): row rows[n,k] = x(N,C)[n]; all other rows are 0
void dispatch(const CopyShape& s, const float* x, const float* rows, float* copies);
void dispatch_backward(const CopyShape& s, const float* dcopies, const float* rows, float* dx);
// w(R): w[rows[n,k]] = weights(N,K)[n,k]; all other rows are 0
void dispatch_weights(const CopyShape& s, const float* weights, const float* rows, float* w);
// dweights(N,K); 0 for a token that is not copied
void dispatch_weights_backward(const CopyShape& s, const float* dw, const float* rows, float* dweights);
// Multiplies each row of y(rows, width) by its weight.
void weigh_rows(const InnerShape& s, const float* weights, float* y);
// The backward of swiglu() and weigh_rows(): du(N,2F), and dweights(N), each row's product of dy and what is weighed.
void weighed_swiglu_backward(const InnerShape& s, const float* dy, const float* u, const float* weights,
                             float* du, float* dweights);
// y(N,C)[n] = sum over k of weights[n,k] * copies[rows[n,k]]
void combine(const CopyShape& s, const float* copies, const float* rows, const float* weights, float* y);
void combine_backward(const CopyShape& s, const float* dy, const float* copies, const float* rows,
                      const float* weights, float* dcopies, float* dweights);

// R = P*M rows that P ranks sent. Each sender has M rows, which begin with its copies for this rank's L experts, expert
// by expert.
struct RegroupShape {
  std::int64_t P = 0, L = 0, M = 0, C = 0;
};
// copies(R,C), expert by expert, from x(R,C) and counts(P,L); rows after them are 0. totals(L), unless null, gets the
// number of rows of each expert.
void regroup(const RegroupShape& s, const float* x, const float* counts, float* copies, float* totals);
void ungroup(const RegroupShape& s, const float* copies, const float* counts, float* x);

// y(N,C) = x * sigmoid(gate(N))
void gate(std::int64_t N, std::int64_t C, const float* x, const float* gate, float* y);
void gate_backward(std::int64_t N, std::int64_t C, const float* dy, const float* x, const float* gate,
                   float* dx, float* dgate);

// Latent attention (arXiv:2405.04434, section 2.1.3) of this rank's H heads. A head has `plain` + `turned` elements of
// each query and key, and V of each value.
struct LatentShape {
  std::int64_t B = 0, T = 0, H = 0, plain = 0, turned = 0, V = 0, rank = 0;
  double theta = 10000.0;
  // Places of the T rows that this rank holds; default: they are the whole sequence.
  SequenceLayout layout = {};
  std::int64_t D() const { return plain + turned; }
};
// qkv(N, H*(2D+V)) as reference::HeadShape has it with G = H, from q(N,H*D), kv(N,H*(plain+V)) and
// latent(N,rank+turned). A row of kv has each head's key before its value. The last `turned` elements of a row of
// latent are the part of every head's key that RoPE rotates.
void latent_heads(const LatentShape& s, const float* q, const float* kv, const float* latent, float* qkv);
// dlatent gets the gradient of those last elements; its first `rank` elements are 0.
void latent_heads_backward(const LatentShape& s, const float* dqkv, float* dq, float* dkv, float* dlatent);

}  // namespace motley::reference
