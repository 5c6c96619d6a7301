// Which host and which of its chips each rank of a job has, as its Program places them, and the order of hosts that
// makes a launcher place them so. Read next: launch_files.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/scenario/job.hpp"

namespace motley {

struct RankPlace {
  std::int64_t host = 0;  // index in RankMap::hosts
  std::int64_t chip =
      0;  // index in its node. Ranks take the chips of a node in order, so that it is the local rank
};

struct HostOfRanks {
  std::string name;
  std::string device;  // type of its chips: their name, or the group's where several groups have these chips
  std::int64_t chips = 0;  // chips that the node has
  std::vector<std::int64_t> ranks;
};

struct RankMap {
  std::vector<RankPlace> ranks;
  std::vector<HostOfRanks> hosts;  // in the order of their first ranks
  // The first rank that does not follow the one before on the same host although its host already had ranks; then no
  // order of hosts alone places the ranks so. Nothing: the order of hosts does.
  std::optional<std::int64_t> out_of_order;
  bool has_equal_hosts() const;  // whether every host has the same number of ranks
};

// Places the ranks of a job as its Program does. `names` of hosts are in the order of the cluster's nodes; none: a host
// is named by its group and its number there, "a100-3". Refuses ("too-few-hosts") fewer names than nodes with ranks,
// and ("impossible-host-name") names that no host has.
RankMap map_ranks(const Job& job, const std::vector<std::string>& names = {});

// One line for each rank: "rank 3: host a100-0 local 3 (a100-80gb)".
std::string print(const RankMap& map);

}  // namespace motley
