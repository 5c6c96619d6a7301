// Kernels: every backward is compared with central differences of its forward, and the fast kernels with the reference,
// in one table of shapes. The loss stands for any function: it is a fixed random weighting of the outputs.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "hw/kernels/experts.hpp"
#include "hw/kernels/fast.hpp"
#include "hw/kernels/reference.hpp"
#include "tests/support/gradient_check.hpp"

using namespace motley;
using namespace motley::tests;

TEST_CASE("norm_backward is the gradient of norm, centred or not") {
  const bool centred = GENERATE(true, false);
  const reference::NormShape s{3, 6, 1e-5, centred};
  const Values x = random_values(18, 1), weight = random_values(6, 2), bias = random_values(6, 3),
               dy = random_values(18, 4), residual = random_values(18, 5);
  const auto f = [&](const Values& at_x, const Values& at_weight, const Values& at_bias) {
    Values y(18), statistics(6);
    reference::norm(s, at_x.data(), at_weight.data(), centred ? at_bias.data() : nullptr, y.data(),
                    statistics.data());
    return weighted(y, dy) + weighted(at_x, residual);
  };
  Values y(18), statistics(6), dx(18), dweight(6, 0.5F), dbias(6);
  reference::norm(s, x.data(), weight.data(), bias.data(), y.data(), statistics.data());
  reference::norm_backward(s, dy.data(), x.data(), statistics.data(), residual.data(), weight.data(),
                           dx.data(), dweight.data(), centred ? dbias.data() : nullptr);
  for (float& value : dweight) value -= 0.5F;  // norm_backward adds to it
  check_gradient(x, dx, [&](const Values& v) { return f(v, weight, bias); });
  check_gradient(weight, dweight, [&](const Values& v) { return f(x, v, bias); });
  if (centred) check_gradient(bias, dbias, [&](const Values& v) { return f(x, weight, v); });
}

TEST_CASE("a norm over the first part of a row leaves the rest to the residual") {
  const reference::NormShape s{3, 4, 1e-5, false, 6};
  const Values x = random_values(18, 40), weight = random_values(4, 41), dy = random_values(12, 42),
               residual = random_values(18, 43);
  const auto f = [&](const Values& at_x) {
    Values y(12), statistics(3);
    reference::norm(s, at_x.data(), weight.data(), nullptr, y.data(), statistics.data());
    return weighted(y, dy) + weighted(at_x, residual);
  };
  Values y(12), statistics(3), dx(18), dweight(4);
  reference::norm(s, x.data(), weight.data(), nullptr, y.data(), statistics.data());
  reference::norm_backward(s, dy.data(), x.data(), statistics.data(), residual.data(), weight.data(),
                           dx.data(), dweight.data(), nullptr);
  check_gradient(x, dx, f);
}

TEST_CASE("attention_backward is the gradient of attention, with shared key heads too") {
  const std::int64_t G = GENERATE(1, 2, 4), window = GENERATE(0, 1, 3), V = GENERATE(0, 2);
  reference::HeadShape s{2, 5, 4, G, 3, window, V};
  s.softcap = GENERATE(0, 0.4);
  const auto count = static_cast<std::size_t>(s.B * s.T * s.row());
  const auto out = static_cast<std::size_t>(s.B * s.T * s.H * s.V());
  const Values qkv = random_values(count, 6), dy = random_values(out, 7);
  Values y(out), lse(static_cast<std::size_t>(s.B * s.H * s.T)), dqkv(count);
  reference::attention(s, qkv.data(), y.data(), lse.data());
  reference::attention_backward(s, dy.data(), qkv.data(), y.data(), lse.data(), dqkv.data());
  check_gradient(qkv, dqkv, [&](const Values& v) {
    reference::attention(s, v.data(), y.data(), lse.data());
    return weighted(y, dy);
  });
}

TEST_CASE("qk_norm_backward is the gradient of qk_norm, which leaves values alone") {
  const reference::HeadShape s{1, 3, 2, 1, 4};
  const auto count = static_cast<std::size_t>(s.B * s.T * s.row());
  const Values qkv = random_values(count, 30), dy = random_values(count, 31), q = random_values(4, 32),
               k = random_values(4, 33);
  const auto f = [&](const Values& x, const Values& q_weight, const Values& k_weight) {
    Values normed(count), statistics(9);
    reference::qk_norm(s, 1e-5, q_weight.data(), k_weight.data(), x.data(), normed.data(), statistics.data());
    return weighted(normed, dy);
  };
  Values normed(count), statistics(9), dqkv(count), dweights(8, 9.0F);
  reference::qk_norm(s, 1e-5, q.data(), k.data(), qkv.data(), normed.data(), statistics.data());
  reference::qk_norm_backward(s, dy.data(), qkv.data(), statistics.data(), q.data(), k.data(), dqkv.data(),
                              dweights.data());
  check_gradient(qkv, dqkv, [&](const Values& v) { return f(v, q, k); });
  check_gradient(q, {dweights.begin(), dweights.begin() + 4}, [&](const Values& v) { return f(qkv, v, k); });
  check_gradient(k, {dweights.begin() + 4, dweights.end()}, [&](const Values& v) { return f(qkv, q, v); });
  for (std::size_t c = 12; c < 16; ++c) REQUIRE(normed[c] == qkv[c]);
}

TEST_CASE("attention with a window looks at that many positions, its own the last") {
  const reference::HeadShape s{1, 5, 1, 1, 2, 2};
  Values qkv = random_values(30, 34), y(10), changed(10), lse(5);
  reference::attention(s, qkv.data(), y.data(), lse.data());
  for (std::size_t c = 12; c < 18; ++c) qkv[c] += 3.0F;  // the third position
  reference::attention(s, qkv.data(), changed.data(), lse.data());
  for (std::size_t i : {0, 1, 2, 3, 8, 9}) REQUIRE(y[i] == changed[i]);
  for (std::size_t i : {4, 5, 6, 7}) REQUIRE(y[i] != changed[i]);
}

TEST_CASE("attention looks at no later position") {
  const reference::HeadShape s{1, 4, 1, 1, 2};
  Values qkv = random_values(24, 8), y(8), changed(8), lse(4);
  reference::attention(s, qkv.data(), y.data(), lse.data());
  for (std::size_t c = 18; c < 24; ++c) qkv[c] += 3.0F;  // the last position
  reference::attention(s, qkv.data(), changed.data(), lse.data());
  for (std::size_t i = 0; i < 6; ++i) REQUIRE(y[i] == changed[i]);
  REQUIRE(y[6] != changed[6]);
}

TEST_CASE("rope turned back is what it was, and keeps the length of every pair") {
  const reference::HeadShape s{2, 5, 2, 1, 4};
  const Values qkv = random_values(160, 9);
  Values turned(160), back(160);
  reference::rope(s, 10000.0, 1.0, qkv.data(), turned.data());
  reference::rope(s, 10000.0, -1.0, turned.data(), back.data());
  for (std::size_t i = 0; i < 160; ++i) REQUIRE(back[i] == Approx(qkv[i]).margin(1e-6));
  REQUIRE(turned[16 + 0] != qkv[16 + 0]);
  const auto length = [](const Values& v, std::size_t i) { return v[i] * v[i] + v[i + 2] * v[i + 2]; };
  REQUIRE(length(turned, 16) == Approx(length(qkv, 16)));
}

TEST_CASE("rope turns the first part of each head alone") {
  const reference::HeadShape whole{2, 5, 2, 1, 4}, part{.B = 2, .T = 5, .H = 2, .G = 1, .D = 8, .rotated = 4};
  const Values qkv = random_values(320, 9);
  Values turned(320), turned_fast(320), narrow(160), narrow_turned(160);
  // The rotated halves of all heads, as heads of their own; the values of `narrow` are not looked at.
  const auto narrow_of = [](const Values& v, std::size_t row, std::size_t head, std::size_t d) {
    return v[row * 32 + head * 8 + d];
  };
  for (std::size_t row = 0; row < 10; ++row)
    for (std::size_t head = 0; head < 3; ++head)
      for (std::size_t d = 0; d < 4; ++d) narrow[row * 16 + head * 4 + d] = narrow_of(qkv, row, head, d);
  reference::rope(part, 10000.0, 1.0, qkv.data(), turned.data());
  fast::rope(part, 10000.0, 1.0, qkv.data(), turned_fast.data());
  reference::rope(whole, 10000.0, 1.0, narrow.data(), narrow_turned.data());
  for (std::size_t row = 0; row < 10; ++row)
    for (std::size_t head = 0; head < 3; ++head)
      for (std::size_t d = 0; d < 8; ++d) {
        const double expected = d < 4 ? narrow_turned[row * 16 + head * 4 + d] : narrow_of(qkv, row, head, d);
        REQUIRE(narrow_of(turned, row, head, d) == Approx(expected).margin(1e-6));
        REQUIRE(narrow_of(turned_fast, row, head, d) == Approx(expected).margin(1e-5));
      }
  for (std::size_t row = 0; row < 10; ++row)
    for (std::size_t c = 24; c < 32; ++c) REQUIRE(turned[row * 32 + c] == qkv[row * 32 + c]);
}

TEST_CASE("a query sees the tokens of its own chunk, counted from the begin of its document") {
  reference::HeadShape s{.B = 1, .T = 12, .H = 1, .G = 1, .D = 2, .chunk = 5};
  const std::vector<std::int64_t> first = {0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10};
  for (std::int64_t place = 0; place < 12; ++place)
    REQUIRE(s.first_seen(place) == first[static_cast<std::size_t>(place)]);
}

TEST_CASE("softcap_backward is the gradient of softcap, which never passes its cap") {
  const Values x = random_values(12, 61), dy = random_values(12, 62);
  Values y(12), dx(12);
  reference::softcap(12, 0.7, x.data(), y.data());
  for (const double each : y) REQUIRE(std::abs(each) < 0.7);
  reference::softcap_backward(12, 0.7, dy.data(), y.data(), dx.data());
  check_gradient(x, dx, [&](const Values& v) {
    reference::softcap(12, 0.7, v.data(), y.data());
    return weighted(y, dy);
  });
}

TEST_CASE("activation_backward is the gradient of GELU, SwiGLU and GeGLU") {
  const reference::InnerShape s{3, 4};
  const Values u = random_values(12, 10), gated = random_values(24, 11), dy = random_values(12, 12);
  Values y(12), du(12), dgated(24);
  reference::gelu_backward(s, dy.data(), u.data(), du.data());
  check_gradient(u, du, [&](const Values& v) {
    reference::gelu(s, v.data(), y.data());
    return weighted(y, dy);
  });
  reference::swiglu_backward(s, dy.data(), gated.data(), dgated.data());
  check_gradient(gated, dgated, [&](const Values& v) {
    reference::swiglu(s, v.data(), y.data());
    return weighted(y, dy);
  });
  reference::geglu_backward(s, dy.data(), gated.data(), dgated.data());
  check_gradient(gated, dgated, [&](const Values& v) {
    reference::geglu(s, v.data(), y.data());
    return weighted(y, dy);
  });
}

TEST_CASE("embed_backward is the gradient of embed, and touches only rows of its shard") {
  const reference::EmbedShape s{2, 3, 2, 4, 4};  // the shard has tokens 4..7
  const std::vector<std::int32_t> tokens = {4, 1, 7, 4, 4, 9};
  const Values token = random_values(8, 13), position = random_values(6, 14), dx = random_values(12, 15);
  Values x(12), dtoken(8), dposition(6);
  reference::embed_backward(s, tokens.data(), dx.data(), dtoken.data(), dposition.data());
  check_gradient(token, dtoken, [&](const Values& v) {
    reference::embed(s, tokens.data(), v.data(), position.data(), x.data());
    return weighted(x, dx);
  });
  check_gradient(position, dposition, [&](const Values& v) {
    reference::embed(s, tokens.data(), token.data(), v.data(), x.data());
    return weighted(x, dx);
  });
}

TEST_CASE("loss_backward is the gradient of the loss, cut over any number of shards") {
  const std::int64_t V = 7, N = 4, shards = GENERATE(1, 2, 3, 5, 7);
  const std::int64_t R = (V + shards - 1) / shards;
  const std::vector<std::int32_t> targets = {0, 6, 3, 5};
  const Values whole = random_values(static_cast<std::size_t>(N * V), 16);
  const auto shape = [&](std::int64_t shard) {
    return reference::LogitsShape{N, R, shard * R, std::clamp<std::int64_t>(V - shard * R, 0, R)};
  };
  const auto cut = [&](const Values& logits, std::int64_t shard) {
    Values part(static_cast<std::size_t>(N * R), 77.0F);  // padding, which must not matter
    for (std::int64_t i = 0; i < N; ++i)
      for (std::int64_t r = 0; r < shape(shard).exist; ++r)
        part[static_cast<std::size_t>(i * R + r)] = logits[static_cast<std::size_t>(i * V + shard * R + r)];
    return part;
  };
  Values maximum, sums;
  const auto total = [&](const Values& logits) {
    maximum.assign(static_cast<std::size_t>(N), -INFINITY);
    sums.assign(static_cast<std::size_t>(2 * N), 0.0F);
    Values partial(static_cast<std::size_t>(2 * N)), losses(static_cast<std::size_t>(N));
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      reference::logits_maximum(shape(shard), cut(logits, shard).data(), partial.data());
      for (std::size_t i = 0; i < maximum.size(); ++i) maximum[i] = std::max(maximum[i], partial[i]);
    }
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      reference::logits_sum(shape(shard), cut(logits, shard).data(), maximum.data(), targets.data(),
                            partial.data());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += partial[i];
    }
    reference::loss(N, maximum.data(), sums.data(), losses.data());
    double sum = 0;
    for (float value : losses) sum += value;
    return sum / static_cast<double>(N);
  };
  total(whole);
  Values gradient(whole.size());
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    Values part(static_cast<std::size_t>(N * R));
    reference::loss_backward(shape(shard), 1.0 / static_cast<double>(N), cut(whole, shard).data(),
                             maximum.data(), sums.data(), targets.data(), part.data());
    for (std::int64_t i = 0; i < N; ++i)
      for (std::int64_t r = 0; r < R; ++r) {
        const float value = part[static_cast<std::size_t>(i * R + r)];
        if (r < shape(shard).exist)
          gradient[static_cast<std::size_t>(i * V + shard * R + r)] = value;
        else
          REQUIRE(value == 0.0F);
      }
  }
  check_gradient(whole, gradient, total);
}

TEST_CASE("the matmul kernels agree with their definition and with each other, whoever computes them") {
  const reference::MatmulShape s = GENERATE(
      reference::MatmulShape{1, 1, 1}, reference::MatmulShape{3, 5, 7}, reference::MatmulShape{32, 96, 32},
      reference::MatmulShape{17, 33, 65}, reference::MatmulShape{64, 256, 128});
  const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const Values x = random_values(count(s.m, s.k), 20), weight = random_values(count(s.n, s.k), 21),
               bias = random_values(count(s.n, 1), 22), dy = random_values(count(s.m, s.n), 23);
  const auto near = [&](const Values& a, const Values& b) {
    for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(a[i] == Approx(b[i]).epsilon(1e-4).margin(1e-4));
  };
  Values y(dy.size()), y_fast(dy.size(), 9.0F), dx(x.size()), dx_fast(x.size(), 9.0F),
      dw(weight.size(), 1.0F), dw_fast(weight.size(), 1.0F), db(bias.size(), 1.0F),
      db_fast(bias.size(), 1.0F);
  reference::matmul(s, x.data(), weight.data(), bias.data(), y.data());
  fast::matmul(s, x.data(), weight.data(), bias.data(), y_fast.data());
  near(y, y_fast);
  reference::matmul_input_gradient(s, dy.data(), weight.data(), dx.data());
  fast::matmul_input_gradient(s, dy.data(), weight.data(), dx_fast.data());
  near(dx, dx_fast);
  reference::matmul_weight_gradient(s, dy.data(), x.data(), dw.data(), db.data());
  fast::matmul_weight_gradient(s, dy.data(), x.data(), dw_fast.data(), db_fast.data());
  near(dw, dw_fast);
  near(db, db_fast);
  // <dy, x w'> = <dx, x> = <dw, w> holds for every bilinear form
  for (float& value : dw) value -= 1.0F;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] -= bias[i % bias.size()];
  const double product = weighted(y, dy);
  REQUIRE(weighted(dx, x) == Approx(product).epsilon(1e-4).margin(1e-3));
  REQUIRE(weighted(dw, weight) == Approx(product).epsilon(1e-4).margin(1e-3));
}

TEST_CASE("rows of a plain matmul that are computed together have the bits that they have alone") {
  std::mt19937 random(3);
  for (int draw = 0; draw < 60; ++draw) {
    const auto drawn = [&](unsigned most) { return static_cast<std::int64_t>(1 + random() % most); };
    const reference::MatmulShape s{drawn(40), drawn(40), drawn(70)}, row{1, s.n, s.k}, column{s.m, 1, s.k};
    const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
    const Values x = random_values(count(s.m, s.k), 40), weight = random_values(count(s.n, s.k), 41),
                 bias = random_values(count(s.n, 1), 42), dy = random_values(count(s.m, s.n), 43);
    Values y(dy.size()), y_alone(dy.size()), dx(x.size()), dx_alone(x.size());
    reference::matmul(s, x.data(), weight.data(), bias.data(), y.data());
    reference::matmul_input_gradient(s, dy.data(), weight.data(), dx.data());
    for (std::int64_t i = 0; i < s.m; ++i) {
      reference::matmul(row, x.data() + i * s.k, weight.data(), bias.data(), y_alone.data() + i * s.n);
      reference::matmul_input_gradient(row, dy.data() + i * s.n, weight.data(), dx_alone.data() + i * s.k);
    }
    REQUIRE(y == y_alone);
    REQUIRE(dx == dx_alone);
    Values dw(weight.size(), 1.0F), dw_alone = dw, db(bias.size(), 1.0F), db_alone = db,
                                    dy_column(count(s.m, 1));
    reference::matmul_weight_gradient(s, dy.data(), x.data(), dw.data(), db.data());
    for (std::int64_t j = 0; j < s.n; ++j) {
      for (std::int64_t i = 0; i < s.m; ++i) dy_column[count(i, 1)] = dy[count(i, s.n) + count(j, 1)];
      reference::matmul_weight_gradient(column, dy_column.data(), x.data(), dw_alone.data() + j * s.k,
                                        db_alone.data() + j);
    }
    REQUIRE(dw == dw_alone);
    REQUIRE(db == db_alone);
  }
}

TEST_CASE("SwiGLU agrees with its definition, for small values and for large ones, whoever computes it") {
  for (const std::int64_t F : {1, 3, 127, 1024, 20000})
    for (const float size : {1e-6F, 0.1F, 1.0F, 8.0F, 200.0F}) {
      const reference::InnerShape s{19, F};
      Values u = random_values(static_cast<std::size_t>(s.N * 2 * s.F), 33);
      const Values dy = random_values(u.size() / 2, 34);
      for (float& each : u) each *= size;
      Values y(dy.size()), y_fast(dy.size(), 9.0F), du(u.size()), du_fast(u.size(), 9.0F);
      reference::swiglu(s, u.data(), y.data());
      fast::swiglu(s, u.data(), y_fast.data());
      reference::swiglu_backward(s, dy.data(), u.data(), du.data());
      fast::swiglu_backward(s, dy.data(), u.data(), du_fast.data());
      const Values weights = random_values(static_cast<std::size_t>(s.N), 36);
      Values dweights(weights.size()), dweights_fast(weights.size(), 9.0F), du_weighed(u.size()),
          du_weighed_fast(u.size(), 9.0F);
      reference::weighed_swiglu_backward(s, dy.data(), u.data(), weights.data(), du_weighed.data(),
                                         dweights.data());
      fast::weighed_swiglu_backward(s, dy.data(), u.data(), weights.data(), du_weighed_fast.data(),
                                    dweights_fast.data());
      double worst = 0, worst_gradient = 0;  // relative to how large values are
      for (std::size_t i = 0; i < y.size(); ++i)
        worst = std::max(
            worst, std::abs(static_cast<double>(y_fast[i]) - y[i]) / (1e-4 * size * size + std::abs(y[i])));
      for (std::size_t i = 0; i < du.size(); ++i)
        worst_gradient = std::max(worst_gradient, std::abs(static_cast<double>(du_fast[i]) - du[i]) /
                                                      (1e-2 * size + std::abs(du[i])));
      for (std::size_t i = 0; i < du.size(); ++i)
        worst_gradient =
            std::max(worst_gradient, std::abs(static_cast<double>(du_weighed_fast[i]) - du_weighed[i]) /
                                         (1e-2 * size + std::abs(du_weighed[i])));
      for (std::size_t i = 0; i < dweights.size(); ++i)
        worst_gradient =
            std::max(worst_gradient, std::abs(static_cast<double>(dweights_fast[i]) - dweights[i]) /
                                         (static_cast<double>(F) * size * size));
      INFO("F = " << F << ", size " << size);
      CHECK(worst < 1e-4);
      CHECK(worst_gradient < 1e-4);
    }
  fast::swiglu({0, 8}, nullptr, nullptr);  // no rows are no work
  fast::swiglu_backward({0, 8}, nullptr, nullptr, nullptr);
}

TEST_CASE("the loss and its gradient agree with their definitions, with columns that do not exist") {
  for (const std::int64_t R : {1, 7, 256, 20000})
    for (const float size : {0.1F, 1.0F, 30.0F})
      for (const std::int64_t missing : {0, 1, 5}) {
        if (missing > R) continue;
        const reference::LogitsShape s{6, R, 100, R - missing};
        Values logits = random_values(static_cast<std::size_t>(s.N * s.R), 37), maximum(6), sums(12),
               sums_fast(12, 9.0F);
        for (float& each : logits) each *= size;
        std::vector<std::int32_t> targets = {100, 0, static_cast<std::int32_t>(99 + R), 101, 1 << 20, 103};
        reference::logits_maximum(s, logits.data(), maximum.data());
        if (s.exist == 0) std::fill(maximum.begin(), maximum.end(), 1.0F);  // another shard's
        reference::logits_sum(s, logits.data(), maximum.data(), targets.data(), sums.data());
        fast::logits_sum(s, logits.data(), maximum.data(), targets.data(), sums_fast.data());
        for (std::size_t i = 0; i < sums.size(); ++i) REQUIRE(sums_fast[i] == Approx(sums[i]).epsilon(1e-5));
        if (s.exist == 0) std::fill(sums.begin(), sums.end(), 2.0F);
        Values dlogits(logits.size()), dlogits_fast(logits.size(), 9.0F);
        reference::loss_backward(s, 0.25, logits.data(), maximum.data(), sums.data(), targets.data(),
                                 dlogits.data());
        fast::loss_backward(s, 0.25, logits.data(), maximum.data(), sums.data(), targets.data(),
                            dlogits_fast.data());
        double worst = 0;
        for (std::size_t i = 0; i < dlogits.size(); ++i)
          worst = std::max(worst, std::abs(static_cast<double>(dlogits_fast[i]) - dlogits[i]));
        CHECK(worst < 1e-6);
      }
}

TEST_CASE("rope turns as its definition does, whatever was turned before") {
  const std::vector<std::int64_t> begins = {0, 0, 0, 3, 3, 5, 5, 5};
  for (const double theta : {10000.0, 500000.0, 10000.0})
    for (const std::int64_t D : {8, 2, 64})
      for (const std::int64_t T : {8, 200, 24})
        for (const bool in_parts : {false, true})
          for (const double sign : {1.0, -1.0}) {
            reference::HeadShape s{2, T, 4, 2, D};
            if (in_parts) s.layout = {T * 2, 2, 1, nullptr};
            if (!in_parts && T == 8) s.layout.begins = begins.data();
            const Values qkv = random_values(static_cast<std::size_t>(s.B * s.T * s.row()), 35);
            Values turned(qkv.size()), fast_turned(qkv.size(), 9.0F);
            reference::rope(s, theta, sign, qkv.data(), turned.data());
            fast::rope(s, theta, sign, qkv.data(), fast_turned.data());
            for (std::size_t i = 0; i < turned.size(); ++i)
              REQUIRE(fast_turned[i] == Approx(turned[i]).margin(1e-6));
          }
}

TEST_CASE("GELU agrees with its definition, for small values and for large ones, whoever computes it") {
  for (const std::int64_t F : {1, 3, 16, 127, 1024})
    for (const float size : {1e-6F, 0.1F, 1.0F, 8.0F, 60.0F}) {
      const reference::InnerShape s{5, F};
      Values u = random_values(static_cast<std::size_t>(s.N * s.F), 31), dy = random_values(u.size(), 32);
      for (float& each : u) each *= size;
      u[0] = 0;
      Values y(u.size()), y_fast(u.size(), 9.0F), du(u.size()), du_fast(u.size(), 9.0F);
      reference::gelu(s, u.data(), y.data());
      fast::gelu(s, u.data(), y_fast.data());
      reference::gelu_backward(s, dy.data(), u.data(), du.data());
      fast::gelu_backward(s, dy.data(), u.data(), du_fast.data());
      for (std::size_t i = 0; i < u.size(); ++i) {
        INFO("u = " << u[i]);
        REQUIRE(y_fast[i] == Approx(y[i]).epsilon(1e-4).margin(1e-5 * size));
        REQUIRE(du_fast[i] == Approx(du[i]).epsilon(1e-4).margin(1e-5));
      }
    }
  fast::gelu({0, 8}, nullptr, nullptr);  // no rows are no work
  fast::gelu_backward({0, 8}, nullptr, nullptr, nullptr);
}

namespace {

struct Attended {
  Values y, lse, dqkv;
};

template <typename Forward, typename Backward>
Attended attend(const reference::HeadShape& s, Forward forward, Backward backward) {
  const Values qkv = random_values(static_cast<std::size_t>(s.B * s.T * s.row()), 24);
  const Values dy = random_values(static_cast<std::size_t>(s.B * s.T * s.H * s.V()), 25);
  Attended attended;
  attended.y.assign(dy.size(), 9.0F);
  attended.lse.assign(static_cast<std::size_t>(s.B * s.H * s.T), 9.0F);
  attended.dqkv.assign(qkv.size(), 9.0F);
  forward(s, qkv.data(), attended.y.data(), attended.lse.data());
  backward(s, dy.data(), qkv.data(), attended.y.data(), attended.lse.data(), attended.dqkv.data());
  return attended;
}

}  // namespace

TEST_CASE("the attention kernels agree with their definition, whoever computes them") {
  const reference::HeadShape s =
      GENERATE(reference::HeadShape{1, 1, 1, 1, 2}, reference::HeadShape{2, 5, 4, 2, 3},
               reference::HeadShape{1, 33, 6, 1, 8}, reference::HeadShape{2, 64, 4, 4, 16},
               reference::HeadShape{1, 33, 4, 2, 8, 7}, reference::HeadShape{2, 16, 4, 4, 12, 0, 8},
               reference::HeadShape{
                   .B = 1, .T = 33, .H = 4, .G = 2, .D = 8, .chunk = 10, .score_width = 20, .softcap = 0.3});
  const Attended slow = attend(
      s, [](auto&&... values) { reference::attention(values...); },
      [](auto&&... values) { reference::attention_backward(values...); });
  const Attended quick = attend(s, fast::attention, fast::attention_backward);
  const auto near = [](const Values& a, const Values& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(a[i] == Approx(b[i]).epsilon(2e-5).margin(2e-5));
  };
  near(slow.y, quick.y);
  near(slow.lse, quick.lse);
  near(slow.dqkv, quick.dqkv);
}
