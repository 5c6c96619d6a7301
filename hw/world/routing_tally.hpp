// Adds up how the tokens of all ranks chose experts: after each step every rank says what its routers did, and rank 0
// finds the busiest rank and the busiest expert of each exchange. Read next: models/program/expert_load.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "hw/rank/work.hpp"
#include "models/program/expert_load.hpp"
#include "models/program/program.hpp"

namespace motley {

// What a rank says: for each micro-batch and layer these two numbers, then that of its tokens for each expert.
std::vector<std::int32_t> numbers_of(const RankWork::Routed& routed);

class RoutingTally {
 public:
  // Keeps a reference to the Program. `experts`: how many a layer has.
  RoutingTally(const Program& program, std::int64_t experts) : program_(program), experts_(experts) {}
  // Takes what a rank said of this step, as numbers_of() has it.
  void add(Rank rank, std::span<const std::int32_t> numbers);
  // Call it when all ranks were added.
  void end_step();
  // Of all steps that ended; no layers: no token was routed.
  MeasuredRouting measured() const;

 private:
  // Ranks that divide a layer's experts, named by the first of them, exchange the tokens of a micro-batch.
  struct Exchange {
    DividedLayer layer;
    Rank first;
    std::int32_t micro_batch = 0;
    auto operator<=>(const Exchange&) const = default;
  };
  struct Sum {
    double busiest_rank = 0, busiest_expert = 0, exchanges = 0;
    std::vector<double> copies;  // for each expert
  };

  const Program& program_;
  const std::int64_t experts_;
  std::map<Exchange, std::vector<std::int64_t>> step_;  // the copies for each expert
  std::map<DividedLayer, Sum> layers_;
  MeasuredRouting steps_;  // without its layers
};

}  // namespace motley
