// The kernels of routed experts and of latent attention as plain loops on fp32: they define the meaning, as
// hw/kernels/reference.hpp does for the rest. No expert has a capacity: no token is dropped. Read next:
// hw/kernels/kernels.hpp.
//
// Letters beside those of reference.hpp: E experts, K of them a token, R = N*K rows (a token's copies, expert by
// expert). `taken`, `rows` and `counts` are whole numbers kept as floats.
#pragma once

#include <cstdint>

#include "hw/kernels/reference.hpp"
#include "models/transformer.hpp"

namespace motley::reference {

// Which K experts each token takes, and with what weight. Equal scores: the lower number. With groups, those whose two
// best scores add up to most are looked at (arXiv:2412.19437, section 2.1.2).
struct RouteShape {
  std::int64_t N = 0;
  const Experts* experts = nullptr;
  std::int64_t first = 0, last = N;  // the tokens of which copies are made; others have rows -1
  // Experts divided over so many ranks: the rows of those of each begin at a multiple of `segment_rows`.
  std::int64_t parts = 1, segment_rows = 0;
};
struct Routed {
  float* weights;  // (N,K)
  float* taken;    // (N,K): the expert
  float* rows;     // (N,K): where the copy stands among all rows
  float* counts;   // (E): rows of each expert
};
// `bias` (E) is added to the scores for choosing alone, unless null.
void route(const RouteShape& s, const float* logits, const float* bias, const Routed& out);
// dlogits(N,E) from the gradient of the weights.
void route_backward(const RouteShape& s, const float* dweights, const float* logits, const float* taken,
                    float* dlogits);

struct CopyShape {
  std::int64_t N = 0, K = 0, C = 0, R = N * K;
};
// copies(R,C): row rows[n,k] = x(N,C)[n]; rows that are no token's are 0
void dispatch(const CopyShape& s, const float* x, const float* rows, float* copies);
void dispatch_backward(const CopyShape& s, const float* dcopies, const float* rows, float* dx);
// y(N,C)[n] = sum over k of weights[n,k] * copies[rows[n,k]]
void combine(const CopyShape& s, const float* copies, const float* rows, const float* weights, float* y);
void combine_backward(const CopyShape& s, const float* dy, const float* copies, const float* rows,
                      const float* weights, float* dcopies, float* dweights);

// R = P*M rows that P ranks sent, M places for each, its copies for this rank's L experts expert by expert.
struct RegroupShape {
  std::int64_t P = 0, L = 0, M = 0, C = 0;
};
// copies(R,C), expert by expert, from x(R,C) and counts(P,L); the rest is 0. totals(L), unless null: rows of each.
void regroup(const RegroupShape& s, const float* x, const float* counts, float* copies, float* totals);
void ungroup(const RegroupShape& s, const float* copies, const float* counts, float* x);

// y(N,C) = x * sigmoid(gate(N))
void gate(std::int64_t N, std::int64_t C, const float* x, const float* gate, float* y);
void gate_backward(std::int64_t N, std::int64_t C, const float* dy, const float* x, const float* gate,
                   float* dx, float* dgate);

// Latent attention (arXiv:2405.04434, section 2.1.3) of H heads here, each of `plain` + `turned` elements for query and
// key and V for the value.
struct LatentShape {
  std::int64_t B = 0, T = 0, H = 0, plain = 0, turned = 0, V = 0, rank = 0;
  double theta = 10000.0;
  SequenceLayout layout = {};  // of the T rows here; none: they are the sequence
  std::int64_t D() const { return plain + turned; }
};
// qkv(N, H*(2D+V)) as reference::HeadShape has it with G = H, from q(N,H*D), kv(N,H*(plain+V)), a head's key before its
// value, and latent(N,rank+turned), whose end is the part of every head's key that RoPE turns.
void latent_heads(const LatentShape& s, const float* q, const float* kv, const float* latent, float* qkv);
// dlatent: of what stands at its end; 0 before.
void latent_heads_backward(const LatentShape& s, const float* dqkv, float* dq, float* dkv, float* dlatent);

}  // namespace motley::reference
