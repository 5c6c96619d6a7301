#include "models/compile/gradient_shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// Whether first and last stage both use the token embedding. Modules that predict further tokens use it beside the
// head.
bool is_tied_embedding(const Job& job, const Parameter& parameter) {
  const bool used_twice = job.transformer.tied_embeddings || job.transformer.trained_extra() > 0;
  return used_twice && parameter.name == "embedding.token.weight";
}

bool holds(const Job& job, const RankProgram& rank_program, const Parameter& parameter, bool copy_for_head) {
  if (copy_for_head) return rank_program.last_stage && !rank_program.first_stage;
  if (parameter.layer == -1) return rank_program.first_stage;
  if (parameter.layer >= job.transformer.layers) return rank_program.last_stage;
  for (const Chunk& chunk : rank_program.chunks)
    if (parameter.layer >= chunk.first_layer && parameter.layer < chunk.last_layer) return true;
  return false;
}

std::vector<RankProgramId> holders_of(const Job& job, const Program& program, const Parameter& parameter,
                                      bool copy_for_head) {
  std::vector<RankProgramId> holders;
  for (const RankProgramId id : program.rank_programs.ids())
    if (holds(job, program.rank_programs[id], parameter, copy_for_head)) holders.push_back(id);
  return holders;
}

// Sets `finest`, and refuses degrees that do not divide it.
void set_finest(const Job& job, const Program& program, const Parameter& parameter, GradientShare& share) {
  for (const RankProgramId holder : share.holders)
    share.finest = std::max(share.finest, program.rank_programs[holder].tensor_parallel);
  for (const RankProgramId holder : share.holders) {
    const std::int64_t tp = program.rank_programs[holder].tensor_parallel;
    if (tp == share.finest) continue;
    const bool padded = parameter.cut == Cut::vocabulary && job.transformer.vocabulary % share.finest != 0;
    if (share.finest % tp == 0 && !padded) {
      share.whole = parameter.cut == Cut::replicated;
      continue;
    }
    throw Refusal(
        Exit::infeasible, "unequal-tensor-parallel", {},
        padded ? fmt::format(
                     "tensor_parallel {} and {} hold the same vocabulary of {}, which {} does not divide", tp,
                     share.finest, job.transformer.vocabulary, share.finest)
               : fmt::format("stages of tensor_parallel {} and {} hold the same layers", tp, share.finest),
        "where degrees differ the smaller must divide the larger, and the larger the vocabulary");
  }
}

// Sets the parts of experts that are not cut as the other layers are; all holders must divide them alike.
void set_expert_parts(const Program& program, const Parameter& parameter, GradientShare& share) {
  if (parameter.experts == 0) return;
  const RankProgram& first = program.rank_programs[share.holders[0]];
  for (const RankProgramId holder : share.holders) {
    const RankProgram& rank_program = program.rank_programs[holder];
    if (rank_program.expert_parallel > 1 ||
        rank_program.expert_tensor_parallel != rank_program.tensor_parallel)
      share.experts = true;
  }
  for (const RankProgramId holder : share.holders) {
    const RankProgram& rank_program = program.rank_programs[holder];
    if (rank_program.expert_parallel != first.expert_parallel ||
        (share.experts && rank_program.expert_tensor_parallel != first.expert_tensor_parallel))
      throw Refusal(
          Exit::infeasible, "unequal-expert-parallel", {},
          fmt::format("stages of expert_parallel {} x {} and {} x {} (expert_tensor_parallel) hold the "
                      "same layers",
                      first.expert_parallel, first.expert_tensor_parallel, rank_program.expert_parallel,
                      rank_program.expert_tensor_parallel),
          "give them the same degrees");
  }
  if (share.experts) share.finest = first.expert_parallel * first.expert_tensor_parallel;
}

// Ranks of a rank program by copy and tensor index, in the order of place(). Ranks with parts of the same sequences
// hold the same parameters, as replicas do: each is a copy.
class RanksByCopy {
 public:
  explicit RanksByCopy(const Program& program)
      : program_(program), first_(program.rank_programs.size()), counts_(program.rank_programs.size()) {
    for (Rank rank : program.ranks.ids()) {
      const RankProgramId rank_program = program.ranks[rank].rank_program;
      if (counts_[rank_program] == 0) first_[rank_program] = rank;
      ++counts_[rank_program];
    }
  }
  std::int64_t copies(RankProgramId rank_program) const {
    return counts_[rank_program] / program_.rank_programs[rank_program].tensor_parallel;
  }
  std::int64_t count(RankProgramId rank_program) const { return counts_[rank_program]; }
  Rank rank(RankProgramId rank_program, std::int64_t copy, std::int64_t tensor) const {
    return first_[rank_program] + (copy * program_.rank_programs[rank_program].tensor_parallel + tensor);
  }

 private:
  const Program& program_;
  IdTable<RankProgramId, Rank> first_;  // valid only where counts_ is not 0
  IdTable<RankProgramId, std::int64_t> counts_;
};

bool reduces_anything(const GradientShare& share, const RanksByCopy& ranks) {
  if (share.kind == GroupKind::embedding) return true;
  if (share.experts) return share.holders.size() > 1 || ranks.count(share.holders[0]) > share.finest;
  return share.holders.size() > 1 || ranks.copies(share.holders[0]) > 1;
}

// Number of ranks of one rank program in each of the share's groups; all groups have equally many.
std::int64_t members_of(const GradientShare& share, const RanksByCopy& ranks, RankProgramId holder) {
  if (share.experts) return ranks.count(holder) / share.finest;
  return share.whole ? ranks.count(holder) : ranks.copies(holder);
}

[[noreturn]] void refuse_division(std::string message, std::string hint,
                                  RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::infeasible, "impossible-sharding", {}, std::move(message), std::move(hint), site);
}

// Sets how ranks divide the share. `shard_over` counts replicas. Experts have as many copies as other parameters, but
// the number of ranks that hold the same experts differs.
void set_division(const Job& job, const RanksByCopy& ranks, GradientShare& share) {
  if (job.strategy.zero == 0 || share.kind != GroupKind::data) return;
  share.divided = share.last || share.whole ? 1 : job.strategy.zero;
  // Gradients that are whole until the last micro-batch are divided as the optimizer's state is.
  if (share.divided == 2 && job.strategy.reduce_gradients == ReduceGradients::last) share.divided = 1;
  std::int64_t members = 0, replicas = 0, common = 0;
  for (const RankProgramId holder : share.holders) {
    members += members_of(share, ranks, holder);
    replicas += ranks.copies(holder);
    common = std::gcd(common, members_of(share, ranks, holder));
  }
  MOTLEY_CHECK(replicas > 0 && common > 0);
  if (const std::int64_t over = job.strategy.shard_over; over > 0) {
    if (replicas % over != 0)
      refuse_division(fmt::format("shard_over {} does not divide the {} ranks that hold the same parameters",
                                  over, replicas),
                      "a divisor of the replicas; without it, all of them");
    share.copies = replicas / over;
  } else if (share.divided > 1) {
    share.copies = members / common;
  }
  share.over = members / share.copies;
  if (members % share.copies != 0 || (share.divided > 1 && common % share.over != 0))
    refuse_division(
        fmt::format("shard_over {} makes {} copies over {} replicas, but {} ranks hold the same {}",
                    job.strategy.shard_over, share.copies, replicas, members,
                    share.experts ? "experts" : "parameters"),
        "as many ranks of each copy, all of one template; or a smaller expert_parallel");
  if (share.over > 1 || share.holders.size() == 1 || share.experts) return;
  std::vector<std::int64_t> counts;
  for (const RankProgramId holder : share.holders) counts.push_back(ranks.copies(holder));
  refuse_division(fmt::format("`zero: {}` divides gradients among the replicas of each template, and those "
                              "that hold the same layers have {}: nothing divides all",
                              job.strategy.zero, fmt::join(counts, ", ")),
                  "numbers of replicas with a common divisor, or `zero: 1`");
}

// Whether all copies of a tied embedding are summed together, those of one pipeline and those of all others:
// pipelines may have one or two copies, and first and last stages different numbers of ranks.
bool sums_copies_together(const Job& job, const Program& program, const RanksByCopy& ranks) {
  if (program.rank_programs.back().pipeline > 0) return true;
  const RankProgramId first{0};
  for (const RankProgramId id : program.rank_programs.ids()) {
    const RankProgram& rank_program = program.rank_programs[id];
    if (!rank_program.first_stage && !rank_program.last_stage) continue;
    if (ranks.copies(id) != ranks.copies(first)) return true;
    if (job.strategy.zero > 0 && rank_program.tensor_parallel != program.rank_programs[first].tensor_parallel)
      return true;
  }
  return false;
}

void add_share(IdTable<ShareId, GradientShare>& shares, GradientShare share, std::int32_t parameter) {
  for (GradientShare& known : shares)
    if (known.kind == share.kind && known.holders == share.holders && known.whole == share.whole &&
        known.experts == share.experts && known.last == share.last) {
      known.parameters.push_back(parameter);
      return;
    }
  share.parameters = {parameter};
  shares.add(std::move(share));
}

// The groups of part `fine` of the share: one group; for an embedding one for each pipeline, which sums its two
// copies.
std::vector<Group> groups_of(const GradientShare& share, const Program& program, const RanksByCopy& ranks,
                             std::int64_t fine) {
  std::vector<Group> groups;
  const bool in_pipeline = share.kind == GroupKind::embedding;
  const std::int64_t group_count = in_pipeline ? ranks.copies(share.holders[0]) : 1;
  for (std::int64_t g = 0; g < group_count; ++g) {
    Group group{share.kind, {}};
    for (const RankProgramId holder : share.holders) {
      const std::int64_t tp = program.rank_programs[holder].tensor_parallel;
      const std::int64_t first = in_pipeline ? g : 0, last = in_pipeline ? g + 1 : ranks.copies(holder);
      for (std::int64_t copy = first; copy < last; ++copy)
        for (std::int64_t tensor = 0; tensor < tp; ++tensor)
          if (share.whole || (share.experts ? (copy * tp + tensor) % share.finest == fine
                                            : tensor == fine * tp / share.finest))
            group.ranks.push_back(ranks.rank(holder, copy, tensor));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

IdTable<ShareId, GradientShare> gradient_shares(const Job& job, const Program& program) {
  const RanksByCopy ranks(program);
  const auto all = parameters(job.transformer);
  IdTable<ShareId, GradientShare> shares, embeddings;
  const bool together = sums_copies_together(job, program, ranks);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const bool copy_for_head : {false, true}) {
      if (!all[i].trained) continue;
      if (copy_for_head && (together || !is_tied_embedding(job, all[i]))) continue;
      GradientShare share;
      share.holders = holders_of(job, program, all[i], copy_for_head);
      if (together && is_tied_embedding(job, all[i])) {
        share.last = true;
        for (const RankProgramId copy : holders_of(job, program, all[i], true)) share.holders.push_back(copy);
        std::sort(share.holders.begin(), share.holders.end());
      }
      if (share.holders.empty()) continue;
      set_expert_parts(program, all[i], share);
      if (!share.experts) set_finest(job, program, all[i], share);
      if (!reduces_anything(share, ranks)) continue;
      set_division(job, ranks, share);
      add_share(shares, share, static_cast<std::int32_t>(i));
    }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (together || !all[i].trained || !is_tied_embedding(job, all[i])) continue;
    const auto first = holders_of(job, program, all[i], false), last = holders_of(job, program, all[i], true);
    for (const RankProgramId head : last) {
      // A schedule that is read may give the last virtual stage to an earlier rank than the first.
      const auto same_template = std::find_if(first.begin(), first.end(), [&](RankProgramId id) {
        return program.rank_programs[id].pipeline == program.rank_programs[head].pipeline;
      });
      MOTLEY_CHECK(same_template != first.end());
      GradientShare share;
      share.kind = GroupKind::embedding;
      share.holders = {*same_template, head};
      set_finest(job, program, all[i], share);
      add_share(embeddings, share, static_cast<std::int32_t>(i));
    }
  }
  for (GradientShare& embedding : embeddings) shares.add(std::move(embedding));
  return shares;
}

std::vector<ShareSlot> share_slots(const IdTable<ShareId, GradientShare>& shares, const Program& program,
                                   RankProgramId id) {
  std::vector<ShareSlot> slots;
  const RankProgram& rank_program = program.rank_programs[id];
  GroupSlot next = context_slot(rank_program);
  if (rank_program.context_parallel > 1) ++next;
  const auto take_next = [&next] { return std::exchange(next, GroupSlot(next.value() + 1)); };
  bool first_data = true, first_embedding = true;
  for (const ShareId share_id : shares.ids()) {
    const GradientShare& share = shares[share_id];
    if (std::find(share.holders.begin(), share.holders.end(), id) == share.holders.end()) continue;
    const std::int64_t tp = rank_program.tensor_parallel;
    const auto parts = static_cast<std::int32_t>(share.whole || share.experts ? 1 : share.finest / tp);
    for (std::int32_t part = 0; part < parts; ++part) {
      bool& is_first = share.kind == GroupKind::data ? first_data : first_embedding;
      ShareSlot slot;
      slot.share = share_id;
      const GroupSlot usual = share.kind == GroupKind::data ? kDataGroup : kEmbeddingGroup;
      slot.slot = is_first ? usual : take_next();
      slot.part = part;
      slot.parts = parts;
      if (share.whole) slot.scale = 1.0 / static_cast<double>(tp);
      is_first = false;
      if (share.over > 1) slot.gather_slot = take_next();
      if (share.over > 1 && share.copies > 1) slot.replica_slot = take_next();
      slots.push_back(slot);
    }
  }
  return slots;
}

namespace {

using SlotByRankProgram = IdTable<RankProgramId, std::optional<GroupSlot>>;

void enter(Program& program, Group group, const SlotByRankProgram& slots) {
  const GroupId id = program.groups.add(std::move(group));
  for (Rank rank : program.groups[id].ranks) {
    RankEntry& entry = program.ranks[rank];
    entry.groups[slots[entry.rank_program].value()] = id;
  }
}

// The group of ranks first, first + step, first + 2 step, ...
Group every(const Group& group, std::size_t first, std::size_t step, std::size_t count) {
  Group taken{group.kind, {}};
  for (std::size_t i = 0; i < count; ++i) taken.ranks.push_back(group.ranks[first + i * step]);
  return taken;
}

// The slots that the rank programs use for one part of a share.
struct PartSlots {
  SlotByRankProgram reduce, gather, replica;
};

PartSlots part_slots(const IdTable<RankProgramId, std::vector<ShareSlot>>& slots, ShareId share, bool whole,
                     std::int64_t fine) {
  PartSlots part;
  for (SlotByRankProgram* table : {&part.reduce, &part.gather, &part.replica}) table->resize(slots.size());
  for (const RankProgramId id : slots.ids())
    for (const ShareSlot& slot : slots[id]) {
      if (slot.share != share || !(whole || slot.part == fine % slot.parts)) continue;
      part.reduce[id] = slot.slot;
      part.gather[id] = slot.gather_slot;
      part.replica[id] = slot.replica_slot;
    }
  return part;
}

// ZeRO: enters each run of `over` ranks of the group twice (reduce, gather), and the groups of ranks that hold the
// same part of each run.
void enter_divided(Program& program, const Group& group, const PartSlots& slots, std::int64_t over) {
  const std::size_t members = group.ranks.size(), run = at(over);
  for (std::size_t first = 0; first < members; first += run) {
    Group gathers = every(group, first, 1, run);
    gathers.kind = GroupKind::gather;
    enter(program, every(group, first, 1, run), slots.reduce);
    enter(program, std::move(gathers), slots.gather);
  }
  for (std::size_t i = 0; run < members && i < run; ++i)
    enter(program, every(group, i, run, members / run), slots.replica);
}

}  // namespace

void add_gradient_groups(const Job& job, Program& program) {
  const auto shares = gradient_shares(job, program);
  const RanksByCopy ranks(program);
  IdTable<RankProgramId, std::vector<ShareSlot>> slots;
  for (const RankProgramId id : program.rank_programs.ids()) {
    slots.add(share_slots(shares, program, id));
    GroupSlot most = kEmbeddingGroup;
    for (const ShareSlot& slot : slots.back())
      most = std::max({most, slot.slot, slot.gather_slot.value_or(most), slot.replica_slot.value_or(most)});
    for (std::int64_t tensor = 0; tensor < ranks.count(id); ++tensor) {
      auto& groups = program.ranks[ranks.rank(id, 0, tensor)].groups;
      groups.resize(std::max(groups.size(), at(most) + 1));
    }
  }
  for (const ShareId id : shares.ids()) {
    const GradientShare& share = shares[id];
    for (std::int64_t fine = 0; fine < (share.whole ? 1 : share.finest); ++fine) {
      const PartSlots part = part_slots(slots, id, share.whole, fine);
      for (Group& group : groups_of(share, program, ranks, fine)) {
        if (share.over > 1)
          enter_divided(program, group, part, share.over);
        else
          enter(program, std::move(group), part.reduce);
      }
    }
  }
}

}  // namespace motley
