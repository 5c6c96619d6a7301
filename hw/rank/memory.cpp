#include "hw/rank/memory.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <string_view>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

bool held_throughout(const Tensor& tensor) { return !per_micro_batch(tensor.role); }

#ifdef __GLIBC__
std::atomic<int> memories = 0;  // that live in this process
std::atomic<bool> obeys = false;

// `keeps`: freed memory stays in this process, in one pool for all threads. Else as in a process that has set nothing.
void set_allocator(bool keeps) {
  constexpr int kLargest = std::numeric_limits<int>::max(), kUsual = 128 * 1024;  // mallopt(3)
  constexpr int kMost = int{FreedMemoryKept::kMostBytes};
  const bool done = mallopt(M_ARENA_MAX, keeps ? 1 : 0) == 1;
  const bool mapped = mallopt(M_MMAP_THRESHOLD, keeps ? kMost : kUsual) == 1;
  const bool trimmed = mallopt(M_TRIM_THRESHOLD, keeps ? kLargest : kUsual) == 1;
  obeys = keeps && done && mapped && trimmed;
  if (!keeps) malloc_trim(0);
}
#endif

}  // namespace

#ifdef __GLIBC__
FreedMemoryKept::FreedMemoryKept() {
  if (memories++ == 0) set_allocator(true);
}
FreedMemoryKept::~FreedMemoryKept() {
  if (--memories == 0) set_allocator(false);
}
bool FreedMemoryKept::in_force() { return obeys; }
#else
FreedMemoryKept::FreedMemoryKept() = default;
FreedMemoryKept::~FreedMemoryKept() = default;
bool FreedMemoryKept::in_force() { return false; }
#endif

// Whether the tensor has the bytes of all its elements in its format, or none are said.
bool is_whole(const Tensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.shape) elements *= extent;
  return tensor.bytes == 0 || tensor.bytes == elements * bytes_of(tensor.format);
}

// Refuses adapters of some of the matrices that a layer stacks: host ranks have one for the layer.
void refuse_parted_adapters(const RankProgram& rank_program) {
  constexpr std::string_view kOuter = ".b.weight", kWeight = ".weight";
  std::map<std::string, std::int64_t> rows;
  for (const Tensor& tensor : rank_program.tensors)
    if (tensor.role == TensorRole::parameter || tensor.role == TensorRole::gathered)
      rows[tensor.name] = tensor.shape.at(0);
  for (const auto& [name, count] : rows) {
    if (!name.ends_with(kOuter)) continue;
    const std::string layer = name.substr(0, name.size() - kOuter.size());
    if (const auto whole = rows.find(layer + std::string(kWeight));
        whole != rows.end() && whole->second != count)
      throw Refusal(
          Exit::infeasible, "host-adapters", {},
          fmt::format("`{}` has adapters for a part of its rows: host ranks have one for the layer", layer),
          "lora: {on: [qkv]} instead of q, k or v, and gate_up instead of gate or up");
  }
}

void refuse_host_formats(const RankProgram& rank_program) {
  refuse_parted_adapters(rank_program);
  for (const Block& block : rank_program.blocks)
    for (const Kernel& kernel : block.kernels)
      if (kernel.format && *kernel.format != Format::fp32)
        throw Refusal(
            Exit::infeasible, "host-precision", {},
            fmt::format("matmuls take {} operands: host ranks compute in fp32 only", name_of(*kernel.format)),
            "leave `matmuls` out of `train`");
  for (const Tensor& tensor : rank_program.tensors) {
    if (tensor.role == TensorRole::optimizer && !tensor.shape.empty() &&
        (tensor.shape[0] != 2 || !is_whole(tensor)))
      throw Refusal(
          Exit::infeasible, "host-optimizer", {},
          fmt::format("tensor `{}` is no state of AdamW: host ranks step with AdamW only", tensor.name),
          "leave `optimizer` out of `train`");
    if (tensor.role == TensorRole::parameter && !is_whole(tensor))
      throw Refusal(Exit::infeasible, "host-precision", {},
                    fmt::format("tensor `{}` is quantized: host ranks compute in fp32 only", tensor.name),
                    "leave `frozen_weights` out of `train`");
    if (tensor.format != Format::fp32)
      throw Refusal(Exit::infeasible, "host-precision", {},
                    fmt::format("tensor `{}` is {}: host ranks compute in fp32 only", tensor.name,
                                name_of(tensor.format)),
                    "train: {precision: fp32}");
  }
}

void refuse_simulated_only(const Transformer& transformer) {
  if (const std::string key = simulated_only(transformer); !key.empty())
    throw Refusal(Exit::infeasible, "simulated-only", {},
                  fmt::format("model `{}` has `{}`, which is simulated only: no real rank computes it yet",
                              transformer.name, key),
                  "`motley simulate` predicts it");
}

Memory::Memory(const RankProgram& rank_program)
    : rank_program_(rank_program),
      gradient_of_(rank_program.tensors.size()),
      optimizer_of_(rank_program.tensors.size()) {
  refuse_host_formats(rank_program);
  for (const TensorId id : rank_program.tensors.ids()) {
    const Tensor& tensor = rank_program.tensors[id];
    if (!held_throughout(tensor)) continue;
    instances_[{id, kNoMicroBatch}] = std::make_unique<float[]>(motley::at(count(id)));  // zeroed
    if (!tensor.on_host) static_bytes_ += tensor.bytes;
  }
  find_companions();
  live_bytes_ = peak_bytes_ = static_bytes_;
}

void Memory::find_companions() {
  std::map<int, TensorId> gradients, optimizers;  // the tensor for each parameter of the transformer
  for (const TensorId id : rank_program_.tensors.ids()) {
    const Tensor& tensor = rank_program_.tensors[id];
    if (!tensor.parameter || tensor.on_host) continue;
    if (tensor.role == TensorRole::gradient || tensor.role == TensorRole::whole_gradient)
      gradients[*tensor.parameter] = id;
    if (tensor.role == TensorRole::optimizer) optimizers[*tensor.parameter] = id;
  }
  for (const TensorId id : rank_program_.tensors.ids()) {
    const Tensor& tensor = rank_program_.tensors[id];
    if (!tensor.parameter || tensor.on_host) continue;
    if (tensor.role != TensorRole::parameter && tensor.role != TensorRole::gathered) continue;
    if (const auto gradient = gradients.find(*tensor.parameter); gradient != gradients.end())
      gradient_of_[id] = gradient->second;
    if (const auto optimizer = optimizers.find(*tensor.parameter); optimizer != optimizers.end())
      optimizer_of_[id] = optimizer->second;
  }
}

Memory::Instance Memory::key(TensorId tensor, std::int32_t micro_batch) const {
  return {tensor, held_throughout(rank_program_.tensors[tensor]) ? kNoMicroBatch : micro_batch};
}

std::int64_t Memory::count(TensorId tensor) const {
  std::int64_t product = 1;
  for (std::int64_t extent : rank_program_.tensors[tensor].shape) product *= extent;
  return product;
}

float* Memory::allocate(TensorId tensor, std::int32_t micro_batch, MemoryLedger& ledger) {
  const std::int64_t elements = count(tensor), bytes = elements * static_cast<std::int64_t>(sizeof(float));
  std::unique_ptr<float[]> memory(new float[motley::at(elements)]);
  float* const start = memory.get();
  const std::lock_guard lock(mutex_);
  const bool fresh = instances_.emplace(key(tensor, micro_batch), std::move(memory)).second;
  MOTLEY_CHECK(fresh);
  if (rank_program_.tensors[tensor].on_host) return start;
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  ledger.allocated += bytes;
  ledger.live += bytes;
  ledger.peak = std::max(ledger.peak, ledger.live);
  return start;
}

void Memory::free(TensorId tensor, std::int32_t micro_batch, MemoryLedger& ledger) {
  const std::int64_t bytes = count(tensor) * static_cast<std::int64_t>(sizeof(float));
  const std::lock_guard lock(mutex_);
  const auto erased = instances_.erase({tensor, micro_batch});
  MOTLEY_CHECK(erased == 1);
  if (rank_program_.tensors[tensor].on_host) return;
  live_bytes_ -= bytes;
  ledger.freed += bytes;
  ledger.live -= bytes;
}

float* Memory::find(TensorId tensor, std::int32_t micro_batch) const {
  const std::lock_guard lock(mutex_);
  const auto instance = instances_.find(key(tensor, micro_batch));
  return instance == instances_.end() ? nullptr : instance->second.get();
}

float* Memory::at(TensorId tensor, std::int32_t micro_batch) const {
  float* const instance = find(tensor, micro_batch);
  MOTLEY_CHECK(instance != nullptr);
  return instance;
}

Memory::Saved Memory::save(const std::set<TensorId>& tensors, std::int32_t micro_batch) const {
  const std::lock_guard lock(mutex_);
  Saved saved;
  saved.live_bytes = live_bytes_;
  saved.peak_bytes = peak_bytes_;
  for (const TensorId tensor : tensors) {
    const auto [id, of_micro_batch] = key(tensor, micro_batch);
    Saved::Kept& kept = saved.instances.emplace_back(Saved::Kept{id, of_micro_batch, std::nullopt});
    if (const auto instance = instances_.find({id, of_micro_batch}); instance != instances_.end())
      kept.values.emplace(instance->second.get(), instance->second.get() + count(id));
  }
  return saved;
}

Memory::Saved Memory::save_held() const {
  std::set<TensorId> held;
  for (const TensorId id : rank_program_.tensors.ids())
    if (held_throughout(rank_program_.tensors[id])) held.insert(id);
  return save(held, kNoMicroBatch);
}

void Memory::restore(const Saved& saved) {
  const std::lock_guard lock(mutex_);
  for (const Saved::Kept& kept : saved.instances) {
    if (!kept.values) {
      instances_.erase({kept.tensor, kept.micro_batch});
      continue;
    }
    std::unique_ptr<float[]>& instance = instances_[{kept.tensor, kept.micro_batch}];
    if (instance == nullptr) instance.reset(new float[kept.values->size()]);
    std::copy(kept.values->begin(), kept.values->end(), instance.get());
  }
  live_bytes_ = saved.live_bytes;
  peak_bytes_ = saved.peak_bytes;
}

std::int64_t Memory::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

std::int64_t Memory::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

void Memory::forget_peak() {
  const std::lock_guard lock(mutex_);
  peak_bytes_ = live_bytes_;
}

}  // namespace motley
