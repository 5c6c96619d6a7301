#include "hw/kernels/fast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "hw/kernels/experts.hpp"
#include "models/base/index.hpp"

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

// Caps the scores (T,T) that are seen.
void cap_scores(const HeadShape& s, float* scores) {
  if (s.softcap <= 0) return;
  for (std::int64_t t = 0; t < s.T; ++t)
    for (std::int64_t u = s.first_seen(t); u <= t; ++u)
      scores[t * s.T + u] = static_cast<float>(s.capped(scores[t * s.T + u]));
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
      const auto slope = static_cast<float>(s.slope_of_cap(p[u]));
      p[u] = std::exp(p[u] - lse[t]);
      g[u] = slope * scale * p[u] * (g[u] - shift);
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
  const auto scale = static_cast<float>(s.score_scale());
  std::vector<float> scores(static_cast<std::size_t>(s.T * s.T));
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const Head at = head_of(s, h);
      const float* in = qkv + b * s.T * s.row();
      gemm({s.T, s.T, s.D, scale}, {in + at.query, s.row()}, {in + at.key, s.row(), true}, scores.data(),
           s.T);
      cap_scores(s, scores.data());
      masked_softmax(s, scores.data(), lse + (b * s.H + h) * s.T);
      gemm({s.T, s.V(), s.T}, {scores.data(), s.T}, {in + at.value, s.row()},
           y + b * s.T * s.H * s.V() + at.out, s.H * s.V());
    }
}

void attention_backward(const HeadShape& s, const float* dy, const float* qkv, const float* y,
                        const float* lse, float* dqkv) {
  const auto scale = static_cast<float>(s.score_scale());
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
      cap_scores(s, scores.data());
      gemm({s.T, s.T, s.V()}, {g, stride}, {in + at.value, s.row(), true}, dp.data(), s.T);
      masked_softmax_backward(s, scale, lse + (b * s.H + h) * s.T, g, y + b * s.T * stride + at.out,
                              scores.data(), dp.data());
      // Heads that share a key and a value add their gradients.
      gemm({s.T, s.D, s.T}, {dp.data(), s.T}, key, din + at.query, s.row());
      gemm({s.T, s.D, s.T, 1, 1}, {dp.data(), s.T, true}, query, din + at.key, s.row());
      gemm({s.T, s.V(), s.T, 1, 1}, {scores.data(), s.T, true}, {g, stride}, din + at.value, s.row());
    }
}

namespace {

// Cosines and sines of all angles of RoPE up to some position, which each thread computes once: a model turns the same
// positions in every layer.
class RopeTable {
 public:
  // The table of heads of D elements; it holds at least `positions`.
  static const RopeTable& for_heads(double theta, std::int64_t D, std::int64_t positions) {
    thread_local RopeTable table;
    if (table.theta_ != theta || table.half_ != D / 2) table = RopeTable(theta, D / 2);
    table.grow(positions);
    return table;
  }
  const float* cosines(std::int64_t position) const { return values_.data() + 2 * position * half_; }
  const float* sines(std::int64_t position) const { return cosines(position) + half_; }

 private:
  double theta_ = 0;
  std::int64_t half_ = 0, positions_ = 0;
  std::vector<float> values_;  // (positions, 2, half)

  RopeTable() = default;
  RopeTable(double theta, std::int64_t half) : theta_(theta), half_(half) {}

  void grow(std::int64_t positions) {
    if (positions <= positions_) return;
    values_.resize(static_cast<std::size_t>(2 * positions * half_));
    for (std::int64_t i = 0; i < half_; ++i) {
      const double frequency = std::pow(theta_, -static_cast<double>(i) / static_cast<double>(half_));
      for (std::int64_t position = positions_; position < positions; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        float* const row = values_.data() + 2 * position * half_;
        row[i] = static_cast<float>(std::cos(angle));
        row[half_ + i] = static_cast<float>(std::sin(angle));
      }
    }
    positions_ = positions;
  }
};

}  // namespace

void rope(const HeadShape& s, double theta, double sign, const float* qkv, float* turned) {
  // qkv is (B,T,(H+2G)*D); values are copied unchanged
  const std::int64_t half = s.turning() / 2, turning = (s.H + s.G) * s.D;
  const RopeTable& table = RopeTable::for_heads(theta, s.turning(), s.tokens());
  const auto direction = static_cast<float>(sign);
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    const std::int64_t position = s.layout.position(row % s.T);
    const float *const cosine = table.cosines(position), *const sine = table.sines(position);
    const float* const in = qkv + row * s.row();
    float* const out = turned + row * s.row();
    for (std::int64_t head = 0; head < turning; head += s.D) {
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = in[head + i], b = in[head + half + i], turn = direction * sine[i];
        out[head + i] = a * cosine[i] - b * turn;
        out[head + half + i] = b * cosine[i] + a * turn;
      }
      std::copy(in + head + 2 * half, in + head + s.D, out + head + 2 * half);
    }
    std::copy(in + turning, in + s.row(), out + turning);
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

dnnl::eltwise_forward::primitive_desc forward_of(dnnl::algorithm function, std::int64_t count) {
  return {{dnnl::prop_kind::forward_training, function, flat(count)}, processor()};
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
  const auto& primitive = primitive_for<dnnl::eltwise_forward>(
      count, [&] { return dnnl::eltwise_forward(forward_of(kGelu, count)); });
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
    return dnnl::eltwise_backward({{kGelu, layout, layout}, processor(), forward_of(kGelu, count)});
  });
  dnnl::stream stream(processor());
  primitive.execute(stream, {{DNNL_ARG_SRC, memory_at(layout, u)},
                             {DNNL_ARG_DIFF_DST, memory_at(layout, dy)},
                             {DNNL_ARG_DIFF_SRC, memory_at(layout, du)}});
  stream.wait();
}

namespace {

// Replaces `count` values by a function of them.
template <dnnl::algorithm function>
void replace(std::int64_t count, float* values) {
  const auto& primitive = primitive_for<dnnl::eltwise_forward>(
      count, [&] { return dnnl::eltwise_forward(forward_of(function, count)); });
  dnnl::stream stream(processor());
  const dnnl::memory memory = memory_at(flat(count), values);
  primitive.execute(stream, {{DNNL_ARG_SRC, memory}, {DNNL_ARG_DST, memory}});
  stream.wait();
}

// For each of `rows` rows, `width` wide: `fill(row, values)` writes what is to be replaced by the function, and
// `use(row, values)` reads the result. Some rows at a time, which stay in the cache.
template <dnnl::algorithm function, typename Fill, typename Use>
void for_each_row(std::int64_t rows, std::int64_t width, Fill fill, Use use) {
  constexpr std::int64_t kAtOnce = 1 << 14;
  if (width == 0) return;
  stay_on_one_thread();
  thread_local std::vector<float> values;
  const std::int64_t most = std::max<std::int64_t>(1, kAtOnce / width);
  values.resize(std::max(values.size(), at(most * width)));
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t last = std::min(rows, first + most);
    const auto row_values = [&](std::int64_t row) { return values.data() + (row - first) * width; };
    for (std::int64_t row = first; row < last; ++row) fill(row, row_values(row));
    replace<function>((last - first) * width, values.data());
    for (std::int64_t row = first; row < last; ++row) use(row, row_values(row));
  }
}

// Calls `use(row, sigmoids of the gates)` for each row of u(N,2F).
template <typename Use>
void for_each_gate(const InnerShape& s, const float* u, Use use) {
  for_each_row<dnnl::algorithm::eltwise_logistic>(
      s.N, s.F, [&](std::int64_t row, float* gates) { std::copy_n(u + row * 2 * s.F, s.F, gates); }, use);
}

// Calls `use(row, exponentials)` for each row of logits(N,R), less its maximum.
template <typename Use>
void for_each_exponential(const LogitsShape& s, const float* logits, const float* maximum, Use use) {
  for_each_row<dnnl::algorithm::eltwise_exp>(
      s.N, s.R,
      [&](std::int64_t row, float* values) {
        for (std::int64_t r = 0; r < s.R; ++r) values[r] = logits[row * s.R + r] - maximum[row];
      },
      use);
}

// The sum of value(i) for i below `count`, in double precision. Sums side by side are what a compiler can turn into
// vectors.
template <typename Value>
double sum_of(std::int64_t count, Value value) {
  constexpr std::int64_t kLanes = 8;
  std::array<double, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[at(lane)] += value(i + lane);
  for (; i < count; ++i) sums[0] += value(i);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

void swiglu(const InnerShape& s, const float* u, float* y) {
  for_each_gate(s, u, [&](std::int64_t row, const float* sigmoid) {
    const float *const gate = u + row * 2 * s.F, *const up = gate + s.F;
    float* const out = y + row * s.F;
    for (std::int64_t f = 0; f < s.F; ++f) out[f] = gate[f] * sigmoid[f] * up[f];
  });
}

void swiglu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  for_each_gate(s, u, [&](std::int64_t row, const float* sigmoid) {
    const float *const gate = u + row * 2 * s.F, *const up = gate + s.F, *const g = dy + row * s.F;
    float *const dgate = du + row * 2 * s.F, *const dup = dgate + s.F;
    for (std::int64_t f = 0; f < s.F; ++f) {
      dgate[f] = g[f] * up[f] * sigmoid[f] * (1 + gate[f] * (1 - sigmoid[f]));
      dup[f] = g[f] * gate[f] * sigmoid[f];
    }
  });
}

void weighed_swiglu_backward(const InnerShape& s, const float* dy, const float* u, const float* weights,
                             float* du, float* dweights) {
  for_each_gate(s, u, [&](std::int64_t row, const float* sigmoid) {
    const float *const gate = u + row * 2 * s.F, *const up = gate + s.F, *const g = dy + row * s.F;
    float *const dgate = du + row * 2 * s.F, *const dup = dgate + s.F;
    const float weight = weights[row];
    dweights[row] = static_cast<float>(sum_of(s.F, [&](std::int64_t f) {
      dgate[f] = weight * g[f] * up[f] * sigmoid[f] * (1 + gate[f] * (1 - sigmoid[f]));
      dup[f] = weight * g[f] * gate[f] * sigmoid[f];
      return static_cast<double>(g[f] * gate[f] * sigmoid[f] * up[f]);
    }));
  });
}

void logits_sum(const LogitsShape& s, const float* logits, const float* maximum, const std::int32_t* targets,
                float* sums) {
  for_each_exponential(s, logits, maximum, [&](std::int64_t row, const float* exponentials) {
    const std::int64_t target = targets[row] - s.first;
    sums[2 * row] = static_cast<float>(
        sum_of(s.exist, [&](std::int64_t r) { return static_cast<double>(exponentials[r]); }));
    sums[2 * row + 1] = target >= 0 && target < s.exist ? logits[row * s.R + target] : 0.0F;
  });
}

void loss_backward(const LogitsShape& s, double scale, const float* logits, const float* maximum,
                   const float* sums, const std::int32_t* targets, float* dlogits) {
  const auto scaled = static_cast<float>(scale);
  for_each_exponential(s, logits, maximum, [&](std::int64_t row, const float* exponentials) {
    float* const out = dlogits + row * s.R;
    const float factor = scaled / sums[2 * row];
    for (std::int64_t r = 0; r < s.exist; ++r) out[r] = exponentials[r] * factor;
    std::fill(out + s.exist, out + s.R, 0.0F);
    const std::int64_t target = targets[row] - s.first;
    if (target >= 0 && target < s.exist) out[target] -= scaled;
  });
}

#else

void gelu(const InnerShape& s, const float* u, float* y) { reference::gelu(s, u, y); }
void gelu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  reference::gelu_backward(s, dy, u, du);
}
void swiglu(const InnerShape& s, const float* u, float* y) { reference::swiglu(s, u, y); }
void swiglu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  reference::swiglu_backward(s, dy, u, du);
}
void weighed_swiglu_backward(const InnerShape& s, const float* dy, const float* u, const float* weights,
                             float* du, float* dweights) {
  reference::weighed_swiglu_backward(s, dy, u, weights, du, dweights);
}
void logits_sum(const LogitsShape& s, const float* logits, const float* maximum, const std::int32_t* targets,
                float* sums) {
  reference::logits_sum(s, logits, maximum, targets, sums);
}
void loss_backward(const LogitsShape& s, double scale, const float* logits, const float* maximum,
                   const float* sums, const std::int32_t* targets, float* dlogits) {
  reference::loss_backward(s, scale, logits, maximum, sums, targets, dlogits);
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
