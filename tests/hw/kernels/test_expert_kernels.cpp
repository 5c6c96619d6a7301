// Kernels of routed experts and of latent attention: every backward is compared with central differences of its
// forward, and the router's choice with the right one.
#include <catch2/catch.hpp>
#include <set>

#include "hw/kernels/experts.hpp"
#include "hw/kernels/run_kernel.hpp"
#include "models/base/refusal.hpp"
#include "tests/support/gradient_check.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct RoutedValues {
  Values weights, taken, rows, counts;
};

RoutedValues routed(const Experts& e, std::int64_t N, const Values& logits, const float* bias = nullptr) {
  const auto copies = static_cast<std::size_t>(N * e.per_token);
  RoutedValues routing{Values(copies), Values(copies), Values(copies),
                       Values(static_cast<std::size_t>(e.count))};
  reference::route(
      {N, &e}, logits.data(), bias,
      {routing.weights.data(), routing.taken.data(), routing.rows.data(), routing.counts.data()});
  return routing;
}

Experts some_experts(bool sigmoid, bool normalise) {
  Experts e;
  e.count = 6;
  e.per_token = 2;
  e.scores = sigmoid ? RouterScores::sigmoid : RouterScores::softmax;
  e.normalise = normalise;
  e.scale = 1.5;
  return e;
}

}  // namespace

TEST_CASE("route_backward is the gradient of the weights that route gives") {
  const Experts e = some_experts(GENERATE(false, true), GENERATE(false, true));
  const std::int64_t N = 4;
  // Logits differ so much that a small step changes no choice.
  Values logits = random_values(24, 50, 0.1F);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] += 0.3F * static_cast<float>((i * 5) % 6);
  const Values dweights = random_values(8, 51);
  const RoutedValues routing = routed(e, N, logits);
  Values dlogits(24);
  reference::route_backward({N, &e}, dweights.data(), logits.data(), routing.taken.data(), dlogits.data());
  check_gradient(logits, dlogits,
                 [&](const Values& v) { return weighted(routed(e, N, v).weights, dweights); });
}

TEST_CASE("a router places every copy once, expert by expert") {
  const Experts e = some_experts(false, true);
  const std::int64_t N = 9;
  const RoutedValues routing = routed(e, N, random_values(54, 52));
  std::set<float> rows(routing.rows.begin(), routing.rows.end());
  REQUIRE(rows.size() == 18);
  REQUIRE(*rows.rbegin() == 17);
  double counted = 0;
  for (float count : routing.counts) counted += count;
  REQUIRE(counted == 18);
  for (std::size_t a = 0; a < 18; ++a)
    for (std::size_t b = 0; b < 18; ++b)
      if (routing.taken[a] < routing.taken[b]) REQUIRE(routing.rows[a] < routing.rows[b]);
  for (std::size_t n = 0; n < 9; ++n) {
    REQUIRE(routing.taken[2 * n] != routing.taken[2 * n + 1]);
    REQUIRE(routing.weights[2 * n] + routing.weights[2 * n + 1] == Approx(1.5));
  }
}

TEST_CASE("a balancing bias moves the choice and not the weight") {
  const Experts e = some_experts(true, false);
  const Values logits = {0, 1, 2, 3, 4, 5}, bias = {9, 0, 0, 0, 0, 0};
  REQUIRE(routed(e, 1, logits).taken == Values{5, 4});
  const RoutedValues biased = routed(e, 1, logits, bias.data());
  REQUIRE(biased.taken == Values{0, 5});
  REQUIRE(biased.weights[0] == Approx(1.5 * 0.5));
}

TEST_CASE("only the best groups are looked at") {
  Experts e = some_experts(true, false);
  e.groups = 3;
  e.groups_per_token = 1;
  // The best expert is in the first group; the best sum of two is in the last group.
  REQUIRE(routed(e, 1, {5, -9, 0, 0, 3, 4}).taken == Values{5, 4});
  e.groups_per_token = 3;
  REQUIRE(routed(e, 1, {5, -9, 0, 0, 3, 4}).taken == Values{0, 5});
}

TEST_CASE("dispatch, combine and gate have the gradients that their backwards give") {
  const Experts e = some_experts(false, false);
  const reference::CopyShape s{4, 2, 3};
  const RoutedValues routing = routed(e, 4, random_values(24, 53));
  const Values x = random_values(12, 54), copies = random_values(24, 55), dy = random_values(12, 56),
               dcopies = random_values(24, 57);
  Values dx(12), copied(24);
  reference::dispatch_backward(s, dcopies.data(), routing.rows.data(), dx.data());
  check_gradient(x, dx, [&](const Values& v) {
    reference::dispatch(s, v.data(), routing.rows.data(), copied.data());
    return weighted(copied, dcopies);
  });
  Values y(12), dcombined(24), dweights(8);
  reference::combine_backward(s, dy.data(), copies.data(), routing.rows.data(), routing.weights.data(),
                              dcombined.data(), dweights.data());
  const auto combined = [&](const Values& from, const Values& weights) {
    reference::combine(s, from.data(), routing.rows.data(), weights.data(), y.data());
    return weighted(y, dy);
  };
  check_gradient(copies, dcombined, [&](const Values& v) { return combined(v, routing.weights); });
  check_gradient(routing.weights, dweights, [&](const Values& v) { return combined(copies, v); });
  const Values open = random_values(4, 58);
  Values dgated(12), dopen(4);
  reference::gate_backward(4, 3, dy.data(), x.data(), open.data(), dgated.data(), dopen.data());
  const auto gated = [&](const Values& from, const Values& gate) {
    reference::gate(4, 3, from.data(), gate.data(), y.data());
    return weighted(y, dy);
  };
  check_gradient(x, dgated, [&](const Values& v) { return gated(v, open); });
  check_gradient(open, dopen, [&](const Values& v) { return gated(x, v); });
}

TEST_CASE("latent_heads_backward is the gradient of latent_heads") {
  const reference::LatentShape s{1, 3, 2, 3, 4, 2, 5, 100.0};
  const std::size_t N = 3, q_count = N * 2 * 7, kv_count = N * 2 * 5, latent_count = N * 9,
                    out_count = N * 2 * 16;
  const Values q = random_values(q_count, 60), kv = random_values(kv_count, 61),
               latent = random_values(latent_count, 62), dqkv = random_values(out_count, 63);
  Values qkv(out_count), dq(q_count), dkv(kv_count), dlatent(latent_count);
  reference::latent_heads_backward(s, dqkv.data(), dq.data(), dkv.data(), dlatent.data());
  const auto f = [&](const Values& at_q, const Values& at_kv, const Values& at_latent) {
    reference::latent_heads(s, at_q.data(), at_kv.data(), at_latent.data(), qkv.data());
    return weighted(qkv, dqkv);
  };
  check_gradient(q, dq, [&](const Values& v) { return f(v, kv, latent); });
  check_gradient(kv, dkv, [&](const Values& v) { return f(q, v, latent); });
  check_gradient(latent, dlatent, [&](const Values& v) { return f(q, kv, v); });
}

TEST_CASE("a grouped matmul is each expert's own, whoever computes it, an expert without rows too") {
  const KernelLibrary library = GENERATE(KernelLibrary::reference, KernelLibrary::fast);
  const std::int64_t n = 3, k = 4, m = 5, groups = 3;
  const Values counts = {3, 0, 2}, x = random_values(20, 64), dy = random_values(15, 65);
  const Values weight = random_values(36, 66);
  Transformer transformer;
  KernelContext context;
  context.transformer = &transformer;
  context.library = library;
  const auto run = [&](KernelOp op, const KernelTensors& tensors) {
    Kernel kernel;
    kernel.op = op;
    kernel.m = m;
    kernel.n = n;
    kernel.k = k;
    kernel.groups = groups;
    REQUIRE(run_kernel(context, kernel, tensors) == 2.0 * static_cast<double>(m * n * k));
  };
  KernelTensors tensors;
  Values y(15), dx(20), dweight(36);
  const auto f = [&](const Values& at_x, const Values& at_weight) {
    tensors = {{at_x.data(), counts.data()}, {y.data()}, {at_weight.data()}, {nullptr}};
    run(KernelOp::grouped_matmul, tensors);
    return weighted(y, dy);
  };
  tensors = {{dy.data(), counts.data()}, {dx.data()}, {weight.data()}, {nullptr}};
  run(KernelOp::grouped_matmul_input_gradient, tensors);
  tensors = {{dy.data(), x.data(), counts.data()}, {}, {weight.data()}, {dweight.data()}};
  run(KernelOp::grouped_matmul_weight_gradient, tensors);
  check_gradient(x, dx, [&](const Values& v) { return f(v, weight); });
  check_gradient(weight, dweight, [&](const Values& v) { return f(x, v); });
  for (std::size_t i = 12; i < 24; ++i) REQUIRE(dweight[i] == 0.0F);  // the expert without rows
}

TEST_CASE("rows of divided experts begin at their rank's place, and tokens of other slices have none") {
  const Experts e = some_experts(false, true);
  const std::int64_t N = 8, M = 3 * 2;  // room for three tokens with two copies each
  const Values logits = random_values(48, 54);
  Values weights(16), taken(16), rows(16), counts(6);
  reference::route({N, &e, 3, 6, 3, M}, logits.data(), nullptr,
                   {weights.data(), taken.data(), rows.data(), counts.data()});
  std::set<float> seen;
  float total = 0;
  for (float count : counts) total += count;
  CHECK(total == 6);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i < 6 || i >= 12) {
      CHECK(rows[i] == -1);
      continue;
    }
    CHECK(static_cast<int>(rows[i]) / 6 == static_cast<int>(taken[i]) / 2);
    CHECK(seen.insert(rows[i]).second);
  }
}

TEST_CASE("regroup puts what several ranks sent in the order of experts, and ungroup takes it back") {
  const reference::RegroupShape shape{2, 2, 4, 1};
  // The first rank sent one copy for expert 0 and two for expert 1, the second rank three and one.
  const Values counts = {1, 2, 3, 1};
  const Values sent = {10, 20, 21, 0, 11, 12, 13, 22};
  Values copies(8, -1), totals(2), back(8, -1);
  reference::regroup(shape, sent.data(), counts.data(), copies.data(), totals.data());
  CHECK(copies == Values{10, 11, 12, 13, 20, 21, 22, 0});
  CHECK(totals == Values{4, 3});
  reference::ungroup(shape, copies.data(), counts.data(), back.data());
  CHECK(back == sent);
}

TEST_CASE("more copies than there is room for stop the run") {
  const Experts e = some_experts(false, true);
  Values logits(6 * 4, 0), weights(8), taken(8), rows(8), counts(6);
  for (std::size_t token = 0; token < 4; ++token) logits[token * 6] = logits[token * 6 + 1] = 1;
  const reference::Routed out{weights.data(), taken.data(), rows.data(), counts.data()};
  CHECK_NOTHROW(reference::route({4, &e, 0, 4, 3, 8}, logits.data(), nullptr, out));
  CHECK_THROWS_AS(reference::route({4, &e, 0, 4, 3, 7}, logits.data(), nullptr, out), RunFailure);
}
