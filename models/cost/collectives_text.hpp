// `motley show collectives`: every collective of a Program with a price of its own, its algorithm, and why that one
// was chosen. Prices are for an idle fabric, without waiting. Read next: models/cost/collective_cost.hpp.
#pragma once

#include <string>
#include <vector>

#include "models/cost/collective_cost.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct ListedCollective {
  Rank rank;  // the first rank of its class; others of the same price are not listed again
  GroupKind group = GroupKind::tensor;
  CollectiveKind kind = CollectiveKind::all_reduce;
  int members = 1;
  std::int64_t bytes = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  double seconds = 0;
  std::string reason;
};

// Lists collectives that are instructions of their own; those priced inside computes are rings and not listed.
std::vector<ListedCollective> list_collectives(const Job& job, const Program& program);
std::string collectives_text(const std::vector<ListedCollective>& collectives);
std::string collectives_json(const std::vector<ListedCollective>& collectives);

}  // namespace motley
