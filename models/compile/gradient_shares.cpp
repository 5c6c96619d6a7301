#include "models/gradient_shares.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "models/refusal.hpp"

namespace motley {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// What predicts further tokens looks them up beside the head.
bool is_tied_embedding(const Job& job, const Parameter& parameter) {
  const bool used_twice = job.transformer.tied_embeddings || job.transformer.trained_extra() > 0;
  return used_twice && parameter.name == "embedding.token.weight";
}

bool holds(const Job& job, const ProgramClass& of_class, const Parameter& parameter, bool copy_for_head) {
  if (copy_for_head) return of_class.last_stage && !of_class.first_stage;
  if (parameter.layer == -1) return of_class.first_stage;
  if (parameter.layer >= job.transformer.layers) return of_class.last_stage;
  for (const Chunk& chunk : of_class.chunks)
    if (parameter.layer >= chunk.first_layer && parameter.layer < chunk.last_layer) return true;
  return false;
}

std::vector<std::int32_t> holders_of(const Job& job, const Program& program, const Parameter& parameter,
                                     bool copy_for_head) {
  std::vector<std::int32_t> holders;
  for (std::size_t i = 0; i < program.classes.size(); ++i)
    if (holds(job, program.classes[i], parameter, copy_for_head))
      holders.push_back(static_cast<std::int32_t>(i));
  return holders;
}

// Sets `finest`; refuses degrees that do not divide it.
void set_finest(const Job& job, const Program& program, const Parameter& parameter, GradientShare& share) {
  for (std::int32_t holder : share.holders)
    share.finest = std::max(share.finest, program.classes[at(holder)].tensor_parallel);
  for (std::int32_t holder : share.holders) {
    const std::int64_t tp = program.classes[at(holder)].tensor_parallel;
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

// Where the experts are not cut as the rest is: all holders must divide them alike.
void set_expert_parts(const Program& program, const Parameter& parameter, GradientShare& share) {
  if (parameter.experts == 0) return;
  const ProgramClass& first = program.classes[at(share.holders[0])];
  for (std::int32_t holder : share.holders) {
    const ProgramClass& of_class = program.classes[at(holder)];
    if (of_class.expert_parallel > 1 || of_class.expert_tensor_parallel != of_class.tensor_parallel)
      share.experts = true;
  }
  for (std::int32_t holder : share.holders) {
    const ProgramClass& of_class = program.classes[at(holder)];
    if (of_class.expert_parallel != first.expert_parallel ||
        (share.experts && of_class.expert_tensor_parallel != first.expert_tensor_parallel))
      throw Refusal(
          Exit::infeasible, "unequal-expert-parallel", {},
          fmt::format("stages of expert_parallel {} x {} and {} x {} (expert_tensor_parallel) hold the "
                      "same layers",
                      first.expert_parallel, first.expert_tensor_parallel, of_class.expert_parallel,
                      of_class.expert_tensor_parallel),
          "give them the same degrees");
  }
  if (share.experts) share.finest = first.expert_parallel * first.expert_tensor_parallel;
}

// Ranks of a class by copy and tensor index: place() numbers them so. Those that have parts of the same sequences hold
// the same parameters, as replicas do: each is a copy.
class RanksOf {
 public:
  explicit RanksOf(const Program& program) : program_(program), first_(program.classes.size(), -1) {
    counts_.resize(program.classes.size());
    for (Rank rank = 0; rank < program.rank_count(); ++rank) {
      const auto of_class = at(program.ranks[at(rank)].of_class);
      if (first_[of_class] < 0) first_[of_class] = rank;
      ++counts_[of_class];
    }
  }
  std::int64_t copies(std::int32_t of_class) const {
    return counts_[at(of_class)] / program_.classes[at(of_class)].tensor_parallel;
  }
  std::int64_t count(std::int32_t of_class) const { return counts_[at(of_class)]; }
  Rank rank(std::int32_t of_class, std::int64_t copy, std::int64_t tensor) const {
    return static_cast<Rank>(first_[at(of_class)] + copy * program_.classes[at(of_class)].tensor_parallel +
                             tensor);
  }

 private:
  const Program& program_;
  std::vector<std::int64_t> first_, counts_;
};

bool reduces_anything(const GradientShare& share, const RanksOf& ranks) {
  if (share.kind == GroupKind::embedding) return true;
  if (share.experts) return share.holders.size() > 1 || ranks.count(share.holders[0]) > share.finest;
  return share.holders.size() > 1 || ranks.copies(share.holders[0]) > 1;
}

// Of each of the share's groups, those of one class: all groups have as many.
std::int64_t members_of(const GradientShare& share, const RanksOf& ranks, std::int32_t holder) {
  if (share.experts) return ranks.count(holder) / share.finest;
  return share.whole ? ranks.count(holder) : ranks.copies(holder);
}

[[noreturn]] void refuse_division(std::string message, std::string hint) {
  throw Refusal(Exit::infeasible, "impossible-sharding", {}, std::move(message), std::move(hint));
}

// Who divides what they hold. `shard_over` counts replicas; experts stand as often as what is beside them, but those
// who hold the same experts are more or fewer.
void set_division(const Job& job, const RanksOf& ranks, GradientShare& share) {
  if (job.strategy.zero == 0 || share.kind != GroupKind::data) return;
  share.divided = share.last || share.whole ? 1 : job.strategy.zero;
  std::int64_t members = 0, replicas = 0, common = 0;
  for (std::int32_t holder : share.holders) {
    members += members_of(share, ranks, holder);
    replicas += ranks.copies(holder);
    common = std::gcd(common, members_of(share, ranks, holder));
  }
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
        fmt::format("shard_over {} keeps {} copies of what {} replicas hold, and {} ranks hold the same {}",
                    job.strategy.shard_over, share.copies, replicas, members,
                    share.experts ? "experts" : "parameters"),
        "as many ranks of each copy, all of one template; or a smaller expert_parallel");
  if (share.over > 1 || share.holders.size() == 1 || share.experts) return;
  std::vector<std::int64_t> counts;
  for (std::int32_t holder : share.holders) counts.push_back(ranks.copies(holder));
  refuse_division(fmt::format("`zero: {}` divides gradients among the replicas of each template, and those "
                              "that hold the same layers have {}: nothing divides all",
                              job.strategy.zero, fmt::join(counts, ", ")),
                  "numbers of replicas with a common divisor, or `zero: 1`");
}

// Whether the copies of a tied embedding in one pipeline are summed together with those of all others: pipelines may
// have one or two, and first and last stages unlike numbers of it.
bool sums_copies_together(const Job& job, const Program& program, const RanksOf& ranks) {
  if (program.classes.back().pipeline > 0) return true;
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    const ProgramClass& of_class = program.classes[i];
    if (!of_class.first_stage && !of_class.last_stage) continue;
    if (ranks.copies(static_cast<std::int32_t>(i)) != ranks.copies(0)) return true;
    if (job.strategy.zero > 0 && of_class.tensor_parallel != program.classes[0].tensor_parallel) return true;
  }
  return false;
}

void add_share(std::vector<GradientShare>& shares, GradientShare share, std::int32_t parameter) {
  for (GradientShare& known : shares)
    if (known.kind == share.kind && known.holders == share.holders && known.whole == share.whole &&
        known.experts == share.experts && known.last == share.last) {
      known.parameters.push_back(parameter);
      return;
    }
  share.parameters = {parameter};
  shares.push_back(std::move(share));
}

// The groups of part `fine` of the share: one, or as many as there are of a pipeline where its own two are summed.
std::vector<Group> groups_of(const GradientShare& share, const Program& program, const RanksOf& ranks,
                             std::int64_t fine) {
  std::vector<Group> groups;
  const bool in_pipeline = share.kind == GroupKind::embedding;
  const std::int64_t group_count = in_pipeline ? ranks.copies(share.holders[0]) : 1;
  for (std::int64_t g = 0; g < group_count; ++g) {
    Group group{share.kind, {}};
    for (std::int32_t holder : share.holders) {
      const std::int64_t tp = program.classes[at(holder)].tensor_parallel;
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

std::vector<GradientShare> gradient_shares(const Job& job, const Program& program) {
  const RanksOf ranks(program);
  const auto all = parameters(job.transformer);
  std::vector<GradientShare> shares, embeddings;
  const bool together = sums_copies_together(job, program, ranks);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const bool copy_for_head : {false, true}) {
      if (!all[i].trained) continue;
      if (copy_for_head && (together || !is_tied_embedding(job, all[i]))) continue;
      GradientShare share;
      share.holders = holders_of(job, program, all[i], copy_for_head);
      if (together && is_tied_embedding(job, all[i])) {
        share.last = true;
        for (std::int32_t copy : holders_of(job, program, all[i], true)) share.holders.push_back(copy);
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
    for (std::int32_t head : last) {  // of the same template: the nearest first stage before it
      GradientShare share;
      share.kind = GroupKind::embedding;
      share.holders = {*(std::upper_bound(first.begin(), first.end(), head) - 1), head};
      set_finest(job, program, all[i], share);
      add_share(embeddings, share, static_cast<std::int32_t>(i));
    }
  }
  shares.insert(shares.end(), embeddings.begin(), embeddings.end());
  return shares;
}

std::vector<ShareSlot> share_slots(const std::vector<GradientShare>& shares, const Program& program,
                                   std::int32_t of_class) {
  std::vector<ShareSlot> slots;
  int next = context_slot(program.classes[at(of_class)]);
  if (program.classes[at(of_class)].context_parallel > 1) ++next;
  bool first_data = true, first_embedding = true;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const GradientShare& share = shares[i];
    if (std::find(share.holders.begin(), share.holders.end(), of_class) == share.holders.end()) continue;
    const std::int64_t tp = program.classes[at(of_class)].tensor_parallel;
    const auto parts = static_cast<std::int32_t>(share.whole || share.experts ? 1 : share.finest / tp);
    for (std::int32_t part = 0; part < parts; ++part) {
      bool& is_first = share.kind == GroupKind::data ? first_data : first_embedding;
      const int usual = share.kind == GroupKind::data ? kDataGroup : kEmbeddingGroup;
      slots.push_back({static_cast<int>(i), is_first ? usual : next++, -1, -1, part, parts,
                       share.whole ? 1.0 / static_cast<double>(tp) : 1.0});
      is_first = false;
      if (share.over == 1) continue;
      slots.back().gather_slot = next++;
      if (share.copies > 1) slots.back().replica_slot = next++;
    }
  }
  return slots;
}

namespace {

void enter(Program& program, Group group, const std::vector<int>& slot_by_class) {
  for (Rank rank : group.ranks) {
    RankEntry& entry = program.ranks[at(rank)];
    entry.groups[at(slot_by_class[at(entry.of_class)])] = static_cast<std::int32_t>(program.groups.size());
  }
  program.groups.push_back(std::move(group));
}

// Ranks i, i + step, i + 2 step, ...
Group every(const Group& group, std::size_t first, std::size_t step, std::size_t count) {
  Group taken{group.kind, {}};
  for (std::size_t i = 0; i < count; ++i) taken.ranks.push_back(group.ranks[first + i * step]);
  return taken;
}

// The slots that the classes have for one part of a share.
struct SlotsByClass {
  std::vector<int> reduce, gather, replica;
};

SlotsByClass slots_by_class(const std::vector<std::vector<ShareSlot>>& slots, int share, bool whole,
                            std::int64_t fine) {
  SlotsByClass by_class;
  for (const auto& of_class : slots) {
    for (std::vector<int>* list : {&by_class.reduce, &by_class.gather, &by_class.replica})
      list->push_back(-1);
    for (const ShareSlot& slot : of_class) {
      if (slot.share != share || !(whole || slot.part == fine % slot.parts)) continue;
      by_class.reduce.back() = slot.slot;
      by_class.gather.back() = slot.gather_slot;
      by_class.replica.back() = slot.replica_slot;
    }
  }
  return by_class;
}

// ZeRO: the group itself in runs of `over` ranks, each twice, and who holds the same part of each run.
void enter_divided(Program& program, const Group& group, const SlotsByClass& slots, std::int64_t over) {
  const std::size_t members = group.ranks.size(), run = at(over);
  for (std::size_t first = 0; first < members; first += run) {
    Group reduces = every(group, first, 1, run), gathers = reduces;
    gathers.kind = GroupKind::gather;
    enter(program, std::move(reduces), slots.reduce);
    enter(program, std::move(gathers), slots.gather);
  }
  for (std::size_t i = 0; run < members && i < run; ++i)
    enter(program, every(group, i, run, members / run), slots.replica);
}

}  // namespace

void add_gradient_groups(const Job& job, Program& program) {
  const auto shares = gradient_shares(job, program);
  const RanksOf ranks(program);
  std::vector<std::vector<ShareSlot>> slots;
  for (std::size_t i = 0; i < program.classes.size(); ++i) {
    slots.push_back(share_slots(shares, program, static_cast<std::int32_t>(i)));
    int most = kEmbeddingGroup;
    for (const ShareSlot& slot : slots.back())
      most = std::max({most, slot.slot, slot.gather_slot, slot.replica_slot});
    for (std::int64_t rank = 0; rank < ranks.count(static_cast<std::int32_t>(i)); ++rank) {
      auto& groups = program.ranks[at(ranks.rank(static_cast<std::int32_t>(i), 0, 0) + rank)].groups;
      groups.resize(std::max(groups.size(), at(most + 1)), -1);
    }
  }
  for (std::size_t i = 0; i < shares.size(); ++i)
    for (std::int64_t fine = 0; fine < (shares[i].whole ? 1 : shares[i].finest); ++fine) {
      const SlotsByClass by_class = slots_by_class(slots, static_cast<int>(i), shares[i].whole, fine);
      for (Group& group : groups_of(shares[i], program, ranks, fine)) {
        if (shares[i].over > 1)
          enter_divided(program, group, by_class, shares[i].over);
        else
          enter(program, std::move(group), by_class.reduce);
      }
    }
}

}  // namespace motley
