#include "models/routing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace motley {
namespace {

// Fisher and Yates, with a generator whose numbers the standard fixes.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed, std::int64_t layer) {
  std::mt19937_64 generator(seed * 1'000'003 + static_cast<std::uint64_t>(layer));
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[generator() % i]);
  return order;
}

// Cuts what is above `most` and gives it to those below, in proportion, until none is above.
void cap(std::vector<double>& shares, double most) {
  std::vector<bool> full(shares.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    double free = 1.0, open = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) (full[i] ? free : open) += full[i] ? -most : shares[i];
    for (std::size_t i = 0; i < shares.size(); ++i) {
      if (full[i]) continue;
      shares[i] *= free / open;
      if (shares[i] <= most * (1 + 1e-12)) continue;
      shares[i] = most;
      full[i] = changed = true;
    }
  }
}

}  // namespace

std::vector<double> expert_shares(const Experts& experts, double zipf, std::uint64_t seed,
                                  std::int64_t layer) {
  const auto count = static_cast<std::size_t>(experts.count);
  const auto order = shuffled(count, seed, layer);
  std::vector<double> shares(count);
  double total = 0;
  for (std::size_t place = 0; place < count; ++place)
    total += shares[order[place]] = std::pow(static_cast<double>(place + 1), -zipf);
  for (double& share : shares) share /= total;
  cap(shares, 1.0 / static_cast<double>(experts.per_token));
  return shares;
}

std::int64_t busiest_rows(const Experts& experts, double zipf, std::uint64_t seed, std::int64_t layer,
                          std::int64_t tokens) {
  const auto shares = expert_shares(experts, zipf, seed, layer);
  const double rows =
      *std::max_element(shares.begin(), shares.end()) * static_cast<double>(tokens * experts.per_token);
  return std::min(tokens, static_cast<std::int64_t>(std::ceil(rows * (1 - 1e-12))));
}

}  // namespace motley
