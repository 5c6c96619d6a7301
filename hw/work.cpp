#include "hw/work.hpp"

#include <algorithm>

#include "hw/parameters.hpp"
#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

RankWork::RankWork(const Program& program, const Transformer& transformer, const Train& train, Rank rank,
                   KernelLibrary library, AllReduce all_reduce)
    : program_(program),
      entry_(program.ranks[at(rank)]),
      class_(program.class_of(rank)),
      train_(train),
      parameters_(parameters(transformer)),
      all_reduce_(std::move(all_reduce)),
      memory_(class_) {
  context_.transformer = &transformer;
  context_.B = class_.micro_batch;
  context_.T = program.sequence;
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
  for (std::size_t id = 0; id < class_.tensors.size(); ++id) {
    if (class_.tensors[id].role != TensorRole::parameter) continue;
    const Parameter& parameter = parameters_[at(class_.tensors[id].parameter)];
    const auto first_values = values(static_cast<int>(id), -1);
    if (parameter.experts == 0) {
      fill_initial(parameter, train_.seed, context_.tensor_parallel, context_.tensor_index, first_values);
      continue;
    }
    const Parameter part = part_of_experts(parameter, class_.expert_parallel);
    fill_initial(part, train_.seed, class_.expert_tensor_parallel, place.tensor_index, first_values,
                 place.part * part.count());
  }
}

std::span<float> RankWork::values(int tensor, int micro_batch) {
  return {memory_.at(tensor, micro_batch), at(memory_.count(tensor))};
}

std::vector<std::int64_t> RankWork::elements(int tensor, int part, int parts) const {
  return part_elements(parameters_[at(class_.tensors[at(tensor)].parameter)], context_.tensor_parallel, part,
                       parts);
}

void RankWork::begin_step(const Text& text, std::int64_t step) {
  const std::int64_t M = class_.micro_batches, B = class_.micro_batch;
  loss_sum_ = 0;
  tokens_.assign(at(M), {});
  targets_.assign(at(M), {});
  for (std::int64_t m = 0; m < M; ++m)
    for (std::int64_t b = 0; b < B; ++b)
      text.append(train_, step, entry_.first_sequence + m * B + b, tokens_[at(m)], targets_[at(m)]);
}

KernelTensors RankWork::tensors_of(const Kernel& kernel, int micro_batch, MemoryLedger& ledger) {
  KernelTensors tensors;
  for (int id : kernel.in) tensors.in.push_back(memory_.at(id, micro_batch));
  for (int id : kernel.out) tensors.out.push_back(memory_.allocate(id, micro_batch, ledger));
  for (int id : kernel.parameters) {
    tensors.parameters.push_back(memory_.at(id, -1));
    tensors.gradients.push_back(memory_.at(memory_.gradient_of(id), -1));
  }
  tensors.tokens = tokens_[at(micro_batch)].data();
  tensors.targets = targets_[at(micro_batch)].data();
  return tensors;
}

double RankWork::run(const Kernel& kernel, int micro_batch, MemoryLedger& ledger) {
  double flops = 0;
  MOTLEY_CHECK(kernel.op != KernelOp::all_to_all);  // an instruction of its own
  if (kernel.op == KernelOp::all_reduce)
    all_reduce_(kernel.reduce, values(kernel.out[0], micro_batch));
  else
    flops = run_kernel(context_, kernel, tensors_of(kernel, micro_batch, ledger));
  if (kernel.op == KernelOp::loss && context_.tensor_index == 0)
    for (float loss : values(kernel.out[0], micro_batch)) loss_sum_ += loss;
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

void RankWork::optimize() {
  ++optimizer_steps_;
  for (std::size_t i = 0; i < class_.tensors.size(); ++i) {
    const Tensor& tensor = class_.tensors[i];
    if (tensor.role != TensorRole::parameter || !parameters_[at(tensor.parameter)].trained) continue;
    const int id = static_cast<int>(i);
    const auto gradient = values(memory_.gradient_of(id), -1);
    adamw(train_, parameters_[at(tensor.parameter)].decays, optimizer_steps_, gradient,
          values(memory_.optimizer_of(id), -1), values(id, -1));
    std::fill(gradient.begin(), gradient.end(), 0.0F);
  }
}

}  // namespace motley
