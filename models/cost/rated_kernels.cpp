#include "models/cost/rated_kernels.hpp"

#include <algorithm>
#include <vector>

namespace motley {
namespace {

bool holds_for(const KernelRates& rates, const Kernel& kernel, Format format) {
  return !rates.format || *rates.format == kernel.format.value_or(format);
}

// The measured shape that is the kernel's; null: none.
const MeasuredShape* measured_shape(const KernelRates& rates, const RatedKernel& rated,
                                    const Kernel& kernel) {
  const auto known = rates.shapes.find(rated);
  if (known == rates.shapes.end()) return nullptr;
  const MeasuredShape wanted = shape_of(kernel);
  const auto nearest = std::lower_bound(known->second.begin(), known->second.end(), wanted);
  return nearest != known->second.end() && nearest->is_like(wanted) ? &*nearest : nullptr;
}

RatedTime measured_time(const Kernel& kernel, const KernelRate& rate, const MeasuredShape* shape) {
  RatedTime time;
  const KernelWork work =
      work_of(kernel.op, priced_flops(kernel), static_cast<double>(kernel.bytes), kernel.k);
  KernelRate launch_free = rate;
  launch_free.overhead_s = 0;
  const KernelWork computed{work.flops, 0, work.pairs}, moved{0, work.bytes, 0};
  time.work_s = launch_free.seconds(computed);
  time.memory_s = launch_free.seconds(moved);
  time.seconds =
      rate.overhead_s * (is_attention(kernel.op) ? kernel.factor : 1) + time.work_s + time.memory_s;
  if (shape == nullptr) return time;
  const double factor = shape->seconds / time.seconds;
  return {shape->seconds, time.work_s * factor, time.memory_s * factor};
}

// Bounds of a list of shapes in one measure of their size.
template <class Size>
bool lies_between(const std::vector<MeasuredShape>& shapes, const MeasuredShape& shape, Size size) {
  const auto smaller = [&](const MeasuredShape& a, const MeasuredShape& b) { return size(a) < size(b); };
  const auto [least, most] = std::minmax_element(shapes.begin(), shapes.end(), smaller);
  return size(*least) <= size(shape) && size(shape) <= size(*most);
}

}  // namespace

RatedKernel rated_kernel(const RankProgram& rank_program, const Kernel& kernel) {
  RatedKernel rated{kernel.op};
  const auto elements = [&](TensorId id) {
    double product = 1;
    for (const std::int64_t size : rank_program.tensors[id].shape) product *= static_cast<double>(size);
    return product;
  };
  switch (kernel.op) {
    case KernelOp::norm:
    case KernelOp::norm_backward:  // LayerNorm has a bias
      if (kernel.parameters.size() < 2) rated.variant = KernelVariant::rms;
      break;
    case KernelOp::attention:
      if (kernel.in.size() > 1) rated.variant = KernelVariant::gathered;
      break;
    case KernelOp::attention_backward:
      if (kernel.in.size() > 4) rated.variant = KernelVariant::gathered;
      break;
    case KernelOp::combine:
    case KernelOp::combine_backward:
      if (kernel.in.size() == 2) rated.variant = KernelVariant::unweighted;
      break;
    case KernelOp::activation:  // gate and up come in, their product goes out
      if (kernel.in.size() > 1)
        rated.variant = KernelVariant::weighed;
      else if (!kernel.out.empty() && elements(kernel.in[0]) > 1.5 * elements(kernel.out[0]))
        rated.variant = KernelVariant::gated;
      break;
    case KernelOp::activation_backward:
      if (kernel.in.size() > 2)
        rated.variant = KernelVariant::weighed;
      else if (kernel.in.size() > 1 && elements(kernel.in[1]) > 1.5 * elements(kernel.in[0]))
        rated.variant = KernelVariant::gated;
      break;
    default:
      break;
  }
  return rated;
}

double priced_flops(const Kernel& kernel) {
  if (kernel.groups == 0) return kernel.flops;
  return 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n * kernel.k);
}

MeasuredShape shape_of(const Kernel& kernel) {
  return {
      kernel.m, kernel.n, kernel.k, kernel.groups, priced_flops(kernel), static_cast<double>(kernel.bytes),
      0};
}

std::optional<RatedTime> rated_time(const RatedKernel& rated, const Kernel& kernel, Format format,
                                    const KernelRates& rates) {
  const auto rate = rates.rates.find(rated);
  if (rate == rates.rates.end() || !holds_for(rates, kernel, format)) return std::nullopt;
  return measured_time(kernel, rate->second, measured_shape(rates, rated, kernel));
}

Known how_known(const RatedKernel& rated, const Kernel& kernel, Format format, const KernelRates& rates) {
  if (!rates.rates.contains(rated) || !holds_for(rates, kernel, format)) return Known::assumed;
  if (measured_shape(rates, rated, kernel) != nullptr) return Known::measured;
  const auto shapes = rates.shapes.find(rated);
  if (shapes == rates.shapes.end() || shapes->second.empty()) return Known::extrapolated;
  const MeasuredShape shape = shape_of(kernel);
  const bool between =
      lies_between(shapes->second, shape, [](const MeasuredShape& each) { return each.flops; }) &&
      lies_between(shapes->second, shape, [](const MeasuredShape& each) { return each.bytes; });
  return between ? Known::interpolated : Known::extrapolated;
}

}  // namespace motley
