// A rank's tensors in host memory, as a Program says: parameters, gradients and optimizer state throughout, the rest
// an instance per micro-batch between the kernel that makes it and the one that frees it. It measures what is really
// live; it neither caches nor pools, so that a use after free is the sanitizers' to see. Scratch inside kernels and
// collectives is not a Program's tensor and not counted. Read next: hw/world/real_world.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "models/program/program.hpp"

namespace motley {

// What one instruction really allocated and freed; peak above what was live at its start.
struct MemoryLedger {
  std::int64_t allocated = 0, freed = 0, live = 0, peak = 0;
};

// Safe to use from several threads: the streams of a rank. The micro-batch of what is held throughout is not looked at
// (kNoMicroBatch).
class Memory {
 public:
  // Allocates what is held throughout, zeroed. Refuses formats other than fp32 (Refusal, "host-precision").
  explicit Memory(const RankProgram& rank_program);

  // A fresh instance, not zeroed. Must not be there yet.
  float* allocate(TensorId tensor, std::int32_t micro_batch, MemoryLedger& ledger);
  void free(TensorId tensor, std::int32_t micro_batch, MemoryLedger& ledger);
  // Null when it is not there.
  float* find(TensorId tensor, std::int32_t micro_batch) const;
  // Must be there.
  float* at(TensorId tensor, std::int32_t micro_batch) const;

  std::int64_t count(TensorId tensor) const;  // elements
  std::int64_t live_bytes() const;            // of everything
  std::int64_t peak_bytes() const;            // most ever
  std::int64_t static_bytes() const { return static_bytes_; }
  void forget_peak();  // peak_bytes() counts anew

  // The gradient and optimizer tensor that belong to a parameter tensor, gathered or held; none: parts of it (Shard).
  std::optional<TensorId> gradient_of(TensorId tensor) const { return gradient_of_[tensor]; }
  std::optional<TensorId> optimizer_of(TensorId tensor) const { return optimizer_of_[tensor]; }

 private:
  using Instance = std::pair<TensorId, std::int32_t>;  // tensor, micro-batch

  const RankProgram& rank_program_;
  mutable std::mutex mutex_;
  std::map<Instance, std::unique_ptr<float[]>> instances_;
  IdTable<TensorId, std::optional<TensorId>> gradient_of_, optimizer_of_;
  std::int64_t static_bytes_ = 0, live_bytes_ = 0, peak_bytes_ = 0;

  void find_companions();
  Instance key(TensorId tensor, std::int32_t micro_batch) const;
};

}  // namespace motley
