// How unevenly tokens choose experts: what real ranks measured, and the expert_skew that predicts as much. A load is
// what the busiest of several equal parts of the experts gets, divided by the even share: 1 where routing is even. All
// ranks wait for the busiest at each exchange, so the mean of loads over exchanges is what a step's time depends on.
// Read next: models/program/routing.hpp, hw/world/routing_tally.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/transformer/transformer.hpp"

namespace motley {

// `copies` has the number of tokens that each expert gets; 1 if it gets none.
double load_of_busiest(std::span<const std::int64_t> copies, std::int64_t parts);

// A layer whose experts are divided over `parts` ranks.
struct DividedLayer {
  int layer = 0;
  std::int64_t parts = 1;
  auto operator<=>(const DividedLayer&) const = default;
};

// What real ranks measured: means over exchanges of tokens, one for each micro-batch and each group of ranks.
struct RoutedLayer : DividedLayer {
  double busiest_rank = 1, busiest_expert = 1;  // loads
  std::vector<double> shares;                   // the part of all copies that each expert got
};
struct MeasuredRouting {
  std::vector<double> busiest_rank, busiest_expert;  // loads of each step: means over the layers
  std::vector<RoutedLayer> layers;                   // over all steps
};

// The load of the busiest rank that expert_skew predicts: the mean over the layers. Not monotone: where the two busiest
// experts are on different ranks, a large skew sends each of these ranks the same again.
double expected_load(const Experts& experts, const std::vector<DividedLayer>& layers, double skew,
                     std::uint64_t seed);

struct SkewOfLoad {
  double skew = 0;
  double load =
      1;  // what it predicts: the load asked for, or, where no skew reaches that, the largest of all
  bool reached = true;  // whether a skew reaches it
};
// The least skew that predicts this load, to 1e-9 or better; 0 for a load of 1 or less.
SkewOfLoad skew_of_load(const Experts& experts, const std::vector<DividedLayer>& layers, std::uint64_t seed,
                        double load);

}  // namespace motley
