#include "hw/kernels/fast.hpp"

#include <vector>

#ifdef MOTLEY_ONEDNN
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include "models/refusal.hpp"
#endif

namespace motley::fast {
namespace {

#ifdef MOTLEY_ONEDNN

// oneDNN takes as many threads as OpenMP offers the calling thread. That library is oneDNN's dependency and not ours,
// so the call is looked up; a oneDNN built without OpenMP has none and needs none.
void stay_on_one_thread() {
  thread_local bool done = false;
  if (done) return;
  done = true;
  if (void* found = dlsym(RTLD_DEFAULT, "omp_set_num_threads"); found != nullptr)
    reinterpret_cast<void (*)(int)>(found)(1);
}

// c(m,n) = a(m,k) b(k,n) + beta c, row-major; a and b perhaps stored transposed.
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          const float* b, float beta, float* c) {
  stay_on_one_thread();
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0F, a,
                                          transpose_a ? m : k, b, transpose_b ? k : n, beta, c, n);
  MOTLEY_CHECK(status == dnnl_success);
}

#else

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
          const float* b, float beta, float* c) {
  std::vector<float> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j)
      row[static_cast<std::size_t>(j)] = beta == 0 ? 0 : beta * c[i * n + j];
    for (std::int64_t p = 0; p < k; ++p) {
      const float value = transpose_a ? a[p * m + i] : a[i * k + p];
      if (transpose_b)
        for (std::int64_t j = 0; j < n; ++j) row[static_cast<std::size_t>(j)] += value * b[j * k + p];
      else
        for (std::int64_t j = 0; j < n; ++j) row[static_cast<std::size_t>(j)] += value * b[p * n + j];
    }
    for (std::int64_t j = 0; j < n; ++j) c[i * n + j] = row[static_cast<std::size_t>(j)];
  }
}

#endif

}  // namespace

void matmul(const MatmulShape& s, const float* x, const float* weight, const float* bias, float* y) {
  // y(m,n) = x(m,k) weight(n,k)'
  gemm(false, true, s.m, s.n, s.k, x, weight, 0, y);
  if (bias == nullptr) return;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) y[i * s.n + j] += bias[j];
}

void matmul_input_gradient(const MatmulShape& s, const float* dy, const float* weight, float* dx) {
  // dx(m,k) = dy(m,n) weight(n,k)
  gemm(false, false, s.m, s.k, s.n, dy, weight, 0, dx);
}

void matmul_weight_gradient(const MatmulShape& s, const float* dy, const float* x, float* dweight,
                            float* dbias) {
  // dweight(n,k) += dy(m,n)' x(m,k)
  gemm(true, false, s.n, s.k, s.m, dy, x, 1, dweight);
  if (dbias != nullptr) reference::add_bias_gradient(s.m, s.n, dy, dbias);
}

const char* library_name() {
#ifdef MOTLEY_ONEDNN
  return "oneDNN";
#else
  return "plain loops";
#endif
}

}  // namespace motley::fast
