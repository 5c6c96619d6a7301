// Measured speeds of a chip's kernels, one for each kind: they replace the chip's general figures for these kinds.
// `motley calibrate` writes them. Read next: models/cost/compute_cost.hpp.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/base/format.hpp"
#include "models/base/kernel_op.hpp"
#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {

// Kernels of one op that compute different functions, so that one speed does not fit both.
enum class KernelVariant : std::uint8_t {
  usual,
  gated,       // activation*: SiLU(gate) * up; the usual one is GELU
  rms,         // norm*: RMSNorm; the usual one is LayerNorm
  gathered,    // attention*: keys and values of several ranks, in the order of the ranks
  weighed,     // activation*: gated, and each row is multiplied by a weight of the router
  unweighted,  // combine*: rows are summed as they are; the usual ones are multiplied by the router's weights
};

// A kind of kernel that has a speed of its own.
struct RatedKernel {
  KernelOp op = KernelOp::embed;
  KernelVariant variant = KernelVariant::usual;
  auto operator<=>(const RatedKernel&) const = default;
};
// The key in a chip's file: "matmul", "gated_activation", "rms_norm_backward".
std::string name_of(const RatedKernel& kernel);
// All kinds of kernels that run on one chip alone.
std::vector<RatedKernel> rated_kernels();

// What a kernel's seconds are made of. `flops` and `bytes` are those of the Program's Kernel.
struct KernelWork {
  double flops = 0, bytes = 0;
  double pairs = 0;  // attention: pairs of query and key, over all heads; other kernels: 0
  auto operator<=>(const KernelWork&) const = default;
};
// `k` as in Kernel. Assumes: values are as wide as keys; where they are not (latent attention) the pairs are in
// proportion, and the fitted rate takes the factor.
KernelWork work_of(KernelOp op, double flops, double bytes, std::int64_t k);

// A kernel takes overhead + flops / rate + bytes / bandwidth + pairs / rate seconds. A rate of 0: that part takes no
// time.
struct KernelRate {
  double overhead_s = 0;
  double flops_per_s = 0, bytes_per_s = 0;
  double pairs_per_s =
      0;  // attention that writes its scores spends most of its time on them where heads are narrow
  double error = 0;  // usual relative error on shapes that were not measured; 0: not known
  double alone = 0;  // as KernelRates::alone, of this kind; 0: as all kinds together
  double seconds(const KernelWork& work) const {
    const auto part = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
    return overhead_s + part(work.flops, flops_per_s) + part(work.bytes, bytes_per_s) +
           part(work.pairs, pairs_per_s);
  }
  bool operator==(const KernelRate&) const = default;
};

// A shape that was measured: it takes this time, whatever the rate says.
struct MeasuredShape {
  std::int64_t m = 0, n = 0, k = 0, groups = 0;  // as in Kernel
  double flops = 0, bytes = 0;
  double seconds = 0;
  auto operator<=>(const MeasuredShape&) const = default;
  // Whether both are the same work.
  bool is_like(const MeasuredShape& other) const {
    return m == other.m && n == other.n && k == other.k && groups == other.groups && flops == other.flops &&
           bytes == other.bytes;
  }
};

struct KernelRates {
  std::string source;
  std::string library;  // the library whose kernels were measured; empty: it is not known
  double noise = 0;     // how far equal runs are apart, as a share; 0: not known
  // How far a kernel of one shape is from its usual time in some job, as a share: what else a job does matters.
  // 0: not known.
  double between_jobs = 0;
  // Ranks of a node that computed at once; 0: not known.
  std::int64_t busy = 0;
  // What a kernel takes where one rank of a node computes, as a share of what it takes among `busy`. 0: not known.
  double alone = 0;
  // Format that the kernels computed in; nothing: the rates hold for all formats.
  std::optional<Format> format;
  std::map<RatedKernel, KernelRate> rates;
  std::map<RatedKernel, std::vector<MeasuredShape>> shapes;  // ascending
  // AdamW's step; its bytes are those that the parameters, gradients and moments of a rank move.
  std::optional<KernelRate> optimizer;
  bool operator==(const KernelRates&) const = default;
};

// The rates where `ranks` ranks of a node compute at once; nothing: they are the same. The result has no `alone`.
// Assumes: a share that is known of one rank and of `busy` ranks grows in proportion between them, and no further.
std::optional<KernelRates> among(const KernelRates& rates, std::int64_t ranks);

// Read and print the key `kernels` of a chip's file.
KernelRates read_kernel_rates(const Yaml& node);
std::string print(const KernelRates& rates, const std::string& indent);

}  // namespace motley
