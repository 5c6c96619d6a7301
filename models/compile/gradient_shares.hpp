// Which ranks sum which gradients. Templates may cut the layers and the parameters in unlike ways; a share is a set of
// parameters that the same stages hold, so that one group of ranks can reduce them together. Where the holders' tensor
// parallel degrees differ, the parameters are reduced by the finest cut: a rank with a coarser shard takes part in
// several groups, each with a part of its shard. What it does not do: order or overlap them
// (models/compile/gradients.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

using ShareId = Id<struct ShareTag>;  // of what gradient_shares() returns

struct GradientShare {
  GroupKind kind = GroupKind::data;  // embedding: the two copies of a tied embedding in one pipeline
  // One of each template; embedding: first and last stage of one template.
  std::vector<RankProgramId> holders;
  std::int64_t finest = 1;  // the largest tensor parallel degree among them
  // Unequal degrees, and parameters that tensor parallelism does not cut: all ranks of the holders reduce them, each
  // weighted by 1/degree.
  bool whole = false;
  // Experts divided over ranks, or cut unlike the rest: only those who hold the same part of them reduce it, and
  // `finest` counts the parts.
  bool experts = false;
  // ZeRO: `over` consecutive ranks of each of its groups divide what they hold, and `copies` such runs of ranks hold
  // the same; over 1: each rank holds it whole. Where `divided` is 2 or 3, as Strategy::zero, all of a run are of one
  // rank program: others do not pass a micro-batch when they do.
  std::int64_t over = 1, copies = 1;
  int divided = 0;
  bool last = false;  // unlike stages complete it at unlike times: reduce it after all others
  std::vector<std::int32_t> parameters;  // indices into parameters(transformer)
};

// In an order that is the same for everyone, so that no two ranks can wait for each other.
IdTable<ShareId, GradientShare> gradient_shares(const Job& job, const Program& program);

// What one rank program has to do with a share: a group slot and the part of its shard that is reduced there.
struct ShareSlot {
  ShareId share;
  GroupSlot slot;
  std::optional<GroupSlot> gather_slot;   // of a Shard; none: the share is not divided
  std::optional<GroupSlot> replica_slot;  // of a Shard; none: not divided, or divided over all who hold it
  std::int32_t part = 0, parts = 1;
  double scale = 1.0;
};
std::vector<ShareSlot> share_slots(const IdTable<ShareId, GradientShare>& shares, const Program& program,
                                   RankProgramId rank_program);

// Enters the groups of all shares, and every rank's slots.
void add_gradient_groups(const Job& job, Program& program);

}  // namespace motley
