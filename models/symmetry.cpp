// Colours are 128-bit hashes of what a thing sees, renumbered densely after every round; a round costs what its ranks,
// lanes and crossings of links cost. Collisions of 128 bits are taken not to happen.
//
// Why it is enough for max-min sharing: in an equitable partition every link of a class is crossed by equally many
// lanes of each class, so rates that are max-min fair on one link of each class are max-min fair on all, and max-min
// fair rates are unique. What begins alike therefore ends alike, and by induction on time so does everything after.
#include "models/symmetry.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace motley {
namespace {

using Mark = XXH128_hash_t;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

template <class... Words>
Mark mark(Words... words) {
  const std::array<std::uint64_t, sizeof...(Words)> packed{static_cast<std::uint64_t>(words)...};
  return XXH3_128bits(packed.data(), sizeof packed);
}

void add(Mark& sum, const Mark& mark) {  // of a multiset: the order of additions does not matter
  sum.low64 += mark.low64;
  sum.high64 += mark.high64;
}

// Numbers distinct marks in the order they come.
class Numbering {
 public:
  explicit Numbering(std::size_t most) {
    std::size_t size = 16;
    while (size < 2 * most) size *= 2;
    slots_.resize(size);
  }
  std::int32_t of(const Mark& mark) {
    std::size_t i = mark.low64 & (slots_.size() - 1);
    while (slots_[i].number >= 0 && !XXH128_isEqual(slots_[i].mark, mark)) i = (i + 1) & (slots_.size() - 1);
    if (slots_[i].number < 0) slots_[i] = {mark, count_++};
    return slots_[i].number;
  }
  std::int32_t count() const { return count_; }

 private:
  struct Slot {
    Mark mark{};
    std::int32_t number = -1;
  };
  std::vector<Slot> slots_;
  std::int32_t count_ = 0;
};

struct Colours {
  std::vector<std::int32_t> of;
  std::int32_t count = 0;

  void assign(const std::vector<std::uint64_t>& traits) {
    Numbering numbering(traits.size());
    of.clear();
    for (std::uint64_t trait : traits) of.push_back(numbering.of(mark(trait)));
    count = numbering.count();
  }
  // Splits by what was seen; true when some class fell apart.
  bool split(const std::vector<Mark>& seen) {
    Numbering numbering(of.size());
    for (std::size_t i = 0; i < of.size(); ++i)
      of[i] = numbering.of(mark(of[i], seen[i].low64, seen[i].high64));
    return std::exchange(count, numbering.count()) != count;
  }
  Partition partition() const {
    Partition made{of, std::vector<std::int32_t>(at(count), -1)};
    for (std::size_t i = of.size(); i-- > 0;) made.first[at(of[i])] = static_cast<std::int32_t>(i);
    return made;
  }
};

class Refinement {
 public:
  Refinement(const Program& program, const Arrangement& arrangement)
      : program_(program), arrangement_(arrangement), lanes_(arrangement.lanes.size()) {
    ranks_.assign(arrangement.rank_traits);
    groups_.assign(arrangement.group_traits);
    links_.assign(arrangement.link_traits);
    for (const ProgramClass& of_class : program.classes) collectives_.push_back(collective_slots(of_class));
  }

  Symmetry run() {
    do mark_lanes();
    while (round());
    Colours lanes;
    Numbering numbering(lanes_.size());
    for (const Mark& each : lanes_) lanes.of.push_back(numbering.of(each));
    lanes.count = numbering.count();
    return {ranks_.partition(), groups_.partition(), lanes.partition(), links_.partition()};
  }

 private:
  // Of two lanes: equal if what they are, and all they touch, is equal.
  void mark_lanes() {
    std::vector<std::uint64_t> words;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = arrangement_.lanes[i];
      words = {lane.traits, static_cast<std::uint64_t>(lane.out), static_cast<std::uint64_t>(lane.in),
               lane.group < 0 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(groups_.of[at(lane.group)])};
      if (lane.by_ranks)
        for (Rank rank : {lane.from, lane.to})
          words.push_back(static_cast<std::uint64_t>(ranks_.of[at(rank)]));
      for (std::uint32_t link = lane.first_link; link < lane.last_link; ++link)
        words.push_back(static_cast<std::uint64_t>(links_.of[at(arrangement_.links[link])]));
      lanes_[i] = XXH3_128bits(words.data(), words.size() * sizeof words[0]);
    }
  }

  bool round() {
    std::vector<Mark> ranks(ranks_.of.size()), groups(groups_.of.size()), links(links_.of.size());
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = arrangement_.lanes[i];
      const Mark& of = lanes_[i];
      for (std::uint32_t link = lane.first_link; link < lane.last_link; ++link)
        add(links[at(arrangement_.links[link])], mark(of.low64, of.high64, link - lane.first_link));
      if (lane.group >= 0) add(groups[at(lane.group)], of);
      if (!lane.by_ranks) continue;
      add(ranks[at(lane.from)], mark(of.low64, of.high64, 0));
      add(ranks[at(lane.to)], mark(of.low64, of.high64, 1));
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const RankEntry& entry = program_.ranks[rank];
      for (int slot : collectives_[at(entry.of_class)]) {
        const int group = entry.groups[at(slot)];
        add(groups[at(group)], mark(ranks_.of[rank], slot));
        add(ranks[rank], mark(groups_.of[at(group)], slot));
      }
    }
    const bool some_ranks = ranks_.split(ranks), some_groups = groups_.split(groups);
    return links_.split(links) || some_ranks || some_groups;
  }

  const Program& program_;
  const Arrangement& arrangement_;
  std::vector<std::vector<int>> collectives_;  // by program class
  Colours ranks_, groups_, links_;
  std::vector<Mark> lanes_;
};

Partition singletons(std::size_t count) {
  Partition made;
  made.of.resize(count);
  std::iota(made.of.begin(), made.of.end(), 0);
  made.first = made.of;
  return made;
}

std::vector<int> transfer_slots(const ProgramClass& of_class, Op op) {
  std::vector<int> slots;
  for (const Stream& stream : of_class.streams)
    for (const Instruction& instruction : stream.instructions)
      if (instruction.op == op && std::find(slots.begin(), slots.end(), instruction.slot) == slots.end())
        slots.push_back(instruction.slot);
  std::sort(slots.begin(), slots.end());
  return slots;
}

void add_transfers(const Program& program, Arrangement& into) {
  std::vector<std::vector<int>> sends, receives;
  for (const ProgramClass& of_class : program.classes) {
    sends.push_back(transfer_slots(of_class, Op::send));
    receives.push_back(transfer_slots(of_class, Op::recv));
  }
  std::size_t slots = 0;
  for (const RankEntry& entry : program.ranks) {
    into.first_slot.push_back(slots);
    slots += entry.peers.size();
  }
  into.sent.assign(slots, -1);
  into.received.assign(slots, -1);
  for (Rank rank = 0; rank < program.rank_count(); ++rank) {
    const RankEntry& entry = program.ranks[at(rank)];
    for (int slot : sends[at(entry.of_class)]) {
      into.sent[into.slot_of(rank, slot)] = static_cast<std::int32_t>(into.lanes.size());
      Lane lane;
      lane.from = rank;
      lane.to = entry.peers[at(slot)];
      lane.out = slot;
      lane.in = other_end(program, rank, slot);
      into.lanes.push_back(lane);
    }
  }
  for (std::size_t i = 0; i < into.lanes.size(); ++i)
    into.received[into.slot_of(into.lanes[i].to, into.lanes[i].in)] = static_cast<std::int32_t>(i);
}

}  // namespace

std::vector<int> collective_slots(const ProgramClass& of_class) {
  return transfer_slots(of_class, Op::collective);
}

std::vector<std::int64_t> Partition::counts() const {
  std::vector<std::int64_t> counts(first.size());
  for (std::int32_t each : of) ++counts[at(each)];
  return counts;
}

Arrangement arrange(const Program& program) {
  Arrangement made;
  for (const RankEntry& entry : program.ranks)
    made.rank_traits.push_back(mark(entry.of_class, entry.stage).low64);
  for (const Group& group : program.groups)
    made.group_traits.push_back(mark(group.kind, group.ranks.size()).low64);
  add_transfers(program, made);
  return made;
}

Symmetry find_symmetry(const Program& program, const Arrangement& arrangement) {
  return Refinement(program, arrangement).run();
}

Symmetry no_symmetry(const Program& program, const Arrangement& arrangement) {
  return {singletons(program.ranks.size()), singletons(program.groups.size()),
          singletons(arrangement.lanes.size()), singletons(arrangement.link_traits.size())};
}

std::vector<std::size_t> gang_sizes(const Program& program, const Symmetry& symmetry) {
  std::vector<std::vector<int>> slots;
  for (const ProgramClass& of_class : program.classes) slots.push_back(collective_slots(of_class));
  std::vector<std::size_t> joining(program.groups.size());
  for (const RankEntry& entry : program.ranks)
    for (int slot : slots[at(entry.of_class)]) ++joining[at(entry.groups[at(slot)])];
  std::vector<std::size_t> sizes(symmetry.groups.first.size());
  for (Rank rank : symmetry.ranks.first) {
    const RankEntry& entry = program.ranks[at(rank)];
    for (int slot : slots[at(entry.of_class)]) ++sizes[at(symmetry.groups.of[at(entry.groups[at(slot)])])];
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto group = at(symmetry.groups.first[i]);
    if (joining[group] != program.groups[group].ranks.size())
      sizes[i] = std::numeric_limits<std::size_t>::max();
  }
  return sizes;
}

}  // namespace motley
