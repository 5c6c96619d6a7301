// A rank's tensors in host memory, as a Program says: parameters, gradients and optimizer state throughout, the rest
// an instance per micro-batch between the kernel that makes it and the one that frees it. It measures what is really
// live; it neither caches nor pools, so that a use after free is the sanitizers' to see. Scratch inside kernels and
// collectives is not a Program's tensor and not counted. Read next: hw/world.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "models/program.hpp"

namespace motley {

// What one instruction really allocated and freed; peak above what was live at its start.
struct MemoryLedger {
  std::int64_t allocated = 0, freed = 0, live = 0, peak = 0;
};

// Safe to use from several threads: the streams of a rank.
class Memory {
 public:
  // Allocates what is held throughout, zeroed. Refuses formats other than fp32 (Refusal, "host-precision").
  explicit Memory(const ProgramClass& of_class);

  // A fresh instance, not zeroed. Must not be there yet.
  float* allocate(int tensor, int micro_batch, MemoryLedger& ledger);
  void free(int tensor, int micro_batch, MemoryLedger& ledger);
  // Null when it is not there.
  float* find(int tensor, int micro_batch) const;
  // Must be there.
  float* at(int tensor, int micro_batch) const;

  std::int64_t count(int tensor) const;  // elements
  std::int64_t live_bytes() const;       // of everything
  std::int64_t peak_bytes() const;       // most ever
  std::int64_t static_bytes() const { return static_bytes_; }
  void forget_peak();  // peak_bytes() counts anew

  // The gradient and optimizer tensor that belong to a parameter tensor, gathered or held; -1: parts of it (Shard).
  int gradient_of(int tensor) const { return gradient_of_[static_cast<std::size_t>(tensor)]; }
  int optimizer_of(int tensor) const { return optimizer_of_[static_cast<std::size_t>(tensor)]; }

 private:
  const ProgramClass& class_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<float[]>> instances_;
  std::vector<int> gradient_of_, optimizer_of_;
  std::int64_t static_bytes_ = 0, live_bytes_ = 0, peak_bytes_ = 0;

  void find_companions();
  std::pair<int, int> key(int tensor, int micro_batch) const;
};

}  // namespace motley
