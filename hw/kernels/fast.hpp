// Matmuls and attention by oneDNN on one thread (a rank is one core of a host); where oneDNN was not built in, single-
// precision loops that a compiler turns into vectors. Same meaning as hw/kernels/reference.hpp, which tests hold
// them to. Read next: tests/hw/test_kernels.cpp.
#pragma once

#include "hw/kernels/reference.hpp"

namespace motley::fast {

using reference::HeadShape;
using reference::MatmulShape;

// As in reference. Safe to call from several threads at once.
void matmul(const MatmulShape& s, const float* x, const float* weight, const float* bias, float* y);
void matmul_input_gradient(const MatmulShape& s, const float* dy, const float* weight, float* dx);
void matmul_weight_gradient(const MatmulShape& s, const float* dy, const float* x, float* dweight,
                            float* dbias);
// One (T,T) square of scores at a time.
// Of whole sequences: where keys are gathered it is reference's to do.
void attention(const HeadShape& s, const float* qkv, float* y, float* lse);
void attention_backward(const HeadShape& s, const float* dy, const float* qkv, const float* y,
                        const float* lse, float* dqkv);

// "oneDNN" or "plain loops".
const char* library_name();

}  // namespace motley::fast
