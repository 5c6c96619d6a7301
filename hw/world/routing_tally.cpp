#include "hw/world/routing_tally.hpp"

#include <numeric>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {

std::vector<std::int32_t> numbers_of(const RankWork::Routed& routed) {
  std::vector<std::int32_t> numbers;
  for (const auto& [key, copies] : routed) {
    numbers.push_back(key.first);
    numbers.push_back(key.second);
    numbers.insert(numbers.end(), copies.begin(), copies.end());
  }
  return numbers;
}

void RoutingTally::add(Rank rank, std::span<const std::int32_t> numbers) {
  const std::int64_t parts = program_.program_of(rank).expert_parallel;
  const Rank first =
      parts == 1 ? rank : program_.groups[program_.ranks[rank].groups[kExpertGroup].value()].ranks.front();
  const std::size_t record = 2 + at(experts_);
  MOTLEY_CHECK(numbers.size() % record == 0);
  for (; !numbers.empty(); numbers = numbers.subspan(record)) {
    auto& copies = step_[{{numbers[1], parts}, first, numbers[0]}];
    copies.resize(at(experts_));
    for (std::size_t i = 0; i < copies.size(); ++i) copies[i] += numbers[2 + i];
  }
}

void RoutingTally::end_step() {
  if (step_.empty()) return;
  std::map<DividedLayer, Sum> here;
  for (const auto& [exchange, copies] : step_) {
    Sum& sum = here[exchange.layer];
    sum.busiest_rank += load_of_busiest(copies, exchange.layer.parts);
    sum.busiest_expert += load_of_busiest(copies, experts_);
    ++sum.exchanges;
    sum.copies.resize(copies.size());
    for (std::size_t i = 0; i < copies.size(); ++i) sum.copies[i] += static_cast<double>(copies[i]);
  }
  step_.clear();
  double busiest_rank = 0, busiest_expert = 0;
  for (const auto& [layer, sum] : here) {
    busiest_rank += sum.busiest_rank / sum.exchanges;
    busiest_expert += sum.busiest_expert / sum.exchanges;
    Sum& all = layers_[layer];
    all.busiest_rank += sum.busiest_rank;
    all.busiest_expert += sum.busiest_expert;
    all.exchanges += sum.exchanges;
    all.copies.resize(sum.copies.size());
    for (std::size_t i = 0; i < sum.copies.size(); ++i) all.copies[i] += sum.copies[i];
  }
  const auto layers = static_cast<double>(here.size());
  steps_.busiest_rank.push_back(busiest_rank / layers);
  steps_.busiest_expert.push_back(busiest_expert / layers);
}

MeasuredRouting RoutingTally::measured() const {
  MeasuredRouting measured = steps_;
  for (const auto& [layer, sum] : layers_) {
    RoutedLayer routed{layer, sum.busiest_rank / sum.exchanges, sum.busiest_expert / sum.exchanges,
                       sum.copies};
    const double all = std::accumulate(sum.copies.begin(), sum.copies.end(), 0.0);
    for (double& share : routed.shares) share /= all;
    measured.layers.push_back(std::move(routed));
  }
  return measured;
}

}  // namespace motley
