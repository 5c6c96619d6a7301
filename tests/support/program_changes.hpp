// Changes every field of a Program, one at a time: for laws of functions that print, read or compare Programs. A struct
// with a new field does not compile here until with_fields() has that field.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/program/program.hpp"
#include "tests/support/random_text.hpp"

namespace motley::tests {

template <class Each>
void with_fields(Tensor& tensor, Each each) {
  auto& [name, role, use, chunk, format, shape, bytes, parameter, on_host] = tensor;
  each(name, role, use, chunk, format, shape, bytes, parameter, on_host);
}
template <class Each>
void with_fields(Kernel& kernel, Each each) {
  auto& [op, layer, recompute, reduce, over, in, out, parameters, frees, m, n, k, groups, busiest, factor,
         ahead, format, flops, bytes] = kernel;
  each(op, layer, recompute, reduce, over, in, out, parameters, frees);
  each(m, n, k, groups, busiest, factor, ahead, format, flops, bytes);
}
template <class Each>
void with_fields(Block& block, Each each) {
  auto& [name, pass, chunk, kernels] = block;
  each(name, pass, chunk, kernels);
}
template <class Each>
void with_fields(After& after, Each each) {
  auto& [stream, index] = after;
  each(stream, index);
}
template <class Each>
void with_fields(Compute& compute, Each each) {
  auto& [block, first_kernel, last_kernel] = compute;
  each(block, first_kernel, last_kernel);
}
template <class Each>
void with_fields(PeerMessage& message, Each each) {
  auto& [slot, tensor, part, parts, part_stride, row, rows, bytes] = message;
  each(slot, tensor, part, parts, part_stride, row, rows, bytes);
}
template <class Each>
void with_fields(Collective& collective, Each each) {
  auto& [kind, reduce, slot, root, tensors, part, parts, row, rows, scale, shard, bytes, expected,
         part_bytes] = collective;
  each(kind, reduce, slot, root, tensors, part, parts, row, rows, scale, shard, bytes, expected, part_bytes);
}
template <class Each>
void with_fields(OptimizerStep& step, Each each) {
  auto& [tensors] = step;
  each(tensors);
}
template <class Each>
void with_fields(Copy& copy, Each each) {
  auto& [tensors, into, shard, bytes] = copy;
  each(tensors, into, shard, bytes);
}
template <class Each>
void with_fields(Instruction& instruction, Each each) {
  auto& [body, micro_batch, after, frees, flops, allocated, freed, peak] = instruction;
  each(body, micro_batch, after, frees, flops, allocated, freed, peak);
}
template <class Each>
void with_fields(Stream& stream, Each each) {
  auto& [kind, chunk, instructions] = stream;
  each(kind, chunk, instructions);
}
template <class Each>
void with_fields(Chunk& chunk, Each each) {
  auto& [virtual_stage, first_layer, last_layer] = chunk;
  each(virtual_stage, first_layer, last_layer);
}
template <class Each>
void with_fields(Shard& shard, Each each) {
  auto& [slot, gather_slot, replica_slot, parameters, gradients, optimizer, parameter_part, gradient_part,
         part, parts] = shard;
  each(slot, gather_slot, replica_slot, parameters, gradients, optimizer, parameter_part, gradient_part, part,
       parts);
}
template <class Each>
void with_fields(RankProgram& rank_program, Each each) {
  auto& [name, chunks, first_stage, last_stage, pipeline, stage, tensor_parallel, expert_parallel,
         expert_tensor_parallel, context_parallel, sequence_parallel, micro_batch, micro_batches,
         sequence_stride, tensors, shards, blocks, streams, static_bytes] = rank_program;
  each(name, chunks, first_stage, last_stage, pipeline, stage, tensor_parallel, expert_parallel);
  each(expert_tensor_parallel, context_parallel, sequence_parallel, micro_batch, micro_batches);
  each(sequence_stride, tensors, shards, blocks, streams, static_bytes);
}
template <class Each>
void with_fields(Group& group, Each each) {
  auto& [kind, ranks] = group;
  each(kind, ranks);
}
template <class Each>
void with_fields(RankEntry& entry, Each each) {
  auto& [rank_program, chip, stage, replica, tensor_index, context_index, first_sequence, peers, groups] =
      entry;
  each(rank_program, chip, stage, replica, tensor_index, context_index, first_sequence, peers, groups);
}
template <class Each>
void with_fields(ExpertRouting& routing, Each each) {
  auto& [experts, per_token, groups, groups_per_token, skew, seed] = routing;
  each(experts, per_token, groups, groups_per_token, skew, seed);
}
template <class Each>
void with_fields(Program& program, Each each) {
  auto& [strategy_hash, sequence, global_batch, precision, gradients, optimizer, master_weights, layers,
         p2p_buffers, routing, rank_programs, groups, ranks] = program;
  each(strategy_hash, sequence, global_batch, precision, gradients, optimizer, master_weights);
  each(layers, p2p_buffers, routing, rank_programs, groups, ranks);
}

template <class T>
concept HasFields = requires(T& value) {
  with_fields(value, [](auto&...) {});
};

inline Format last_of(Format) { return Format::fp16; }  // the last format in which tensors are kept
inline Optimizer last_of(Optimizer) { return Optimizer::sgd; }
inline TensorRole last_of(TensorRole) { return TensorRole::whole_gradient; }
inline TensorUse last_of(TensorUse) { return TensorUse::token_embedding; }
inline KernelOp last_of(KernelOp) { return KernelOp::all_gather; }
inline ReduceOp last_of(ReduceOp) { return ReduceOp::minimum; }
inline GroupKind last_of(GroupKind) { return GroupKind::tensor_gradient; }
inline Pass last_of(Pass) { return Pass::weight_gradient; }
inline CollectiveKind last_of(CollectiveKind) { return CollectiveKind::barrier; }
inline StreamKind last_of(StreamKind) { return StreamKind::from_host; }

// Lists a change for each field of a Program, which must outlive the list. Each change gives its field another value,
// drawn when the change is made.
class ProgramChanges {
 public:
  ProgramChanges(Program& program, Random& random) : random_(random) { add(program); }
  const std::vector<std::function<void()>>& all() const { return all_; }

 private:
  template <HasFields T>
  void add(T& value) {
    if constexpr (std::same_as<T, RankProgram>) rank_program_ = &value;
    with_fields(value, [this](auto&... fields) { (this->add(fields), ...); });
  }
  // Adds changes of each item, and a change that appends one item.
  template <class T>
  void add(std::vector<T>& items) {
    for (T& item : items) add(item);
    all_.push_back([&items] { items.push_back(items.empty() ? T{} : items.back()); });
  }
  template <class I, class T>
  void add(IdTable<I, T>& table) {
    add(table.items());
  }
  template <class... Bodies>
  void add(std::variant<Bodies...>& body) {
    std::visit([this](auto& held) { this->add(held); }, body);
  }
  // Adds a change that sets or resets the value, and changes of the value that is there.
  template <class T>
  void add(std::optional<T>& value) {
    if (value) add(*value);
    all_.push_back([this, &value, program = rank_program_] {
      if (value)
        value.reset();
      else
        value = drawn(T{}, program);
    });
  }
  template <class T>
  void add(T& value) {
    all_.push_back([this, &value, program = rank_program_] {
      const T before = value;
      while (value == before) value = drawn(value, program);
    });
  }

  template <class T>
  T drawn(const T&, const RankProgram* program) {
    if constexpr (std::same_as<T, std::string>)
      return random_.one_of(names());
    else if constexpr (std::same_as<T, bool>)
      return random_.coin();
    else if constexpr (std::same_as<T, double>)
      return random_.coin() ? random_.positive() : -random_.positive();
    else if constexpr (std::integral<T>)
      return static_cast<T>(random_.integer(std::same_as<T, std::uint64_t> ? 0 : -2, 1'000'000'000));
    else if constexpr (std::is_enum_v<T>)
      return static_cast<T>(random_.integer(0, static_cast<int>(last_of(T{}))));
    else if constexpr (std::same_as<T, BlockId>)
      return T(random_.integer(0, static_cast<std::int64_t>(program->blocks.size()) - 1));
    else if constexpr (std::same_as<T, StreamId>)
      return T(random_.integer(0, static_cast<std::int64_t>(program->streams.size()) - 1));
    else
      return T(random_.integer(0, 40));
  }
  // Names that make printing and reading hard: several tensors and blocks get the same name, and some names look like
  // other parts of a line.
  static const std::vector<std::string>& names() {
    static const std::vector<std::string> all = {"x",          "layers.0.fc1",
                                                 "two words",  " lead and trail ",
                                                 "to",         "micro-batch",
                                                 "a,b",        "a=b",
                                                 "(not read",  "#1",
                                                 "#",          "#last",
                                                 "-",          "",
                                                 "caf\xc3\xa9"};
    return all;
  }

  Random& random_;
  const RankProgram* rank_program_ = nullptr;  // the rank program whose fields are being listed
  std::vector<std::function<void()>> all_;
};

// A random Program that no compiler made: its tables have few items, and every field is drawn.
inline Program any_program(Random& random) {
  const auto few = [&](auto& table, std::int64_t least = 0) { table.resize(at(random.integer(least, 3))); };
  Program program;
  few(program.rank_programs, 1);
  few(program.groups);
  few(program.ranks);
  for (RankProgram& rank_program : program.rank_programs) {
    few(rank_program.chunks);
    few(rank_program.tensors);
    few(rank_program.shards);
    few(rank_program.blocks, 2);
    few(rank_program.streams, 2);
    for (Shard& shard : rank_program.shards) few(shard.parameters);
    for (Block& block : rank_program.blocks) {
      few(block.kernels);
      for (Kernel& kernel : block.kernels)
        for (auto* tensors : {&kernel.in, &kernel.out, &kernel.parameters, &kernel.frees}) few(*tensors);
    }
    for (Stream& stream : rank_program.streams)
      for (InstructionBody body :
           {InstructionBody(Compute{}), {Send{}}, {Recv{}}, {Collective{}}, {OptimizerStep{}}, {Copy{}}}) {
        Instruction instruction;
        instruction.body = std::move(body);
        few(instruction.after);
        few(instruction.frees);
        stream.instructions.push_back(instruction);
      }
  }
  for (RankEntry& entry : program.ranks) {
    few(entry.peers);
    few(entry.groups);
  }
  const ProgramChanges changes(program, random);
  for (const auto& change : changes.all()) change();
  return program;
}

}  // namespace motley::tests
