#include "models/program/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Fisher and Yates's shuffle, with a generator whose numbers the C++ standard fixes.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed, std::int64_t layer) {
  std::mt19937_64 generator(seed * 1'000'003 + static_cast<std::uint64_t>(layer));
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[generator() % i]);
  return order;
}

// Cuts shares above `most` and gives the excess to the others in proportion, until no share is above.
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
  std::vector<double> shares(count, 1.0);
  auto total = static_cast<double>(count);
  if (zipf != 0) {  // shares that are alike need no order
    const auto order = shuffled(count, seed, layer);
    total = 0;
    for (std::size_t place = 0; place < count; ++place)
      total += shares[order[place]] = std::pow(static_cast<double>(place + 1), -zipf);
  }
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

double busiest_share(const Experts& experts, std::int64_t parts, double zipf, std::uint64_t seed,
                     std::int64_t layer) {
  const auto shares = expert_shares(experts, zipf, seed, layer);
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
  const double share = busiest_share(experts, parts, train.expert_skew, train.seed, layer);
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

namespace {

// Total weight of all sets of experts that a token may take and that have no expert in [first, last): the K-th
// elementary symmetric polynomial of the odds, over the groups that a token may take.
double weight_without(const ExpertRouting& routing, const std::vector<double>& odds, std::size_t first,
                      std::size_t last) {
  const auto K = static_cast<std::size_t>(routing.per_token),
             taken = static_cast<std::size_t>(routing.groups_per_token);
  const std::size_t each = odds.size() / static_cast<std::size_t>(routing.groups);
  std::vector<std::vector<double>> sets(taken + 1,
                                        std::vector<double>(K + 1));  // by number of groups and number of
                                                                      // experts taken
  sets[0][0] = 1;
  for (std::size_t begin = 0; begin < odds.size(); begin += each) {
    std::vector<double> group(K + 1);
    group[0] = 1;
    for (std::size_t i = begin; i < begin + each; ++i)
      for (std::size_t k = K; k > 0 && (i < first || i >= last); --k) group[k] += group[k - 1] * odds[i];
    for (std::size_t groups = taken; groups > 0; --groups)
      for (std::size_t k = 0; k <= K; ++k)
        for (std::size_t more = 0; k + more <= K; ++more)
          sets[groups][k + more] += sets[groups - 1][k] * group[more];
  }
  return sets[taken][K];
}

}  // namespace

void refuse_dear_routing(const ExpertRouting& routing, std::int64_t parts) {
  constexpr double kMost = 1e9;  // a few seconds
  const auto K = static_cast<double>(routing.per_token), count = static_cast<double>(routing.experts);
  const double of_run =
      count * K + static_cast<double>(routing.groups) * static_cast<double>(routing.groups_per_token) * K * K;
  if (2 * static_cast<double>(parts) * of_run <= kMost) return;
  throw Refusal(
      Exit::infeasible, "program-too-large", {},
      fmt::format("a token takes {} of {} experts over {} ranks: to count how often it is sent once "
                  "to each node would take too long",
                  routing.per_token, routing.experts, parts),
      "`fidelity: {expert_copies: expert}`, or a smaller `per_token`");
}

DistinctCopies distinct_copies(const ExpertRouting& routing, std::int64_t parts, std::int64_t ranks_a_node) {
  constexpr double kAlways = 1e-9;  // an expert with a share of 1/K is taken by every token
  Experts experts;
  experts.count = routing.experts;
  experts.per_token = routing.per_token;
  const std::vector<double> shares = expert_shares(experts, routing.skew, routing.seed, 0);
  const auto K = static_cast<double>(routing.per_token);
  std::vector<double> odds;
  for (const double share : shares) odds.push_back(share * K / std::max(1 - share * K, kAlways));
  const double all = weight_without(routing, odds, 0, 0);
  const std::size_t a_rank = shares.size() / static_cast<std::size_t>(parts);
  const std::size_t a_node = a_rank * static_cast<std::size_t>(ranks_a_node);
  const auto share_of = [&](std::size_t first, std::size_t each) {
    const auto from = shares.begin() + static_cast<std::ptrdiff_t>(first);
    return std::accumulate(from, from + static_cast<std::ptrdiff_t>(each), 0.0);
  };
  // The largest chance, over runs of `each` experts, that a token takes any of them. It is at most the number of
  // copies expected there.
  const auto most = [&](std::size_t each) {
    double chance = 0;
    for (std::size_t first = 0; first < shares.size(); first += each)
      chance = std::max(chance, std::min(1 - weight_without(routing, odds, first, first + each) / all,
                                         K * share_of(first, each)));
    return chance;
  };
  double busiest = 0;
  for (std::size_t first = 0; first < shares.size(); first += a_rank)
    busiest = std::max(busiest, share_of(first, a_rank));
  return {most(a_rank) / (K * busiest), most(a_node) / (K * busiest)};
}

std::int64_t slice_size(std::int64_t tokens, std::int64_t slices) { return (tokens + slices - 1) / slices; }

}  // namespace motley
