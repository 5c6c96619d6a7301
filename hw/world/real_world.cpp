#include "hw/world/real_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <variant>

#include "hw/communicator/parts.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Block `row` of the `rows` equal blocks of a tensor; each block holds some of the sequences.
std::span<float> block_of(std::span<float> whole, std::int32_t row, std::int32_t rows) {
  const std::size_t size = whole.size() / at(rows);
  return whole.subspan(at(row) * size, size);
}

bool gathers_parameters(const Collective& collective, const Shard& shard) {
  return collective.kind == CollectiveKind::all_gather && shard.parameter_part;
}

// Thrown in a stream that gives up because another stream failed.
struct Stopped {};

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "for a reason that it does not say";
  }
}

}  // namespace

RealWorld::RealWorld(const Program& program, RankWork& work, Rank rank, Peers* peers)
    : program_(program), work_(work), rank_(rank), peers_(peers) {}

double RealWorld::now_s() const { return steady_s() - origin_s_; }

RealWorld::RankStep RealWorld::run_step(const Text& text, std::int64_t step, double origin_s,
                                        bool records_kernels) {
  const auto& streams = program_.program_of(rank_).streams;
  origin_s_ = origin_s;
  step_ = step;
  records_kernels_ = records_kernels;
  failure_ = nullptr;
  streams_ = IdTable<StreamId, StreamState>(streams.size());
  work_.begin_step(text, step);
  std::vector<std::thread> threads;
  for (const StreamId id : streams.ids())
    if (!streams[id].instructions.empty())
      threads.emplace_back([this, id] {
        try {
          run_stream(program_, rank_, id, *this);
        } catch (const Stopped&) {
        } catch (...) {
          fail(std::current_exception());
        }
      });
  for (std::thread& thread : threads) thread.join();
  if (failure_) std::rethrow_exception(failure_);
  RankStep done;
  for (const StreamState& state : streams_) {
    done.events.insert(done.events.end(), state.events.begin(), state.events.end());
    done.kernels.insert(done.kernels.end(), state.kernels.begin(), state.kernels.end());
  }
  return done;
}

void RealWorld::fail(std::exception_ptr failure) {
  const std::string why = fmt::format("rank {} failed: {}", rank_, text_of(failure));
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(failure);
  }
  ended_.notify_all();
  if (peers_ != nullptr) peers_->abort(why);
}

void RealWorld::wait_for(std::span<const Step> after, TraceEvent& event) {
  std::unique_lock lock(mutex_);
  for (const Step& awaited : after) {
    const StreamState& state = streams_[awaited.stream];
    ended_.wait(lock, [&] { return failure_ || state.ended > awaited.index; });
    if (failure_) throw Stopped();
  }
  double latest_s = event.free_s;
  for (const Step& awaited : after) {
    const double end_s = streams_[awaited.stream].end_s[at(awaited.index)];
    if (end_s <= latest_s) continue;
    latest_s = end_s;
    event.waited = Waited::step;
    event.waited_for = awaited;
  }
}

void RealWorld::issue(const Step& step, const Instruction& instruction, std::span<const Step> after) {
  StreamState& state = streams_[step.stream];  // other threads read `ended` and `end_s`, not `events`
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

TraceEvent RealWorld::perform_alone(const Step& step, const Instruction& instruction) {
  TraceEvent event;
  event.step = step;
  event.begin_s = event.matched_s = now_s();
  perform(instruction, event);
  event.end_s = now_s();
  return event;
}

void RealWorld::await(Rank, StreamId) {}  // issue() returns when its step has ended

void RealWorld::perform(const Instruction& instruction, TraceEvent& event) {
  MemoryLedger ledger;
  const std::int32_t micro_batch = instruction.micro_batch;
  switch (instruction.op()) {
    case Op::compute:
      event.flops = compute(instruction, event, ledger);
      event.paths = computing_paths_;
      break;
    case Op::optimizer:
      work_.optimize(std::get<OptimizerStep>(instruction.body));
      break;
    case Op::copy:
      event.bytes = work_.copy(instruction, ledger);
      break;
    case Op::send:
    case Op::recv:
      transfer(instruction, event, ledger);
      break;
    case Op::collective:
      exchange(std::get<Collective>(instruction.body), micro_batch, event, ledger);
      for (const TensorId id : instruction.frees) work_.memory().free(id, micro_batch, ledger);
      break;
  }
  event.allocated = ledger.allocated;
  event.freed = ledger.freed;
  event.peak = ledger.peak;
}

double RealWorld::compute(const Instruction& instruction, const TraceEvent& event, MemoryLedger& ledger) {
  const Compute& compute = std::get<Compute>(instruction.body);
  computing_ = event.step;
  computing_paths_ = {};
  if (!records_kernels_) return work_.compute(compute, instruction.micro_batch, ledger);
  std::vector<KernelSpan> spans;
  const double begin_s = now_s();
  const double flops = work_.compute(compute, instruction.micro_batch, ledger, &spans);
  const auto& kernels = work_.rank_program().blocks[compute.block].kernels;
  for (const KernelSpan& span : spans)
    streams_[event.step.stream].kernels.push_back({.step = event.step,
                                                   .kernel = span.kernel,
                                                   .begin_s = begin_s + span.begin_s,
                                                   .end_s = begin_s + span.end_s,
                                                   .flops = span.flops,
                                                   .bytes = kernels[at(span.kernel)].bytes});
  return flops;
}

void RealWorld::transfer(const Instruction& instruction, TraceEvent& event, MemoryLedger& ledger) {
  const PeerMessage& message = *instruction.message();
  const RankEntry& entry = program_.ranks[rank_];
  const Rank peer = entry.peers[message.slot].value();
  const bool sends = instruction.op() == Op::send;
  if (makes_received(instruction)) work_.memory().allocate(message.tensor, instruction.micro_batch, ledger);
  const std::span<float> whole =
      block_of(work_.values(message.tensor, instruction.micro_batch), message.row, message.rows);
  const std::size_t size = whole.size() / at(message.parts);
  const std::int32_t part = (message.part + message.part_stride * entry.tensor_index) % message.parts;
  const std::span<float> values = whole.subspan(at(part) * size, size);
  StageMessage between;
  // Activations flow to the next stage, gradients to the previous one.
  between.gradient = is_next(message.slot) != sends;
  const PeerSlot sender_slot = sends ? message.slot : other_end(program_, rank_, message.slot).value();
  between.lane = sender_slot.value() / 2;
  between.tag =
      static_cast<std::uint64_t>(step_) << 32U | static_cast<std::uint32_t>(instruction.micro_batch);
  const Posted mine{event.begin_s, rank_};
  matched(sends ? peers_->send(peer, between, values, mine)
                : arrive(event.step, std::array{values}, mine,
                         [&] { return peers_->receive(peer, between, values, mine); }),
          event);
  event.bytes = static_cast<std::int64_t>(values.size_bytes());
  for (const TensorId id : instruction.frees) work_.memory().free(id, instruction.micro_batch, ledger);
}

void RealWorld::exchange(const Collective& collective, std::int32_t micro_batch, TraceEvent& event,
                         MemoryLedger& ledger) {
  if (collective.shard) return exchange_shard(collective, micro_batch, event, ledger);
  if (collective.parts > 1 || collective.scale != 1.0) return exchange_parts(collective, micro_batch, event);
  exchange_tensors(collective, micro_batch, event);
}

// Exchanges only a part of each tensor, or tensors times a scale: copies them into one bucket, exchanges it and copies
// the result back.
void RealWorld::exchange_parts(const Collective& collective, std::int32_t micro_batch, TraceEvent& event) {
  std::vector<std::vector<std::int64_t>> elements;
  std::vector<float> bucket;
  const auto scale = static_cast<float>(collective.scale);
  for (const TensorId id : collective.tensors) {
    elements.push_back(work_.elements(id, collective.part, collective.parts));
    const auto values = work_.values(id, micro_batch);
    for (std::int64_t element : elements.back()) bucket.push_back(values[at(element)] * scale);
  }
  event.bytes = static_cast<std::int64_t>(bucket.size() * sizeof(float));
  matched(run_over_group(event.step, collective, bucket, event.begin_s), event);
  std::size_t next = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto values = work_.values(collective.tensors[i], micro_batch);
    for (std::int64_t element : elements[i]) values[at(element)] = bucket[next++];
  }
}

// The values that this rank contributes: the tensors of a Shard, one after the other. If parameters are gathered, they
// are only made room for.
std::vector<float> RealWorld::shard_values(const Collective& collective, const Shard& shard,
                                           std::int32_t micro_batch, MemoryLedger& ledger) {
  std::vector<float> whole;
  const bool gathers = gathers_parameters(collective, shard);
  for (const TensorId id : collective.tensors) {
    if (gathers && shard.part == 0) work_.memory().allocate(id, micro_batch, ledger);
    if (gathers) whole.resize(whole.size() + work_.values(id, micro_batch).size() / at(shard.parts));
    if (!gathers) work_.take_part(id, shard.part, shard.parts, micro_batch, whole);
  }
  if (collective.scale != 1.0)
    for (float& value : whole) value *= static_cast<float>(collective.scale);
  return whole;
}

// Exchanges a whole Shard as one run of values, or only this rank's part of it (an all_reduce).
void RealWorld::exchange_shard(const Collective& collective, std::int32_t micro_batch, TraceEvent& event,
                               MemoryLedger& ledger) {
  const Shard& shard = program_.program_of(rank_).shards[collective.shard.value()];
  const Group& members = program_.groups[program_.ranks[rank_].groups[shard.slot].value()];
  std::vector<float> whole = shard_values(collective, shard, micro_batch, ledger);
  const auto own = part(whole, place_in(members, rank_), members.ranks.size());
  if (gathers_parameters(collective, shard))
    std::copy_n(work_.values(*shard.parameter_part, kNoMicroBatch).begin(), own.size(), own.begin());
  const std::size_t part_size = (whole.size() + members.ranks.size() - 1) / members.ranks.size();
  std::vector<float> padded;  // parts of members may differ in length, but the payload must not
  if (collective.kind == CollectiveKind::all_reduce) {
    padded.assign(own.begin(), own.end());
    padded.resize(part_size);
  }
  const std::span<float> moved = padded.empty() ? std::span(whole) : std::span(padded);
  event.bytes = static_cast<std::int64_t>(moved.size_bytes());
  matched(run_over_group(event.step, collective, moved, event.begin_s), event);
  if (!padded.empty()) std::copy_n(padded.begin(), own.size(), own.begin());
  if (collective.kind == CollectiveKind::reduce_scatter && shard.gradient_part) {
    const auto held = work_.values(*shard.gradient_part, kNoMicroBatch);
    for (std::size_t i = 0; i < own.size(); ++i) held[i] += own[i];
    return;
  }
  std::span<const float> from = whole;
  for (const TensorId id : collective.tensors)
    from = work_.put_part(id, shard.part, shard.parts, micro_batch, from);
}

// Exchanges several tensors as one run of values, as frameworks do, and one tensor in place.
void RealWorld::exchange_tensors(const Collective& collective, std::int32_t micro_batch, TraceEvent& event) {
  std::vector<std::span<float>> parts;
  std::size_t count = 0;
  for (const TensorId id : collective.tensors) {
    parts.push_back(block_of(work_.values(id, micro_batch), collective.row, collective.rows));
    count += parts.back().size();
  }
  event.bytes = static_cast<std::int64_t>(count * sizeof(float));
  if (parts.size() == 1) {
    matched(run_over_group(event.step, collective, parts[0], event.begin_s), event);
    return;
  }
  std::vector<float> bucket;
  bucket.reserve(count);
  for (const auto& part : parts) bucket.insert(bucket.end(), part.begin(), part.end());
  matched(run_over_group(event.step, collective, bucket, event.begin_s), event);
  auto from = bucket.begin();
  for (const auto& part : parts) {
    std::copy_n(from, part.size(), part.begin());
    from += static_cast<std::ptrdiff_t>(part.size());
  }
}

Moved RealWorld::run_over_group(const Step& step, const Collective& collective, std::span<float> values,
                                double begin_s) {
  const std::optional<GroupId> id = program_.ranks[rank_].groups[collective.slot];
  if (!id) return {{begin_s, rank_}, {}};  // the group has one rank only
  const Posted mine{begin_s, rank_};
  return arrive(step, parts_that_come(collective.kind, program_.groups[*id], rank_, values), mine, [&] {
    const GroupCall call{collective.kind, collective.reduce, collective.bytes};
    return peers_->collect(*id, call, values, mine);
  });
}

Moved RealWorld::arrive(const Step& step, Places places, Posted mine,
                        const std::function<Moved()>& exchange) {
  const Moved moved = arrivals_ != nullptr && arrivals_->bring(step, places) ? Moved{mine, {}} : exchange();
  if (arrivals_ != nullptr) arrivals_->came(step, places);
  return moved;
}

void RealWorld::tensor_collective(const Kernel& kernel, std::span<float> values) {
  Collective collective;
  collective.kind = collective_of(kernel.op);
  collective.reduce = kernel.reduce;
  collective.slot = kTensorGroup;
  computing_paths_.add(run_over_group(computing_, collective, values, now_s()).paths);
}

void RealWorld::matched(const Moved& moved, TraceEvent& event) const {
  const Posted& latest = moved.latest;
  event.paths = moved.paths;
  event.matched_s = std::max(event.begin_s, latest.at_s);
  if (latest.rank == rank_ || latest.at_s <= event.begin_s) return;
  event.waited = Waited::peer;
  event.waited_rank = latest.rank;
  event.waited_for = {};
}

}  // namespace motley
