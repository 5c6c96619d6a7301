#include "sim/fold/collective_plan.hpp"

#include <array>
#include <cmath>
#include <map>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace motley {

std::int64_t CollectivePlan::wire_bytes(double of_chunks, std::int64_t payload) const {
  const std::int64_t chunk = (payload + chunks - 1) / chunks;
  return std::llround(of_chunks * static_cast<double>(chunk) * stretch);
}

CollectivePlan make_plan(const CollectiveSteps& steps) {
  CollectivePlan plan;
  plan.chunks = steps.chunks;
  plan.rounds = steps.rounds;
  plan.stretch = steps.stretch;
  plan.setup_s = steps.setup_s;
  plan.pipelined = steps.pipelined;
  plan.of_member.resize(static_cast<std::size_t>(steps.rank_count));
  const std::vector<CollectiveMessage> all = messages(steps);
  std::map<std::pair<int, int>, int> ways;
  for (const CollectiveMessage& message : all) ways.try_emplace({message.from, message.to}, 0);
  for (auto& [ends, index] : ways) {
    index = static_cast<int>(plan.ways.size());
    plan.ways.push_back({ends.first, ends.second, 0, 0});
  }
  for (const CollectiveMessage& message : all) {
    const int index = ways.at({message.from, message.to});
    CollectivePlan::Way& way = plan.ways[static_cast<std::size_t>(index)];
    way.share += steps.share(message.chunks);
    const std::array<double, 2> what{static_cast<double>(message.round), message.chunks};
    way.rounds = XXH3_64bits_withSeed(what.data(), sizeof what, way.rounds);
    for (int member : {message.from, message.to})
      plan.of_member[static_cast<std::size_t>(member)].push_back(
          {message.round, index, member == message.from, message.chunks});
  }
  return plan;
}

}  // namespace motley
