#include "models/cluster/kernel_rates.hpp"

#include <fmt/format.h>

#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

constexpr const char* kOptimizer = "optimizer";

KernelRate read_rate(const Yaml& node) {
  const Fields fields(node, "the speed of a kernel", {"overhead", "flops", "bandwidth"});
  KernelRate rate;
  if (const Yaml overhead = fields.find("overhead"))
    rate.overhead_s = to_quantity(overhead, Dimension::seconds, Sign::not_negative);
  if (const Yaml flops = fields.find("flops"))
    rate.flops_per_s = to_quantity(flops, Dimension::flops, Sign::positive);
  if (const Yaml bandwidth = fields.find("bandwidth"))
    rate.bytes_per_s = to_quantity(bandwidth, Dimension::bytes_per_second, Sign::positive);
  if (rate == KernelRate{})
    throw Refusal(Exit::usage, "no-speed", node->where, "this kernel would take no time",
                  "give at least one of overhead, flops, bandwidth");
  return rate;
}

std::string print(const KernelRate& rate) {
  std::vector<std::string> parts;
  if (rate.overhead_s > 0) parts.push_back("overhead: " + format_exact(rate.overhead_s, Dimension::seconds));
  if (rate.flops_per_s > 0) parts.push_back("flops: " + format_exact(rate.flops_per_s, Dimension::flops));
  if (rate.bytes_per_s > 0)
    parts.push_back("bandwidth: " + format_exact(rate.bytes_per_s, Dimension::bytes_per_second));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

}  // namespace

KernelRates read_kernel_rates(const Yaml& node) {
  std::vector<std::string> keys = {"source", kOptimizer};
  for (const KernelOp op : every<KernelOp>())
    if (!is_collective(op)) keys.emplace_back(name_of(op));
  const Fields fields(node, "`kernels`", keys);
  KernelRates read;
  read.source = to_text(fields.need("source"));
  if (const Yaml optimizer = fields.find(kOptimizer)) read.optimizer = read_rate(optimizer);
  for (const KernelOp op : every<KernelOp>())
    if (const Yaml rate = is_collective(op) ? Yaml{} : fields.find(name_of(op)))
      read.rates[op] = read_rate(rate);
  return read;
}

std::string print(const KernelRates& rates, const std::string& indent) {
  if (rates == KernelRates{}) return "";
  std::string text = fmt::format("{0}kernels:\n{0}  source: {1}\n", indent, quote(rates.source));
  for (const auto& [op, rate] : rates.rates)
    text += fmt::format("{}  {}: {}\n", indent, name_of(op), print(rate));
  if (rates.optimizer) text += fmt::format("{}  {}: {}\n", indent, kOptimizer, print(*rates.optimizer));
  return text;
}

}  // namespace motley
