#include "models/compile/kernel_writer.hpp"

#include <algorithm>
#include <utility>

#include "models/base/size.hpp"
#include "models/program/edit.hpp"

namespace motley {

namespace {

bool any_unfused_attention(const Cluster& cluster) {
  return std::any_of(cluster.groups.begin(), cluster.groups.end(),
                     [](const NodeGroup& group) { return group.chip.software.unfused_attention.value > 0; });
}

}  // namespace

KernelWriter::KernelWriter(const Job& job, RankProgram& rank_program)
    : transformer_(job.transformer),
      rank_program_(rank_program),
      tp_(rank_program.tensor_parallel),
      row_parts_(rank_program.sequence_parallel ? tp_ : 1),
      train_(job.train),
      format_(job.train.precision),
      gradient_format_(job.train.gradients),
      B_(rank_program.micro_batch),
      T_(job.train.sequence / rank_program.context_parallel),
      N_(B_ * T_),
      keeps_scores_(any_unfused_attention(job.cluster)),
      overlaps_context_(rank_program.context_parallel > 1 && job.strategy.passes_context_in_ring()),
      weighs_activations_(job.strategy.expert_weights == ExpertWeights::activation) {}

TensorId KernelWriter::add_tensor(std::string name, TensorRole role, Format format,
                                  std::vector<std::int64_t> shape, std::optional<int> parameter) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements = size_product({elements, extent});
  const std::int64_t bytes = bytes_of(format, elements);
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.role = role;
  tensor.format = format;
  tensor.shape = std::move(shape);
  tensor.bytes = bytes;
  tensor.parameter = parameter;
  return rank_program_.tensors.add(std::move(tensor));
}

TensorId KernelWriter::boundary(ChunkId chunk, TensorUse use, TensorRole role) {
  const TensorId id = add_tensor({}, role, format_, {rows_between(), transformer_.hidden});
  make_boundary(id, chunk, use);
  return id;
}

void KernelWriter::make_boundary(TensorId id, ChunkId chunk, TensorUse use) {
  Tensor& tensor = rank_program_.tensors[id];
  tensor.name = boundary_name(rank_program_, chunk, use == TensorUse::chunk_input ? "input" : "output");
  if (tensor.role == TensorRole::activation_gradient) tensor.name += ".gradient";
  tensor.use = use;
  tensor.chunk = chunk;
}

std::string KernelWriter::prefixed(const std::string& name) const {
  return layer_name(transformer_, layer_) + "." + name + (again_ ? ".again" : "");
}

TensorId KernelWriter::activation(const std::string& name, std::vector<std::int64_t> shape) {
  return add_tensor(prefixed(name), TensorRole::activation, format_, std::move(shape));
}
TensorId KernelWriter::exact(const std::string& name, std::vector<std::int64_t> shape) {
  return add_tensor(prefixed(name), TensorRole::activation, Format::fp32, std::move(shape));
}
TensorId KernelWriter::gradient(const std::string& name, std::vector<std::int64_t> shape) {
  return add_tensor(prefixed(name) + ".gradient", TensorRole::activation_gradient, format_, std::move(shape));
}
TensorId KernelWriter::exact_gradient(const std::string& name, std::vector<std::int64_t> shape) {
  return add_tensor(prefixed(name) + ".gradient", TensorRole::activation_gradient, Format::fp32,
                    std::move(shape));
}

Ids KernelWriter::weights(std::initializer_list<std::string> names) const {
  Ids ids;
  for (const std::string& name : names)
    if (const auto parameter = parameter_ids_.find(name); parameter != parameter_ids_.end())
      ids.push_back(parameter->second);
  return ids;
}
Ids KernelWriter::layer_weights(std::initializer_list<const char*> names) const {
  Ids ids;
  for (const char* name : names)
    for (TensorId id : weights({layer_name(transformer_, layer_) + "." + name})) ids.push_back(id);
  return ids;
}

Kernel& KernelWriter::emit(KernelOp op, Ids in, Ids out, Ids parameters) {
  Kernel kernel;
  kernel.op = op;
  kernel.layer = layer_;
  kernel.recompute = again_;
  kernel.in = std::move(in);
  kernel.out = std::move(out);
  kernel.parameters = std::move(parameters);
  for (const Ids* ids : {&kernel.in, &kernel.out, &kernel.parameters})
    for (TensorId id : *ids) kernel.bytes += expected_bytes_of(id);
  auto& kernels = rank_program_.blocks[block_].kernels;
  if (again_)
    for (const TensorId id : kernel.out) recomputed_[id] = {block_, kernels.size()};
  kernels.push_back(std::move(kernel));
  return kernels.back();
}

// Head, attention, norms and router keep the precision of training.
bool KernelWriter::has_narrow_matmuls() const {
  return train_.matmuls && layer_ >= 0 && layer_ != transformer_.layers;
}

// Sets the format of a layer's matmul that is narrower than the activations. Assumes: its operand is read and written
// in the narrow format, and again transposed and scaled: 1.7 x 3 bytes for each element, fitted to published FP8 runs
// on H100 and Blackwell (2024-2025).
void KernelWriter::cast(Kernel& kernel, std::int64_t elements) {
  constexpr double kCastBytes = 1.7 * 3;
  if (!has_narrow_matmuls()) return;
  kernel.format = train_.matmuls;
  kernel.bytes += static_cast<std::int64_t>(kCastBytes * static_cast<double>(elements));
}

void KernelWriter::shape_of_matmul(Kernel& kernel, std::int64_t n, std::int64_t k) {
  kernel.m = tensor(kernel.in[0]).shape[0];
  kernel.n = n;
  kernel.k = k;
  kernel.flops = 2.0 * static_cast<double>(kernel.m) * static_cast<double>(n) * static_cast<double>(k);
}

void KernelWriter::shape_of_grouped(Kernel& kernel, std::int64_t n, std::int64_t k) {
  const Experts& e = transformer_.experts;
  const ExpertExchange& rows = exchange();
  kernel.m = rows.expected_rows;
  kernel.n = n;
  kernel.k = k;
  kernel.groups = e.count / rows.parts;
  kernel.busiest = layer_routing_->busiest;
  kernel.flops = 2.0 * static_cast<double>(rows.sent) * static_cast<double>(n) * static_cast<double>(k);
}

// The kernel that casts an operand also writes the copy that its weight gradient reads. The bytes of the copy are among
// those of the cast. An operand that came from other ranks in a narrow format is its own copy.
void KernelWriter::keep_copy(Kernel& kernel, TensorId operand) {
  if (!has_narrow_matmuls() || train_.kept_operands == KeptOperands::precision) return;
  if (is_narrow(tensor(operand).format)) return;
  auto [copy, is_new] = copies_.try_emplace(operand);
  if (is_new) {
    const Tensor& wide = tensor(operand);
    const TensorUse use = wide.use == TensorUse::expert_rows ? wide.use : TensorUse::plain;
    copy->second = add_tensor(wide.name + ".narrow", wide.role, *train_.matmuls, wide.shape);
    set_use(copy->second, use);
    kernel.out.push_back(copy->second);
  }
}

TensorId KernelWriter::kept_operand(TensorId operand) {
  if (!has_narrow_matmuls()) return operand;
  // No matmul follows where only the operand was computed again: the kernel that did so writes the copy.
  if (const auto writer = recomputed_.find(operand); writer != recomputed_.end())
    keep_copy(rank_program_.blocks[writer->second.first].kernels[writer->second.second], operand);
  const auto copy = copies_.find(operand);
  return copy == copies_.end() ? operand : copy->second;
}

TensorId KernelWriter::keep_inner(TensorId inner) {
  if (!train_.kept_inner || is_narrow(tensor(inner).format)) return inner;
  const Tensor wide = tensor(inner);
  const TensorId copy = add_tensor(wide.name + ".kept", wide.role, *train_.kept_inner, wide.shape);
  set_use(copy, wide.use);
  if (expert_rows_.contains(inner)) expert_rows_.insert(copy);
  Kernel& kernel = rank_program_.blocks[block_].kernels.back();
  kernel.out.push_back(copy);
  kernel.bytes += expected_bytes_of(copy);
  return copy;
}

// Appends a weight gradient. Assumes: an operand that is kept narrow takes as long to read as one in the precision of
// training: the time of casts was fitted so.
Kernel& KernelWriter::emit_weight_gradient(KernelOp op, const Ids& operands, const Ids& parameters,
                                           bool narrow) {
  Kernel& kernel = emit(op, operands, {}, parameters);
  if (narrow)
    for (TensorId& operand : kernel.in) operand = kept_operand(operand);
  return kernel;
}

// The kernel reads and writes the accumulated gradient, not the parameter.
void KernelWriter::accumulate_bytes(Kernel& kernel, const Ids& parameters) {
  for (TensorId id : parameters)
    kernel.bytes += 2 * tensor(id).bytes / bytes_of(format_) * bytes_of(gradient_format_) - tensor(id).bytes;
}

// Assumes: each matmul first writes the weight in the precision of training, and drops it afterwards (bitsandbytes
// 0.45, 2024-12, bitsandbytes/autograd/_functions.py: MatMul4Bit).
std::optional<TensorId> KernelWriter::dequantize(TensorId weight, const char* pass) {
  if (!quantized_.contains(weight)) return std::nullopt;
  const std::vector<std::int64_t> shape = tensor(weight).shape;
  const TensorId wide = add_tensor(tensor(weight).name + pass + (again_ ? ".again" : ""),
                                   TensorRole::activation, format_, shape);
  Kernel& kernel = emit(KernelOp::scale, {}, {wide}, {weight});
  kernel.m = shape[0];
  kernel.n = shape[1];
  return wide;
}

// Makes a matmul read the dequantized weight instead of the one in NF4.
void KernelWriter::read_dequantized(Kernel& kernel, TensorId weight, std::optional<TensorId> wide) {
  if (!wide) return;
  kernel.in.push_back(*wide);
  kernel.bytes += tensor(*wide).bytes - tensor(weight).bytes;
}

void KernelWriter::matmul(TensorId x, TensorId y, const Ids& parameters, std::int64_t n, std::int64_t k,
                          bool narrow) {
  const auto wide = dequantize(parameters.at(0), ".dequantized");
  Kernel& kernel = emit(KernelOp::matmul, {x}, {y}, parameters);
  read_dequantized(kernel, parameters.at(0), wide);
  shape_of_matmul(kernel, n, k);
  if (!narrow) return;
  cast(kernel, kernel.m * k);
  if (!frozen(parameters.at(0))) keep_copy(kernel, x);
}

void KernelWriter::matmul_gradients(TensorId dy, TensorId dx, std::optional<TensorId> x,
                                    const Ids& parameters, std::int64_t n, std::int64_t k, bool narrow) {
  const auto wide = dequantize(parameters.at(0), ".dequantized.backward");
  Kernel& input = emit(KernelOp::matmul_input_gradient, {dy}, {dx}, {parameters.at(0)});
  read_dequantized(input, parameters.at(0), wide);
  shape_of_matmul(input, n, k);
  if (narrow) cast(input, input.m * n);
  if (frozen(parameters.at(0))) return;
  if (narrow) keep_copy(input, dy);
  Kernel& weight =
      emit_weight_gradient(KernelOp::matmul_weight_gradient, {dy, x.value()}, parameters, narrow);
  shape_of_matmul(weight, n, k);
  accumulate_bytes(weight, parameters);
  if (narrow) cast(weight, 0);
}

Ids KernelWriter::weights_of(const std::string& linear) const {
  const std::string weight = linear + ".weight", bias = linear + ".bias";
  // Where inputs are cut, the bias is added after the sum over ranks.
  if (linear == "proj" || linear == "fc2") return layer_weights({weight.c_str()});
  return layer_weights({weight.c_str(), bias.c_str()});
}

TensorId KernelWriter::scaled(TensorId id, const std::string& name, TensorRole role) {
  if (transformer_.lora.scale() == 1) return id;
  const TensorId product = add_tensor(prefixed(name), role, tensor(id).format, tensor(id).shape);
  Kernel& kernel = emit(KernelOp::scale, {id}, {product});
  kernel.m = tensor(id).shape[0];
  kernel.n = tensor(id).shape[1];
  kernel.factor = transformer_.lora.scale();
  return product;
}

TensorId KernelWriter::sum_of(TensorId a, TensorId b, const std::string& name, TensorRole role) {
  const TensorId sum = add_tensor(prefixed(name), role, tensor(a).format, tensor(a).shape);
  Kernel& kernel = emit(KernelOp::add_residual, {a, b}, {sum});
  kernel.m = tensor(a).shape[0];
  kernel.n = tensor(a).shape[1];
  return sum;
}

// Adapters keep the precision of training. Where the layer's outputs are cut, B is cut too, and a rank has a part of
// the gradient of A x; where its inputs are cut, A is cut too, and a rank has a part of A x. In both cases a rank's
// part is summed with that of the layer itself, and only the matrix that every rank has whole gets a gradient in
// parts. Adapters of some of the matrices that a layer stacks are computed together: A x is as wide as all their ranks,
// and each has its own rows of B, which read its own part of A x.
TensorId KernelWriter::linear(TensorId x, TensorId y, const std::string& name, std::int64_t n, std::int64_t k,
                              std::optional<TensorId>& kept) {
  matmul(x, y, weights_of(name), n, k);
  if (!transformer_.lora.beside(name)) return y;
  const Ids a = weights_of(name + ".a"), b = weights_of(name + ".b");
  const std::int64_t rank = transformer_.lora.rank, ranks = tensor(a[0]).shape[0],
                     rows = tensor(b[0]).shape[0];
  const TensorId narrow = activation(name + ".a", {N_, ranks});
  matmul(x, narrow, a, ranks, k, false);
  kept = scaled(narrow, name + ".a.scaled", TensorRole::activation);
  const TensorId wide = activation(name + ".b", {N_, rows});
  matmul(kept.value(), wide, b, rows, rank, false);
  return sum_of(y, wide, name + ".adapted", TensorRole::activation);
}

TensorId KernelWriter::linear_gradients(TensorId dy, const std::string& dx, std::optional<TensorId> x,
                                        const std::string& name, std::int64_t n, std::int64_t k,
                                        std::optional<TensorId> kept) {
  constexpr TensorRole role = TensorRole::activation_gradient;
  const TensorId through = gradient(dx, {N_, k});
  matmul_gradients(dy, through, x, weights_of(name), n, k);
  if (!transformer_.lora.beside(name)) return through;
  const Ids a = weights_of(name + ".a"), b = weights_of(name + ".b");
  const std::int64_t rank = transformer_.lora.rank, ranks = tensor(a[0]).shape[0],
                     rows = tensor(b[0]).shape[0];
  const TensorId dscaled = gradient(name + ".a.scaled", {N_, ranks});
  matmul_gradients(dy, dscaled, kept, b, rows, rank, false);
  const TensorId dnarrow = scaled(dscaled, name + ".a.gradient", role);
  const TensorId beside = gradient(name + ".a.input", {N_, k});
  matmul_gradients(dnarrow, beside, x, a, ranks, k, false);
  return sum_of(through, beside, dx + ".adapted.gradient", role);
}

void KernelWriter::grouped_matmul(TensorId x, TensorId counts, TensorId y, const Ids& weight, std::int64_t n,
                                  std::int64_t k) {
  const auto wide = dequantize(weight.at(0), ".dequantized");
  Kernel& kernel = emit(KernelOp::grouped_matmul, {x, counts}, {y}, weight);
  read_dequantized(kernel, weight.at(0), wide);
  shape_of_grouped(kernel, n, k);
  cast(kernel, kernel.m * k);
  if (!frozen(weight.at(0))) keep_copy(kernel, x);
}

void KernelWriter::grouped_matmul_gradients(TensorId dy, TensorId counts, TensorId dx, TensorId x,
                                            const Ids& weight, std::int64_t n, std::int64_t k) {
  const auto wide = dequantize(weight.at(0), ".dequantized.backward");
  Kernel& input = emit(KernelOp::grouped_matmul_input_gradient, {dy, counts}, {dx}, {weight.at(0)});
  read_dequantized(input, weight.at(0), wide);
  shape_of_grouped(input, n, k);
  cast(input, input.m * n);
  if (frozen(weight.at(0))) return;
  keep_copy(input, dy);
  Kernel& by_weight =
      emit_weight_gradient(KernelOp::grouped_matmul_weight_gradient, {dy, x, counts}, weight, true);
  shape_of_grouped(by_weight, n, k);
  accumulate_bytes(by_weight, weight);
  cast(by_weight, 0);
}

const ExpertExchange& KernelWriter::exchange() const {
  if (!layer_routing_ || layer_routing_->layer != layer_) {
    const Experts& experts = transformer_.experts;
    const ExpertExchange exchange =
        expert_exchange(experts, slice_size(N_, tp_ / expert_cut()), expert_parts(), train_, layer_);
    layer_routing_ = {
        layer_, exchange,
        busiest_rows(experts, train_.expert_skew, train_.seed, layer_, exchange.tokens * exchange.parts)};
  }
  return layer_routing_->exchange;
}

TensorId KernelWriter::add_expert_rows(const std::string& name, TensorRole role, Format format,
                                       std::int64_t width) {
  const TensorId id = add_tensor(name, role, format, {exchange().rows, width});
  if (train_.expert_room == 0 && expert_parts() > 1) set_use(id, TensorUse::expert_rows);
  expert_rows_.insert(id);
  return id;
}
TensorId KernelWriter::expert_rows(const std::string& name, std::int64_t width, bool sent) {
  const Format format = sent && expert_parts() > 1 ? train_.expert_dispatch.value_or(format_) : format_;
  return add_expert_rows(prefixed(name), TensorRole::activation, format, width);
}
TensorId KernelWriter::expert_rows_gradient(const std::string& name, std::int64_t width, bool sent) {
  const Format format = sent && expert_parts() > 1 ? train_.expert_dispatch.value_or(format_) : format_;
  return add_expert_rows(prefixed(name) + ".gradient", TensorRole::activation_gradient, format, width);
}
TensorId KernelWriter::expert_numbers(const std::string& name, TensorRole role) {
  return add_expert_rows(prefixed(name), role, Format::fp32, 1);
}

// A tensor of expert_rows() has room for the most rows that can come; kernels move only the expected rows.
std::int64_t KernelWriter::expected_bytes_of(TensorId id) const {
  if (!expert_rows_.contains(id)) return tensor(id).bytes;
  const ExpertExchange rows = exchange();
  return tensor(id).bytes / rows.rows * rows.expected_rows;
}

void KernelWriter::all_to_all(TensorId id) {
  if (expert_parts() == 1) return;
  emit(KernelOp::all_to_all, {id}, {id}).bytes = expected_bytes_of(id);
}

void KernelWriter::over_context(KernelOp op, TensorId id) {
  Kernel& kernel = emit(op, {id}, {id});
  kernel.over = GroupKind::context;
  kernel.bytes = tensor(id).bytes;
}

void KernelWriter::all_reduce(TensorId id, ReduceOp reduce) {
  if (tp_ == 1) return;
  Kernel& kernel = emit(KernelOp::all_reduce, {id}, {id});
  kernel.bytes = tensor(id).bytes;
  kernel.reduce = reduce;
}

// Assumes: libraries gather and scatter out of place, so the kernels before and after a collective move no bytes.
TensorId KernelWriter::part_of_rows(TensorId whole, const std::string& name, TensorRole role) {
  const std::int64_t width = tensor(whole).shape.back();
  const TensorId part = add_tensor(prefixed(name), role, tensor(whole).format, {rows_between(), width});
  Kernel& take = emit(KernelOp::take_rows, {whole}, {part});
  take.m = N_;
  take.n = width;
  take.bytes = 0;
  return part;
}
TensorId KernelWriter::own_rows(TensorId id, const std::string& name, TensorRole role) {
  return row_parts_ == 1 ? id : part_of_rows(id, name, role);
}
TensorId KernelWriter::sum_rows(TensorId id, const std::string& name, TensorRole role) {
  if (row_parts_ == 1) {
    all_reduce(id);
    return id;
  }
  emit(KernelOp::reduce_scatter, {id}, {id}).bytes = tensor(id).bytes;
  return part_of_rows(id, name, role);
}
TensorId KernelWriter::all_rows(TensorId id, const std::string& name, TensorRole role) {
  if (row_parts_ == 1) return id;
  const std::int64_t width = tensor(id).shape.back();
  const TensorId whole = add_tensor(prefixed(name), role, tensor(id).format, {N_, width});
  Kernel& place = emit(KernelOp::place_rows, {id}, {whole});
  place.m = N_;
  place.n = width;
  place.bytes = 0;
  emit(KernelOp::all_gather, {whole}, {whole}).bytes = tensor(whole).bytes;
  return whole;
}

Kernel& KernelWriter::emit_between(KernelOp op, Ids in, Ids out, Ids parameters) {
  Kernel& kernel = emit(op, std::move(in), std::move(out), std::move(parameters));
  if (row_parts_ > 1) kernel.m = rows_between();
  return kernel;
}

void KernelWriter::norm(TensorId x, TensorId y, TensorId statistics, const Ids& weight, std::int64_t width) {
  Kernel& kernel = emit(KernelOp::norm, {x}, {y, statistics}, weight);
  kernel.n = tensor(x).shape.back();
  kernel.k = width;
}
void KernelWriter::norm_backward(Ids in, TensorId dx, const Ids& weight, std::int64_t width) {
  Kernel& kernel = emit(KernelOp::norm_backward, std::move(in), {dx}, weight);
  kernel.n = tensor(dx).shape.back();
  kernel.k = width;
}

TensorId KernelWriter::norm_between(TensorId x, const std::string& name, TensorId& statistics) {
  const TensorId y = activation(name, {rows_between(), transformer_.hidden});
  statistics = exact(name + ".statistics", {rows_between(), transformer_.family == Family::gpt2 ? 2 : 1});
  emit_between(KernelOp::norm, {x}, {y, statistics},
               layer_weights({(name + ".weight").c_str(), (name + ".bias").c_str()}));
  return y;
}
TensorId KernelWriter::norm_between_backward(TensorId dy, TensorId x, TensorId statistics,
                                             const std::string& name, const std::string& dx,
                                             std::optional<TensorId> residual) {
  const TensorId gradient_of_x = gradient(dx, {rows_between(), transformer_.hidden});
  Ids in = {dy, x, statistics};
  if (residual) in.push_back(*residual);
  emit_between(KernelOp::norm_backward, std::move(in), {gradient_of_x},
               layer_weights({(name + ".weight").c_str(), (name + ".bias").c_str()}));
  return gradient_of_x;
}

void KernelWriter::add_parameter_tensors(const std::vector<Parameter>& all, const std::vector<int>& held) {
  const auto add = [&](int index, const char* suffix, TensorRole role, Format format,
                       std::vector<std::int64_t> shape) {
    const TensorId id = add_tensor(all[at(index)].name + suffix, role, format, std::move(shape), index);
    if (all[at(index)].name == "embedding.token.weight") set_use(id, TensorUse::token_embedding);
    return id;
  };
  const auto part_of = [&](const Parameter& parameter) {
    return parameter.experts > 0 ? part_of_experts(parameter, expert_parts()) : parameter;
  };
  const auto shape_of = [&](const Parameter& parameter) {
    return shard_shape(part_of(parameter), parameter.experts > 0 ? expert_cut() : tp_);
  };
  for (int index : held) {
    const Parameter& parameter = all[at(index)];
    frozen_.resize(rank_program_.tensors.size() + 1, !parameter.trained);
    const TensorId id = add(index, "", TensorRole::parameter, format_, shape_of(parameter));
    parameter_ids_[parameter.name] = id;
    if (train_.frozen_weights != FrozenWeights::nf4 || !may_be_quantized(parameter)) continue;
    Tensor& tensor = rank_program_.tensors[id];
    tensor.bytes = nf4_bytes(tensor.bytes / bytes_of(format_));
    quantized_.insert(id);
  }
  for (int index : held)
    if (all[at(index)].trained)
      add(index, ".gradient", TensorRole::gradient, gradient_format_, shape_of(all[at(index)]));
  for (int index : held) {
    const Parameter& parameter = all[at(index)];
    if (!parameter.trained) continue;
    const OptimizerRule rule = train_.optimizer_rule();
    auto shape = shape_of(parameter);
    const std::int64_t bytes = optimizer_bytes(rule, part_of(parameter), shape);
    shape.insert(shape.begin(), kept_copies(rule, parameter));
    const TensorId id = add(index, ".optimizer", TensorRole::optimizer, Format::fp32, std::move(shape));
    rank_program_.tensors[id].bytes = bytes;
  }
  for (const Tensor& tensor : rank_program_.tensors)
    rank_program_.static_bytes = size_sum(rank_program_.static_bytes, tensor.bytes);
}

}  // namespace motley
