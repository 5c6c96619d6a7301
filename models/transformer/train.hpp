// Train: the shape of a training run (batch, sequence, precision, optimizer), whatever strategy and cluster run it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/format.hpp"

namespace motley {

// Share of the activations at their peak that a chip's allocator loses between them, unless a job says its own.
// Assumes: 0.05; published peaks (TorchTitan 2024-12, arXiv:2401.10241, Sailor 2025) leave 0 to 0.2 unexplained.
inline constexpr double kFragmentation = 0.05;

struct Train {
  std::int64_t global_batch = 0;  // sequences a step
  std::int64_t micro_batch = 1;   // sequences a forward
  std::int64_t sequence = 0;      // tokens
  // Lengths of the documents that follow one another in every sequence, each seeing itself alone. Empty: one document.
  std::vector<std::int64_t> documents = {};
  Format precision = Format::bf16;  // weights in matmuls, and activations
  Format gradients = Format::fp32;  // gradients, as they are accumulated and reduced
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  std::uint64_t seed = 1;
  std::int64_t steps = 20;
  std::string text;               // path of the training text; empty: the one that ships
  std::optional<Format> matmuls;  // operands of the layers' matmuls; nothing: as `precision`
  double expert_skew = 0;         // exponent of Zipf's law that routing is expected to follow; 0: even
  // How much one rank may send another's experts, as a multiple of the even share; 0: as much as can come. Memory
  // keeps room for it, and a run in which more comes fails.
  double expert_room = 0;
  double fragmentation = kFragmentation;
  double tokens = 0;   // tokens of the whole run, from which its time, price and energy follow; 0: not known
  double goodput = 1;  // share of the run's time that goes into steps that count
  bool operator==(const Train&) const = default;
};

}  // namespace motley
