#include "hw/kernels/experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley::reference {
namespace {

std::int64_t whole(float value) { return static_cast<std::int64_t>(value); }

// The scores of all experts for one token.
std::vector<double> scores_of(const Experts& e, const float* logits) {
  std::vector<double> scores(at(e.count));
  if (e.scores == RouterScores::sigmoid) {
    for (std::int64_t i = 0; i < e.count; ++i) scores[at(i)] = 1.0 / (1.0 + std::exp(-double{logits[i]}));
    return scores;
  }
  const double maximum = *std::max_element(logits, logits + e.count);
  double total = 0;
  for (std::int64_t i = 0; i < e.count; ++i) total += scores[at(i)] = std::exp(logits[i] - maximum);
  for (double& score : scores) score /= total;
  return scores;
}

// Indices of the `count` largest values, the largest first. Of equal values the lower index comes first.
std::vector<std::int64_t> best(const std::vector<double>& values, std::int64_t count) {
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return values[at(a)] > values[at(b)]; });
  order.resize(at(count));
  return order;
}

// Lowers the scores of experts outside the best groups to -infinity, so that none of them is chosen. The score of a
// group is the sum of its best two (DeepSeek-V3), or its best one where scores are a softmax (DeepSeek-V2,
// arXiv:2405.04434, section 2.2.2).
void keep_best_groups(const Experts& e, std::vector<double>& scores) {
  if (e.groups_per_token == e.groups) return;
  const std::int64_t size = e.count / e.groups;
  const std::int64_t counted = std::min<std::int64_t>(e.scores == RouterScores::softmax ? 1 : 2, size);
  std::vector<double> group_scores;
  for (std::int64_t group = 0; group < e.groups; ++group) {
    const auto first = scores.begin() + group * size;
    const std::vector<double> members(first, first + size);
    double sum = 0;
    for (std::int64_t member : best(members, counted)) sum += members[at(member)];
    group_scores.push_back(sum);
  }
  std::vector<bool> kept(at(e.groups), false);
  for (std::int64_t group : best(group_scores, e.groups_per_token)) kept[at(group)] = true;
  for (std::int64_t i = 0; i < e.count; ++i)
    if (!kept[at(i / size)]) scores[at(i)] = -INFINITY;
}

double normaliser(const Experts& e, const std::vector<double>& scores, const float* taken) {
  if (!e.normalise) return 1.0;
  double sum = 0;
  for (std::int64_t k = 0; k < e.per_token; ++k) sum += scores[at(whole(taken[k]))];
  return sum;
}

void place_rows(const RouteShape& s, const Routed& out) {
  const Experts& e = *s.experts;
  const std::int64_t first = s.first * e.per_token, last = s.last * e.per_token;
  const std::int64_t experts_a_part = e.count / s.parts;
  std::fill_n(out.counts, e.count, 0.0F);
  for (std::int64_t i = first; i < last; ++i) ++out.counts[whole(out.taken[i])];
  std::vector<std::int64_t> next(at(e.count), 0);
  for (std::int64_t i = 1; i < e.count; ++i)
    next[at(i)] = i % experts_a_part == 0 ? i / experts_a_part * s.segment_rows
                                          : next[at(i - 1)] + whole(out.counts[i - 1]);
  for (std::int64_t part = 0; part < s.parts && s.segment_rows > 0; ++part) {
    const float* counts = out.counts + part * experts_a_part;
    const auto sent = static_cast<std::int64_t>(std::accumulate(counts, counts + experts_a_part, 0.0));
    if (sent > s.segment_rows)
      throw RunFailure(
          fmt::format("{} copies of tokens go to the experts of rank {} of {}, where `expert_room` "
                      "keeps room for {}",
                      sent, part, s.parts, s.segment_rows));
  }
  std::fill_n(out.rows, s.N * e.per_token, -1.0F);
  for (std::int64_t i = first; i < last; ++i)
    out.rows[i] = static_cast<float>(next[at(whole(out.taken[i]))]++);
}

}  // namespace

void route(const RouteShape& s, const float* logits, const float* bias, const Routed& out) {
  const Experts& e = *s.experts;
  MOTLEY_CHECK(std::max(s.N * e.per_token, s.parts * s.segment_rows) <= (1 << 24));  // exact as floats
  for (std::int64_t row = 0; row < s.N; ++row) {
    const std::vector<double> scores = scores_of(e, logits + row * e.count);
    std::vector<double> chosen_by = scores;
    if (bias != nullptr)
      for (std::int64_t i = 0; i < e.count; ++i) chosen_by[at(i)] += bias[i];
    keep_best_groups(e, chosen_by);
    float* taken = out.taken + row * e.per_token;
    std::int64_t k = 0;
    for (std::int64_t expert : best(chosen_by, e.per_token)) taken[k++] = static_cast<float>(expert);
    const double sum = normaliser(e, scores, taken);
    for (k = 0; k < e.per_token; ++k)
      out.weights[row * e.per_token + k] = static_cast<float>(e.scale * scores[at(whole(taken[k]))] / sum);
  }
  place_rows(s, out);
}

void route_backward(const RouteShape& s, const float* dweights, const float* logits, const float* taken,
                    float* dlogits) {
  // With the normaliser Z and u = score/Z, over the experts taken: dscore = scale*(dw - [sum of dw*u])/Z; the term in
  // [] is there only if the weights are normalised
  const Experts& e = *s.experts;
  for (std::int64_t row = 0; row < s.N; ++row) {
    const float *dw = dweights + row * e.per_token, *mine = taken + row * e.per_token;
    const std::vector<double> scores = scores_of(e, logits + row * e.count);
    const double sum = normaliser(e, scores, mine);
    double mean = 0;
    if (e.normalise)
      for (std::int64_t k = 0; k < e.per_token; ++k) mean += dw[k] * scores[at(whole(mine[k]))] / sum;
    std::vector<double> dscores(at(e.count), 0.0);
    double product = 0;
    for (std::int64_t k = 0; k < e.per_token; ++k) {
      const std::size_t expert = at(whole(mine[k]));
      dscores[expert] = e.scale * (dw[k] - mean) / sum;
      product += dscores[expert] * scores[expert];
    }
    for (std::int64_t i = 0; i < e.count; ++i) {
      const double score = scores[at(i)];
      dlogits[row * e.count + i] =
          static_cast<float>(e.scores == RouterScores::sigmoid ? dscores[at(i)] * score * (1.0 - score)
                                                               : score * (dscores[at(i)] - product));
    }
  }
}

// Clears all copies if some of them may belong to no token.
static void clear_unless_full(const CopyShape& s, const float* rows, float* copies) {
  if (s.R != s.N * s.K || std::any_of(rows, rows + s.N * s.K, [](float row) { return row < 0; }))
    std::fill_n(copies, s.R * s.C, 0.0F);
}

void dispatch(const CopyShape& s, const float* x, const float* rows, float* copies) {
  clear_unless_full(s, rows, copies);
  for (std::int64_t i = 0; i < s.N * s.K; ++i)
    if (rows[i] >= 0) std::copy_n(x + i / s.K * s.C, s.C, copies + whole(rows[i]) * s.C);
}

void dispatch_backward(const CopyShape& s, const float* dcopies, const float* rows, float* dx) {
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t c = 0; c < s.C; ++c) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.K; ++k)
        if (rows[row * s.K + k] >= 0) sum += dcopies[whole(rows[row * s.K + k]) * s.C + c];
      dx[row * s.C + c] = static_cast<float>(sum);
    }
}

void dispatch_weights(const CopyShape& s, const float* weights, const float* rows, float* w) {
  std::fill_n(w, s.R, 0.0F);
  for (std::int64_t i = 0; i < s.N * s.K; ++i)
    if (rows[i] >= 0) w[whole(rows[i])] = weights[i];
}

void dispatch_weights_backward(const CopyShape& s, const float* dw, const float* rows, float* dweights) {
  for (std::int64_t i = 0; i < s.N * s.K; ++i) dweights[i] = rows[i] >= 0 ? dw[whole(rows[i])] : 0.0F;
}

void weigh_rows(const InnerShape& s, const float* weights, float* y) {
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t f = 0; f < s.F; ++f) y[row * s.F + f] *= weights[row];
}

void weighed_swiglu_backward(const InnerShape& s, const float* dy, const float* u, const float* weights,
                             float* du, float* dweights) {
  std::vector<float> y(at(s.N * s.F)), weighed(dy, dy + s.N * s.F);
  swiglu(s, u, y.data());
  for (std::int64_t row = 0; row < s.N; ++row)
    dweights[row] = static_cast<float>(
        std::inner_product(dy + row * s.F, dy + (row + 1) * s.F, y.data() + row * s.F, 0.0));
  weigh_rows(s, weights, weighed.data());
  swiglu_backward(s, weighed.data(), u, du);
}

void combine(const CopyShape& s, const float* copies, const float* rows, const float* weights, float* y) {
  for (std::int64_t row = 0; row < s.N; ++row)
    for (std::int64_t c = 0; c < s.C; ++c) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.K; ++k) {
        const std::int64_t i = row * s.K + k;
        if (rows[i] >= 0) sum += static_cast<double>(weights[i]) * copies[whole(rows[i]) * s.C + c];
      }
      y[row * s.C + c] = static_cast<float>(sum);
    }
}

void combine_backward(const CopyShape& s, const float* dy, const float* copies, const float* rows,
                      const float* weights, float* dcopies, float* dweights) {
  clear_unless_full(s, rows, dcopies);
  for (std::int64_t i = 0; i < s.N * s.K; ++i) {
    dweights[i] = 0;
    if (rows[i] < 0) continue;
    const float *g = dy + i / s.K * s.C, *copy = copies + whole(rows[i]) * s.C;
    float* dcopy = dcopies + whole(rows[i]) * s.C;
    double sum = 0;
    for (std::int64_t c = 0; c < s.C; ++c) {
      sum += static_cast<double>(g[c]) * copy[c];
      dcopy[c] = weights[i] * g[c];
    }
    dweights[i] = static_cast<float>(sum);
  }
}

namespace {

// Calls move(row among those sent, row among the copies) for every row that holds a copy. Returns how many there are.
template <typename Move>
std::int64_t for_each_row(const RegroupShape& s, const float* counts, Move move) {
  std::int64_t among_copies = 0;
  std::vector<std::int64_t> next(at(s.P));  // next row of each sender
  for (std::int64_t part = 0; part < s.P; ++part) next[at(part)] = part * s.M;
  for (std::int64_t expert = 0; expert < s.L; ++expert)
    for (std::int64_t part = 0; part < s.P; ++part)
      for (std::int64_t i = 0; i < whole(counts[part * s.L + expert]); ++i)
        move(next[at(part)]++, among_copies++);
  return among_copies;
}

}  // namespace

void regroup(const RegroupShape& s, const float* x, const float* counts, float* copies, float* totals) {
  const std::int64_t used = for_each_row(s, counts, [&](std::int64_t sent, std::int64_t copy) {
    std::copy_n(x + sent * s.C, s.C, copies + copy * s.C);
  });
  std::fill(copies + used * s.C, copies + s.P * s.M * s.C, 0.0F);
  for (std::int64_t expert = 0; totals != nullptr && expert < s.L; ++expert) {
    totals[expert] = 0;
    for (std::int64_t part = 0; part < s.P; ++part) totals[expert] += counts[part * s.L + expert];
  }
}

void ungroup(const RegroupShape& s, const float* copies, const float* counts, float* x) {
  std::fill_n(x, s.P * s.M * s.C, 0.0F);
  for_each_row(s, counts, [&](std::int64_t sent, std::int64_t copy) {
    std::copy_n(copies + copy * s.C, s.C, x + sent * s.C);
  });
}

void gate(std::int64_t N, std::int64_t C, const float* x, const float* gate, float* y) {
  for (std::int64_t row = 0; row < N; ++row) {
    const double open = 1.0 / (1.0 + std::exp(-double{gate[row]}));
    for (std::int64_t c = 0; c < C; ++c) y[row * C + c] = static_cast<float>(open * x[row * C + c]);
  }
}

void gate_backward(std::int64_t N, std::int64_t C, const float* dy, const float* x, const float* gate,
                   float* dx, float* dgate) {
  for (std::int64_t row = 0; row < N; ++row) {
    const double open = 1.0 / (1.0 + std::exp(-double{gate[row]}));
    double sum = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      sum += static_cast<double>(dy[row * C + c]) * x[row * C + c];
      dx[row * C + c] = static_cast<float>(open * dy[row * C + c]);
    }
    dgate[row] = static_cast<float>(sum * open * (1.0 - open));
  }
}

namespace {

// Adds to `out` the `turned` elements of `in`, rotated by `position` (RoPE): element i of the first half is paired with
// element i of the second half. Sign -1 rotates back.
void add_turned(const LatentShape& s, std::int64_t position, double sign, const float* in, float* out) {
  const std::int64_t half = s.turned / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle = sign * static_cast<double>(position) *
                         std::pow(s.theta, -2.0 * static_cast<double>(i) / static_cast<double>(s.turned));
    const double cosine = std::cos(angle), sine = std::sin(angle), a = in[i], b = in[half + i];
    out[i] += static_cast<float>(a * cosine - b * sine);
    out[half + i] += static_cast<float>(b * cosine + a * sine);
  }
}

}  // namespace

void latent_heads(const LatentShape& s, const float* q, const float* kv, const float* latent, float* qkv) {
  // A row of qkv is [H queries of D | H keys of D | H values of V].
  const std::int64_t D = s.D(), row_width = s.H * (2 * D + s.V);
  std::fill_n(qkv, s.B * s.T * row_width, 0.0F);
  for (std::int64_t row = 0; row < s.B * s.T; ++row)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const std::int64_t position = s.layout.position(row % s.T);
      const float *query = q + (row * s.H + h) * D, *key = kv + (row * s.H + h) * (s.plain + s.V);
      float *to_query = qkv + row * row_width + h * D, *to_key = to_query + s.H * D;
      float* to_value = qkv + row * row_width + 2 * s.H * D + h * s.V;
      std::copy_n(query, s.plain, to_query);
      add_turned(s, position, 1.0, query + s.plain, to_query + s.plain);
      std::copy_n(key, s.plain, to_key);
      add_turned(s, position, 1.0, latent + row * (s.rank + s.turned) + s.rank, to_key + s.plain);
      std::copy_n(key + s.plain, s.V, to_value);
    }
}

void latent_heads_backward(const LatentShape& s, const float* dqkv, float* dq, float* dkv, float* dlatent) {
  const std::int64_t D = s.D(), row_width = s.H * (2 * D + s.V), N = s.B * s.T;
  std::fill_n(dq, N * s.H * D, 0.0F);
  std::fill_n(dlatent, N * (s.rank + s.turned), 0.0F);
  for (std::int64_t row = 0; row < N; ++row)
    for (std::int64_t h = 0; h < s.H; ++h) {
      const std::int64_t position = s.layout.position(row % s.T);
      float *query = dq + (row * s.H + h) * D, *key = dkv + (row * s.H + h) * (s.plain + s.V);
      const float *from_query = dqkv + row * row_width + h * D, *from_key = from_query + s.H * D;
      const float* from_value = dqkv + row * row_width + 2 * s.H * D + h * s.V;
      std::copy_n(from_query, s.plain, query);
      add_turned(s, position, -1.0, from_query + s.plain, query + s.plain);
      std::copy_n(from_key, s.plain, key);
      add_turned(s, position, -1.0, from_key + s.plain, dlatent + row * (s.rank + s.turned) + s.rank);
      std::copy_n(from_value, s.V, key + s.plain);
    }
}

}  // namespace motley::reference
