#include "hw/kernels/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace motley::reference {

void embed(const EmbedShape& s, const std::int32_t* tokens, const float* token, const float* position,
           float* x) {
  // x is (B,T,C), token (R,C), position (T or more, C)
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    const std::int64_t local = tokens[row] - s.first;
    const bool mine = local >= 0 && local < s.R;
    for (std::int64_t c = 0; c < s.C; ++c) {
      float value = mine ? token[local * s.C + c] : 0.0F;
      if (position != nullptr) value += position[s.layout.position(row % s.T) * s.C + c];
      x[row * s.C + c] = value;
    }
  }
}

void embed_backward(const EmbedShape& s, const std::int32_t* tokens, const float* dx, float* dtoken,
                    float* dposition) {
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    const std::int64_t local = tokens[row] - s.first;
    if (local >= 0 && local < s.R)
      for (std::int64_t c = 0; c < s.C; ++c) dtoken[local * s.C + c] += dx[row * s.C + c];
    if (dposition != nullptr)
      for (std::int64_t c = 0; c < s.C; ++c)
        dposition[s.layout.position(row % s.T) * s.C + c] += dx[row * s.C + c];
  }
}

void norm(const NormShape& s, const float* x, const float* weight, const float* bias, float* y,
          float* statistics) {
  // statistics is (N,2): mean and 1/std, or (N,1): 1/rms
  const auto C = static_cast<double>(s.C);
  for (std::int64_t row = 0; row < s.N; ++row) {
    const float* in = x + row * s.width();
    float* out = y + row * s.C;
    double mean = 0, square = 0;
    if (s.centred) {
      for (std::int64_t c = 0; c < s.C; ++c) mean += in[c];
      mean /= C;
    }
    for (std::int64_t c = 0; c < s.C; ++c) square += (in[c] - mean) * (in[c] - mean);
    const double scale = 1.0 / std::sqrt(square / C + s.epsilon);
    for (std::int64_t c = 0; c < s.C; ++c)
      out[c] = static_cast<float>((in[c] - mean) * scale * weight[c] + (bias != nullptr ? bias[c] : 0.0F));
    if (s.centred) {
      statistics[2 * row] = static_cast<float>(mean);
      statistics[2 * row + 1] = static_cast<float>(scale);
    } else {
      statistics[row] = static_cast<float>(scale);
    }
  }
}

void norm_backward(const NormShape& s, const float* dy, const float* x, const float* statistics,
                   const float* dresidual, const float* weight, float* dx, float* dweight, float* dbias) {
  // With h = (x - mean) * scale: dx = scale * (dy*w - [mean of dy*w] - h * mean of dy*w*h); [] only when centred.
  const auto C = static_cast<double>(s.C);
  std::vector<double> weight_sum(static_cast<std::size_t>(s.C)), bias_sum(static_cast<std::size_t>(s.C));
  for (std::int64_t row = 0; row < s.N; ++row) {
    const float* in = x + row * s.width();
    const float* g = dy + row * s.C;
    const double mean = s.centred ? statistics[2 * row] : 0.0;
    const double scale = s.centred ? statistics[2 * row + 1] : statistics[row];
    double sum = 0, product = 0;
    for (std::int64_t c = 0; c < s.C; ++c) {
      const double h = (in[c] - mean) * scale, dh = static_cast<double>(g[c]) * weight[c];
      sum += dh;
      product += dh * h;
      weight_sum[static_cast<std::size_t>(c)] += g[c] * h;
      bias_sum[static_cast<std::size_t>(c)] += g[c];
    }
    sum = s.centred ? sum / C : 0.0;
    product /= C;
    for (std::int64_t c = 0; c < s.C; ++c) {
      const double h = (in[c] - mean) * scale, dh = static_cast<double>(g[c]) * weight[c];
      const double residual = dresidual != nullptr ? dresidual[row * s.width() + c] : 0.0;
      dx[row * s.width() + c] = static_cast<float>(scale * (dh - sum - h * product) + residual);
    }
    for (std::int64_t c = s.C; c < s.width(); ++c)
      dx[row * s.width() + c] = dresidual != nullptr ? dresidual[row * s.width() + c] : 0.0F;
  }
  for (std::int64_t c = 0; dweight != nullptr && c < s.C; ++c) {
    dweight[c] += static_cast<float>(weight_sum[static_cast<std::size_t>(c)]);
    if (dbias != nullptr) dbias[c] += static_cast<float>(bias_sum[static_cast<std::size_t>(c)]);
  }
}

namespace {

// So many rows share one pass over the other operand, which may lie far away. Each sum has its terms in the same order
// as alone.
constexpr std::int64_t kTogether = 8;

// sums[b] += the products of row b of x and w, for `rows` rows of `k` values.
template <class Rows>
void add_products(Rows rows, std::int64_t k, const float* x, const float* w, double* sums) {
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t b = 0; b < rows; ++b) sums[b] += static_cast<double>(x[b * k + p]) * w[p];
}

// Calls `work(first, count)` for groups of rows; the count of a whole group is a constant.
template <class Work>
void together(std::int64_t rows, const Work& work) {
  std::int64_t first = 0;
  for (; first + kTogether <= rows; first += kTogether)
    work(first, std::integral_constant<std::int64_t, kTogether>());
  if (first < rows) work(first, rows - first);
}

}  // namespace

void matmul(const MatmulShape& s, const float* x, const float* weight, const float* bias, float* y) {
  together(s.m, [&](std::int64_t i, auto rows) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      std::array<double, kTogether> sums;
      sums.fill(bias != nullptr ? bias[j] : 0.0);
      add_products(rows, s.k, x + i * s.k, weight + j * s.k, sums.data());
      for (std::int64_t b = 0; b < rows; ++b)
        y[(i + b) * s.n + j] = static_cast<float>(sums[static_cast<std::size_t>(b)]);
    }
  });
}

void matmul_input_gradient(const MatmulShape& s, const float* dy, const float* weight, float* dx) {
  std::vector<double> sums(static_cast<std::size_t>(kTogether * s.k));
  together(s.m, [&](std::int64_t i, std::int64_t rows) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t j = 0; j < s.n; ++j)
      for (std::int64_t b = 0; b < rows; ++b) {
        const double g = dy[(i + b) * s.n + j];
        double* const sum = sums.data() + b * s.k;
        for (std::int64_t p = 0; p < s.k; ++p) sum[p] += g * weight[j * s.k + p];
      }
    for (std::int64_t p = 0; p < rows * s.k; ++p)
      dx[i * s.k + p] = static_cast<float>(sums[static_cast<std::size_t>(p)]);
  });
}

void matmul_weight_gradient(const MatmulShape& s, const float* dy, const float* x, float* dweight,
                            float* dbias) {
  std::vector<double> sums(static_cast<std::size_t>(kTogether * s.k));
  together(s.n, [&](std::int64_t j, std::int64_t columns) {
    std::array<double, kTogether> bias_sums{};
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t b = 0; b < columns; ++b) {
        const double g = dy[i * s.n + j + b];
        bias_sums[static_cast<std::size_t>(b)] += g;
        double* const sum = sums.data() + b * s.k;
        for (std::int64_t p = 0; p < s.k; ++p) sum[p] += g * x[i * s.k + p];
      }
    for (std::int64_t p = 0; p < columns * s.k; ++p)
      dweight[j * s.k + p] += static_cast<float>(sums[static_cast<std::size_t>(p)]);
    for (std::int64_t b = 0; dbias != nullptr && b < columns; ++b)
      dbias[j + b] += static_cast<float>(bias_sums[static_cast<std::size_t>(b)]);
  });
}

void rope(const HeadShape& s, double theta, double sign, const float* qkv, float* turned) {
  // qkv is (B,T,(H+2G)*D); values are copied unchanged
  const std::int64_t half = s.turning() / 2;
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    const auto position = static_cast<double>(s.layout.position(row % s.T));
    const float* in = qkv + row * s.row();
    float* out = turned + row * s.row();
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          sign * position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(s.turning()));
      const double cosine = std::cos(angle), sine = std::sin(angle);
      for (std::int64_t head = 0; head < s.H + s.G; ++head) {
        const double a = in[head * s.D + i], b = in[head * s.D + half + i];
        out[head * s.D + i] = static_cast<float>(a * cosine - b * sine);
        out[head * s.D + half + i] = static_cast<float>(b * cosine + a * sine);
      }
    }
    for (std::int64_t head = 0; head < s.H + s.G; ++head)
      std::copy(in + head * s.D + 2 * half, in + (head + 1) * s.D, out + head * s.D + 2 * half);
    for (std::int64_t c = (s.H + s.G) * s.D; c < s.row(); ++c) out[c] = in[c];
  }
}

void qk_norm(const HeadShape& s, double epsilon, const float* q_weight, const float* k_weight,
             const float* qkv, float* normed, float* statistics) {
  // qkv is (N,row): H+G heads of D to norm, then the values
  const std::int64_t heads = s.H + s.G;
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* in = qkv + row * s.row() + head * s.D;
      const float* weight = head < s.H ? q_weight : k_weight;
      double square = 0;
      for (std::int64_t d = 0; d < s.D; ++d) square += static_cast<double>(in[d]) * in[d];
      const double scale = 1.0 / std::sqrt(square / static_cast<double>(s.D) + epsilon);
      for (std::int64_t d = 0; d < s.D; ++d)
        normed[row * s.row() + head * s.D + d] = static_cast<float>(in[d] * scale * weight[d]);
      statistics[row * heads + head] = static_cast<float>(scale);
    }
    for (std::int64_t c = heads * s.D; c < s.row(); ++c) normed[row * s.row() + c] = qkv[row * s.row() + c];
  }
}

void qk_norm_backward(const HeadShape& s, const float* dnormed, const float* qkv, const float* statistics,
                      const float* q_weight, const float* k_weight, float* dqkv, float* dweights) {
  // With h = x * scale: dx = scale * (dy*w - h * mean of dy*w*h)
  const std::int64_t heads = s.H + s.G;
  std::vector<double> sums(static_cast<std::size_t>(2 * s.D));
  for (std::int64_t row = 0; row < s.B * s.T; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t at = row * s.row() + head * s.D;
      const float* weight = head < s.H ? q_weight : k_weight;
      double* sum = sums.data() + (head < s.H ? 0 : s.D);
      const double scale = statistics[row * heads + head];
      double product = 0;
      for (std::int64_t d = 0; d < s.D; ++d) {
        const double h = qkv[at + d] * scale;
        product += static_cast<double>(dnormed[at + d]) * weight[d] * h;
        sum[d] += dnormed[at + d] * h;
      }
      product /= static_cast<double>(s.D);
      for (std::int64_t d = 0; d < s.D; ++d)
        dqkv[at + d] = static_cast<float>(
            scale * (static_cast<double>(dnormed[at + d]) * weight[d] - qkv[at + d] * scale * product));
    }
    for (std::int64_t c = heads * s.D; c < s.row(); ++c) dqkv[row * s.row() + c] = dnormed[row * s.row() + c];
  }
  for (std::size_t d = 0; d < sums.size(); ++d) dweights[d] = static_cast<float>(sums[d]);
}

namespace {

// Offsets of the elements of head h: in row t of sequence b, or of the token at `place` in sequence b.
struct Heads {
  const HeadShape& s;
  bool gathered;  // the keys and values of all ranks are in a tensor of their own

  std::int64_t query(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return (b * s.T + t) * s.row() + h * s.D;
  }
  std::int64_t key(std::int64_t b, std::int64_t place, std::int64_t h) const {
    return row_of(b, place) + h * s.G / s.H * s.D;
  }
  std::int64_t value(std::int64_t b, std::int64_t place, std::int64_t h) const {
    return row_of(b, place) + s.G * s.D + h * s.G / s.H * s.V();
  }
  std::int64_t out(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * s.T + t) * s.H + h) * s.V();
  }
  std::int64_t dquery(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return gathered ? ((b * s.T + t) * s.H + h) * s.D : query(b, t, h);
  }

 private:
  std::int64_t row_of(std::int64_t b, std::int64_t place) const {
    if (!gathered) return (b * s.T + place) * s.row() + s.H * s.D;
    const SequenceLayout::Owner owner = s.layout.owner(place);
    return ((owner.index * s.B + b) * s.T + owner.row) * s.key_row();
  }
};

double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

void attention(const HeadShape& s, const float* qkv, float* y, float* lse, const float* keys) {
  // y is (B,T,H,V), lse (B,H,T)
  const Heads at{s, keys != nullptr};
  const float* const from = keys != nullptr ? keys : qkv;
  const double scale = s.score_scale();
  std::vector<double> score(static_cast<std::size_t>(s.tokens())), sum(static_cast<std::size_t>(s.V()));
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t t = 0; t < s.T; ++t) {
        double maximum = -std::numeric_limits<double>::infinity(), total = 0;
        const std::int64_t last = s.layout.place(t), first = s.first_seen(last);
        for (std::int64_t u = first; u <= last; ++u) {
          const double value = s.capped(scale * dot(qkv + at.query(b, t, h), from + at.key(b, u, h), s.D));
          score[static_cast<std::size_t>(u)] = value;
          if (value > maximum) maximum = value;
        }
        for (double& value : sum) value = 0;
        for (std::int64_t u = first; u <= last; ++u) {
          const double weight = std::exp(score[static_cast<std::size_t>(u)] - maximum);
          total += weight;
          const float* v = from + at.value(b, u, h);
          for (std::int64_t d = 0; d < s.V(); ++d) sum[static_cast<std::size_t>(d)] += weight * v[d];
        }
        for (std::int64_t d = 0; d < s.V(); ++d)
          y[at.out(b, t, h) + d] = static_cast<float>(sum[static_cast<std::size_t>(d)] / total);
        lse[(b * s.H + h) * s.T + t] = static_cast<float>(maximum + std::log(total));
      }
}

void attention_backward(const HeadShape& s, const float* dy, const float* qkv, const float* y,
                        const float* lse, float* dqkv, const float* keys, float* dkeys) {
  // P = exp(scores - lse); dV = P' dY; dS = P * (dY V' - rowsum(dY * Y)); dQ = dS K / sqrt(D); dK = dS' Q / sqrt(D)
  const Heads at{s, keys != nullptr};
  const float* const from = keys != nullptr ? keys : qkv;
  const double scale = s.score_scale();
  const std::int64_t rows = s.B * s.T, gathered = rows * s.layout.parts * s.key_row();
  std::vector<double> query_sum(static_cast<std::size_t>(rows * (keys != nullptr ? s.H * s.D : s.row())));
  std::vector<double> gathered_sum(static_cast<std::size_t>(keys != nullptr ? gathered : 0));
  double* const key_sum = keys != nullptr ? gathered_sum.data() : query_sum.data();
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t h = 0; h < s.H; ++h)
      for (std::int64_t t = 0; t < s.T; ++t) {
        const float* g = dy + at.out(b, t, h);
        const float* q = qkv + at.query(b, t, h);
        const double row = dot(g, y + at.out(b, t, h), s.V());
        double* dq = query_sum.data() + at.dquery(b, t, h);
        const std::int64_t last = s.layout.place(t);
        for (std::int64_t u = s.first_seen(last); u <= last; ++u) {
          const float* k = from + at.key(b, u, h);
          const double score = s.capped(scale * dot(q, k, s.D));
          const double p = std::exp(score - lse[(b * s.H + h) * s.T + t]);
          const double ds =
              s.slope_of_cap(score) * scale * p * (dot(g, from + at.value(b, u, h), s.V()) - row);
          double* dk = key_sum + at.key(b, u, h);
          double* dv = key_sum + at.value(b, u, h);
          for (std::int64_t d = 0; d < s.V(); ++d) dv[d] += p * g[d];
          for (std::int64_t d = 0; d < s.D; ++d) {
            dq[d] += ds * k[d];
            dk[d] += ds * q[d];
          }
        }
      }
  for (std::size_t i = 0; i < query_sum.size(); ++i) dqkv[i] = static_cast<float>(query_sum[i]);
  for (std::size_t i = 0; i < gathered_sum.size(); ++i) dkeys[i] = static_cast<float>(gathered_sum[i]);
}

void place_keys(const HeadShape& s, const float* qkv, float* keys) {
  float* to = keys + s.layout.index * s.B * s.T * s.key_row();
  for (std::int64_t row = 0; row < s.B * s.T; ++row, to += s.key_row())
    std::copy_n(qkv + row * s.row() + s.H * s.D, s.key_row(), to);
}

void take_keys(const HeadShape& s, const float* dq, const float* dkeys, float* dqkv) {
  const float* from = dkeys + s.layout.index * s.B * s.T * s.key_row();
  for (std::int64_t row = 0; row < s.B * s.T; ++row, from += s.key_row(), dqkv += s.row()) {
    std::copy_n(dq + row * s.H * s.D, s.H * s.D, dqkv);
    std::copy_n(from, s.key_row(), dqkv + s.H * s.D);
  }
}

namespace {
constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2/pi)
constexpr double kGeluCubic = 0.044715;            // arXiv:1606.08415

double gelu_of(double x) { return 0.5 * x * (1.0 + std::tanh(kGeluScale * (x + kGeluCubic * x * x * x))); }
double slope_of_gelu(double x) {
  const double tanh = std::tanh(kGeluScale * (x + kGeluCubic * x * x * x));
  const double inner = kGeluScale * (1.0 + 3.0 * kGeluCubic * x * x);
  return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner;
}
}  // namespace

void gelu(const InnerShape& s, const float* u, float* y) {
  for (std::int64_t i = 0; i < s.N * s.F; ++i) y[i] = static_cast<float>(gelu_of(u[i]));
}

void gelu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  for (std::int64_t i = 0; i < s.N * s.F; ++i) du[i] = static_cast<float>(dy[i] * slope_of_gelu(u[i]));
}

void geglu(const InnerShape& s, const float* u, float* y) {
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t f = 0; f < s.F; ++f)
      y[row * s.F + f] = static_cast<float>(gelu_of(u[row * 2 * s.F + f]) * u[row * 2 * s.F + s.F + f]);
}

void geglu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t f = 0; f < s.F; ++f) {
      const double gate = u[row * 2 * s.F + f], up = u[row * 2 * s.F + s.F + f], g = dy[row * s.F + f];
      du[row * 2 * s.F + f] = static_cast<float>(g * up * slope_of_gelu(gate));
      du[row * 2 * s.F + s.F + f] = static_cast<float>(g * gelu_of(gate));
    }
}

void swiglu(const InnerShape& s, const float* u, float* y) {
  // u is (N,2F): gate, up
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t f = 0; f < s.F; ++f) {
      const double gate = u[row * 2 * s.F + f], up = u[row * 2 * s.F + s.F + f];
      y[row * s.F + f] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
}

void swiglu_backward(const InnerShape& s, const float* dy, const float* u, float* du) {
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t f = 0; f < s.F; ++f) {
      const double gate = u[row * 2 * s.F + f], up = u[row * 2 * s.F + s.F + f];
      const double sigmoid = 1.0 / (1.0 + std::exp(-gate)), g = dy[row * s.F + f];
      du[row * 2 * s.F + f] = static_cast<float>(g * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)));
      du[row * 2 * s.F + s.F + f] = static_cast<float>(g * gate * sigmoid);
    }
}

void add_residual(std::int64_t N, std::int64_t C, const float* x, const float* residual, const float* bias,
                  float* y) {
  for (std::int64_t row = 0; row < N; ++row)
    for (std::int64_t c = 0; c < C; ++c)
      y[row * C + c] = x[row * C + c] + (bias != nullptr ? bias[c] : 0.0F) + residual[row * C + c];
}

void add_bias_gradient(std::int64_t N, std::int64_t C, const float* dy, float* dbias) {
  // Rows one after the other, as they lie in memory: a column at a time took as long as half of the matmul beside it.
  std::vector<double> sums(static_cast<std::size_t>(C));
  for (std::int64_t row = 0; row < N; ++row)
    for (std::int64_t c = 0; c < C; ++c) sums[static_cast<std::size_t>(c)] += dy[row * C + c];
  for (std::int64_t c = 0; c < C; ++c) dbias[c] += static_cast<float>(sums[static_cast<std::size_t>(c)]);
}

void softcap(std::int64_t count, double cap, const float* x, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(cap * std::tanh(x[i] / cap));
}
void softcap_backward(std::int64_t count, double cap, const float* dy, const float* y, float* dx) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double bent = y[i] / cap;
    dx[i] = static_cast<float>(dy[i] * (1 - bent * bent));
  }
}

void logits_maximum(const LogitsShape& s, const float* logits, float* maximum) {
  for (std::int64_t row = 0; row < s.N; ++row) {
    maximum[row] = -std::numeric_limits<float>::infinity();
    for (std::int64_t r = 0; r < s.exist; ++r)
      if (logits[row * s.R + r] > maximum[row]) maximum[row] = logits[row * s.R + r];
  }
}

void logits_sum(const LogitsShape& s, const float* logits, const float* maximum, const std::int32_t* targets,
                float* sums) {
  // sums is (N,2)
  for (std::int64_t row = 0; row < s.N; ++row) {
    double sum = 0;
    for (std::int64_t r = 0; r < s.exist; ++r)
      sum += std::exp(static_cast<double>(logits[row * s.R + r]) - maximum[row]);
    const std::int64_t target = targets[row] - s.first;
    sums[2 * row] = static_cast<float>(sum);
    sums[2 * row + 1] = target >= 0 && target < s.exist ? logits[row * s.R + target] : 0.0F;
  }
}

void loss(std::int64_t N, const float* maximum, const float* sums, float* losses) {
  for (std::int64_t row = 0; row < N; ++row)
    losses[row] = static_cast<float>(std::log(static_cast<double>(sums[2 * row])) + maximum[row] -
                                     static_cast<double>(sums[2 * row + 1]));
}

void loss_backward(const LogitsShape& s, double scale, const float* logits, const float* maximum,
                   const float* sums, const std::int32_t* targets, float* dlogits) {
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t r = 0; r < s.R; ++r) {
      double value = 0;
      if (r < s.exist)
        value = std::exp(static_cast<double>(logits[row * s.R + r]) - maximum[row]) / sums[2 * row] -
                (targets[row] - s.first == r ? 1.0 : 0.0);
      dlogits[row * s.R + r] = static_cast<float>(value * scale);
    }
}

}  // namespace motley::reference
