#include "hw/rank/work.hpp"

#include <algorithm>
#include <set>
#include <variant>

#include "hw/communicator/parts.hpp"
#include "hw/rank/parameters.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
RankWork::RankWork(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
                   KernelLibrary library, RunTensorCollective run_tensor_collective)
    : program_(program),
      rank_(rank),
      entry_(program.ranks[rank]),
      rank_program_(program.program_of(rank)),
      train_(train),
      parameters_(parameters(transformer)),
      run_tensor_collective_(std::move(run_tensor_collective)),
      memory_(rank_program_) {
  refuse_simulated_only(transformer);
  set_context(transformer, library);
  fill_parameters();
}

void RankWork::set_context(const Transformer& transformer, KernelLibrary library) {
  context_.transformer = &transformer;
  context_.B = rank_program_.micro_batch;
  context_.layout = {program_.sequence, rank_program_.context_parallel, entry_.context_index};
  context_.T = context_.layout.rows();
  context_.documents = train_.documents;
  for (const std::int64_t tokens : train_.documents)
    document_begins_.insert(document_begins_.end(), at(tokens),
                            static_cast<std::int64_t>(document_begins_.size()));
  if (!document_begins_.empty()) context_.layout.begins = document_begins_.data();
  context_.tensor_index = entry_.tensor_index;
  if (entry_.groups.has(kTensorGroup))
    if (const std::optional<GroupId> group = entry_.groups[kTensorGroup])
      context_.tensor_parallel = static_cast<std::int64_t>(program_.groups[*group].ranks.size());
  const ExpertPlace place = expert_place(rank_program_, entry_);
  context_.expert_parts = rank_program_.expert_parallel;
  context_.slice = place.slice;
  context_.expert_room = train_.expert_room;
  context_.slices = place.slices;
  context_.loss_scale = 1.0 / static_cast<double>(program_.global_batch * program_.sequence);
  context_.library = library;
}

void RankWork::fill_parameters() {
  for (const TensorId id : rank_program_.tensors.ids()) {
    const Tensor& tensor = rank_program_.tensors[id];
    if (tensor.role == TensorRole::parameter && tensor.parameter) fill(id, values(id, kNoMicroBatch));
  }
  for (const Shard& shard : rank_program_.shards)
    if (shard.parameter_part) fill_part(shard, *shard.parameter_part);
  for (const Stream& stream : rank_program_.streams)
    for (const Instruction& instruction : stream.instructions) {
      const OptimizerStep* const step = instruction.as<OptimizerStep>();
      for (std::size_t i = 0; step != nullptr && i < step->tensors.size(); i += 3)
        for (const Shard& shard : rank_program_.shards)
          if (shard.optimizer == step->tensors[i]) fill_part(shard, step->tensors[i + 2]);
    }
}

const Parameter& RankWork::parameter_of(TensorId tensor) const {
  return parameters_[at(rank_program_.tensors[tensor].parameter.value())];
}

const Group& RankWork::members_of(const Shard& shard) const {
  return program_.groups[entry_.groups[shard.slot].value()];
}

void RankWork::fill(TensorId tensor, std::span<float> values) const {
  const Parameter& parameter = parameter_of(tensor);
  if (parameter.experts == 0)
    return fill_initial(parameter, train_.seed, context_.tensor_parallel, context_.tensor_index, values);
  const ExpertPlace place = expert_place(rank_program_, entry_);
  const Parameter part = part_of_experts(parameter, rank_program_.expert_parallel);
  fill_initial(part, train_.seed, rank_program_.expert_tensor_parallel, place.tensor_index, values,
               place.part * part.count());
}

void RankWork::fill_part(const Shard& shard, TensorId into) {
  std::vector<float> all;
  for (const TensorId id : shard.parameters) {
    std::vector<float> whole(at(memory_.count(id)));
    fill(id, whole);
    if (shard.parts == 1) all.insert(all.end(), whole.begin(), whole.end());
    if (shard.parts > 1)
      for (const std::int64_t element : elements(id, shard.part, shard.parts))
        all.push_back(whole[at(element)]);
  }
  const Group& group = members_of(shard);
  const auto own = part(all, place_in(group, rank_), group.ranks.size());
  std::copy(own.begin(), own.end(), values(into, kNoMicroBatch).begin());
}

std::span<float> RankWork::values(TensorId tensor, std::int32_t micro_batch) {
  return {memory_.at(tensor, micro_batch), at(memory_.count(tensor))};
}

std::vector<std::int64_t> RankWork::elements(TensorId tensor, int part, int parts) const {
  return part_elements(parameter_of(tensor), context_.tensor_parallel, part, parts);
}

void RankWork::take_part(TensorId tensor, int part, int parts, std::int32_t micro_batch,
                         std::vector<float>& into) {
  const auto whole = values(tensor, micro_batch);
  if (parts == 1) {
    into.insert(into.end(), whole.begin(), whole.end());
    return;
  }
  for (const std::int64_t element : elements(tensor, part, parts)) into.push_back(whole[at(element)]);
}

std::span<const float> RankWork::put_part(TensorId tensor, int part, int parts, std::int32_t micro_batch,
                                          std::span<const float> from) {
  const auto whole = values(tensor, micro_batch);
  if (parts == 1) {
    std::copy_n(from.begin(), whole.size(), whole.begin());
    return from.subspan(whole.size());
  }
  std::size_t next = 0;
  for (const std::int64_t element : elements(tensor, part, parts)) whole[at(element)] = from[next++];
  return from.subspan(next);
}

void RankWork::begin_step(const Text& text, std::int64_t step) {
  const std::int64_t M = rank_program_.micro_batches, B = rank_program_.micro_batch;
  const std::int64_t stride = rank_program_.sequence_stride > 0 ? rank_program_.sequence_stride : B;
  loss_sum_ = extra_loss_sum_ = 0;
  routed_.clear();
  ++steps_begun_;
  tokens_.assign(at(M),
                 std::vector<std::vector<std::int32_t>>(at(2 + context_.transformer->trained_extra())));
  for (std::int64_t m = 0; m < M; ++m)
    for (std::int64_t b = 0; b < B; ++b) append_rows(text, step, entry_.first_sequence + m * stride + b, m);
}

void RankWork::append_rows(const Text& text, std::int64_t step, std::int64_t sequence,
                           std::int64_t micro_batch) {
  auto& by_distance = tokens_[at(micro_batch)];
  for (std::size_t ahead = 0; ahead < by_distance.size(); ++ahead) {
    const std::vector<std::int32_t> whole = drawn(text, step, sequence, static_cast<std::int64_t>(ahead));
    for (std::int64_t row = 0; row < context_.T; ++row)
      by_distance[ahead].push_back(whole[at(context_.layout.place(row))]);
  }
}

// Each document is drawn as if it were a sequence of its length.
std::vector<std::int32_t> RankWork::drawn(const Text& text, std::int64_t step, std::int64_t sequence,
                                          std::int64_t ahead) const {
  std::vector<std::int32_t> tokens;
  const auto& documents = train_.documents;
  const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(documents.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    Train train_on_document = train_;
    if (!documents.empty()) train_on_document.sequence = documents[at(i)];
    text.append(train_on_document, step, sequence * count + i, ahead, tokens);
  }
  return tokens;
}

KernelTensors RankWork::tensors_of(const Kernel& kernel, std::int32_t micro_batch, MemoryLedger& ledger) {
  KernelTensors tensors;
  for (const TensorId id : kernel.in) tensors.in.push_back(memory_.at(id, micro_batch));
  for (const TensorId id : kernel.out) tensors.out.push_back(memory_.allocate(id, micro_batch, ledger));
  for (const TensorId id : kernel.parameters) {
    // Null where the kernel does not use the tensor: a gathered parameter is already freed, or a gradient not yet made.
    tensors.parameters.push_back(memory_.find(id, micro_batch));
    const std::optional<TensorId> gradient = memory_.gradient_of(id);  // none: the parameter gets no gradient
    tensors.gradients.push_back(gradient ? memory_.find(*gradient, micro_batch) : nullptr);
  }
  const auto& by_distance = tokens_[at(micro_batch)];
  tensors.tokens = by_distance[at(kernel.ahead)].data();
  tensors.targets = by_distance[at(kernel.ahead + 1)].data();
  return tensors;
}

double RankWork::run(const Kernel& kernel, std::int32_t micro_batch, MemoryLedger& ledger) {
  double flops = 0;
  MOTLEY_CHECK(!is_collective(kernel.op) || priced_in_computes(kernel));  // all others are instructions
  if (is_collective(kernel.op))
    run_tensor_collective_(kernel, values(kernel.out[0], micro_batch));
  else if (is_share_of_attention(kernel))
    flops = kernel.flops;
  else
    flops = run_kernel(context_, kernel, tensors_of(kernel, micro_batch, ledger));
  if (kernel.op == KernelOp::loss && context_.tensor_index == 0)
    for (float loss : values(kernel.out[0], micro_batch))
      (kernel.ahead == 0 ? loss_sum_ : extra_loss_sum_) += loss;
  if (kernel.op == KernelOp::route && !kernel.recompute) note_routed(kernel, micro_batch);
  if (observer) observer(kernel, micro_batch);
  for (const TensorId id : kernel.frees) memory_.free(id, micro_batch, ledger);
  return flops;
}

void RankWork::note_routed(const Kernel& route, std::int32_t micro_batch) {
  const auto counts = values(route.out.back(), micro_batch);
  routed_[{micro_batch, route.layer}].assign(counts.begin(), counts.end());
}

double RankWork::compute(const Compute& compute, std::int32_t micro_batch, MemoryLedger& ledger,
                         std::vector<KernelSpan>* spans) {
  const auto& kernels = rank_program_.blocks[compute.block].kernels;
  double flops = 0;
  const double origin_s = spans == nullptr ? 0 : monotonic_s();
  double begin_s = 0;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const double done = run(kernels[at(i)], micro_batch, ledger);
    flops += done;
    if (spans == nullptr) continue;
    const double end_s = monotonic_s() - origin_s;
    spans->push_back({i, begin_s, end_s, done});
    begin_s = end_s;
  }
  return flops;
}

RankWork::Saved RankWork::save(const Compute* compute, std::int32_t micro_batch) const {
  Saved saved{{}, loss_sum_, extra_loss_sum_};
  if (compute == nullptr) {
    saved.memory = memory_.save_held();
    return saved;
  }
  std::set<TensorId> touched;  // kernels that add gradients and collectives change tensors in place
  const auto& kernels = rank_program_.blocks[compute->block].kernels;
  for (int i = compute->first_kernel; i < compute->last_kernel; ++i) {
    const Kernel& kernel = kernels[at(i)];
    for (const auto* const ids : {&kernel.in, &kernel.out, &kernel.frees})
      touched.insert(ids->begin(), ids->end());
    for (const TensorId id : kernel.parameters)
      if (const std::optional<TensorId> gradient = memory_.gradient_of(id)) touched.insert(*gradient);
  }
  saved.memory = memory_.save(touched, micro_batch);
  return saved;
}

void RankWork::restore(const Saved& saved) {
  memory_.restore(saved.memory);
  loss_sum_ = saved.loss_sum;
  extra_loss_sum_ = saved.extra_loss_sum;
}

void RankWork::step(TensorId parameter, TensorId gradient, TensorId state) {
  const Parameter& stepped = parameter_of(parameter);
  if (!stepped.trained) return;
  const auto gradients = values(gradient, kNoMicroBatch), moments = values(state, kNoMicroBatch);
  adamw(train_, stepped.decays, steps_begun_, gradients, moments.first(gradients.size()),
        moments.subspan(gradients.size()), values(parameter, kNoMicroBatch));
}

void RankWork::clear(TensorId tensor) {
  const auto all = values(tensor, kNoMicroBatch);
  std::fill(all.begin(), all.end(), 0.0F);
}

void RankWork::optimize(const OptimizerStep& optimizer_step) {
  if (optimizer_step.tensors.empty()) return optimize_on_chip();
  for (std::size_t i = 0; i + 2 < optimizer_step.tensors.size(); i += 3) {
    const TensorId state = optimizer_step.tensors[i], gradient = optimizer_step.tensors[i + 1],
                   parameter = optimizer_step.tensors[i + 2];
    const auto shard = std::find_if(rank_program_.shards.begin(), rank_program_.shards.end(),
                                    [&](const Shard& each) { return each.optimizer == state; });
    if (shard != rank_program_.shards.end())
      optimize(*shard, gradient, parameter);
    else
      step(parameter, gradient, state);
  }
}

void RankWork::optimize_on_chip() {
  for (const TensorId id : rank_program_.tensors.ids()) {
    // None: the state belongs to a Shard, or is on the host.
    const std::optional<TensorId> state = memory_.optimizer_of(id);
    if (rank_program_.tensors[id].role != TensorRole::parameter || !state) continue;
    if (!parameter_of(id).trained) continue;
    const TensorId gradient = memory_.gradient_of(id).value();
    step(id, gradient, *state);
    clear(gradient);
  }
  for (const Shard& shard : rank_program_.shards) {
    if (rank_program_.tensors[shard.optimizer].on_host) continue;
    optimize(shard, shard.gradient_part, shard.parameter_part);
    if (shard.gradient_part)
      clear(*shard.gradient_part);
    else
      clear_part(shard);
  }
}

// Runs AdamW on this rank's part of a Shard, parameter by parameter.
void RankWork::optimize(const Shard& shard, std::optional<TensorId> gradient_part,
                        std::optional<TensorId> parameter_part) {
  const auto moments = values(shard.optimizer, kNoMicroBatch);
  const std::size_t size = moments.size() / 2, begin = size * place_in(members_of(shard), rank_);
  std::size_t first = 0;  // where the parameter begins in the Shard
  for (std::size_t i = 0; i < shard.parameters.size(); ++i) {
    const TensorId parameter = shard.parameters[i];
    const std::size_t last = first + at(memory_.count(parameter)) / at(shard.parts);
    const std::size_t from = std::max(first, begin), to = std::min(last, begin + size);
    if (from < to && parameter_of(parameter).trained) {
      const auto run = [&](std::optional<TensorId> part_held, TensorId whole) {
        return part_held ? values(*part_held, kNoMicroBatch).subspan(from - begin, to - from)
                         : values(whole, kNoMicroBatch).subspan(from - first, to - from);
      };
      const auto means = moments.subspan(from - begin, to - from);
      const auto squares = moments.subspan(size + from - begin, to - from);
      std::vector<float> part_of_whole;
      const bool is_cut = shard.parts > 1 && !gradient_part;
      if (is_cut) take_part(shard.gradients[i], shard.part, shard.parts, kNoMicroBatch, part_of_whole);
      const std::span<const float> slopes = is_cut ? std::span(part_of_whole).subspan(from - first, to - from)
                                                   : run(gradient_part, shard.gradients[i]);
      if (shard.parts > 1 && !parameter_part)
        optimize_scattered(shard, i, from - first, means, squares, slopes);
      else
        adamw(train_, parameter_of(parameter).decays, steps_begun_, slopes, means, squares,
              run(parameter_part, parameter));
    }
    first = last;
  }
}

// Runs AdamW on means.size() elements of a parameter, from element `first` of the part that the shard has of it.
void RankWork::optimize_scattered(const Shard& shard, std::size_t parameter, std::size_t first,
                                  std::span<float> means, std::span<float> squares,
                                  std::span<const float> gradient) {
  const TensorId whole = shard.parameters[parameter];
  std::vector<float> all;
  take_part(whole, shard.part, shard.parts, kNoMicroBatch, all);
  adamw(train_, parameter_of(whole).decays, steps_begun_, gradient, means, squares,
        std::span(all).subspan(first, means.size()));
  put_part(whole, shard.part, shard.parts, kNoMicroBatch, all);
}

// Clears the shard's part of the whole gradients.
void RankWork::clear_part(const Shard& shard) {
  for (const TensorId id : shard.gradients) {
    const std::vector<float> zeros(at(memory_.count(id)) / at(shard.parts));
    put_part(id, shard.part, shard.parts, kNoMicroBatch, zeros);
  }
}

// Copies this rank's part of a Shard, whose tensors lie one after the other, to the host (`down`) or back.
void RankWork::copy_part(const Copy& copy, bool down) {
  const Shard& shard = rank_program_.shards[copy.shard.value()];
  const auto& whole = down ? copy.tensors : copy.into;
  const auto part = values((down ? copy.into : copy.tensors)[0], kNoMicroBatch);
  std::vector<float> all;
  for (const TensorId id : whole) take_part(id, shard.part, shard.parts, kNoMicroBatch, all);
  const std::size_t begin = std::min(part.size() * place_in(members_of(shard), rank_), all.size());
  const auto own = std::span(all).subspan(begin, std::min(part.size(), all.size() - begin));
  if (down) {
    std::copy(own.begin(), own.end(), part.begin());
    return clear_part(shard);
  }
  std::copy_n(part.begin(), own.size(), own.begin());
  std::span<const float> from = all;
  for (const TensorId id : whole) from = put_part(id, shard.part, shard.parts, kNoMicroBatch, from);
}

std::int64_t RankWork::copy(const Instruction& instruction, MemoryLedger& ledger) {
  const Copy& copy = std::get<Copy>(instruction.body);
  const bool down = goes_to_host(rank_program_, instruction);
  std::int64_t elements_copied = 0;
  if (copy.shard) {
    copy_part(copy, down);
    elements_copied = memory_.count((down ? copy.into : copy.tensors)[0]);
  } else {
    for (std::size_t i = 0; i < copy.tensors.size(); ++i) {
      const TensorId from = copy.tensors[i], into = copy.into[i];
      if (per_micro_batch(rank_program_.tensors[into].role))
        memory_.allocate(into, instruction.micro_batch, ledger);
      const auto source = values(from, instruction.micro_batch);
      std::copy(source.begin(), source.end(), values(into, instruction.micro_batch).begin());
      elements_copied += static_cast<std::int64_t>(source.size());
      if (down && rank_program_.tensors[from].role == TensorRole::gradient) clear(from);
    }
  }
  for (const TensorId id : instruction.frees) memory_.free(id, instruction.micro_batch, ledger);
  return elements_copied * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace motley
