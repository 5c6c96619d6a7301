#include "hw/memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/refusal.hpp"

namespace motley {
namespace {

bool held_throughout(const Tensor& tensor) { return !per_micro_batch(tensor.role); }

void refuse_narrow_matmuls(const ProgramClass& of_class) {
  for (const Block& block : of_class.blocks)
    for (const Kernel& kernel : block.kernels)
      if (kernel.format && *kernel.format != Format::fp32)
        throw Refusal(
            Exit::infeasible, "host-precision", {},
            fmt::format("matmuls take {} operands: host ranks compute in fp32 only", name_of(*kernel.format)),
            "leave `matmuls` out of `train`");
}

}  // namespace

Memory::Memory(const ProgramClass& of_class)
    : class_(of_class),
      gradient_of_(of_class.tensors.size(), -1),
      optimizer_of_(of_class.tensors.size(), -1) {
  refuse_narrow_matmuls(of_class);
  for (std::size_t i = 0; i < of_class.tensors.size(); ++i) {
    const Tensor& tensor = of_class.tensors[i];
    if (tensor.format != Format::fp32)
      throw Refusal(Exit::infeasible, "host-precision", {},
                    fmt::format("tensor `{}` is {}: host ranks compute in fp32 only", tensor.name,
                                name_of(tensor.format)),
                    "train: {precision: fp32}");
    if (!held_throughout(tensor)) continue;
    const int id = static_cast<int>(i);
    const auto count_of = static_cast<std::size_t>(count(id));
    instances_[{id, -1}] = std::make_unique<float[]>(count_of);  // zeroed
    if (!tensor.on_host) static_bytes_ += tensor.bytes;
  }
  find_companions();
  live_bytes_ = peak_bytes_ = static_bytes_;
}

void Memory::find_companions() {
  std::map<int, int> gradients, optimizers;  // by parameter of the transformer
  for (std::size_t i = 0; i < class_.tensors.size(); ++i) {
    const Tensor& tensor = class_.tensors[i];
    if (tensor.parameter < 0 || tensor.on_host) continue;
    if (tensor.role == TensorRole::gradient || tensor.role == TensorRole::whole_gradient)
      gradients[tensor.parameter] = static_cast<int>(i);
    if (tensor.role == TensorRole::optimizer) optimizers[tensor.parameter] = static_cast<int>(i);
  }
  for (std::size_t i = 0; i < class_.tensors.size(); ++i) {
    const Tensor& tensor = class_.tensors[i];
    if (tensor.on_host || (tensor.role != TensorRole::parameter && tensor.role != TensorRole::gathered))
      continue;
    if (const auto found = gradients.find(tensor.parameter); found != gradients.end())
      gradient_of_[i] = found->second;
    if (const auto found = optimizers.find(tensor.parameter); found != optimizers.end())
      optimizer_of_[i] = found->second;
  }
}

std::pair<int, int> Memory::key(int tensor, int micro_batch) const {
  return {tensor, held_throughout(class_.tensors[static_cast<std::size_t>(tensor)]) ? -1 : micro_batch};
}

std::int64_t Memory::count(int tensor) const {
  std::int64_t product = 1;
  for (std::int64_t extent : class_.tensors[static_cast<std::size_t>(tensor)].shape) product *= extent;
  return product;
}

float* Memory::allocate(int tensor, int micro_batch, MemoryLedger& ledger) {
  const std::int64_t elements = count(tensor), bytes = elements * static_cast<std::int64_t>(sizeof(float));
  std::unique_ptr<float[]> memory(new float[static_cast<std::size_t>(elements)]);
  float* const start = memory.get();
  const std::lock_guard lock(mutex_);
  const bool fresh = instances_.emplace(key(tensor, micro_batch), std::move(memory)).second;
  MOTLEY_CHECK(fresh);
  if (class_.tensors[static_cast<std::size_t>(tensor)].on_host) return start;
  live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  ledger.allocated += bytes;
  ledger.live += bytes;
  ledger.peak = std::max(ledger.peak, ledger.live);
  return start;
}

void Memory::free(int tensor, int micro_batch, MemoryLedger& ledger) {
  const std::int64_t bytes = count(tensor) * static_cast<std::int64_t>(sizeof(float));
  const std::lock_guard lock(mutex_);
  const auto erased = instances_.erase({tensor, micro_batch});
  MOTLEY_CHECK(erased == 1);
  if (class_.tensors[static_cast<std::size_t>(tensor)].on_host) return;
  live_bytes_ -= bytes;
  ledger.freed += bytes;
  ledger.live -= bytes;
}

float* Memory::find(int tensor, int micro_batch) const {
  const std::lock_guard lock(mutex_);
  const auto found = instances_.find(key(tensor, micro_batch));
  return found == instances_.end() ? nullptr : found->second.get();
}

float* Memory::at(int tensor, int micro_batch) const {
  float* const found = find(tensor, micro_batch);
  MOTLEY_CHECK(found != nullptr);
  return found;
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
