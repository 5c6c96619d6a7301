// Reads a torch.profiler trace: the GPU's time of each operation of PyTorch becomes a sample of the kernel that it is
// for Motley. Read next: torch_operations.hpp, measured_files.hpp.
#pragma once

#include <string>

#include "models/calibration/measurements.hpp"

namespace motley {

// A kernel of the GPU belongs to the outermost operation that samples are made of, so that an operation and what it
// calls count once. Operations that follow each other are one kernel of Motley where Motley has one for all:
//
//   silu, mul                                 activation; backward: mul, mul, silu_backward[, cat]
//   [copy_,] _log_softmax, nll_loss_forward   logits_maximum and logits_sum, half of the time each; loss
//   nll_loss_backward, _log_softmax_backward_data[, copy_]   loss_backward
//   norm's backward, add_                     norm_backward with a residual's gradient
//   mm of a weight's gradient, sum            matmul_weight_gradient with a bias
//   _fused_adamw_[, _foreach_copy_][, _foreach_zero_]        the optimizer's step
//
// PyTorch writes no sizes of lists of more than 30 tensors: the optimizer's step of a model with more is not read.
// All other work of the GPU is in Measurements::unread. Throws Refusal("bad-profile"),
// Refusal("profile-without-shapes"), and Refusal("no-gpu-work") where no GPU worked.
Measurements read_torch_profile(const std::string& text, const std::string& path);

}  // namespace motley
