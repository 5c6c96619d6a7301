// Train: the shape of a training run (batch, sequence, precision, optimizer), independent of strategy and cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/format.hpp"
#include "models/base/words.hpp"
#include "models/transformer/optimizer.hpp"

namespace motley {

// Share of the peak of activations that the allocator loses to gaps between them, unless a job gives its own share.
// Assumes: 0.05; published peaks (TorchTitan 2024-12, arXiv:2401.10241, Sailor 2025) leave 0 to 0.2 unexplained.
inline constexpr double kFragmentation = 0.05;

// The format in which an operand of a narrow matmul is kept until its weight gradient has read it.
// matmuls: a copy in the matmuls' format, as in NVIDIA's Transformer Engine 2.0 (2025-02) and DeepSeek-V3
// (arXiv:2412.19437, section 3.3.3).
// precision: the operand itself, which is cast again, as in torchao 0.7 (2024-12), the FP8 of TorchTitan.
enum class KeptOperands : std::uint8_t { matmuls, precision };
template <>
inline constexpr auto kWords<KeptOperands> = words("matmuls", "precision");

struct Train {
  std::int64_t global_batch = 0;  // sequences in a step
  std::int64_t micro_batch = 1;   // sequences in a micro-batch
  std::int64_t sequence = 0;      // tokens in a sequence
  // Lengths of the documents that follow one another in every sequence; no document sees another. Empty: one
  // document.
  std::vector<std::int64_t> documents = {};
  Format precision = Format::bf16;  // format of activations, and of weights in matmuls
  Format gradients = Format::fp32;  // format in which gradients are accumulated and reduced
  Optimizer optimizer = Optimizer::adamw;
  // False: below fp32 the optimizer steps the weights in the precision of training, without an fp32 copy of them.
  bool master_weights = true;
  FrozenWeights frozen_weights = FrozenWeights::precision;  // for models with adapters
  OptimizerRule optimizer_rule() const { return {optimizer, precision, master_weights}; }
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  std::uint64_t seed = 1;
  std::int64_t steps = 20;
  std::string text;               // path of the training text; empty: the text that ships
  std::optional<Format> matmuls;  // format of the operands of the layers' matmuls; nothing: `precision`
  KeptOperands kept_operands = KeptOperands::matmuls;
  // Format in which the inputs of the feed-forward part's activation are kept (arXiv:2412.19437, section 3.3.3;
  // Megatron-Core's `--activation-func-fp8-input-store`); nothing: `precision`.
  std::optional<Format> kept_inner = {};
  // Format of tokens on their way to experts, and of the gradients of experts' outputs on the same way
  // (arXiv:2412.19437, section 3.3.3); nothing: `precision`.
  std::optional<Format> expert_dispatch = {};
  double expert_skew = 0;  // exponent of Zipf's law that routing is expected to follow; 0: even routing
  // Most copies of tokens that one rank may send to another's experts, as a multiple of the even share; 0: as many as
  // can come. Memory is kept for that many, and a run in which more come fails.
  double expert_room = 0;
  double fragmentation = kFragmentation;
  double tokens = 0;   // tokens of the whole run, from which its time, price and energy follow; 0: unknown
  double goodput = 1;  // share of the run's time that goes into steps that count
  bool operator==(const Train&) const = default;
};

}  // namespace motley
