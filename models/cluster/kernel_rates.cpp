#include "models/cluster/kernel_rates.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

constexpr const char* kOptimizer = "optimizer";
constexpr const char* kBetweenJobs = "between_jobs";
constexpr const char* kBusy = "busy";
constexpr const char* kAlone = "alone";
constexpr const char* kShapes = "shapes";

double read_share(const Yaml& node) {
  return to_bounded_number(
      node, {.sign = Sign::positive, .most = 1, .hint = "at most 1: no kernel is slower alone"});
}

KernelRate read_rate(const Yaml& node, bool has_pairs) {
  std::vector<std::string> keys = {"overhead", "flops", "bandwidth"};
  if (has_pairs) keys.emplace_back("pairs");
  const std::string speeds = fmt::format("{}", fmt::join(keys, ", "));
  keys.emplace_back("error");
  keys.emplace_back(kAlone);
  const Fields fields(node, "the speed of a kernel", keys);
  KernelRate rate;
  if (const Yaml overhead = fields.find("overhead"))
    rate.overhead_s = to_quantity(overhead, Dimension::seconds, Sign::not_negative);
  if (const Yaml flops = fields.find("flops"))
    rate.flops_per_s = to_quantity(flops, Dimension::flops, Sign::positive);
  if (const Yaml bandwidth = fields.find("bandwidth"))
    rate.bytes_per_s = to_quantity(bandwidth, Dimension::bytes_per_second, Sign::positive);
  if (const Yaml pairs = has_pairs ? fields.find("pairs") : Yaml{})
    rate.pairs_per_s = to_number(pairs, Sign::positive);
  if (const Yaml error = fields.find("error")) rate.error = to_number(error, Sign::not_negative);
  if (const Yaml alone = fields.find(kAlone)) rate.alone = read_share(alone);
  if (rate == KernelRate{.error = rate.error, .alone = rate.alone})
    throw Refusal(Exit::usage, "no-speed", node->where, "this kernel would take no time",
                  fmt::format("give at least one of {}", speeds));
  return rate;
}

std::string print(const KernelRate& rate) {
  std::vector<std::string> parts;
  if (rate.overhead_s > 0) parts.push_back("overhead: " + format_exact(rate.overhead_s, Dimension::seconds));
  if (rate.flops_per_s > 0) parts.push_back("flops: " + format_exact(rate.flops_per_s, Dimension::flops));
  if (rate.bytes_per_s > 0)
    parts.push_back("bandwidth: " + format_exact(rate.bytes_per_s, Dimension::bytes_per_second));
  if (rate.pairs_per_s > 0) parts.push_back("pairs: " + format_exact(rate.pairs_per_s));
  if (rate.error > 0) parts.push_back("error: " + format_exact(rate.error));
  if (rate.alone > 0) parts.push_back(fmt::format("{}: {}", kAlone, format_exact(rate.alone)));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

MeasuredShape read_shape(const Yaml& node) {
  constexpr std::size_t kNumbers = 7;
  const auto& items = to_sequence(node);
  if (items.size() != kNumbers)
    throw Refusal(Exit::usage, "bad-shape", node->where,
                  fmt::format("a measured shape has {} numbers, not {}", kNumbers, items.size()),
                  "[m, n, k, groups, flops, bytes, seconds]");
  constexpr IntegerRange kSize{0, std::int64_t{1} << 50};
  MeasuredShape shape;
  shape.m = to_integer(items[0], kSize);
  shape.n = to_integer(items[1], kSize);
  shape.k = to_integer(items[2], kSize);
  shape.groups = to_integer(items[3], kSize);
  shape.flops = to_number(items[4], Sign::not_negative);
  shape.bytes = to_number(items[5], Sign::not_negative);
  shape.seconds = to_number(items[6], Sign::positive);
  return shape;
}

std::vector<MeasuredShape> read_shapes(const Yaml& node) {
  std::vector<MeasuredShape> shapes;
  for (const Yaml& item : to_sequence(node)) shapes.push_back(read_shape(item));
  std::sort(shapes.begin(), shapes.end());
  for (std::size_t i = 1; i < shapes.size(); ++i)
    if (shapes[i].is_like(shapes[i - 1]))
      throw Refusal(
          Exit::usage, "bad-shape", node->where,
          fmt::format("the shape {} x {} x {} is listed twice", shapes[i].m, shapes[i].n, shapes[i].k),
          "give each shape one time");
  return shapes;
}

std::string print(const MeasuredShape& shape) {
  return fmt::format("[{}, {}, {}, {}, {}, {}, {}]", shape.m, shape.n, shape.k, shape.groups,
                     format_exact(shape.flops), format_exact(shape.bytes), format_exact(shape.seconds));
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const RatedKernel& kernel : rated_kernels()) names.push_back(name_of(kernel));
  return names;
}

}  // namespace

std::string name_of(const RatedKernel& kernel) {
  const std::string_view op = name_of(kernel.op);
  switch (kernel.variant) {
    case KernelVariant::gated:
      return fmt::format("gated_{}", op);
    case KernelVariant::rms:
      return fmt::format("rms_{}", op);
    case KernelVariant::gathered:
      return fmt::format("gathered_{}", op);
    case KernelVariant::weighed:
      return fmt::format("weighed_{}", op);
    case KernelVariant::unweighted:
      return fmt::format("unweighted_{}", op);
    case KernelVariant::usual:
      break;
  }
  return std::string(op);
}

std::vector<RatedKernel> rated_kernels() {
  std::vector<RatedKernel> kernels;
  for (const KernelOp op : every<KernelOp>()) {
    if (is_collective(op)) continue;
    kernels.push_back({op});
    if (op == KernelOp::activation || op == KernelOp::activation_backward)
      kernels.insert(kernels.end(), {{op, KernelVariant::gated}, {op, KernelVariant::weighed}});
    if (op == KernelOp::norm || op == KernelOp::norm_backward) kernels.push_back({op, KernelVariant::rms});
    if (is_attention(op)) kernels.push_back({op, KernelVariant::gathered});
    if (op == KernelOp::combine || op == KernelOp::combine_backward)
      kernels.push_back({op, KernelVariant::unweighted});
  }
  return kernels;
}

KernelWork work_of(KernelOp op, double flops, double bytes, std::int64_t k) {
  KernelWork work{flops, bytes, 0};
  // Forward: two products of 2 FLOPs over the width; backward: five.
  if (is_attention(op) && k > 0)
    work.pairs = flops / (static_cast<double>(k) * (op == KernelOp::attention ? 4 : 10));
  return work;
}

std::optional<KernelRates> among(const KernelRates& rates, std::int64_t ranks) {
  if (rates.alone <= 0 || ranks >= rates.busy) return std::nullopt;
  const double part = static_cast<double>(ranks - 1) / static_cast<double>(rates.busy - 1);
  const auto share_of = [&](const KernelRate& rate) {
    const double alone = rate.alone > 0 ? rate.alone : rates.alone;
    return alone + (1 - alone) * part;
  };
  const auto sooner = [](KernelRate rate, double share) {
    rate.overhead_s *= share;
    for (double* const speed : {&rate.flops_per_s, &rate.bytes_per_s, &rate.pairs_per_s}) *speed /= share;
    rate.alone = 0;
    return rate;
  };
  KernelRates fewer = rates;
  fewer.busy = ranks;
  fewer.alone = 0;
  for (auto& [kernel, rate] : fewer.rates) {
    const double share = share_of(rate);
    rate = sooner(rate, share);
    if (const auto shapes = fewer.shapes.find(kernel); shapes != fewer.shapes.end())
      for (MeasuredShape& shape : shapes->second) shape.seconds *= share;
  }
  if (fewer.optimizer) fewer.optimizer = sooner(*fewer.optimizer, share_of(*fewer.optimizer));
  return fewer;
}

KernelRates read_kernel_rates(const Yaml& node) {
  std::vector<std::string> keys = {"source", "library", "noise",    kBetweenJobs, kBusy,
                                   kAlone,   "format",  kOptimizer, kShapes};
  for (const std::string& name : kernel_names()) keys.push_back(name);
  const Fields fields(node, "`kernels`", keys);
  KernelRates read;
  read.source = to_text(fields.need("source"));
  if (const Yaml library = fields.find("library")) read.library = to_text(library);
  if (const Yaml noise = fields.find("noise")) read.noise = to_number(noise, Sign::not_negative);
  if (const Yaml apart = fields.find(kBetweenJobs)) read.between_jobs = to_number(apart, Sign::not_negative);
  if (const Yaml busy = fields.find(kBusy)) read.busy = to_integer(busy, {1, 1 << 20});
  if (const Yaml alone = fields.find(kAlone)) {
    read.alone = read_share(alone);
    if (read.busy < 2)
      throw Refusal(Exit::usage, "bad-share", alone->where,
                    "`alone` compares with kernels among `busy` ranks, and these are not several",
                    "give `busy`, at least 2");
  }
  if (const Yaml format = fields.find("format")) read.format = to_choice<Format>(format);
  if (const Yaml optimizer = fields.find(kOptimizer)) read.optimizer = read_rate(optimizer, false);
  for (const RatedKernel& kernel : rated_kernels())
    if (const Yaml rate = fields.find(name_of(kernel)))
      read.rates[kernel] = read_rate(rate, is_attention(kernel.op));
  for (const auto& [kernel, rate] : read.rates)
    if (rate.alone > 0 && read.alone == 0)
      throw Refusal(Exit::usage, "bad-share", fields.where(name_of(kernel)),
                    "this kind says what it takes alone, and `kernels` does not",
                    "give `alone` of all kinds together, too");
  const Yaml shapes = fields.find(kShapes);
  if (!shapes) return read;
  const Fields by_kernel(shapes, "`shapes`", kernel_names());
  for (const RatedKernel& kernel : rated_kernels())
    if (const Yaml list = by_kernel.find(name_of(kernel))) {
      if (!read.rates.contains(kernel))
        throw Refusal(Exit::usage, "bad-shape", by_kernel.where(name_of(kernel)),
                      fmt::format("`{}` has measured shapes, but no speed", name_of(kernel)),
                      "other shapes of it need one");
      read.shapes[kernel] = read_shapes(list);
    }
  return read;
}

std::string print(const KernelRates& rates, const std::string& indent) {
  if (rates == KernelRates{}) return "";
  std::string text = fmt::format("{0}kernels:\n{0}  source: {1}\n", indent, quote(rates.source));
  if (!rates.library.empty()) text += fmt::format("{}  library: {}\n", indent, quote(rates.library));
  if (rates.noise > 0) text += fmt::format("{}  noise: {}\n", indent, format_exact(rates.noise));
  if (rates.between_jobs > 0)
    text += fmt::format("{}  {}: {}\n", indent, kBetweenJobs, format_exact(rates.between_jobs));
  if (rates.busy > 0) text += fmt::format("{}  {}: {}\n", indent, kBusy, rates.busy);
  if (rates.alone > 0) text += fmt::format("{}  {}: {}\n", indent, kAlone, format_exact(rates.alone));
  if (rates.format) text += fmt::format("{}  format: {}\n", indent, name_of(*rates.format));
  for (const auto& [kernel, rate] : rates.rates)
    text += fmt::format("{}  {}: {}\n", indent, name_of(kernel), print(rate));
  if (rates.optimizer) text += fmt::format("{}  {}: {}\n", indent, kOptimizer, print(*rates.optimizer));
  if (rates.shapes.empty()) return text;
  text += fmt::format("{}  {}:\n", indent, kShapes);
  for (const auto& [kernel, shapes] : rates.shapes) {
    text += fmt::format("{}    {}:\n", indent, name_of(kernel));
    for (const MeasuredShape& shape : shapes) text += fmt::format("{}      - {}\n", indent, print(shape));
  }
  return text;
}

}  // namespace motley
