#include "models/collectives_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "models/compute_cost.hpp"
#include "models/units.hpp"

namespace motley {
std::vector<ListedCollective> list_collectives(const Job& job, const Program& program) {
  CostTable costs(program, job.cluster);
  std::vector<ListedCollective> listed;
  std::set<int> classes;
  std::set<std::tuple<int, int, CollectiveKind, std::int64_t>> priced;  // class, slot, kind, bytes
  std::set<std::tuple<GroupKind, CollectiveKind, int, std::int64_t, std::string>> seen;
  for (Rank rank = 0; rank < program.rank_count(); ++rank) {
    const RankEntry& entry = program.ranks[static_cast<std::size_t>(rank)];
    if (!classes.insert(entry.of_class).second) continue;
    for (const Stream& stream : program.class_of(rank).streams)
      for (const Instruction& instruction : stream.instructions) {
        if (instruction.op != Op::collective) continue;
        const CollectiveKind kind = instruction.collective;
        if (!priced.emplace(entry.of_class, instruction.slot, kind, expected_bytes(instruction)).second)
          continue;
        const int index = entry.groups[static_cast<std::size_t>(instruction.slot)];
        const Group& group = program.groups[static_cast<std::size_t>(index)];
        ListedCollective made{
            rank,
            group.kind,
            kind,
            static_cast<int>(group.ranks.size()),
            expected_bytes(instruction),
            costs.algorithm_of(kind, index, job.fidelity.algorithm, expected_bytes(instruction)),
            0,
            ""};
        made.seconds = costs.collective(kind, index, made.algorithm).seconds(made.bytes);
        made.reason =
            explain(costs.collectives(kind, index), made.algorithm, job.fidelity.algorithm, made.bytes);
        if (seen.emplace(made.group, kind, made.members, made.bytes, made.reason).second)
          listed.push_back(std::move(made));
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
  return json.dump(2) + "\n";
}

}  // namespace motley
