#include "models/calibration/torch_operations.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "models/cost/rated_kernels.hpp"
#include "models/program/program.hpp"

namespace motley {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr double kMostKernelBytes = 1e15, kMostRows = 1e12;  // of one kernel: no memory holds more

struct TypeName {
  std::string_view name;
  Format format;
  double width;
};
constexpr TypeName kTypes[] = {{"float", Format::fp32, 4},
                               {"c10::BFloat16", Format::bf16, 2},
                               {"c10::Half", Format::fp16, 2},
                               {"c10::Float8_e4m3fn", Format::fp8, 1},
                               {"c10::Float8_e5m2", Format::fp8, 1}};

const TypeName* find_type(std::string_view name) {
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const TypeName& each) { return each.name == name; });
  return type == std::end(kTypes) ? nullptr : type;
}

const std::string& type_of(const HostOperation& operation, std::size_t operand) {
  static const std::string none;
  return operand < operation.operands.size() ? operation.operands[operand].type : none;
}

// The sizes of an operand that is one tensor of this rank; null: it is not.
const Sizes* tensor(const HostOperation& operation, std::size_t operand, std::size_t rank) {
  if (operand >= operation.operands.size()) return nullptr;
  const auto& sizes = operation.operands[operand].sizes;
  return sizes.size() == 1 && sizes[0].size() == rank ? sizes.data() : nullptr;
}

bool is_false(const HostOperation& operation, std::size_t operand) {
  return operand < operation.operands.size() && operation.operands[operand].value == "False";
}

std::optional<KernelSample> sample(const Kernel& kernel, std::string_view type,
                                   KernelVariant variant = KernelVariant::usual) {
  const TypeName* const format = find_type(type);
  const auto bytes = static_cast<double>(kernel.bytes);
  if (format == nullptr || !(bytes > 0) || !(bytes <= kMostKernelBytes)) return std::nullopt;
  KernelSample sample;
  sample.kernel = {kernel.op, variant};
  sample.format = format->format;
  sample.shape = shape_of(kernel);
  return sample;
}

std::optional<Kernel> product(KernelOp op, std::int64_t m, std::int64_t n, std::int64_t k, double bytes) {
  if (!(bytes > 0) || bytes > kMostKernelBytes) return std::nullopt;
  Kernel kernel;
  kernel.op = op;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  kernel.bytes = static_cast<std::int64_t>(bytes);
  return kernel;
}

bool calls_gradients(std::string_view caller) {
  return caller.find("Backward") != std::string_view::npos && !caller.starts_with("autograd::engine");
}

// A product (rows, inner)(inner, columns). In the backward of a product, the gradient of the weight is the one whose
// first operand is transposed: dy' x.
std::optional<KernelSample> matrix_product(const HostOperation& operation, const Callers& callers,
                                           std::size_t first) {
  const Sizes* const a = tensor(operation, first, 2);
  const Sizes* const b = tensor(operation, first + 1, 2);
  if (a == nullptr || b == nullptr || (*a)[1] != (*b)[0]) return std::nullopt;
  const std::int64_t rows = (*a)[0], inner = (*a)[1], columns = (*b)[1];
  const double out_width = std::max(width_of(type_of(operation, first)), 2.0);  // products of FP8 are wider
  const double bytes = bytes_of(operation, first) + bytes_of(operation, first + 1) +
                       out_width * static_cast<double>(rows) * static_cast<double>(columns);
  std::optional<Kernel> kernel;
  if (!calls_gradients(callers.caller)) {
    kernel = product(KernelOp::matmul, rows, columns, inner, bytes);
  } else if (!operation.operands[first].has_strides) {
    return std::nullopt;
  } else if (operation.operands[first].is_transposed) {
    kernel = product(KernelOp::matmul_weight_gradient, inner, rows, columns, bytes);
  } else {
    kernel = product(KernelOp::matmul_input_gradient, rows, inner, columns, bytes);
  }
  return kernel ? sample(*kernel, type_of(operation, first)) : std::nullopt;
}

std::optional<KernelSample> mm(const HostOperation& operation, const Callers& callers) {
  return matrix_product(operation, callers, 0);
}
std::optional<KernelSample> addmm(const HostOperation& operation, const Callers& callers) {
  return matrix_product(operation, callers, 1);
}

std::optional<KernelSample> bmm(const HostOperation& operation, const Callers& callers) {
  const Sizes* const a = tensor(operation, 0, 3);
  const Sizes* const b = tensor(operation, 1, 3);
  if (a == nullptr || b == nullptr || (*a)[0] != (*b)[0] || (*a)[2] != (*b)[1]) return std::nullopt;
  if (calls_gradients(callers.caller)) return std::nullopt;  // which gradient it is, nothing says
  const double rows = static_cast<double>((*a)[0]) * static_cast<double>((*a)[1]);
  const double width = width_of(type_of(operation, 0));
  const double bytes =
      bytes_of(operation, 0) + bytes_of(operation, 1) + width * rows * static_cast<double>((*b)[2]);
  if (rows > kMostRows) return std::nullopt;
  std::optional<Kernel> kernel =
      product(KernelOp::grouped_matmul, static_cast<std::int64_t>(rows), (*b)[2], (*a)[2], bytes);
  if (!kernel) return std::nullopt;
  kernel->groups = (*a)[0];
  return sample(*kernel, type_of(operation, 0));
}

// Attention of q, k and v, which are (B,heads,T,D), or (B,T,heads,D). FLOPs are those of Kernel::flops: over all pairs
// of tokens, of which a causal kernel skips half.
std::optional<KernelSample> attention(const HostOperation& operation, KernelOp op, std::size_t q,
                                      bool heads_first) {
  const Sizes* const query = tensor(operation, q, 4);
  const Sizes* const key = tensor(operation, q + 1, 4);
  if (query == nullptr || key == nullptr) return std::nullopt;
  const std::int64_t heads = (*query)[heads_first ? 1 : 2], tokens = (*query)[heads_first ? 2 : 1];
  if (tokens != (*key)[heads_first ? 2 : 1]) return std::nullopt;  // a part of a sequence, or generation
  const double m = static_cast<double>((*query)[0]) * static_cast<double>(heads);
  if (m > kMostRows) return std::nullopt;
  const bool backward = op == KernelOp::attention_backward;
  Kernel kernel;
  kernel.op = op;
  kernel.m = static_cast<std::int64_t>(m);
  kernel.n = tokens;
  kernel.k = (*query)[3];
  const double T = static_cast<double>(tokens);
  kernel.flops = (backward ? 10 : 4) * m * T * T * static_cast<double>(kernel.k);
  const double qkv = bytes_of(operation, q) + bytes_of(operation, q + 1) + bytes_of(operation, q + 2);
  const double y = bytes_of(operation, q), lse = 4 * m * T;
  const double bytes = backward ? 2 * qkv + 2 * y + lse : qkv + y + lse;
  if (!(bytes <= kMostKernelBytes)) return std::nullopt;
  kernel.bytes = static_cast<std::int64_t>(bytes);
  return sample(kernel, type_of(operation, q));
}

std::optional<KernelSample> fused_attention(const HostOperation& operation, const Callers&) {
  return is_false(operation, 4) ? std::nullopt : attention(operation, KernelOp::attention, 0, true);
}
std::optional<KernelSample> masked_attention(const HostOperation& operation, const Callers&) {
  return is_false(operation, 6) ? std::nullopt : attention(operation, KernelOp::attention, 0, true);
}
std::optional<KernelSample> bare_attention(const HostOperation& operation, const Callers&) {
  return is_false(operation, 8) ? std::nullopt : attention(operation, KernelOp::attention, 0, false);
}
std::optional<KernelSample> fused_attention_backward(const HostOperation& operation, const Callers&) {
  return is_false(operation, 11) ? std::nullopt : attention(operation, KernelOp::attention_backward, 1, true);
}

// Operations that move `times` as many bytes as their first operand has.
std::optional<KernelSample> moves(const HostOperation& operation, KernelOp op, double times) {
  const bool is_rms = operation.name.find("rms_norm") != std::string::npos;
  return moving_kernel(op, times * bytes_of(operation, 0), type_of(operation, 0),
                       is_rms ? KernelVariant::rms : KernelVariant::usual);
}

std::optional<KernelSample> norm(const HostOperation& operation, const Callers&) {
  return moves(operation, KernelOp::norm, 2);
}
std::optional<KernelSample> norm_backward(const HostOperation& operation, const Callers&) {
  return moves(operation, KernelOp::norm_backward, 3);
}
std::optional<KernelSample> gelu(const HostOperation& operation, const Callers&) {
  return moves(operation, KernelOp::activation, 2);
}
std::optional<KernelSample> gelu_backward(const HostOperation& operation, const Callers&) {
  return moves(operation, KernelOp::activation_backward, 3);
}

std::optional<KernelSample> embed(const HostOperation& operation, const Callers&) {
  const Sizes* const table = tensor(operation, 0, 2);
  if (table == nullptr) return std::nullopt;
  const double x =
      elements_of(operation, 1) * static_cast<double>((*table)[1]) * width_of(type_of(operation, 0));
  return moving_kernel(KernelOp::embed, 2 * x, type_of(operation, 0));
}
std::optional<KernelSample> embed_backward(const HostOperation& operation, const Callers&) {
  return moves(operation, KernelOp::embed_backward, 3);
}

bool are_alike(const HostOperation& operation) {
  return operation.operands.size() >= 2 && operation.operands[0].sizes == operation.operands[1].sizes &&
         elements_of(operation, 0) > 0;
}

std::optional<KernelSample> add(const HostOperation& operation, const Callers& callers) {
  const bool is_sequence = tensor(operation, 0, 2) != nullptr || tensor(operation, 0, 3) != nullptr;
  if (callers.in_backward || !is_sequence || !are_alike(operation)) return std::nullopt;
  return moves(operation, KernelOp::add_residual, 3);
}

std::optional<KernelSample> add_in_place(const HostOperation& operation, const Callers&) {
  const bool is_wider = width_of(type_of(operation, 0)) > width_of(type_of(operation, 1));
  if (!are_alike(operation) || !is_wider || width_of(type_of(operation, 1)) <= 0) return std::nullopt;
  return moving_kernel(KernelOp::accumulate, 2 * bytes_of(operation, 0) + bytes_of(operation, 1),
                       type_of(operation, 0));
}

std::optional<KernelSample> clear(const HostOperation& operation, const Callers&) {
  return moves(operation, KernelOp::clear, 1);
}

std::optional<KernelSample> part(const HostOperation&, const Callers&) { return std::nullopt; }

std::optional<KernelSample> cudnn_attention_backward(const HostOperation& operation, const Callers&) {
  return is_false(operation, 14) ? std::nullopt : attention(operation, KernelOp::attention_backward, 1, true);
}

using Reader = std::optional<KernelSample> (*)(const HostOperation&, const Callers&);

const std::map<std::string_view, Reader>& readers() {
  static const std::map<std::string_view, Reader> all = {
      {"aten::mm", mm},
      {"aten::_scaled_mm", mm},
      {"aten::addmm", addmm},
      {"aten::bmm", bmm},
      {"aten::_scaled_dot_product_flash_attention", fused_attention},
      {"aten::_scaled_dot_product_cudnn_attention", masked_attention},
      {"aten::_scaled_dot_product_efficient_attention", masked_attention},
      {"aten::_flash_attention_forward", bare_attention},
      {"aten::_scaled_dot_product_flash_attention_backward", fused_attention_backward},
      {"aten::_scaled_dot_product_efficient_attention_backward", fused_attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_attention_backward},
      {"aten::native_layer_norm", norm},
      {"aten::_fused_rms_norm", norm},
      {"aten::native_layer_norm_backward", norm_backward},
      {"aten::_fused_rms_norm_backward", norm_backward},
      {"aten::gelu", gelu},
      {"aten::gelu_backward", gelu_backward},
      {"aten::embedding", embed},
      {"aten::embedding_dense_backward", embed_backward},
      {"aten::add", add},
      {"aten::add_", add_in_place},
      {"aten::zero_", clear},
      {"aten::silu", part},
      {"aten::silu_backward", part},
      {"aten::mul", part},
      {"aten::cat", part},
      {"aten::copy_", part},
      {"aten::sum", part},
      {"aten::_log_softmax", part},
      {"aten::nll_loss_forward", part},
      {"aten::nll_loss_backward", part},
      {"aten::_log_softmax_backward_data", part},
      {"aten::_fused_adamw_", part},
      {"aten::_foreach_copy_", part},
      {"aten::_foreach_zero_", part},
  };
  return all;
}

}  // namespace

bool is_sampled(std::string_view name) { return readers().contains(name); }

std::optional<KernelSample> kernel_of(const HostOperation& operation, const Callers& callers) {
  const auto reader = readers().find(operation.name);
  return reader == readers().end() ? std::nullopt : reader->second(operation, callers);
}

std::optional<KernelSample> moving_kernel(KernelOp op, double bytes, const std::string& type,
                                          KernelVariant variant) {
  if (!(bytes > 0) || !(bytes <= kMostKernelBytes)) return std::nullopt;
  Kernel kernel;
  kernel.op = op;
  kernel.bytes = static_cast<std::int64_t>(bytes);
  return sample(kernel, type, variant);
}

double elements_of(const HostOperation& operation, std::size_t operand) {
  if (operand >= operation.operands.size()) return 0;
  double total = 0;
  for (const Sizes& sizes : operation.operands[operand].sizes) {
    double count = 1;
    for (const std::int64_t size : sizes) count *= static_cast<double>(size);
    total += count;
  }
  return total;
}

double width_of(std::string_view type) {
  const TypeName* const format = find_type(type);
  return format == nullptr ? 0 : format->width;
}

double bytes_of(const HostOperation& operation, std::size_t operand) {
  return elements_of(operation, operand) * width_of(type_of(operation, operand));
}

}  // namespace motley
