// The best pipelines that closed forms propose, of each schedule apart. Read next: models/plan/pipeline_search.hpp.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "models/plan/pipeline_search.hpp"

namespace motley {

// The schedules' estimates err in different ways, so that the best of each are kept.
class BestPipelines {
 public:
  explicit BestPipelines(std::size_t most) : most_(most) {}

  // A pipeline of that schedule whose estimate is not below this is not looked for. The other schedules' estimates are
  // lower than what they come to, so that they must be below the best one of 1F1B.
  double cut_s(Schedule schedule) const;
  // The least estimate of that schedule and of 1F1B.
  double least_s(Schedule schedule) const;
  void add(PlannedPipeline pipeline);

  // The best of each schedule in turn, as many of them as asked for, the best schedule first.
  std::vector<PlannedPipeline> take();

 private:
  std::size_t most_of(Schedule schedule) const;

  std::size_t most_;
  std::map<Schedule, std::vector<PlannedPipeline>> lists_;  // the lowest estimates first
};

}  // namespace motley
