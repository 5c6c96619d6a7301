#include "hw/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "hw/collective/ring.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of a tensor's values: where blocks of sequences are moved one by one, that of the instruction.
std::span<float> block_of(const Instruction& instruction, std::span<float> whole) {
  const std::size_t size = whole.size() / at(instruction.rows);
  return whole.subspan(at(instruction.row) * size, size);
}

// A stream that gave up because another one failed.
struct Stopped {};

}  // namespace

RealWorld::RealWorld(const Program& program, RankWork& work, Rank rank, Transport* transport)
    : program_(program),
      work_(work),
      rank_(rank),
      transport_(transport),
      collectives_(program.groups.size()) {}

double RealWorld::now_s() const { return steady_s() - origin_s_; }

std::vector<TraceEvent> RealWorld::run_step(const Text& text, std::int64_t step, double origin_s) {
  const auto& streams = program_.class_of(rank_).streams;
  origin_s_ = origin_s;
  step_ = step;
  failure_ = nullptr;
  streams_.assign(streams.size(), {});
  work_.begin_step(text, step);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < streams.size(); ++i)
    if (!streams[i].instructions.empty())
      threads.emplace_back([this, i] {
        try {
          run_stream(program_, rank_, static_cast<int>(i), *this);
        } catch (const Stopped&) {
        } catch (...) {
          fail(std::current_exception());
        }
      });
  for (std::thread& thread : threads) thread.join();
  if (failure_) std::rethrow_exception(failure_);
  std::vector<TraceEvent> events;
  for (const StreamState& state : streams_)
    events.insert(events.end(), state.events.begin(), state.events.end());
  return events;
}

void RealWorld::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(failure);
  }
  ended_.notify_all();
  if (transport_ != nullptr) transport_->abort();
}

void RealWorld::wait_for(std::span<const Step> after, TraceEvent& event) {
  std::unique_lock lock(mutex_);
  for (const Step& awaited : after) {
    const StreamState& state = streams_[at(awaited.stream)];
    ended_.wait(lock, [&] { return failure_ || state.ended > awaited.index; });
    if (failure_) throw Stopped();
  }
  double latest_s = event.free_s;
  for (const Step& awaited : after) {
    const double end_s = streams_[at(awaited.stream)].end_s[at(awaited.index)];
    if (end_s <= latest_s) continue;
    latest_s = end_s;
    event.waited = Waited::step;
    event.waited_for = awaited;
  }
}

void RealWorld::issue(const Step& step, const Instruction& instruction, std::span<const Step> after) {
  StreamState& state = streams_[at(step.stream)];  // `ended` and `end_s` are shared, `events` this thread's
  TraceEvent event;
  event.step = step;
  event.free_s = now_s();
  wait_for(after, event);
  event.begin_s = event.matched_s = now_s();
  try {
    perform(instruction, event);
  } catch (const RunFailure& failure) {
    throw RunFailure(
        fmt::format("{} (at {})", failure.what(), describe(program_, rank_, step.stream, step.index)));
  }
  event.end_s = now_s();
  state.events.push_back(event);
  {
    const std::lock_guard lock(mutex_);
    state.end_s.push_back(event.end_s);
    state.ended = step.index + 1;
  }
  ended_.notify_all();
}

void RealWorld::await(Rank, int) {}  // issue() returns when its step has ended

void RealWorld::perform(const Instruction& instruction, TraceEvent& event) {
  MemoryLedger ledger;
  switch (instruction.op) {
    case Op::compute:
      event.flops = work_.compute(instruction, ledger);
      break;
    case Op::optimizer:
      work_.optimize(instruction);
      break;
    case Op::copy:
      event.bytes = work_.copy(instruction, ledger);
      break;
    case Op::send:
    case Op::recv:
      transfer(instruction, event, ledger);
      break;
    case Op::collective:
      if (instruction.shard >= 0)
        exchange_shard(instruction, event, ledger);
      else
        exchange_tensors(instruction, event);
      for (int id : instruction.frees) work_.memory().free(id, instruction.micro_batch, ledger);
      break;
  }
  event.allocated = ledger.allocated;
  event.freed = ledger.freed;
  event.peak = ledger.peak;
}

void RealWorld::transfer(const Instruction& instruction, TraceEvent& event, MemoryLedger& ledger) {
  const int tensor = instruction.tensors[0];
  const Rank peer = program_.ranks[at(rank_)].peers[at(instruction.slot)];
  const bool sends = instruction.op == Op::send;
  if (makes_received(instruction)) work_.memory().allocate(tensor, instruction.micro_batch, ledger);
  const std::span<float> whole = block_of(instruction, work_.values(tensor, instruction.micro_batch));
  const std::size_t size = whole.size() / at(instruction.parts);
  const int index = program_.ranks[at(rank_)].tensor_index;
  const std::span<float> values = whole.subspan(
      at((instruction.part + instruction.part_stride * index) % instruction.parts) * size, size);
  Exchange exchange;
  // Activations flow to the next stage, gradients to the previous one.
  exchange.channel = is_next(instruction.slot) == sends ? Channel::activation : Channel::gradient;
  exchange.lane = (sends ? instruction.slot : other_end(program_, rank_, instruction.slot)) / 2;
  exchange.tag =
      static_cast<std::uint64_t>(step_) << 32U | static_cast<std::uint32_t>(instruction.micro_batch);
  if (sends) {
    exchange.to = peer;
    exchange.outgoing = std::as_bytes(values);
  } else {
    exchange.from = peer;
    exchange.incoming = std::as_writable_bytes(values);
  }
  matched(transport_->exchange(exchange, {event.begin_s, rank_}), event);
  event.bytes = static_cast<std::int64_t>(values.size_bytes());
  for (int id : instruction.frees) work_.memory().free(id, instruction.micro_batch, ledger);
}

// Tensors of which only a part takes part, or weighted: gathered, exchanged and put back.
void RealWorld::exchange_parts(const Instruction& instruction, TraceEvent& event) {
  std::vector<std::vector<std::int64_t>> elements;
  std::vector<float> bucket;
  const auto scale = static_cast<float>(instruction.scale);
  for (int id : instruction.tensors) {
    elements.push_back(work_.elements(id, instruction.part, instruction.parts));
    const auto values = work_.values(id, instruction.micro_batch);
    for (std::int64_t element : elements.back()) bucket.push_back(values[at(element)] * scale);
  }
  event.bytes = static_cast<std::int64_t>(bucket.size() * sizeof(float));
  matched(collective(instruction, bucket, event.begin_s), event);
  std::size_t next = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto values = work_.values(instruction.tensors[i], instruction.micro_batch);
    for (std::int64_t element : elements[i]) values[at(element)] = bucket[next++];
  }
}

// The whole of a Shard, laid out as one run; or only this rank's part of it.
void RealWorld::exchange_shard(const Instruction& instruction, TraceEvent& event, MemoryLedger& ledger) {
  const Shard& shard = program_.class_of(rank_).shards[at(instruction.shard)];
  const Group& members = program_.groups[at(program_.ranks[at(rank_)].groups[at(shard.slot)])];
  const bool gathers = instruction.collective == CollectiveKind::all_gather && shard.parameter_part >= 0;
  const bool adds = instruction.collective == CollectiveKind::reduce_scatter && shard.gradient_part >= 0;
  const auto values = [&](int id) { return work_.values(id, instruction.micro_batch); };
  std::vector<float> whole;
  for (int id : instruction.tensors) {
    if (gathers && shard.part == 0) work_.memory().allocate(id, instruction.micro_batch, ledger);
    if (gathers) whole.resize(whole.size() + values(id).size() / at(shard.parts));
    if (!gathers) work_.take_part(id, shard.part, shard.parts, instruction.micro_batch, whole);
  }
  if (instruction.scale != 1.0)
    for (float& value : whole) value *= static_cast<float>(instruction.scale);
  const auto mine = part(whole, place_in(members, rank_), members.ranks.size());
  if (gathers) std::copy_n(work_.values(shard.parameter_part, -1).begin(), mine.size(), mine.begin());
  const std::size_t part_size = (whole.size() + members.ranks.size() - 1) / members.ranks.size();
  std::vector<float> padded;  // members' parts differ in length, a collective's payload does not
  if (instruction.collective == CollectiveKind::all_reduce) {
    padded.assign(mine.begin(), mine.end());
    padded.resize(part_size);
  }
  const std::span<float> moved = padded.empty() ? std::span(whole) : std::span(padded);
  event.bytes = static_cast<std::int64_t>(moved.size_bytes());
  matched(collective(instruction, moved, event.begin_s), event);
  if (!padded.empty()) std::copy_n(padded.begin(), mine.size(), mine.begin());
  if (adds) {
    const auto held = work_.values(shard.gradient_part, -1);
    for (std::size_t i = 0; i < mine.size(); ++i) held[i] += mine[i];
    return;
  }
  std::span<const float> from = whole;
  for (int id : instruction.tensors)
    from = work_.put_part(id, shard.part, shard.parts, instruction.micro_batch, from);
}

// A bucket goes as one run of values, as frameworks do; one tensor in place.
void RealWorld::exchange_tensors(const Instruction& instruction, TraceEvent& event) {
  if (instruction.parts > 1 || instruction.scale != 1.0) return exchange_parts(instruction, event);
  std::vector<std::span<float>> parts;
  std::size_t count = 0;
  for (int id : instruction.tensors) {
    parts.push_back(block_of(instruction, work_.values(id, instruction.micro_batch)));
    count += parts.back().size();
  }
  event.bytes = static_cast<std::int64_t>(count * sizeof(float));
  if (parts.size() == 1) {
    matched(collective(instruction, parts[0], event.begin_s), event);
    return;
  }
  std::vector<float> bucket;
  bucket.reserve(count);
  for (const auto& part : parts) bucket.insert(bucket.end(), part.begin(), part.end());
  matched(collective(instruction, bucket, event.begin_s), event);
  auto from = bucket.begin();
  for (const auto& part : parts) {
    std::copy_n(from, part.size(), part.begin());
    from += static_cast<std::ptrdiff_t>(part.size());
  }
}

Posted RealWorld::collective(const Instruction& instruction, std::span<float> values, double begin_s) {
  const int index = program_.ranks[at(rank_)].groups[at(instruction.slot)];
  if (index < 0) return {begin_s, rank_};  // a group of one
  const Group& group = program_.groups[at(index)];
  const Channel channel = channel_of(group.kind);
  const std::uint64_t tag = static_cast<std::uint64_t>(index) << 32U | ++collectives_[at(index)];
  return run_collective(instruction.collective, *transport_, group, channel, tag, instruction.reduce, values,
                        {begin_s, rank_});
}

void RealWorld::tensor_collective(const Kernel& kernel, std::span<float> values) {
  Instruction instruction;
  instruction.op = Op::collective;
  instruction.slot = kTensorGroup;
  instruction.collective = collective_of(kernel.op);
  instruction.reduce = kernel.reduce;
  collective(instruction, values, now_s());
}

void RealWorld::matched(const Posted& latest, TraceEvent& event) const {
  event.matched_s = std::max(event.begin_s, latest.at_s);
  if (latest.rank == rank_ || latest.at_s <= event.begin_s) return;
  event.waited = Waited::peer;
  event.waited_rank = latest.rank;
  event.waited_for = {};
}

}  // namespace motley
