// A rank's tensors in host memory, as a Program says: parameters, gradients and optimizer state are held throughout;
// any other tensor has an instance per micro-batch, from the kernel that makes it to the one that frees it. It measures
// what is really live. It neither caches nor pools, so that sanitizers see a use after free. Scratch memory inside
// kernels and collectives is not a tensor of the Program and not counted. Read next: hw/world/real_world.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// Bytes that one instruction really allocated and freed. `live` and `peak` count from what was live at its start.
struct MemoryLedger {
  std::int64_t allocated = 0, freed = 0, live = 0, peak = 0;
};

// While one lives, memory that is freed stays in this process, and one pool serves all threads. Tensors come and go
// with every kernel; memory that went back to the system in between would cost a page fault for every 4 KiB, which is
// as slow as the kernel (zero 3 on two cores: a fifth of a step, measured 2026-11).
class FreedMemoryKept {
 public:
  FreedMemoryKept();
  ~FreedMemoryKept();
  FreedMemoryKept(const FreedMemoryKept&) = delete;
  FreedMemoryKept& operator=(const FreedMemoryKept&) = delete;
  // Whether memory of less than kMostBytes stays now: one of these lives, and the allocator does what it was told.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30U;
  static bool in_force();
};

// Throws Refusal "host-precision" if a rank of this host cannot compute in the formats of this rank's tensors and
// matmuls: all but fp32.
void refuse_host_formats(const RankProgram& rank_program);

// Throws Refusal "simulated-only" if no rank of this host computes a key of the model yet.
void refuse_simulated_only(const Transformer& transformer);

// Safe to use from several threads: the streams of a rank. For tensors that are held throughout, `micro_batch` is
// ignored (kNoMicroBatch).
class Memory {
 public:
  // Allocates the tensors that are held throughout, filled with zeros. Throws Refusal "host-precision" for formats
  // other than fp32.
  explicit Memory(const RankProgram& rank_program);

  // Makes an instance, not filled with zeros. It must not exist yet.
  float* allocate(TensorId tensor, std::int32_t micro_batch, MemoryLedger& ledger);
  void free(TensorId tensor, std::int32_t micro_batch, MemoryLedger& ledger);
  // Null: the instance does not exist.
  float* find(TensorId tensor, std::int32_t micro_batch) const;
  // The instance must exist.
  float* at(TensorId tensor, std::int32_t micro_batch) const;

  std::int64_t count(TensorId tensor) const;  // elements of a tensor
  std::int64_t live_bytes() const;            // the live bytes of all tensors not on the host
  std::int64_t peak_bytes() const;            // the most that was ever live
  std::int64_t static_bytes() const { return static_bytes_; }
  void forget_peak();  // peak_bytes() starts again at live_bytes()

  // What restore() goes back to: which of some tensors existed, with which values.
  struct Saved {
    struct Kept {
      TensorId tensor;
      std::int32_t micro_batch = kNoMicroBatch;
      std::optional<std::vector<float>> values;  // nothing: it did not exist
    };
    std::vector<Kept> instances;
    std::int64_t live_bytes = 0, peak_bytes = 0;
  };
  Saved save(const std::set<TensorId>& tensors, std::int32_t micro_batch) const;
  Saved save_held() const;  // all tensors that are held throughout
  // Frees what has been made since, and makes again what has been freed.
  void restore(const Saved& saved);

  // The gradient and the optimizer tensor of a parameter tensor, held or gathered. None: a Shard has them, or nothing
  // does.
  std::optional<TensorId> gradient_of(TensorId tensor) const { return gradient_of_[tensor]; }
  std::optional<TensorId> optimizer_of(TensorId tensor) const { return optimizer_of_[tensor]; }

 private:
  using Instance = std::pair<TensorId, std::int32_t>;  // tensor, micro-batch

  const RankProgram& rank_program_;
  mutable std::mutex mutex_;
  FreedMemoryKept freed_memory_kept_;  // until the instances are gone
  std::map<Instance, std::unique_ptr<float[]>> instances_;
  IdTable<TensorId, std::optional<TensorId>> gradient_of_, optimizer_of_;
  std::int64_t static_bytes_ = 0, live_bytes_ = 0, peak_bytes_ = 0;

  void find_companions();
  Instance key(TensorId tensor, std::int32_t micro_batch) const;
};

}  // namespace motley
