// What the operations of PyTorch are in Motley's words. Read next: torch_profile.hpp, models/base/kernel_op.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/calibration/kernel_samples.hpp"
#include "models/calibration/torch_events.hpp"

namespace motley {

// Whether the operation is one that samples are made of, alone or together with its neighbours. What it calls is a part
// of it.
bool is_sampled(std::string_view name);

// What calls an operation.
struct Callers {
  std::string_view caller;   // "": none
  bool in_backward = false;  // a node of the backward calls it, or something that calls it
};

// The kernel of Motley that this operation is by itself, without its times; nothing: it is none by itself, or its
// sizes are not those of such a kernel.
// Assumes: an addition of two equal matrices or sequences in the forward is a residual's; fused attention is causal
// unless it says that it is not; bmm multiplies experts, each with equally many rows.
std::optional<KernelSample> kernel_of(const HostOperation& operation, const Callers& callers);

// A kernel that only moves bytes, as several operations of PyTorch that follow each other are one of Motley.
std::optional<KernelSample> moving_kernel(KernelOp op, double bytes, const std::string& type,
                                          KernelVariant variant = KernelVariant::usual);

// Number of elements of the operand, all tensors of a list together; 0: the operation has no such operand.
double elements_of(const HostOperation& operation, std::size_t operand);
// Bytes of an element: 0 where the type is no number format.
double width_of(std::string_view type);
// Bytes of the operand's elements.
double bytes_of(const HostOperation& operation, std::size_t operand);

}  // namespace motley
