// Which ranks sum which gradients. Templates may cut layers and parameters in different ways; a share is a set of
// parameters that the same stages hold, so that one group of ranks can reduce them together. Where the holders'
// tensor-parallel degrees differ, the parameters are reduced by the finest cut: a rank with a coarser shard takes
// part in several groups, each with a part of its shard. models/compile/gradients.cpp orders and overlaps the
// reductions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/scenario/job.hpp"

namespace motley {

using ShareId = Id<struct ShareTag>;  // indexes the result of gradient_shares()

struct GradientShare {
  GroupKind kind = GroupKind::data;  // embedding: the two copies of a tied embedding in one pipeline
  // One holder of each template; embedding: first and last stage of one template.
  std::vector<RankProgramId> holders;
  std::int64_t finest = 1;  // the largest tensor-parallel degree of the holders
  // True: degrees differ, and tensor parallelism does not cut the parameters. Then all ranks of the holders reduce
  // them, each weighted by 1/degree.
  bool whole = false;
  // True: the parameters are experts that are divided over ranks or cut differently from other layers. Then only the
  // ranks that hold the same part of them reduce it, and `finest` counts the parts.
  bool experts = false;
  // ZeRO: `over` consecutive ranks of each group divide the share, and `copies` such runs of ranks hold the same;
  // over 1: each rank holds it whole. Where `divided` is 2 or 3, as Strategy::zero, all ranks of a run have one rank
  // program, because others pass micro-batches at other times.
  std::int64_t over = 1, copies = 1;
  int divided = 0;
  bool last = false;  // true: it is reduced after all others, because different stages complete it at
                      // different times
  std::vector<std::int32_t> parameters;  // indices into parameters(transformer)
};

// The order is the same for all ranks, so that no two ranks can wait for each other.
IdTable<ShareId, GradientShare> gradient_shares(const Job& job, const Program& program);

// The part of a rank program in a share: a group slot, and the part of its shard that is reduced there.
struct ShareSlot {
  ShareId share;
  GroupSlot slot;
  std::optional<GroupSlot> gather_slot;   // slot of a Shard; none: the share is not divided
  std::optional<GroupSlot> replica_slot;  // slot of a Shard; none: not divided, or divided over all ranks
                                          // that hold it
  std::int32_t part = 0, parts = 1;
  double scale = 1.0;
};
std::vector<ShareSlot> share_slots(const IdTable<ShareId, GradientShare>& shares, const Program& program,
                                   RankProgramId rank_program);

// Adds the groups of all shares, and every rank's slots.
void add_gradient_groups(const Job& job, Program& program);

}  // namespace motley
