// Prices kernels by a chip's measured speeds, and says what a price rests on. Read next:
// models/cluster/kernel_rates.hpp, models/cost/compute_cost.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "models/cluster/chip.hpp"
#include "models/program/program.hpp"

namespace motley {

// Which of a chip's measured speeds a kernel has.
RatedKernel rated_kernel(const RankProgram& rank_program, const Kernel& kernel);
// FLOPs that a price counts: with experts on several ranks, those of the rows that the rank of the busiest experts is
// expected to get, where Kernel::flops are those of a mean rank.
// Assumes: all ranks take as long as that one, for which they wait at the next exchange.
double priced_flops(const Kernel& kernel);
MeasuredShape shape_of(const Kernel& kernel);  // seconds: 0; flops: priced_flops()

// What a kernel takes by the chip's measured speeds.
struct RatedTime {
  double seconds = 0;
  double work_s = 0, memory_s = 0;  // the parts of flops and pairs, and of bytes
};
// Nothing: no kernel of this kind was measured. `format`: that of training, if the kernel has none of its own.
// Assumes: the share of an attention that is launched beside another takes its share of the flops and bytes alone.
std::optional<RatedTime> rated_time(const RatedKernel& rated, const Kernel& kernel, Format format,
                                    const KernelRates& rates);

// What a kernel's seconds rest on, where the chip's kernels were measured.
enum class Known : std::uint8_t {
  measured,      // that shape was measured
  interpolated,  // its size lies between those of measured shapes
  extrapolated,  // it is smaller or larger than all measured shapes
  assumed,       // no kernel of this kind was measured: the chip's general figures
};
template <>
inline constexpr auto kWords<Known> = words("measured", "interpolated", "extrapolated", "assumed");
Known how_known(const RatedKernel& rated, const Kernel& kernel, Format format, const KernelRates& rates);

}  // namespace motley
