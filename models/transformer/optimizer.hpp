// What an optimizer keeps for each parameter, and what a frozen weight takes in a narrow format: bytes and arithmetic
// only, for any parameter and any shard of it. Read next: models/transformer/train.hpp.
//
//   optimizer   state beside the master weight                     source
//   adamw       two moments in fp32                                Loshchilov & Hutter 2019, arXiv:1711.05101
//   adamw-8bit  two moments of 1 byte, an fp32 scale for each 256  Dettmers et al. 2022, arXiv:2110.02861; blocks of
//               of them; tensors below 4,096 elements as adamw     256 and the limit: bitsandbytes 0.45 (2024-12)
//   adafactor   a sum for each row and each column of a matrix;    Shazeer & Stern 2018, arXiv:1804.04235, without
//               for a vector one number an element                 momentum (its default and that of T5)
//   muon        one momentum in fp32 for matrices inside layers,   Jordan 2024-12, kellerjordan.github.io/posts/muon;
//               adamw for embeddings, head and vectors             Liu et al. 2025, arXiv:2502.16982
//   sgd         nothing: no momentum                               PyTorch's torch.optim.SGD by default (2.9, 2025-10)
#pragma once

#include <cstdint>
#include <vector>

#include "models/base/format.hpp"
#include "models/base/words.hpp"

namespace motley {

struct Parameter;

enum class Optimizer : std::uint8_t { adamw, adamw_8bit, adafactor, muon, sgd };
template <>
inline constexpr auto kWords<Optimizer> = words("adamw", "adamw-8bit", "adafactor", "muon", "sgd");

// The format of a frozen model's matrices inside layers. precision: that of training. nf4: 4-bit NormalFloat with
// double quantisation (QLoRA, arXiv:2305.14314, section 3): a block of 64 has an 8-bit scale, and 256 of these have an
// fp32 scale, 4.127 bits for each parameter in all. Embeddings, head, norms and biases keep the precision of training.
enum class FrozenWeights : std::uint8_t { precision, nf4 };
template <>
inline constexpr auto kWords<FrozenWeights> = words("precision", "nf4");

// Whether Muon orthogonalises its momentum: matrices inside layers and inside modules that predict further tokens.
bool is_orthogonalized(const Parameter& parameter);
// Whether FrozenWeights counts for it: a frozen matrix inside a layer.
bool may_be_quantized(const Parameter& parameter);

// An optimizer and what stands beside its state.
struct OptimizerRule {
  Optimizer optimizer = Optimizer::adamw;
  Format precision = Format::bf16;
  bool master_weights = true;
  // Whether an fp32 copy of the weights stands beside those in the precision of training (arXiv:1710.03740).
  bool has_masters() const { return master_weights && bytes_of(precision) < 4; }
};
// Number of values of the parameter's own size that are kept for it, masters included; none where it is factored.
std::int64_t kept_copies(const OptimizerRule& rule, const Parameter& parameter);
// Bytes that are kept for the shard of a parameter that one rank holds, masters included. `shard` is the shape of the
// shard (shard_shape()). If the parameter stacks experts, it is the part with the rank's own (part_of_experts()).
// Assumes: a rank factors the cut of a matrix that it holds, as it does a whole matrix.
std::int64_t optimizer_bytes(const OptimizerRule& rule, const Parameter& parameter,
                             const std::vector<std::int64_t>& shard);
// FLOPs by which Muon orthogonalises that shard in a step: 5 Newton-Schulz iterations of 4 n m^2 + 2 m^3 for a matrix
// of n by m, m the smaller (kellerjordan.github.io/posts/muon, 2024-12: at most 6 n m^2 each). 0 for other
// parameters.
double orthogonalization_flops(const Parameter& parameter, const std::vector<std::int64_t>& shard);

// Bytes of that many parameters in NF4 with double quantisation.
std::int64_t nf4_bytes(std::int64_t elements);

}  // namespace motley
