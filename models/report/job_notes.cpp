#include "models/report/job_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace motley {
namespace {

// Chips of each group on which no rank stands.
std::vector<std::int64_t> idle_chips(const Job& job, const Program& program) {
  std::vector<std::int64_t> idle;
  std::vector<std::int64_t> first;  // chip of each group
  std::int64_t next = 0;
  for (const NodeGroup& group : job.cluster.groups) {
    first.push_back(next);
    idle.push_back(std::int64_t{group.nodes} * group.chips_per_node);
    next += idle.back();
  }
  for (const RankEntry& rank : program.ranks) {
    std::size_t group = 0;
    while (group + 1 < first.size() && rank.chip >= first[group + 1]) ++group;
    --idle[group];
  }
  return idle;
}

}  // namespace

std::vector<std::string> job_notes(const Job& job, const Program& program) {
  std::vector<std::string> notes;
  for (const NodeGroup& group : job.cluster.groups)
    notes.insert(notes.end(), group.remarks.texts.begin(), group.remarks.texts.end());
  const std::vector<std::int64_t> idle = idle_chips(job, program);
  for (std::size_t i = 0; i < idle.size(); ++i) {
    const NodeGroup& group = job.cluster.groups[i];
    const std::int64_t chips = std::int64_t{group.nodes} * group.chips_per_node;
    if (idle[i] == chips)
      notes.push_back(fmt::format("no rank stands on `{}`: its {} chips are idle", group.name, chips));
    else if (idle[i] > 0)
      notes.push_back(fmt::format("{} of the {} chips of `{}` are idle", idle[i], chips, group.name));
  }
  const Transformer& model = job.transformer;
  std::int64_t longest = job.train.documents.empty() ? job.train.sequence : 0;
  for (const std::int64_t document : job.train.documents) longest = std::max(longest, document);
  if (model.max_positions > 0 && longest > model.max_positions)
    notes.push_back(fmt::format("{} tokens in a row are more than the {} positions that `{}` was made for",
                                longest, model.max_positions, model.name));
  return notes;
}

}  // namespace motley
