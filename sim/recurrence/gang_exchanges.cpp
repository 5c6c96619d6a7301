#include "sim/recurrence/gang_exchanges.hpp"

#include <algorithm>
#include <unordered_map>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Where a member is in what it does.
struct Progress {
  std::size_t exchange = 0;  // index into MemberExchanges::list
  int time = 0;              // how often it has done that
  std::size_t open = 0;      // messages of it whose other side has not come
};

}  // namespace

GangExchanges::GangExchanges(const FoldedFabric& folded, const std::vector<MemberExchanges>& members) {
  std::vector<Progress> progress(members.size());
  std::unordered_map<std::int32_t, std::int32_t> posted;  // the member that came first, by class of lanes
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < members.size(); ++i) {
    ready.push_back(i);
    setup_s_.push_back(members[i].setup_s);
  }
  const auto close = [&](std::size_t member) {
    Progress& here = progress[member];
    if (--here.open > 0) return;
    turns_.push_back({static_cast<std::int32_t>(member)});
    if (++here.time == members[member].list[here.exchange].times) {
      here.time = 0;
      ++here.exchange;
    }
    ready.push_back(member);
  };
  while (!ready.empty()) {
    const std::size_t member = ready.back();
    ready.pop_back();
    if (progress[member].exchange == members[member].list.size()) continue;
    const MemberExchange& exchange = members[member].list[progress[member].exchange];
    progress[member].open = exchange.messages.size() + 1;  // one more, so that it ends when all are posted
    for (const LaneMessage& message : exchange.messages) {
      const auto [other, is_first] =
          posted.try_emplace(folded.folding.lane_class(message.lane), static_cast<std::int32_t>(member));
      if (is_first) continue;
      turns_.push_back({other->second, static_cast<std::int32_t>(member), message.latency_s,
                        folded.fabric.alone_s(message.lane, message.bytes)});
      close(at(other->second));
      posted.erase(other);
      close(member);
    }
    close(member);
  }
  MOTLEY_CHECK(posted.empty());
}

void GangExchanges::run(std::vector<double>& instants_s) const {
  for (std::size_t i = 0; i < instants_s.size(); ++i) instants_s[i] += setup_s_[i];
  std::vector<double> ends_s = instants_s;
  for (const Turn& turn : turns_) {
    const std::size_t first = at(turn.first);
    if (turn.second < 0) {
      instants_s[first] = ends_s[first];
      continue;
    }
    const std::size_t second = at(turn.second);
    const double end_s = std::max(instants_s[first], instants_s[second]) + turn.latency_s + turn.wire_s;
    ends_s[first] = std::max(ends_s[first], end_s);
    ends_s[second] = std::max(ends_s[second], end_s);
  }
}

}  // namespace motley
