// The one list of the fields of a Program's structs. visit_fields(io, value) names each field once; the printer, the
// parser and the hash each have an `io` of their own. Only models/program includes it.
//
// io.number(key, field[, standard]): a number, flag, id or optional id. io.exact: a double to its last bit.
// io.word(key, field, words[, standard]): an enum. io.list(key, list): tensors or numbers. io.name(key, field): a
// tensor or an optional tensor. io.slots(key, table): peers or groups. A field that equals its standard may be left
// out.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

struct ProgramWords {
  std::vector<std::string> roles = {"activation", "activation_gradient", "parameter", "gradient", "optimizer",
                                    "gathered",   "whole_gradient"};
  std::vector<std::string> uses = {"plain",  "chunk_input",     "chunk_output", "attention_sum",
                                   "logits", "token_embedding", "expert_rows"};
  std::vector<std::string> groups = {"tensor",          "data",    "embedding",
                                     "expert",          "gather",  "activation_gather",
                                     "gradient_gather", "context", "tensor_gradient"};
  std::vector<std::string> passes = {"forward", "backward", "input_gradient", "weight_gradient"};
  std::vector<std::string> kept_formats = {"fp32", "tf32", "bf16", "fp16"};
  std::vector<std::string> formats, optimizers, kernels, reduces, collectives, streams;
};
const ProgramWords& program_words();

// T is the struct or its const version.
template <class T, class Struct>
concept Of = std::is_same_v<std::remove_const_t<T>, Struct>;

template <class Io, Of<Tensor> T>
void visit_fields(Io& io, T& tensor) {
  const ProgramWords& words = program_words();
  const Tensor standard;
  io.word("role", tensor.role, words.roles);
  io.word("use", tensor.use, words.uses, standard.use);
  io.number("chunk", tensor.chunk, standard.chunk);
  io.word("format", tensor.format, words.formats);
  io.list("shape", tensor.shape);
  io.number("bytes", tensor.bytes);
  io.number("parameter", tensor.parameter, standard.parameter);
  io.number("on_host", tensor.on_host, standard.on_host);
}

// Visits all fields except the op and the tensors that the kernel reads, writes and frees: they have forms of their
// own in text.
template <class Io, Of<Kernel> T>
void visit_fields(Io& io, T& kernel) {
  const ProgramWords& words = program_words();
  const Kernel standard;
  io.number("layer", kernel.layer, standard.layer);
  io.number("recompute", kernel.recompute, false);
  io.word("reduce", kernel.reduce, words.reduces, standard.reduce);
  io.word("over", kernel.over, words.groups, standard.over);
  io.number("m", kernel.m, standard.m);
  io.number("n", kernel.n, standard.n);
  io.number("k", kernel.k, standard.k);
  io.number("groups", kernel.groups, standard.groups);
  io.number("busiest", kernel.busiest, standard.busiest);
  io.exact("factor", kernel.factor, standard.factor);
  io.number("ahead", kernel.ahead, standard.ahead);
  io.word("format", kernel.format, words.formats);
  io.exact("flops", kernel.flops, standard.flops);
  io.number("bytes", kernel.bytes, standard.bytes);
}

// Visits all fields except the body, micro-batch, `after` and `frees`, which have forms of their own in text.
template <class Io, Of<Instruction> T>
void visit_fields(Io& io, T& instruction) {
  const Instruction standard;
  io.exact("flops", instruction.flops, standard.flops);
  io.number("allocated", instruction.allocated, standard.allocated);
  io.number("freed", instruction.freed, standard.freed);
  io.number("peak", instruction.peak, standard.peak);
}

template <class Io, Of<PeerMessage> T>
void visit_fields(Io& io, T& message) {
  const PeerMessage standard;
  io.number("part", message.part, standard.part);
  io.number("parts", message.parts, standard.parts);
  io.number("part_stride", message.part_stride, standard.part_stride);
  io.number("row", message.row, standard.row);
  io.number("rows", message.rows, standard.rows);
  io.number("bytes", message.bytes, standard.bytes);
}

template <class Io, Of<Collective> T>
void visit_fields(Io& io, T& collective) {
  const Collective standard;
  io.word("reduce", collective.reduce, program_words().reduces, standard.reduce);
  io.number("root", collective.root, standard.root);
  io.number("part", collective.part, standard.part);
  io.number("parts", collective.parts, standard.parts);
  io.number("row", collective.row, standard.row);
  io.number("rows", collective.rows, standard.rows);
  io.exact("scale", collective.scale, standard.scale);
  io.number("shard", collective.shard, standard.shard);
  io.number("bytes", collective.bytes, standard.bytes);
  io.number("expected", collective.expected, standard.expected);
  io.list("part_bytes", collective.part_bytes);
}

template <class Io, Of<Copy> T>
void visit_fields(Io& io, T& copy) {
  io.number("shard", copy.shard, std::optional<ShardId>{});
  io.number("bytes", copy.bytes, std::int64_t{0});
}

template <class Io, Of<Shard> T>
void visit_fields(Io& io, T& shard) {
  const Shard standard;
  io.number("slot", shard.slot);
  io.number("gather_slot", shard.gather_slot);
  io.number("replica_slot", shard.replica_slot, standard.replica_slot);
  io.list("parameters", shard.parameters);
  io.list("gradients", shard.gradients);
  io.name("optimizer", shard.optimizer);
  io.name("parameter_part", shard.parameter_part);
  io.name("gradient_part", shard.gradient_part);
  io.number("part", shard.part, standard.part);
  io.number("parts", shard.parts, standard.parts);
}

template <class Io, Of<RankProgram> T>
void visit_fields(Io& io, T& program) {
  const RankProgram standard;
  io.number("pipeline", program.pipeline);
  io.number("stage", program.stage);
  io.number("first", program.first_stage);
  io.number("last", program.last_stage);
  io.number("tensor_parallel", program.tensor_parallel);
  io.number("expert_parallel", program.expert_parallel, standard.expert_parallel);
  io.number("expert_tensor_parallel", program.expert_tensor_parallel, standard.expert_tensor_parallel);
  io.number("context_parallel", program.context_parallel, standard.context_parallel);
  io.number("sequence_parallel", program.sequence_parallel, standard.sequence_parallel);
  io.number("sequence_stride", program.sequence_stride, standard.sequence_stride);
  io.number("micro_batch", program.micro_batch);
  io.number("micro_batches", program.micro_batches);
  io.number("static", program.static_bytes);
}

template <class Io, Of<RankEntry> T>
void visit_fields(Io& io, T& entry) {
  io.number("program", entry.rank_program);
  io.number("chip", entry.chip);
  io.number("stage", entry.stage);
  io.number("replica", entry.replica);
  io.number("tensor", entry.tensor_index);
  io.number("context", entry.context_index, 0);
  io.number("sequence", entry.first_sequence);
  io.slots("peers", entry.peers);
  io.slots("groups", entry.groups);
}

template <class Io, Of<Program> T>
void visit_fields(Io& io, T& program) {
  const ProgramWords& words = program_words();
  const Program standard;
  io.number("sequence", program.sequence);
  io.number("global_batch", program.global_batch);
  io.word("precision", program.precision, words.kept_formats);
  io.word("gradients", program.gradients, words.kept_formats);
  io.word("optimizer", program.optimizer, words.optimizers, standard.optimizer);
  io.number("master_weights", program.master_weights, standard.master_weights);
  io.number("layers", program.layers);
  io.number("p2p_buffers", program.p2p_buffers);
}

template <class Io, Of<ExpertRouting> T>
void visit_fields(Io& io, T& routing) {
  io.number("experts", routing.experts);
  io.number("per_token", routing.per_token);
  io.number("groups", routing.groups);
  io.number("groups_per_token", routing.groups_per_token);
  io.exact("skew", routing.skew, 0.0);
  io.number("seed", routing.seed);
}

}  // namespace motley
