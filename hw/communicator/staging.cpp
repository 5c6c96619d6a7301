#include "hw/communicator/staging.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Between two memories, and for sums: what is copied out is still in a cache when it is used.
constexpr std::size_t kSlice = std::size_t{8} << 10U;

std::uintptr_t address_of(const std::byte* byte) { return reinterpret_cast<std::uintptr_t>(byte); }

}  // namespace

void MemoryTable::add(DeviceMemory& memory) {
  const bool is_new = memories_.emplace(address_of(memory.bytes().data()), &memory).second;
  MOTLEY_CHECK(is_new);
  guarded_ += is_host_accessible(memory.kind()) ? 0 : 1;
}

void MemoryTable::remove(const DeviceMemory& memory) {
  memories_.erase(address_of(memory.bytes().data()));
  guarded_ -= is_host_accessible(memory.kind()) ? 0 : 1;
}

MemoryTable::Run MemoryTable::first_run(std::span<const std::byte> bytes) const {
  const std::uintptr_t begin = address_of(bytes.data());
  const auto next = memories_.upper_bound(begin);
  if (next != memories_.begin()) {
    const auto& [first, memory] = *std::prev(next);
    const std::size_t offset = begin - first, size = memory->bytes().size();
    if (offset < size) return {memory, std::min(bytes.size(), size - offset)};
  }
  return {nullptr, next == memories_.end() ? bytes.size() : std::min(bytes.size(), next->first - begin)};
}

const DeviceMemory* MemoryTable::memory_at(const std::byte* address) const {
  return first_run({address, 1}).memory;
}

bool MemoryTable::is_staged(std::span<const std::byte> bytes) const {
  if (guarded_ == 0) return false;
  while (!bytes.empty()) {
    const Run run = first_run(bytes);
    if (run.memory != nullptr && !is_host_accessible(run.memory->kind())) return true;
    bytes = bytes.subspan(run.bytes);
  }
  return false;
}

void MemoryTable::copy_run(std::span<std::byte> into, const Run& where, std::span<const std::byte> from,
                           const Run& whence) const {
  if (where.memory != nullptr && whence.memory != nullptr) {
    std::array<std::byte, kSlice> slice;
    for (std::size_t done = 0; done < from.size(); done += kSlice) {
      const std::size_t bytes = std::min(kSlice, from.size() - done);
      const auto between = std::span(slice).first(bytes);
      whence.memory->copy_out(between, from.subspan(done, bytes));
      where.memory->copy_in(into.subspan(done, bytes), between);
    }
  } else if (where.memory != nullptr) {
    where.memory->copy_in(into, from);
  } else if (whence.memory != nullptr) {
    whence.memory->copy_out(into, from);
  } else {
    std::copy(from.begin(), from.end(), into.begin());
  }
}

void MemoryTable::copy(std::span<std::byte> into, std::span<const std::byte> from) const {
  MOTLEY_CHECK(into.size() == from.size());
  while (!from.empty()) {
    const Run where = first_run(into), whence = first_run(from);
    const std::size_t bytes = std::min(where.bytes, whence.bytes);
    copy_run(into.first(bytes), where, from.first(bytes), whence);
    into = into.subspan(bytes);
    from = from.subspan(bytes);
  }
}

void MemoryTable::copy(std::span<std::byte> into, const Pieces& from) const {
  for (const auto& piece : from) {
    copy(into.first(piece.size()), piece);
    into = into.subspan(piece.size());
  }
}

void MemoryTable::clear(std::span<std::byte> bytes) const {
  static constexpr std::array<std::byte, 4096> kZeros{};
  while (!bytes.empty()) {
    Run run = first_run(bytes);
    if (run.memory == nullptr) {
      std::fill_n(bytes.begin(), run.bytes, std::byte{0});
    } else {
      run.bytes = std::min(run.bytes, kZeros.size());
      run.memory->copy_in(bytes.first(run.bytes), std::span(kZeros).first(run.bytes));
    }
    bytes = bytes.subspan(run.bytes);
  }
}

void MemoryTable::reduce(ElementType type, ReduceOp reduce, std::span<std::byte> into,
                         std::span<const std::byte> from) const {
  if (!is_staged(into) && !is_staged(from)) return reduce_into(type, reduce, into, from);
  MOTLEY_CHECK(into.size() == from.size());
  std::array<std::byte, kSlice> sums, terms;
  for (std::size_t done = 0; done < into.size(); done += kSlice) {
    const std::size_t bytes = std::min(kSlice, into.size() - done);
    const auto sum = std::span(sums).first(bytes);
    std::span<const std::byte> term = from.subspan(done, bytes);
    copy(sum, into.subspan(done, bytes));
    if (is_staged(term)) {
      copy(std::span(terms).first(bytes), term);
      term = std::span(terms).first(bytes);
    }
    reduce_into(type, reduce, sum, term);
    copy(into.subspan(done, bytes), sum);
  }
}

std::span<std::byte> StagingBuffers::Buffer::first(std::size_t count) const {
  const std::span<std::byte> whole =
      own_ ? std::span(own_.get(), kBytes) : pool_->file_->bytes().subspan(slot_ * kBytes, kBytes);
  return whole.first(count);
}

FilePlace StagingBuffers::Buffer::place() const {
  return own_ ? FilePlace() : FilePlace{pool_->file_->descriptor(), slot_ * kBytes};
}

void StagingBuffers::begin() {
  if (std::exchange(begun_, true)) return;
  file_ = SharedFile::create(kSlots * kBytes);
  for (std::size_t i = file_ ? kSlots : 0; i > 0; --i) free_.push_back(i - 1);
}

bool StagingBuffers::are_shared() {
  begin();
  return file_ != nullptr;
}

StagingBuffers::Buffer StagingBuffers::take() {
  begin();
  ++in_use_;
  Buffer buffer(*this, free_.empty() ? 0 : free_.back());
  if (free_.empty())
    buffer.own_ = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  else
    free_.pop_back();
  return buffer;
}

void StagingBuffers::give_back(Buffer& buffer) {
  --in_use_;
  if (!buffer.own_) free_.push_back(buffer.slot_);
}

}  // namespace motley
