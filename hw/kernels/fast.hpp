// Matmuls, attention, activations and the loss by oneDNN on one thread, because a rank is one core of a host. Where
// oneDNN was not built in, they are loops in single precision that a compiler turns into vectors. They mean the same as
// in hw/kernels/reference.hpp; tests/hw/kernels/test_kernels.cpp compares them. Read next: hw/kernels/run_kernel.hpp.
#pragma once

#include <string>

#include "hw/kernels/reference.hpp"

namespace motley::fast {

using reference::HeadShape;
using reference::InnerShape;
using reference::LogitsShape;
using reference::MatmulShape;

// The functions of hw/kernels/reference.hpp, by the same names. Several threads may call them at once.
void matmul(const MatmulShape& s, const float* x, const float* weight, const float* bias, float* y);
void matmul_input_gradient(const MatmulShape& s, const float* dy, const float* weight, float* dx);
void matmul_weight_gradient(const MatmulShape& s, const float* dy, const float* x, float* dweight,
                            float* dbias);
void rope(const HeadShape& s, double theta, double sign, const float* qkv, float* turned);
// Attention of whole sequences, with one (T,T) square of scores at a time. Where keys are gathered from other ranks,
// reference::attention is called instead.
void attention(const HeadShape& s, const float* qkv, float* y, float* lse);
void attention_backward(const HeadShape& s, const float* dy, const float* qkv, const float* y,
                        const float* lse, float* dqkv);

// As fast for any values, other than the functions of the mathematical library.
void gelu(const InnerShape& s, const float* u, float* y);
void gelu_backward(const InnerShape& s, const float* dy, const float* u, float* du);
void swiglu(const InnerShape& s, const float* u, float* y);
void swiglu_backward(const InnerShape& s, const float* dy, const float* u, float* du);
void weighed_swiglu_backward(const InnerShape& s, const float* dy, const float* u, const float* weights,
                             float* du, float* dweights);
void logits_sum(const LogitsShape& s, const float* logits, const float* maximum, const std::int32_t* targets,
                float* sums);
void loss_backward(const LogitsShape& s, double scale, const float* logits, const float* maximum,
                   const float* sums, const std::int32_t* targets, float* dlogits);

// "oneDNN" or "plain loops".
const char* library_name();
// "2.6.3"; empty for plain loops.
std::string library_version();

}  // namespace motley::fast
