#include "models/cost/collectives_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "models/base/json_text.hpp"
#include "models/base/units.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {
std::vector<ListedCollective> list_collectives(const Job& job, const Program& program) {
  CostTable costs(program, job.cluster);
  std::vector<ListedCollective> listed;
  std::set<RankProgramId> visited;
  std::set<std::tuple<RankProgramId, GroupSlot, CollectiveTask, std::int64_t>> priced;
  std::set<std::tuple<GroupKind, CollectiveKind, int, std::int64_t, std::string>> seen;
  for (Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    if (!visited.insert(entry.rank_program).second) continue;
    for (const Stream& stream : program.program_of(rank).streams)
      for (const Instruction& instruction : stream.instructions) {
        const auto* collective = instruction.as<Collective>();
        if (collective == nullptr) continue;
        const CollectiveKind kind = collective->kind;
        const CollectiveTask task = task_of(*collective);
        if (!priced.emplace(entry.rank_program, collective->slot, task, expected_bytes(instruction)).second)
          continue;
        const GroupId id = entry.groups[collective->slot].value();
        const Group& group = program.groups[id];
        ListedCollective listed_one{
            rank,
            group.kind,
            kind,
            static_cast<int>(group.ranks.size()),
            expected_bytes(instruction),
            costs.algorithm_of(task, id, job.fidelity.algorithm, expected_bytes(instruction)),
            0,
            ""};
        listed_one.seconds = costs.collective(task, id, listed_one.algorithm).seconds(listed_one.bytes);
        listed_one.reason = explain(costs.collectives(task, id), listed_one.algorithm, job.fidelity.algorithm,
                                    listed_one.bytes);
        if (seen.emplace(listed_one.group, kind, listed_one.members, listed_one.bytes, listed_one.reason)
                .second)
          listed.push_back(std::move(listed_one));
      }
  }
  return listed;
}

std::string collectives_text(const std::vector<ListedCollective>& collectives) {
  std::string text;
  for (const ListedCollective& each : collectives)
    text += fmt::format("{} {} of {} among {} (rank {}): {}\n", name_of(each.group), name_of(each.kind),
                        format_bytes(static_cast<double>(each.bytes)), each.members, each.rank, each.reason);
  return text.empty() ? "no collectives but those priced inside computes\n" : text;
}

std::string collectives_json(const std::vector<ListedCollective>& collectives) {
  nlohmann::ordered_json json;
  json["schema"] = "motley.collectives/1";
  auto& list = json["collectives"] = nlohmann::ordered_json::array();
  for (const ListedCollective& each : collectives)
    list.push_back({{"rank", each.rank},
                    {"group", name_of(each.group)},
                    {"kind", name_of(each.kind)},
                    {"members", each.members},
                    {"bytes", each.bytes},
                    {"algorithm", name_of(each.algorithm)},
                    {"seconds", each.seconds},
                    {"reason", each.reason}});
  return json_text(json);
}

}  // namespace motley
