// What a Messenger does with bytes that only copy calls may touch. A send copies chunks out into buffers of the host,
// some ahead of those that are on their way; a receive copies what has come in, while the next comes. Small messages
// are copied as a whole. The bytes take the same paths as others do: out of the buffers on one host, over RDMA or TCP.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hw/communicator/transfer.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Messages up to this size are copied when they are posted, and when they have come.
constexpr std::size_t kCopiedBytes = std::size_t{4} << 10U;
// What is read at once out of a peer's memory: it is still in a cache when it is copied in.
constexpr std::size_t kReadSlice = std::size_t{128} << 10U;

// The bytes [offset, offset + length) of all pieces in a row.
std::vector<MemoryPiece> cut(const std::vector<MemoryPiece>& pieces, std::size_t offset, std::size_t length) {
  std::vector<MemoryPiece> parts;
  for (const MemoryPiece& piece : pieces) {
    const std::size_t skipped = std::min<std::size_t>(offset, piece.bytes);
    const std::size_t taken = std::min<std::size_t>(length, piece.bytes - skipped);
    if (taken > 0) parts.push_back({piece.address + skipped, taken});
    offset -= skipped;
    length -= taken;
  }
  return parts;
}

}  // namespace

// ---- registered memory

std::shared_ptr<void> Messenger::register_memory(DeviceMemory& memory) {
  std::shared_ptr<void> for_rdma;
  if (is_host_accessible(memory.kind()) && !memory.bytes().empty())
    for_rdma = register_memory(memory.bytes());
  const std::lock_guard lock(mutex_);
  memory_.add(memory);
  return {static_cast<void*>(memory.bytes().data()), [this, &memory, for_rdma](void*) {
            const std::lock_guard its_lock(mutex_);
            memory_.remove(memory);
          }};
}

MemoryKind Messenger::kind_of_memory(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  const DeviceMemory* const memory = memory_.memory_at(address);
  return memory == nullptr ? MemoryKind::host : memory->kind();
}

void Messenger::copy(std::span<std::byte> into, std::span<const std::byte> from) const {
  {
    const std::lock_guard lock(mutex_);
    if (memory_.is_staged(into) || memory_.is_staged(from)) return memory_.copy(into, from);
  }
  std::copy(from.begin(), from.end(), into.begin());
}

std::size_t Messenger::staging_buffers() const {
  const std::lock_guard lock(mutex_);
  return staged_.buffers.in_use();
}

// Finds out whether the message is staged.
void Messenger::stage(Transfer& transfer) {
  const auto is_staged = [&](std::span<const std::byte> bytes) { return memory_.is_staged(bytes); };
  if (transfer.is_send()) {
    Pieces& pieces = transfer.sent->pieces;
    if (std::none_of(pieces.begin(), pieces.end(), is_staged)) return;
    if (transfer.bytes > kCopiedBytes) {
      transfer.is_staged = true;
      return;
    }
    transfer.copied.resize(transfer.bytes);
    memory_.copy(transfer.copied, pieces);
    pieces = {transfer.copied};
    return;
  }
  if (!is_staged(transfer.into)) return;
  if (transfer.bytes > kCopiedBytes) {
    transfer.is_staged = true;
    return;
  }
  transfer.copied.resize(transfer.bytes);
  transfer.lands = std::exchange(transfer.into, transfer.copied);
}

// ---- sends

// Copies out as many chunks as it has buffers for, and puts them on their way.
void Messenger::put_chunks(Transfer& send) {
  const std::shared_ptr<Transfer> hold = sends_.at(send.number);
  StagedChunks::Share& share = staged_.shares[send.peer];
  while (send.chunked < send.moving && send.state == Operation::State::pending) {
    if (share.used == StagedChunks::kBuffersOfPeer) {
      share.waiting.push_back(send.number);
      return;
    }
    const bool offers = offers_memory(send.peer, send.moving);
    const std::optional<Path> path = offers ? Path::shm : choose_path(send);
    if (!path) return;
    const std::size_t bytes = std::min(StagingBuffers::kBytes, send.moving - send.chunked);
    StagedChunks::Chunk chunk{send.number, send.peer,    send.chunked,
                              bytes,       send.attempt, staged_.buffers.take()};
    memory_.copy(chunk.buffer.first(bytes), motley::cut(send.sent->pieces, send.chunked, bytes));
    send.chunked += bytes;
    ++share.used;
    const std::uint64_t number = next_number_++;
    staged_.sends.emplace(number, std::move(chunk));
    send_chunk(send, number, *path);
  }
}

void Messenger::send_chunk(Transfer& send, std::uint64_t number, Path path) {
  const StagedChunks::Chunk& chunk = staged_.sends.at(number);
  const std::span<const std::byte> bytes = chunk.buffer.first(chunk.bytes);
  if (std::exchange(send.chunks_by, path) != path) {
    send.paths.add(path);
    if (options_.on_send) options_.on_send(*send.sent, path);
  }
  if (path == Path::shm) {
    Frame offer = offer_of(send);
    offer.sender_number = number;
    offer.offset = chunk.offset;
    offer.shared = chunk.buffer.place();
    offer.pieces = {{reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size()}};
    return transport_->tell(send.peer, offer);
  }
  Put put;
  put.number = number;
  put.frame = data_of(send);
  put.frame.offset = chunk.offset;
  put.pieces = {bytes};
  if (path == Path::verbs)
    verbs_->put(send.peer, std::move(put));
  else
    transport_->put(send.peer, std::move(put));
}

// Those that wait for buffers take what is free, in turns.
void Messenger::use_buffers_of(Rank peer) {
  StagedChunks::Share& share = staged_.shares[peer];
  while (!share.waiting.empty() && share.used < StagedChunks::kBuffersOfPeer) {
    const auto send = sends_.find(share.waiting.front());
    share.waiting.pop_front();
    if (send != sends_.end()) put_chunks(*send->second);
  }
}

// Its buffer is free again with what is returned. Nothing: there is no such chunk.
std::optional<StagedChunks::Chunk> Messenger::take_chunk(std::uint64_t number) {
  auto node = staged_.sends.extract(number);
  if (node.empty()) return std::nullopt;
  const Rank peer = node.mapped().peer;
  --staged_.shares[peer].used;
  later_.emplace_back([this, peer] { use_buffers_of(peer); });
  return std::move(node.mapped());
}

void Messenger::chunk_left(std::uint64_t number) {
  const std::optional<StagedChunks::Chunk> chunk = take_chunk(number);
  const auto entry = chunk ? sends_.find(chunk->send) : sends_.end();
  if (entry == sends_.end() || entry->second->attempt != chunk->attempt) return;
  Transfer& send = *entry->second;
  send.touch();
  send.moved += chunk->bytes;
  if (send.moved == send.moving) end(entry->second);
}

// Some of its bytes may have come: all begin anew.
void Messenger::chunk_came_back(std::uint64_t number) {
  const std::optional<StagedChunks::Chunk> chunk = take_chunk(number);
  const auto entry = chunk ? sends_.find(chunk->send) : sends_.end();
  if (entry == sends_.end() || entry->second->attempt != chunk->attempt) return;
  Transfer& send = *entry->second;
  ++send.attempt;
  send.chunked = send.moved = 0;
  send.chunks_by.reset();
  send.touch();
  if (send.is_staged_for_speed && !offers_memory(send.peer, send.moving)) send.is_staged = false;
  put(send);
}

// ---- receives

// Where bytes come that are copied in once they are there. Each connection has one such place at a time.
std::span<std::byte> Messenger::landing_for(const Transfer& receive, const Frame& data) {
  if (data.length > StagingBuffers::kBytes) {
    fail(receive.peer, fmt::format("rank {} sends {} bytes at once", receive.peer, data.length));
    return {};
  }
  const StagedChunks::Landing where(receive.number, data.attempt, data.offset);
  if (staged_.landings.contains(where)) {
    fail(receive.peer, fmt::format("rank {} sends the same bytes twice", receive.peer));
    return {};
  }
  return staged_.landings.emplace(where, staged_.buffers.take()).first->second.first(data.length);
}

void Messenger::take_landing(const Transfer& receive, const Frame& data) {
  const auto landing = staged_.landings.extract({receive.number, data.attempt, data.offset});
  if (!landing.empty() && data.attempt == receive.attempt)
    memory_.copy(receive.into.subspan(data.offset, data.length), landing.mapped().first(data.length));
}

// Chunks that a peer has staged in a file are used in place. All else is copied out of its memory.
bool Messenger::read_offered(PeerMemory& memory, const Frame& offer, const Transfer& receive,
                             std::span<std::byte> into) {
  if (const auto shared = memory.shared_bytes(offer.shared, into.size()); !shared.empty()) {
    memory_.copy(into, shared);
    return memory.has_mark();
  }
  if (!receive.is_staged) return memory.read(offer.pieces, into);
  const StagingBuffers::Buffer buffer = staged_.buffers.take();
  for (std::size_t done = 0; done < into.size(); done += kReadSlice) {
    const std::size_t bytes = std::min(kReadSlice, into.size() - done);
    const std::span<std::byte> slice = buffer.first(bytes);
    if (!memory.read(cut(offer.pieces, done, bytes), slice)) return false;
    memory_.copy(into.subspan(done, bytes), slice);
  }
  return true;
}

}  // namespace motley
