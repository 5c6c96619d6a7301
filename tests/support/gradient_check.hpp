// Random values, and a gradient compared with central differences: for tests of kernels.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <vector>

namespace motley::tests {

using Values = std::vector<float>;

inline Values random_values(std::size_t count, unsigned seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  Values values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

inline double weighted(const Values& values, const Values& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += static_cast<double>(values[i]) * weights[i];
  return sum;
}

// Requires that the gradient of f at x, measured by moving each element, is `expected`.
inline void check_gradient(Values x, const Values& expected, const std::function<double(const Values&)>& f) {
  REQUIRE(x.size() == expected.size());
  constexpr float kStep = 1e-2F;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float at = x[i];
    x[i] = at + kStep;
    const double above = f(x);
    x[i] = at - kStep;
    const double below = f(x);
    x[i] = at;
    const double difference = (above - below) / (2.0 * static_cast<double>(kStep));
    INFO("element " << i);
    REQUIRE(expected[i] == Approx(difference).epsilon(2e-3).margin(2e-3));
  }
}

}  // namespace motley::tests
