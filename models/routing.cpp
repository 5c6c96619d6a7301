#include "models/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "models/refusal.hpp"

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

std::int64_t exchange_segment(const Experts& experts, std::int64_t tokens, std::int64_t parts, double room) {
  const std::int64_t most = tokens * std::min(experts.per_token, experts.count / parts);
  if (parts == 1 || room == 0) return most;
  const double even = static_cast<double>(tokens * experts.per_token) / static_cast<double>(parts);
  return std::min(most, static_cast<std::int64_t>(std::ceil(room * even)));
}

// Share of all copies that the rank of the busiest experts is expected to get.
static double busiest_share(const Experts& experts, std::int64_t parts, const Train& train,
                            std::int64_t layer) {
  const auto shares = expert_shares(experts, train.expert_skew, train.seed, layer);
  const auto each = static_cast<std::ptrdiff_t>(experts.count / parts);
  double most = 0;
  for (auto first = shares.begin(); first != shares.end(); first += each)
    most = std::max(most, std::accumulate(first, first + each, 0.0));
  return most;
}

ExpertExchange expert_exchange(const Experts& experts, std::int64_t tokens, std::int64_t parts,
                               const Train& train, std::int64_t layer) {
  ExpertExchange exchange;
  exchange.parts = parts;
  exchange.tokens = tokens;
  exchange.segment_rows = exchange_segment(experts, tokens, parts, train.expert_room);
  exchange.rows = parts * exchange.segment_rows;
  exchange.sent = exchange.expected_rows = tokens * experts.per_token;
  if (train.expert_skew == 0 || parts == 1) return exchange;
  const double share = busiest_share(experts, parts, train, layer);
  const double rows = share * static_cast<double>(parts * exchange.sent);
  exchange.expected_rows = static_cast<std::int64_t>(std::ceil(rows * (1 - 1e-12)));
  if (exchange.expected_rows > exchange.rows)
    throw Refusal(
        Exit::infeasible, "impossible-expert-room", {},
        fmt::format("expert_skew {} sends the rank of the busiest experts {:.2f} times the even share, "
                    "expert_room is {}",
                    train.expert_skew, share * static_cast<double>(parts), train.expert_room),
        "a larger expert_room, or a smaller expert_skew or expert_parallel");
  return exchange;
}

std::int64_t slice_size(std::int64_t tokens, std::int64_t slices) { return (tokens + slices - 1) / slices; }

}  // namespace motley
