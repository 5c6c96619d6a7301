#include "hw/rank/executor.hpp"

#include <algorithm>

#include "hw/communicator/parts.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Text that contains every byte value, so that each of the first 256 rows of the vocabulary is looked up.
std::string made_up_bytes(const Train& train) {
  std::string bytes;
  for (std::int64_t i = 0; i < train.sequence + 4096; ++i)
    bytes.push_back(static_cast<char>(i * 2654435761U >> 16U));  // Knuth's multiplicative hash
  return bytes;
}

}  // namespace

HostExecutor::HostExecutor(const Program& program, const Transformer& transformer, const Train& train,
                           Rank rank, const ExecutorOptions& options)
    : program_(program),
      rank_(rank),
      options_(options),
      text_(options.text != nullptr ? *options.text : Text(made_up_bytes(train))),
      work_(program, transformer, train, rank, options.library,
            [this](const Kernel& kernel, std::span<float> values) { fill_others(kernel, values); }) {
  for (const Stream& stream : work_.rank_program().streams) {
    if (options.communicates) break;
    for (const Instruction& instruction : stream.instructions)
      if (const Op op = instruction.op(); op == Op::send || op == Op::collective || op == Op::copy)
        sent_.insert(instruction.frees.begin(), instruction.frees.end());
    for (const Instruction& instruction : stream.instructions) note_gather(instruction);
  }
  for (const TensorId id : work_.rank_program().tensors.ids())
    if (const TensorRole role = work_.rank_program().tensors[id].role;
        !options.learns && (role == TensorRole::parameter || role == TensorRole::optimizer))
      learned_.insert(id);
  work_.begin_step(text_, steps_begun_++);
}

// Assumes: the values of activations and gradients change the speed of a host kernel little, as long as they are normal
// numbers. (GELU moves a third fewer bytes a second in models 768 wide than 64 wide, whose values are smaller: measured
// 2026-11.)
void make_up(Contribution contribution, std::span<float> values) {
  const float size = contribution == Contribution::zeros ? 0.0F : 0.01F;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = size * static_cast<float>(static_cast<int>(i % 13) - 6);
}

// What the other members of a gather would have brought is zeros, or a copy of what this rank brings: kernels are
// slower or faster where they meet numbers that are not normal.
void HostExecutor::fill_others(const Group& group, std::span<float> values) const {
  const std::size_t size = (values.size() + group.ranks.size() - 1) / group.ranks.size();
  const std::size_t place = place_in(group, rank_);
  const std::span<float> own = part(values, place, group.ranks.size());
  if (own.empty()) return;
  const bool zeros = options_.contribution == Contribution::zeros;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i / size != place) values[i] = zeros ? 0 : own[i % own.size()];
}

void HostExecutor::fill_others(const Kernel& kernel, std::span<float> values) {
  const auto& group = program_.ranks[rank_].groups[kTensorGroup];
  if (inside_ && group)
    return inside_->fill(parts_that_come(collective_of(kernel.op), program_.groups[*group], rank_, values));
  if (kernel.op == KernelOp::all_gather && group) fill_others(program_.groups[*group], values);
}

void HostExecutor::note_gather(const Instruction& instruction) {
  const Collective* const gather = instruction.as<Collective>();
  if (gather == nullptr || gather->kind != CollectiveKind::all_gather || gather->shard) return;
  if (const auto group = program_.ranks[rank_].groups[gather->slot])
    for (const TensorId id : gather->tensors) gathered_.emplace(id, *group);
}

void HostExecutor::make_up_missing(TensorId tensor, std::int32_t micro_batch) {
  if (work_.memory().find(tensor, micro_batch) != nullptr) return;
  MemoryLedger ledger;
  work_.memory().allocate(tensor, micro_batch, ledger);
  const std::span<float> values = work_.values(tensor, micro_batch);
  const bool gathered = work_.rank_program().tensors[tensor].role == TensorRole::gathered;
  if (gathered && options_.contribution == Contribution::made_up)
    work_.fill(tensor, values);
  else
    make_up(options_.contribution, values);
}

void HostExecutor::make_up_missing(const Compute& compute, std::int32_t micro_batch) {
  const auto& kernels = work_.rank_program().blocks[compute.block].kernels;
  std::set<TensorId> written;  // the tensors that earlier kernels of the compute write
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    for (const TensorId id : kernel.in)
      if (!written.contains(id)) make_up_missing(id, micro_batch);
    for (const TensorId id : kernel.parameters) {
      const std::optional<TensorId> gradient = work_.memory().gradient_of(id);
      if (reads_parameters(kernel.op)) make_up_missing(id, micro_batch);
      if (adds_gradients(kernel.op) && gradient && !written.contains(*gradient))
        make_up_missing(*gradient, micro_batch);
    }
    written.insert(kernel.out.begin(), kernel.out.end());
    // A gathered parameter is freed by the last kernel that has it, even if no kernel of this rank reads it.
    for (const TensorId id : kernel.frees)
      if (!written.contains(id)) make_up_missing(id, micro_batch);
  }
}

void HostExecutor::drop_sent(std::int32_t micro_batch) {
  for (const TensorId id : sent_)
    if (work_.memory().find(id, micro_batch) != nullptr) {
      MemoryLedger ledger;
      work_.memory().free(id, micro_batch, ledger);
    }
}

// An all_gather instruction follows the compute that writes this rank's part of its tensor. (After an all_to_all, what
// this rank meant to send is as good as what it would have received: as many tokens, on average.)
void HostExecutor::fill_gathered(const Compute& compute, std::int32_t micro_batch) {
  const auto& kernels = work_.rank_program().blocks[compute.block].kernels;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i)
    for (const TensorId id : kernels[at(i)].out)
      if (const auto group = gathered_.find(id);
          group != gathered_.end() && work_.memory().find(id, micro_batch) != nullptr)
        fill_others(program_.groups[group->second], work_.values(id, micro_batch));
}

double HostExecutor::execute(const Step& step, const Instruction& instruction) {
  MOTLEY_CHECK(step.rank == rank_);
  if (step.stream == kComputeStream) {  // it begins again with each training step
    if (last_index_ && step.index <= *last_index_) work_.begin_step(text_, steps_begun_++);
    last_index_ = step.index;
  }
  if (const OptimizerStep* const optimizer_step = instruction.as<OptimizerStep>())
    return execute(*optimizer_step);
  const Compute* const compute = instruction.as<Compute>();
  MOTLEY_CHECK(compute != nullptr);
  return execute(*compute, instruction.micro_batch);
}

// Assumes: what has just been copied back is as near to the processor as what a kernel has just written.
double HostExecutor::repeat(const Compute* compute, std::int32_t micro_batch,
                            const std::function<double()>& run) {
  struct Timed {
    double seconds = 0;
    std::vector<KernelSpan> kernels;
  };
  std::vector<Timed> timed;
  const int runs = options_.repeats.warm_up + options_.repeats.timed;
  RankWork::Saved before;
  if (runs > 1) before = work_.save(compute, micro_batch);
  for (int i = 0; i < runs; ++i) {
    if (i > 0) work_.restore(before);
    kernels_.clear();
    const double seconds = run();
    if (i >= options_.repeats.warm_up) timed.push_back({seconds, kernels_});
  }
  MOTLEY_CHECK(!timed.empty());
  const auto median = timed.begin() + (static_cast<std::ptrdiff_t>(timed.size()) - 1) / 2;
  std::nth_element(timed.begin(), median, timed.end(),
                   [](const Timed& a, const Timed& b) { return a.seconds < b.seconds; });
  kernels_ = std::move(median->kernels);
  return median->seconds;
}

double HostExecutor::execute(const OptimizerStep& optimizer_step) {
  const Memory::Saved before = work_.memory().save(learned_, kNoMicroBatch);
  const double seconds = repeat(nullptr, kNoMicroBatch, [&] {
    const double begin_s = monotonic_s();
    work_.optimize(optimizer_step);
    return monotonic_s() - begin_s;
  });
  work_.memory().restore(before);
  return seconds;
}

double HostExecutor::execute(const Compute& compute, std::int32_t micro_batch) {
  make_up_missing(compute, micro_batch);
  const double seconds = repeat(&compute, micro_batch, [&] { return compute_once(compute, micro_batch); });
  inside_.reset();
  fill_gathered(compute, micro_batch);
  drop_sent(micro_batch);
  return seconds;
}

double HostExecutor::compute_once(const Compute& compute, std::int32_t micro_batch) {
  MemoryLedger ledger;
  if (inside_) inside_->begin_again();
  const double begin_s = monotonic_s();
  work_.compute(compute, micro_batch, ledger, &kernels_);
  const double seconds = monotonic_s() - begin_s;
  if (inside_) inside_->check_all_taken();
  return seconds - take_out_collectives(compute);
}

// What the executor does where a collective stands takes no time of the rank. Returns the seconds that it took, and
// moves the kernels behind it as much earlier.
double HostExecutor::take_out_collectives(const Compute& compute) {
  const auto& kernels = work_.rank_program().blocks[compute.block].kernels;
  double taken_s = 0, before_s = 0;
  for (KernelSpan& span : kernels_) {
    const double seconds = span.end_s - span.begin_s;
    span.begin_s = std::max(before_s, span.begin_s - taken_s);
    if (is_collective(kernels[at(span.kernel)].op)) {
      span.end_s = span.begin_s;
      taken_s += seconds;
    } else {
      span.end_s = span.begin_s + seconds;
    }
    before_s = span.end_s;
  }
  return taken_s;
}

}  // namespace motley
