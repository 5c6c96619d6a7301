// Measured speeds of a chip's kernels, one for each kind: they replace the chip's general figures for these kinds.
// `motley calibrate` writes them. Read next: models/cost/compute_cost.hpp.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "models/base/kernel_op.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

// A kernel takes overhead + flops / rate + bytes / bandwidth seconds; flops and bytes are those of the Program's
// Kernel.
// A rate or bandwidth of 0: that part takes no time.
struct KernelRate {
  double overhead_s = 0;
  double flops_per_s = 0, bytes_per_s = 0;
  double seconds(double flops, double bytes) const {
    return overhead_s + (flops_per_s > 0 ? flops / flops_per_s : 0) +
           (bytes_per_s > 0 ? bytes / bytes_per_s : 0);
  }
  bool operator==(const KernelRate&) const = default;
};

struct KernelRates {
  std::string source;
  std::map<KernelOp, KernelRate> rates;
  // AdamW's step; its bytes are those that the parameters, gradients and moments of a rank move.
  std::optional<KernelRate> optimizer;
  bool operator==(const KernelRates&) const = default;
};

// Read and print the key `kernels` of a chip's file.
KernelRates read_kernel_rates(const Yaml& node);
std::string print(const KernelRates& rates, const std::string& indent);

}  // namespace motley
