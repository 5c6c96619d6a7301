// `motley show collectives`: every collective of a Program that differs in price, its algorithm, and why that one. It
// prices an idle fabric and knows nothing of waiting. Read next: models/cost/collective_cost.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/cost/collective_cost.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct ListedCollective {
  Rank rank = 0;  // the first of its class; others of the same price are not listed again
  GroupKind group = GroupKind::tensor;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int members = 1;
  std::int64_t bytes = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  double seconds = 0;
  std::string reason;
};

// Instructions of their own, as the Program has them; not what is priced inside computes, which is a ring.
std::vector<ListedCollective> list_collectives(const Job& job, const Program& program);
std::string collectives_text(const std::vector<ListedCollective>& collectives);
std::string collectives_json(const std::vector<ListedCollective>& collectives);

}  // namespace motley
