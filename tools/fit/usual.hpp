// The usual software: the means of what generations of software make of their chips, for any chip. A scenario that
// names no software is predicted with it. Read next: models/scenario/software.hpp.
#pragma once

#include <string>
#include <vector>

#include "tools/fit/figures.hpp"

namespace motley::fit {

// The text of platforms/software/usual.yaml, its `any`. Each figure is the geometric mean over all software
// but `left_out` of its geometric mean over the software's chips; gemm_efficiency and attention_efficiency are relative
// to the chip's own and at most 1.
// `gemm_scale` multiplies gemm_efficiency: see scale_without_bias().
// Assumes: the usual software has fused attention, as all has since 2024; NICs reach what their transport reaches.
std::string usual_text(const Figures& figures, const Eigen::VectorXd& values, const std::string& left_out,
                       const std::string& month, double gemm_scale = 1);

// Some runs, predicted by the usual software with one `gemm_scale`.
struct UsualRun {
  std::string software, set;
  double error = 0;  // the logarithm of predicted over measured
};
// The scale with which the errors of all runs but those of `left_out` have no bias: the mean over sets of their mean
// errors is 0. Means of figures alone leave one, because a step is no linear function of them. `at_one` and `at_other`
// are the same runs predicted with the scales 1 and `other`.
double scale_without_bias(const std::vector<UsualRun>& at_one, const std::vector<UsualRun>& at_other,
                          double other, const std::string& left_out);

}  // namespace motley::fit
