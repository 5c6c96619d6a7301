#include "hw/kernels/fast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#ifdef MOTLEY_ONEDNN
#include <dlfcn.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "models/base/refusal.hpp"
#endif

namespace motley::fast {
namespace {

// A row-major matrix, perhaps a part of a wider one. `stride` is the number of floats from one row to the next.
struct Matrix {
  const float* values;
  std::int64_t stride;
  bool transposed = false;
};

// c(m,n) = alpha a(m,k) b(k,n) + beta c, where a and b have these shapes after their transposition.
struct GemmShape {
  std::int64_t m, n, k;
  float alpha = 1, beta = 0;
};

#ifdef MOTLEY_ONEDNN

// Keeps oneDNN on one thread: it takes as many as OpenMP offers the calling thread. Motley does not link OpenMP, so the
// function is looked up; a oneDNN that was built without OpenMP has no such function and runs on one thread.
void stay_on_one_thread() {
  thread_local bool done = false;
  if (done) return;
  done = true;
  if (void* set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads"); set_threads != nullptr)
    reinterpret_cast<void (*)(int)>(set_threads)(1);
}

void gemm(const GemmShape& s, const Matrix& a, const Matrix& b, float* c, std::int64_t c_stride) {
  stay_on_one_thread();
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', s.m, s.n, s.k, s.alpha, a.values,
                 a.stride, b.values, b.stride, s.beta, c, c_stride);
  MOTLEY_CHECK(status == dnnl_success);
}

#else

void gemm(const GemmShape& s, const Matrix& a, const Matrix& b, float* c, std::int64_t c_stride) {
  std::vector<float> row(static_cast<std::size_t>(s.n));
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j)
      row[static_cast<std::size_t>(j)] = s.beta == 0 ? 0 : s.beta * c[i * c_stride + j];
    for (std::int64_t p = 0; p < s.k; ++p) {
      const float value = s.alpha * a.values[a.transposed ? p * a.stride + i : i * a.stride + p];
      if (b.transposed)
        for (std::int64_t j = 0; j < s.n; ++j)
          row[static_cast<std::size_t>(j)] += value * b.values[j * b.stride + p];
      else
        for (std::int64_t j = 0; j < s.n; ++j)
          row[static_cast<std::size_t>(j)] += value * b.values[p * b.stride + j];
    }
    std::copy(row.begin(), row.end(), c + i * c_stride);
  }
}

#endif

}  // namespace

void matmul(const MatmulShape& s, const float* x, const float* weight, const float* bias, float* y) {
  // y(m,n) = x(m,k) weight(n,k)'
  gemm({s.m, s.n, s.k}, {x, s.k}, {weight, s.k, true}, y, s.n);
  if (bias == nullptr) return;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) y[i * s.n + j] += bias[j];
}

void matmul_input_gradient(const MatmulShape& s, const float* dy, const float* weight, float* dx) {
  // dx(m,k) = dy(m,n) weight(n,k)
  gemm({s.m, s.k, s.n}, {dy, s.n}, {weight, s.k}, dx, s.k);
}

void matmul_weight_gradient(const MatmulShape& s, const float* dy, const float* x, float* dweight,
                            float* dbias) {
  // dweight(n,k) += dy(m,n)' x(m,k)
  gemm({s.n, s.k, s.m, 1, 1}, {dy, s.n, true}, {x, s.k}, dweight, s.k);
  if (dbias != nullptr) reference::add_bias_gradient(s.m, s.n, dy, dbias);
}

namespace {

// Where one head begins in a row of qkv and in a row of y (H*V).
struct Head {
  std::int64_t query, key, value, out;
};
Head head_of(const HeadShape& s, std::int64_t h) {
  const std::int64_t shared = h * s.G / s.H;
  return {h * s.D, (s.H + shared) * s.D, (s.H + s.G) * s.D + shared * s.V(), h * s.V()};
}

// Turns scores (T,T) into probabilities over the keys that each query sees, and 0 for other keys. lse is (T).
void masked_softmax(const HeadShape& s, float* scores, float* lse) {
  for (std::int64_t t = 0; t < s.T; ++t) {
    float* row = scores + t * s.T;
    const std::int64_t first = s.first_seen(t);
    const float maximum = *std::max_element(row + first, row + t + 1);
    double total = 0;
    for (std::int64_t u = first; u <= t; ++u) total += row[u] = std::exp(row[u] - maximum);
    const auto inverse = static_cast<float>(1.0 / total);
    for (std::int64_t u = first; u <= t; ++u) row[u] *= inverse;
    std::fill(row, row + first, 0.0F);
    std::fill(row + t + 1, row + s.T, 0.0F);
    lse[t] = static_cast<float>(maximum + std::log(total));
  }
}

// Turns scores (T,T) into probabilities by lse, and dp (T,T), the gradient of the probabilities, into the gradient of
// the products of query and key. dy and y are (T,V), with `stride` floats from one row to the next.
void masked_softmax_backward(const HeadShape& s, float scale, const float* lse, const float* dy,
                             const float* y, float* scores, float* dp) {
  const std::int64_t stride = s.H * s.V();
  for (std::int64_t t = 0; t < s.T; ++t) {
    double row = 0;
    for (std::int64_t d = 0; d < s.V(); ++d)
      row += static_cast<double>(dy[t * stride + d]) * y[t * stride + d];
    const auto shift = static_cast<float>(row);
    const std::int64_t first = s.first_seen(t);
    float *const p = scores + t * s.T, *const g = dp + t * s.T;
    for (std::int64_t u = first; u <= t; ++u) {
      p[u] = std::exp(p[u] - lse[t]);
      g[u] = scale * p[u] * (g[u] - shift);
    }
    std::fill(p, p + first, 0.0F);
    std::fill(g, g + first, 0.0F);
    std::fill(p + t + 1, p + s.T, 0.0F);
    std::fill(g + t + 1, g + s.T, 0.0F);
  }
}

}  // namespace

void attention(const HeadShape& s, const float* qkv, float* y, float* lse) {
  // y is (B,T,H,V), lse (B,H,T)
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.D)));
  std::vector<float> scores(static_cast<std::size_t>(s.T * s.T));
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const Head at = head_of(s, h);
      const float* in = qkv + b * s.T * s.row();
      gemm({s.T, s.T, s.D, scale}, {in + at.query, s.row()}, {in + at.key, s.row(), true}, scores.data(),
           s.T);
      masked_softmax(s, scores.data(), lse + (b * s.H + h) * s.T);
      gemm({s.T, s.V(), s.T}, {scores.data(), s.T}, {in + at.value, s.row()},
           y + b * s.T * s.H * s.V() + at.out, s.H * s.V());
    }
}

void attention_backward(const HeadShape& s, const float* dy, const float* qkv, const float* y,
                        const float* lse, float* dqkv) {
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.D)));
  const std::int64_t stride = s.H * s.V();
  std::vector<float> scores(static_cast<std::size_t>(s.T * s.T)), dp(scores.size());
  std::fill_n(dqkv, s.B * s.T * s.row(), 0.0F);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const Head at = head_of(s, h);
      const float *in = qkv + b * s.T * s.row(), *g = dy + b * s.T * stride + at.out;
      float* din = dqkv + b * s.T * s.row();
      const Matrix query{in + at.query, s.row()}, key{in + at.key, s.row()};
      gemm({s.T, s.T, s.D, scale}, query, {key.values, key.stride, true}, scores.data(), s.T);
      gemm({s.T, s.T, s.V()}, {g, stride}, {in + at.value, s.row(), true}, dp.data(), s.T);
      masked_softmax_backward(s, scale, lse + (b * s.H + h) * s.T, g, y + b * s.T * stride + at.out,
                              scores.data(), dp.data());
      // Heads that share a key and a value add their gradients.
      gemm({s.T, s.D, s.T}, {dp.data(), s.T}, key, din + at.query, s.row());
      gemm({s.T, s.D, s.T, 1, 1}, {dp.data(), s.T, true}, query, din + at.key, s.row());
      gemm({s.T, s.V(), s.T, 1, 1}, {scores.data(), s.T, true}, {g, stride}, din + at.value, s.row());
    }
}

#ifdef MOTLEY_ONEDNN

namespace {

// GELU by its tanh form (arXiv:1606.08415 section 2), as reference::gelu.
constexpr auto kGelu = dnnl::algorithm::eltwise_gelu_tanh;

const dnnl::engine& processor() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::desc flat(std::int64_t count) {
  return {{count}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a};
}

// oneDNN changes only what it writes.
dnnl::memory memory_at(const dnnl::memory::desc& layout, const float* values) {
  return {layout, processor(), const_cast<float*>(values)};
}

dnnl::eltwise_forward::primitive_desc gelu_of(std::int64_t count) {
  return {{dnnl::prop_kind::forward_training, kGelu, flat(count)}, processor()};
}

// The primitive for so many values, which each thread makes once.
template <typename Primitive, typename Make>
const Primitive& primitive_for(std::int64_t count, Make make) {
  thread_local std::unordered_map<std::int64_t, Primitive> primitives;
  const auto known = primitives.find(count);
  return known != primitives.end() ? known->second : primitives.emplace(count, make()).first->second;
}

}  // namespace

void gelu(const InnerShape& s, const float* u, float* y) {
  const std::int64_t count = s.N * s.F;
  if (count == 0) return;
  stay_on_one_thread();
  const auto& primitive =
      primitive_for<dnnl::eltwise_forward>(count, [&] { return dnnl::eltwise_forward(gelu_of(count)); });
  dnnl::stream stream(processor());
  const dnnl::memory::desc layout = flat(count);
  primitive.execute(stream, {{DNNL_ARG_SRC, memory_at(layout, u)}, {DNNL_ARG_DST, memory_at(layout, y)}});
  stream.wait();
}

void gelu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  const std::int64_t count = s.N * s.F;
  if (count == 0) return;
  stay_on_one_thread();
  const dnnl::memory::desc layout = flat(count);
  const auto& primitive = primitive_for<dnnl::eltwise_backward>(count, [&] {
    return dnnl::eltwise_backward({{kGelu, layout, layout}, processor(), gelu_of(count)});
  });
  dnnl::stream stream(processor());
  primitive.execute(stream, {{DNNL_ARG_SRC, memory_at(layout, u)},
                             {DNNL_ARG_DIFF_DST, memory_at(layout, dy)},
                             {DNNL_ARG_DIFF_SRC, memory_at(layout, du)}});
  stream.wait();
}

#else

void gelu(const InnerShape& s, const float* u, float* y) { reference::gelu(s, u, y); }
void gelu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  reference::gelu_backward(s, dy, u, du);
}

#endif

const char* library_name() {
#ifdef MOTLEY_ONEDNN
  return "oneDNN";
#else
  return "plain loops";
#endif
}

std::string library_version() {
#ifdef MOTLEY_ONEDNN
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
#else
  return "";
#endif
}

}  // namespace motley::fast
