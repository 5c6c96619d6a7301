#include "hw/work.hpp"

#include <algorithm>

#include "hw/collective/ring.hpp"
#include "hw/parameters.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

RankWork::RankWork(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
                   KernelLibrary library, Collective collective)
    : program_(program),
      rank_(rank),
      entry_(program.ranks[at(rank)]),
      class_(program.class_of(rank)),
      train_(train),
      parameters_(parameters(transformer)),
      collective_(std::move(collective)),
      memory_(class_) {
  context_.transformer = &transformer;
  context_.B = class_.micro_batch;
  context_.layout = {program.sequence, class_.context_parallel, entry_.context_index};
  context_.T = context_.layout.rows();
  context_.documents = train_.documents;
  for (const std::int64_t tokens : train_.documents)
    document_begins_.insert(document_begins_.end(), at(tokens),
                            static_cast<std::int64_t>(document_begins_.size()));
  if (!document_begins_.empty()) context_.layout.begins = document_begins_.data();
  context_.tensor_index = entry_.tensor_index;
  const int group = entry_.groups.size() > at(kTensorGroup) ? entry_.groups[at(kTensorGroup)] : -1;
  if (group >= 0)
    context_.tensor_parallel = static_cast<std::int64_t>(program.groups[at(group)].ranks.size());
  const ExpertPlace place = expert_place(class_, entry_);
  context_.expert_parts = class_.expert_parallel;
  context_.slice = place.slice;
  context_.expert_room = train_.expert_room;
  context_.slices = place.slices;
  context_.loss_scale = 1.0 / static_cast<double>(program.global_batch * program.sequence);
  context_.library = library;
  for (std::size_t id = 0; id < class_.tensors.size(); ++id)
    if (class_.tensors[id].role == TensorRole::parameter && class_.tensors[id].parameter >= 0)
      fill(static_cast<int>(id), values(static_cast<int>(id), -1));
  for (const Shard& shard : class_.shards)
    if (shard.parameter_part >= 0) fill_part(shard, shard.parameter_part);
  for (const Stream& stream : class_.streams)
    for (const Instruction& instruction : stream.instructions)
      for (std::size_t i = 0; instruction.op == Op::optimizer && i < instruction.tensors.size(); i += 3)
        for (const Shard& shard : class_.shards)
          if (shard.optimizer == instruction.tensors[i]) fill_part(shard, instruction.tensors[i + 2]);
}

void RankWork::fill(int tensor, std::span<float> values) const {
  const Parameter& parameter = parameters_[at(class_.tensors[at(tensor)].parameter)];
  if (parameter.experts == 0)
    return fill_initial(parameter, train_.seed, context_.tensor_parallel, context_.tensor_index, values);
  const ExpertPlace place = expert_place(class_, entry_);
  const Parameter part = part_of_experts(parameter, class_.expert_parallel);
  fill_initial(part, train_.seed, class_.expert_tensor_parallel, place.tensor_index, values,
               place.part * part.count());
}

void RankWork::fill_part(const Shard& shard, int into) {
  std::vector<float> all;
  for (int id : shard.parameters) {
    std::vector<float> whole(at(memory_.count(id)));
    fill(id, whole);
    if (shard.parts == 1) all.insert(all.end(), whole.begin(), whole.end());
    if (shard.parts > 1)
      for (const std::int64_t element : elements(id, shard.part, shard.parts))
        all.push_back(whole[at(element)]);
  }
  const Group& group = program_.groups[at(entry_.groups[at(shard.slot)])];
  const auto mine = part(all, place_in(group, rank_), group.ranks.size());
  std::copy(mine.begin(), mine.end(), values(into, -1).begin());
}

std::span<float> RankWork::values(int tensor, int micro_batch) {
  return {memory_.at(tensor, micro_batch), at(memory_.count(tensor))};
}

std::vector<std::int64_t> RankWork::elements(int tensor, int part, int parts) const {
  return part_elements(parameters_[at(class_.tensors[at(tensor)].parameter)], context_.tensor_parallel, part,
                       parts);
}

void RankWork::take_part(int tensor, int part, int parts, int micro_batch, std::vector<float>& into) {
  const auto whole = values(tensor, micro_batch);
  if (parts == 1) {
    into.insert(into.end(), whole.begin(), whole.end());
    return;
  }
  for (const std::int64_t element : elements(tensor, part, parts)) into.push_back(whole[at(element)]);
}

std::span<const float> RankWork::put_part(int tensor, int part, int parts, int micro_batch,
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
  const std::int64_t M = class_.micro_batches, B = class_.micro_batch;
  const std::int64_t stride = class_.sequence_stride > 0 ? class_.sequence_stride : B;
  loss_sum_ = extra_loss_sum_ = 0;
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

// Each document is drawn as a sequence of its length would be.
std::vector<std::int32_t> RankWork::drawn(const Text& text, std::int64_t step, std::int64_t sequence,
                                          std::int64_t ahead) const {
  std::vector<std::int32_t> tokens;
  const auto& documents = train_.documents;
  const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(documents.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    Train of_document = train_;
    if (!documents.empty()) of_document.sequence = documents[at(i)];
    text.append(of_document, step, sequence * count + i, ahead, tokens);
  }
  return tokens;
}

KernelTensors RankWork::tensors_of(const Kernel& kernel, int micro_batch, MemoryLedger& ledger) {
  KernelTensors tensors;
  for (int id : kernel.in) tensors.in.push_back(memory_.at(id, micro_batch));
  for (int id : kernel.out) tensors.out.push_back(memory_.allocate(id, micro_batch, ledger));
  for (int id : kernel.parameters) {
    // Null where neither is touched: a gathered parameter is gone, or a gradient not there yet.
    tensors.parameters.push_back(memory_.find(id, micro_batch));
    const int gradient = memory_.gradient_of(id);  // -1: no gradient reaches it
    tensors.gradients.push_back(gradient < 0 ? nullptr : memory_.find(gradient, micro_batch));
  }
  const auto& by_distance = tokens_[at(micro_batch)];
  tensors.tokens = by_distance[at(kernel.ahead)].data();
  tensors.targets = by_distance[at(kernel.ahead + 1)].data();
  return tensors;
}

double RankWork::run(const Kernel& kernel, int micro_batch, MemoryLedger& ledger) {
  double flops = 0;
  MOTLEY_CHECK(!is_collective(kernel.op) || priced_in_computes(kernel));  // else an instruction of its own
  if (is_collective(kernel.op))
    collective_(kernel, values(kernel.out[0], micro_batch));
  else
    flops = run_kernel(context_, kernel, tensors_of(kernel, micro_batch, ledger));
  if (kernel.op == KernelOp::loss && context_.tensor_index == 0)
    for (float loss : values(kernel.out[0], micro_batch))
      (kernel.ahead == 0 ? loss_sum_ : extra_loss_sum_) += loss;
  if (observer) observer(kernel, micro_batch);
  for (int id : kernel.frees) memory_.free(id, micro_batch, ledger);
  return flops;
}

double RankWork::compute(const Instruction& instruction, MemoryLedger& ledger) {
  const auto& kernels = class_.blocks[at(instruction.block)].kernels;
  double flops = 0;
  for (int i = instruction.first_kernel; i < instruction.last_kernel; ++i)
    flops += run(kernels[at(i)], instruction.micro_batch, ledger);
  return flops;
}

void RankWork::step(int parameter, int gradient, int state) {
  const Parameter& of = parameters_[at(class_.tensors[at(parameter)].parameter)];
  if (!of.trained) return;
  const auto gradients = values(gradient, -1), moments = values(state, -1);
  adamw(train_, of.decays, steps_begun_, gradients, moments.first(gradients.size()),
        moments.subspan(gradients.size()), values(parameter, -1));
}

void RankWork::clear(int tensor) {
  const auto all = values(tensor, -1);
  std::fill(all.begin(), all.end(), 0.0F);
}

void RankWork::optimize(const Instruction& instruction) {
  if (instruction.tensors.empty()) return optimize_on_chip();
  for (std::size_t i = 0; i + 2 < instruction.tensors.size(); i += 3) {
    const int state = instruction.tensors[i], gradient = instruction.tensors[i + 1],
              parameter = instruction.tensors[i + 2];
    const auto shard = std::find_if(class_.shards.begin(), class_.shards.end(),
                                    [&](const Shard& each) { return each.optimizer == state; });
    if (shard != class_.shards.end())
      optimize(*shard, gradient, parameter);
    else
      step(parameter, gradient, state);
  }
}

void RankWork::optimize_on_chip() {
  for (std::size_t i = 0; i < class_.tensors.size(); ++i) {
    const Tensor& tensor = class_.tensors[i];
    const int id = static_cast<int>(i);
    // Of a Shard, or on the host.
    if (tensor.role != TensorRole::parameter || memory_.optimizer_of(id) < 0) continue;
    if (!parameters_[at(tensor.parameter)].trained) continue;
    step(id, memory_.gradient_of(id), memory_.optimizer_of(id));
    clear(memory_.gradient_of(id));
  }
  for (const Shard& shard : class_.shards) {
    if (class_.tensors[at(shard.optimizer)].on_host) continue;
    optimize(shard, shard.gradient_part, shard.parameter_part);
    if (shard.gradient_part >= 0) clear(shard.gradient_part);
    if (shard.gradient_part < 0) clear_part(shard);
  }
}

// AdamW on this rank's part: the runs of it that each parameter has.
void RankWork::optimize(const Shard& shard, int gradient_part, int parameter_part) {
  const Group& group = program_.groups[at(entry_.groups[at(shard.slot)])];
  const auto moments = values(shard.optimizer, -1);
  const std::size_t size = moments.size() / 2, begin = size * place_in(group, rank_);
  std::size_t first = 0;  // of the parameter, in the whole
  for (std::size_t i = 0; i < shard.parameters.size(); ++i) {
    const int parameter = shard.parameters[i];
    const std::size_t last = first + at(memory_.count(parameter)) / at(shard.parts);
    const std::size_t from = std::max(first, begin), to = std::min(last, begin + size);
    if (from < to && parameters_[at(class_.tensors[at(parameter)].parameter)].trained) {
      const auto run = [&](int part_held, int whole) {
        return part_held >= 0 ? values(part_held, -1).subspan(from - begin, to - from)
                              : values(whole, -1).subspan(from - first, to - from);
      };
      const auto means = moments.subspan(from - begin, to - from);
      const auto squares = moments.subspan(size + from - begin, to - from);
      if (shard.parts > 1 && parameter_part < 0) {
        std::vector<float> slopes;
        if (gradient_part < 0) take_part(shard.gradients[i], shard.part, shard.parts, -1, slopes);
        optimize_scattered(
            shard, i, from - first, means, squares,
            gradient_part < 0 ? std::span(slopes).subspan(from - first, to - from) : run(gradient_part, -1));
      } else {
        adamw(train_, parameters_[at(class_.tensors[at(parameter)].parameter)].decays, steps_begun_,
              run(gradient_part, shard.gradients[i]), means, squares, run(parameter_part, parameter));
      }
    }
    first = last;
  }
}

// Of a parameter of whose whole tensor the shard has a part: as many elements of that as there are moments.
void RankWork::optimize_scattered(const Shard& shard, std::size_t parameter, std::size_t first,
                                  std::span<float> means, std::span<float> squares,
                                  std::span<const float> gradient) {
  const int whole = shard.parameters[parameter];
  std::vector<float> all;
  take_part(whole, shard.part, shard.parts, -1, all);
  adamw(train_, parameters_[at(class_.tensors[at(whole)].parameter)].decays, steps_begun_, gradient, means,
        squares, std::span(all).subspan(first, means.size()));
  put_part(whole, shard.part, shard.parts, -1, all);
}

// What the shard has of whole gradients.
void RankWork::clear_part(const Shard& shard) {
  for (int id : shard.gradients) {
    const std::vector<float> zeros(at(memory_.count(id)) / at(shard.parts));
    put_part(id, shard.part, shard.parts, -1, zeros);
  }
}

// This rank's part of the tensors of a Shard, laid one after the other.
void RankWork::copy_part(const Instruction& instruction, bool down) {
  const Shard& shard = class_.shards[at(instruction.shard)];
  const auto& whole = down ? instruction.tensors : instruction.into;
  const auto part = values((down ? instruction.into : instruction.tensors)[0], -1);
  const Group& group = program_.groups[at(entry_.groups[at(shard.slot)])];
  std::vector<float> all;
  for (int id : whole) take_part(id, shard.part, shard.parts, -1, all);
  const std::size_t begin = std::min(part.size() * place_in(group, rank_), all.size());
  const auto mine = std::span(all).subspan(begin, std::min(part.size(), all.size() - begin));
  if (down) {
    std::copy(mine.begin(), mine.end(), part.begin());
    return clear_part(shard);
  }
  std::copy_n(part.begin(), mine.size(), mine.begin());
  std::span<const float> from = all;
  for (int id : whole) from = put_part(id, shard.part, shard.parts, -1, from);
}

std::int64_t RankWork::copy(const Instruction& instruction, MemoryLedger& ledger) {
  const bool down = goes_to_host(class_, instruction);
  std::int64_t elements = 0;
  if (instruction.shard >= 0) {
    copy_part(instruction, down);
    elements = memory_.count((down ? instruction.into : instruction.tensors)[0]);
  } else {
    for (std::size_t i = 0; i < instruction.tensors.size(); ++i) {
      const int from = instruction.tensors[i], into = instruction.into[i];
      if (per_micro_batch(class_.tensors[at(into)].role))
        memory_.allocate(into, instruction.micro_batch, ledger);
      const auto source = values(from, instruction.micro_batch);
      std::copy(source.begin(), source.end(), values(into, instruction.micro_batch).begin());
      elements += static_cast<std::int64_t>(source.size());
      if (down && class_.tensors[at(from)].role == TensorRole::gradient) clear(from);
    }
  }
  for (int id : instruction.frees) memory_.free(id, instruction.micro_batch, ledger);
  return elements * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace motley
