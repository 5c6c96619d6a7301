// What kernels do: the one list that Programs, cost models, chips' figures and the kernels of hw/ share. Read next:
// models/program/program.hpp.
#pragma once

#include <cstdint>

#include "models/base/words.hpp"

namespace motley {

// What a kernel does: hw/kernels runs it, models/cost prices it. N = B*T rows. `in`, `out` and `par` of a Kernel list
// tensors in the order given here; those in [] are there only when the family has them. "+=" accumulates into the
// parameter's gradient.
//
//   op                      in                                out                 par
//   embed                   - (tokens come from the data)     x(N,C)              token[, position]
//                           position is added only where tensor_index = 0: an all_reduce follows if tp > 1
//   embed_backward          dx                                -                   token[, position] +=
//   norm                    x                                 y, statistics       weight[, bias]
//                           over the hidden width, or over the first k of n elements of a row; y has only these
//   norm_backward           dy, x, statistics[, dresidual]    dx (+ dresidual)    weight[, bias] +=
//   matmul                  x(N,k)                            y(N,n)              weight(n,k)[, bias]
//   matmul_input_gradient   dy(N,n)                           dx(N,k)             weight
//   matmul_weight_gradient  dy(N,n), x(N,k)                   -                   weight[, bias] +=
//   rope                    qkv                               qkv, q, k rotated   -
//   rope_backward           dqkv                              dqkv, rotated back  -
//   qk_norm                 qkv                               qkv, q and k normed; statistics(N,heads+kv)[q, k weight]
//                           over all heads: statistics(N,2); on several ranks their sum comes from a kernel before
//   qk_norm_backward        dqkv, qkv, statistics             dqkv, dweights(2,D)[q, k weight]
//                           over all heads, or without weights: no dweights, += instead
//   accumulate              gradients, one after the other    -                   each has n elements: +=
//   attention               qkv[, keys]                       y, lse(B,heads,T)   [sinks]  causal, windowed, fused
//   attention_backward      dy, qkv, y, lse[, keys]           dqkv; where keys are gathered: dq, dkeys   [sinks +=]
//   place_keys              qkv(N,row)                        keys(P*N,..): only this rank's rows are defined
//                           keys and values of the P ranks of the context group, in the order of the ranks
//   take_keys               dq, dkeys                         dqkv, from this rank's rows of dkeys
//   activation              u[, w]                            GELU(u) or SiLU(gate)*up; each row times its w
//   activation_backward     da, u[, w]                        du[, dw]
//   route                   logits(N,E)                       weights, taken, rows (N,K), counts(E)   [bias]
//                           fp32, and whole numbers kept as such (hw/kernels/experts.hpp); K experts a token, R = N*K
//   route_backward          dweights, logits, taken           dlogits             [bias]
//   dispatch                x(N,C), rows                      copies(R,C), expert by expert; unused rows are 0
//   dispatch_backward       dcopies, rows                     dx
//   dispatch_weights        weights(N,K), rows                w(R,1): the weight of each copy; unused rows are 0
//   dispatch_weights_backward   dw, rows                      dweights
//   grouped_matmul          x(R,k), counts                    y(R,n)              weight(E*n,k)[, bias]
//   grouped_matmul_input_gradient   dy, counts                dx                  weight
//   grouped_matmul_weight_gradient  dy, x, counts             -                   weight +=
//   combine                 copies, rows[, weights]           y(N,C)
//   combine_backward        dy, copies, rows, weights         dcopies, dweights; from dy and rows only dcopies
//   gate                    x(N,C), gate(N,1)                 x * sigmoid(gate)
//   gate_backward           dy, x, gate                       dx, dgate
//   latent_heads            q, kv, latent                     qkv, keys and queries rotated by position
//   latent_heads_backward   dqkv                              dq, dkv, dlatent
//   add_residual            x, residual                       y = sum             [bias of a row-parallel matmul]
//   add_residual_backward   dy                                -                   bias +=
//   softcap                 x(N,V/tp)                         factor * tanh(x / factor)
//   softcap_backward        dy, y                             dx
//   logits_maximum          logits(N,V/tp)                    maximum(N)          fp32 from this kernel on
//   logits_sum              logits, maximum                   sums(N,2): sum of exp, the target's logit (else 0)
//   loss                    maximum, sums                     losses(N)
//   loss_backward           logits, maximum, sums             factor * (softmax - onehot) / tokens of the global batch
//   regroup                 x(R,C), counts(P,L)               copies(R,C), expert by expert[; rows of each (L)]
//                           x: rows from P ranks, one after the other, each sorted by the L experts of this rank
//   ungroup                 copies(R,C), counts(P,L)          x(R,C): the inverse
//   clear                   -                                 gradients of one micro-batch, set to 0: n elements each
//   scale                   x(m,n)                            x * factor
//   take_rows               x(m,n)                            y(m/P,n): this rank's rows; `over` has P ranks
//   place_rows              y(m/P,n)                          x(m,n): only this rank's rows are defined
//                           rows follow in the order of the P ranks; take_rows and place_rows beside a collective
//                           make it work out of place
//   all_reduce              t                                 t, in place: over the tensor-parallel group
//   all_to_all              t                                 t, in place: over the expert-parallel group
//   reduce_scatter          t                                 t, in place, as CollectiveKind says: over group `over`
//   all_gather              t                                 t, in place, as CollectiveKind says: over group `over`
enum class KernelOp : std::uint8_t {
  embed,
  embed_backward,
  norm,
  norm_backward,
  matmul,
  matmul_input_gradient,
  matmul_weight_gradient,
  rope,
  rope_backward,
  qk_norm,
  qk_norm_backward,
  accumulate,
  attention,
  attention_backward,
  activation,
  activation_backward,
  route,
  route_backward,
  dispatch,
  dispatch_backward,
  dispatch_weights,
  dispatch_weights_backward,
  grouped_matmul,
  grouped_matmul_input_gradient,
  grouped_matmul_weight_gradient,
  combine,
  combine_backward,
  gate,
  gate_backward,
  latent_heads,
  latent_heads_backward,
  add_residual,
  add_residual_backward,
  softcap,
  softcap_backward,
  logits_maximum,
  logits_sum,
  loss,
  loss_backward,
  regroup,
  ungroup,
  clear,
  scale,
  take_rows,
  place_rows,
  place_keys,
  take_keys,
  all_reduce,
  all_to_all,
  reduce_scatter,
  all_gather,
};
template <>
inline constexpr auto kWords<KernelOp> =
    words("embed", "embed_backward", "norm", "norm_backward", "matmul", "matmul_input_gradient",
          "matmul_weight_gradient", "rope", "rope_backward", "qk_norm", "qk_norm_backward", "accumulate",
          "attention", "attention_backward", "activation", "activation_backward", "route", "route_backward",
          "dispatch", "dispatch_backward", "dispatch_weights", "dispatch_weights_backward", "grouped_matmul",
          "grouped_matmul_input_gradient", "grouped_matmul_weight_gradient", "combine", "combine_backward",
          "gate", "gate_backward", "latent_heads", "latent_heads_backward", "add_residual",
          "add_residual_backward", "softcap", "softcap_backward", "logits_maximum", "logits_sum", "loss",
          "loss_backward", "regroup", "ungroup", "clear", "scale", "take_rows", "place_rows", "place_keys",
          "take_keys", "all_reduce", "all_to_all", "reduce_scatter", "all_gather");
inline constexpr int kKernelOpCount = static_cast<int>(kWords<KernelOp>.size());
constexpr bool is_attention(KernelOp op) {
  return op == KernelOp::attention || op == KernelOp::attention_backward;
}
constexpr bool is_collective(KernelOp op) { return op >= KernelOp::all_reduce; }  // performed by a World

}  // namespace motley
