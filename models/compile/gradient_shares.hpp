// Which ranks sum which gradients. Templates may cut the layers and the parameters in unlike ways; a share is a set of
// parameters that the same stages hold, so that one group of ranks can reduce them together. Where the holders' tensor
// parallel degrees differ, the parameters are reduced by the finest cut: a rank with a coarser shard takes part in
// several groups, each with a part of its shard. What it does not do: order or overlap them (compile_gradients.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "models/compile.hpp"

namespace motley {

struct GradientShare {
  GroupKind kind = GroupKind::data;  // embedding: the two copies of a tied embedding in one pipeline
  std::vector<std::int32_t>
      holders;              // classes: one of each template; embedding: first and last of one template
  std::int64_t finest = 1;  // the largest tensor parallel degree among them
  // Unequal degrees, and parameters that tensor parallelism does not cut: all ranks of the holders reduce them, each
  // weighted by 1/degree.
  bool whole = false;
  // Experts divided over ranks, or cut unlike the rest: only those who hold the same part of them reduce it, and
  // `finest` counts the parts.
  bool experts = false;
  // So many consecutive ranks of each of its groups divide what they hold (ZeRO), and so often that stands there;
  // 1: each holds it whole. Where `divided` is 2 or 3, as Strategy::zero, they are of one class: others do not pass a
  // micro-batch when they do.
  std::int64_t over = 1, copies = 1;
  int divided = 0;
  bool last = false;  // unlike stages complete it at unlike times: reduce it after all others
  std::vector<std::int32_t> parameters;  // indices into parameters(transformer)
};

// In an order that is the same for everyone, so that no two ranks can wait for each other.
std::vector<GradientShare> gradient_shares(const Job& job, const Program& program);

// What one class has to do with it: a group slot and the part of its shard that is reduced there.
struct ShareSlot {
  int share = 0;
  int slot = 0;
  int gather_slot = -1, replica_slot = -1;  // of a Shard; -1: not divided, or over all who hold it
  std::int32_t part = 0, parts = 1;
  double scale = 1.0;
};
std::vector<ShareSlot> share_slots(const std::vector<GradientShare>& shares, const Program& program,
                                   std::int32_t of_class);

// Enters the groups of all shares, and every rank's slots.
void add_gradient_groups(const Job& job, Program& program);

}  // namespace motley
