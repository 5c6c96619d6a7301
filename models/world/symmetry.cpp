// Refines classes by marks. A rank, group or link sees the multiset of the marks of its lanes, kept as a 128-bit sum;
// collisions are assumed not to happen. After the first round only neighbours of members that changed their class
// look again, so that the time grows with the number of changes, not with the size of the cluster.
//
// This suffices for max-min sharing: in an equitable partition every link of a class is crossed by equally many lanes
// of each class. So rates that are max-min fair on one link of each class are max-min fair on all, and max-min fair
// rates are unique. Steps that begin alike therefore end alike, and by induction on time so do all later steps.
#include "models/world/symmetry.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "models/base/index.hpp"

namespace motley {
namespace {

using Mark = XXH128_hash_t;

constexpr std::uint64_t kNone = ~std::uint64_t{0};

std::uint64_t word_of(const std::optional<PeerSlot>& slot) {
  return slot ? static_cast<std::uint64_t>(slot->value()) : kNone;
}

template <class... Words>
Mark mark(Words... words) {
  const std::array<std::uint64_t, sizeof...(Words)> packed{static_cast<std::uint64_t>(words)...};
  return XXH3_128bits(packed.data(), sizeof packed);
}

void add(Mark& sum, const Mark& mark) {  // adds to a multiset: the order of additions does not matter
  sum.low64 += mark.low64;
  sum.high64 += mark.high64;
}

// Numbers distinct marks in the order in which they come.
class Numbering {
 public:
  std::int32_t number(const Mark& mark) {
    Slot& slot = slot_of(mark);
    if (slot.number >= 0) return slot.number;
    slot = {mark, count_++};
    if (2 * at(count_) > slots_.size()) grow();
    return count_ - 1;
  }
  std::int32_t count() const { return count_; }

 private:
  struct Slot {
    Mark mark{};
    std::int32_t number = -1;
  };
  std::vector<Slot> slots_ = std::vector<Slot>(16);  // a power of two, at most half of them in use
  std::int32_t count_ = 0;

  Slot& slot_of(const Mark& mark) {
    std::size_t i = mark.low64 & (slots_.size() - 1);
    while (slots_[i].number >= 0 && !XXH128_isEqual(slots_[i].mark, mark)) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void grow() {
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : before)
      if (slot.number >= 0) slot_of(slot.mark) = slot;
  }
};

void take(Mark& sum, const Mark& mark) {
  sum.low64 -= mark.low64;
  sum.high64 -= mark.high64;
}

// Lists of lanes for each rank, group or link, or of ranks for each group, stored one after another.
class Lists {
 public:
  explicit Lists(std::size_t count) : first_(count + 2) {}
  void count(std::int32_t owner) { ++first_[at(owner) + 2]; }
  void make_room() {
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    items_.resize(first_.back());
  }
  void put(std::int32_t owner, std::size_t item) {
    items_[first_[at(owner) + 1]++] = static_cast<std::uint32_t>(item);
  }
  std::span<const std::uint32_t> operator[](std::int32_t owner) const {
    return std::span(items_).subspan(first_[at(owner)], first_[at(owner) + 1] - first_[at(owner)]);
  }

 private:
  std::vector<std::uint32_t> first_, items_;
};

// The classes of ranks, of groups or of links. After a split, all members of a class have seen the same.
class Colours {
 public:
  struct Change {
    std::int32_t member, before;
  };

  void assign(const std::vector<std::uint64_t>& traits) {
    Numbering numbering;
    colours_.reserve(traits.size());
    for (std::size_t i = 0; i < traits.size(); ++i)  // most members have their neighbour's trait
      colours_.push_back(i > 0 && traits[i] == traits[i - 1] ? colours_.back()
                                                             : numbering.number(mark(traits[i])));
    seen_.resize(colours_.size());
    is_touched_.resize(colours_.size());
    sizes_.resize(at(numbering.count()));
    for (std::size_t i = 0; i < colours_.size(); ++i) {
      ++sizes_[at(colours_[i])];
      touch(static_cast<std::int32_t>(i));
    }
  }

  std::size_t size() const { return colours_.size(); }
  std::int32_t colour(std::int64_t member) const { return colours_[at(member)]; }
  void see(std::int32_t member, const Mark& mark) {
    add(seen_[at(member)], mark);
    touch(member);
  }
  void forget(std::int32_t member, const Mark& mark) { take(seen_[at(member)], mark); }

  // Splits classes by what their members have seen since the last split. Members that saw nothing new keep the
  // class's number; if all saw something, the largest part keeps it, so that few members change.
  std::vector<Change> split();

  // The classes, numbered in the order of their first members.
  template <class Member>
  Partition<Member> partition() const {
    Partition<Member> classes;
    std::vector<std::int32_t> number(sizes_.size(), -1);
    classes.class_of.reserve(colours_.size());
    for (std::size_t i = 0; i < colours_.size(); ++i) {
      std::int32_t& given = number[at(colours_[i])];
      if (given < 0) {
        given = static_cast<std::int32_t>(classes.first.size());
        classes.first.push_back(Member(static_cast<std::int32_t>(i)));
      }
      classes.class_of.push_back(given);
    }
    return classes;
  }

 private:
  void touch(std::int32_t member) {
    if (std::exchange(is_touched_[at(member)], 1) == 0) touched_.push_back(member);
  }

  std::vector<std::int32_t> colours_;
  std::vector<Mark> seen_;
  std::vector<std::int32_t> touched_;  // members whose `seen_` changed since the last split
  std::vector<char> is_touched_;
  std::vector<std::int32_t> sizes_;  // number of members, by class
};

std::vector<Colours::Change> Colours::split() {
  struct Part {
    std::int32_t colour = 0, size = 0;
  };
  struct Touched {
    std::int32_t size = 0, largest = -1;
  };
  Numbering numbering;
  std::vector<std::int32_t> part_of;
  std::vector<Part> parts;
  for (std::int32_t member : touched_) {
    const Mark& seen = seen_[at(member)];
    part_of.push_back(numbering.number(mark(colour(member), seen.low64, seen.high64)));
    if (part_of.back() == static_cast<std::int32_t>(parts.size())) parts.push_back({colour(member), 0});
    ++parts[at(part_of.back())].size;
  }
  std::unordered_map<std::int32_t, Touched> classes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Touched& all = classes[parts[i].colour];
    all.size += parts[i].size;
    if (all.largest < 0 || parts[i].size > parts[at(all.largest)].size)
      all.largest = static_cast<std::int32_t>(i);
  }
  for (const auto& [colour, all] : classes)  // every member saw something new, so no member keeps the number
    if (all.size < sizes_[at(colour)]) classes[colour].largest = -1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (classes[parts[i].colour].largest == static_cast<std::int32_t>(i)) continue;
    sizes_[at(parts[i].colour)] -= parts[i].size;
    parts[i].colour = static_cast<std::int32_t>(sizes_.size());
    sizes_.push_back(parts[i].size);
  }
  std::vector<Change> changes;
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    const std::int32_t member = touched_[i], before = colour(member), now = parts[at(part_of[i])].colour;
    is_touched_[at(member)] = 0;
    colours_[at(member)] = now;
    if (now != before) changes.push_back({member, before});
  }
  touched_.clear();
  return changes;
}

class Refinement {
 public:
  Refinement(const Program& program, const Arrangement& arrangement)
      : program_(program),
        arrangement_(arrangement),
        marks_(arrangement.lanes.size()),
        is_stale_(arrangement.lanes.size()),
        rank_lanes_(arrangement.rank_traits.size()),
        group_lanes_(arrangement.group_traits.size()),
        link_lanes_(arrangement.link_traits.size()),
        members_(arrangement.group_traits.size()) {
    ranks_.assign(arrangement.rank_traits.items());
    groups_.assign(arrangement.group_traits.items());
    links_.assign(arrangement.link_traits);
    for (const RankProgram& rank_program : program.rank_programs)
      collectives_.add(collective_slots(rank_program));
    index_lanes();
  }

  Symmetry run() {
    see_all();
    while (round()) continue;
    Numbering numbering;
    Partition<std::int32_t> lanes;
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      lanes.class_of.push_back(numbering.number(marks_[i]));
      if (lanes.class_of.back() == static_cast<std::int32_t>(lanes.first.size()))
        lanes.first.push_back(static_cast<std::int32_t>(i));
    }
    return {ranks_.partition<Rank>(), groups_.partition<GroupId>(), lanes, links_.partition<std::int32_t>()};
  }

 private:
  // Visits the neighbours of a lane, each with its place: its links, its group, and the ranks that post it
  // themselves.
  template <class Link, class Group, class End>
  void each_of(std::size_t index, Link link, Group group, End end) const {
    const Lane& lane = arrangement_.lanes[index];
    for (std::uint32_t i = lane.first_link; i < lane.last_link; ++i)
      link(arrangement_.links[i], i - lane.first_link);
    if (lane.group) group(lane.group->value());
    if (!lane.by_ranks) return;
    end(lane.from.value(), 0);
    end(lane.to.value(), 1);
  }

  void index_lanes() {
    for (std::size_t i = 0; i < marks_.size(); ++i)
      each_of(
          i, [&](std::int32_t link, auto) { link_lanes_.count(link); },
          [&](std::int32_t group) { group_lanes_.count(group); },
          [&](std::int32_t rank, int) { rank_lanes_.count(rank); });
    for (Rank rank : program_.ranks.ids())
      each_collective(rank, [&](std::int32_t group, int) { members_.count(group); });
    for (Lists* each : {&rank_lanes_, &group_lanes_, &link_lanes_, &members_}) each->make_room();
    for (Rank rank : program_.ranks.ids())
      each_collective(rank, [&](std::int32_t group, int) { members_.put(group, at(rank)); });
    for (std::size_t i = 0; i < marks_.size(); ++i)
      each_of(
          i, [&](std::int32_t link, auto) { link_lanes_.put(link, i); },
          [&](std::int32_t group) { group_lanes_.put(group, i); },
          [&](std::int32_t rank, int) { rank_lanes_.put(rank, i); });
  }

  // The marks of two lanes are equal if the lanes and all their neighbours are equal.
  Mark mark_of(std::size_t index) {
    const Lane& lane = arrangement_.lanes[index];
    words_ = {lane.traits, word_of(lane.out), word_of(lane.in),
              lane.group ? static_cast<std::uint64_t>(groups_.colour(lane.group->value())) : kNone};
    if (lane.by_ranks)
      for (Rank rank : {lane.from, lane.to})
        words_.push_back(static_cast<std::uint64_t>(ranks_.colour(rank.value())));
    for (std::uint32_t link = lane.first_link; link < lane.last_link; ++link)
      words_.push_back(static_cast<std::uint64_t>(links_.colour(arrangement_.links[link])));
    return XXH3_128bits(words_.data(), words_.size() * sizeof words_[0]);
  }

  void show(std::size_t lane) {
    const Mark shown = marks_[lane] = mark_of(lane);
    each_of(
        lane,
        [&](std::int32_t link, auto place) { links_.see(link, mark(shown.low64, shown.high64, place)); },
        [&](std::int32_t group) { groups_.see(group, shown); },
        [&](std::int32_t rank, int end) { ranks_.see(rank, mark(shown.low64, shown.high64, end)); });
  }
  void hide(std::size_t lane) {
    const Mark shown = marks_[lane];
    each_of(
        lane,
        [&](std::int32_t link, auto place) { links_.forget(link, mark(shown.low64, shown.high64, place)); },
        [&](std::int32_t group) { groups_.forget(group, shown); },
        [&](std::int32_t rank, int end) { ranks_.forget(rank, mark(shown.low64, shown.high64, end)); });
  }

  void see_all() {
    for (std::size_t i = 0; i < marks_.size(); ++i) show(i);
    for (Rank rank : program_.ranks.ids())
      each_collective(rank, [&](std::int32_t group, int slot) {
        groups_.see(group, mark(ranks_.colour(rank.value()), slot));
        ranks_.see(rank.value(), mark(groups_.colour(group), slot));
      });
  }

  template <class Do>
  void each_collective(Rank rank, Do act) const {
    const RankEntry& entry = program_.ranks[rank];
    for (GroupSlot slot : collectives_[entry.rank_program])
      act(entry.groups[slot].value().value(), slot.value());
  }

  // Splits classes by what was seen, and shows changes to the neighbours. Returns false when nothing changed.
  bool round() {
    const auto ranks = ranks_.split(), groups = groups_.split(), links = links_.split();
    std::vector<std::uint32_t> stale;
    const auto mark_stale = [&](const std::vector<Colours::Change>& changes, const Lists& lanes_of) {
      for (const Colours::Change& change : changes)
        for (std::uint32_t lane : lanes_of[change.member])
          if (std::exchange(is_stale_[lane], 1) == 0) stale.push_back(lane);
    };
    mark_stale(ranks, rank_lanes_);
    mark_stale(groups, group_lanes_);
    mark_stale(links, link_lanes_);
    for (std::uint32_t lane : stale) {
      hide(lane);
      show(lane);
      is_stale_[lane] = 0;
    }
    for (const Colours::Change& rank : ranks)
      each_collective(Rank(rank.member), [&](std::int32_t group, int slot) {
        groups_.forget(group, mark(rank.before, slot));
        groups_.see(group, mark(ranks_.colour(rank.member), slot));
      });
    for (const Colours::Change& group : groups) show_members(group);
    return !ranks.empty() || !groups.empty() || !links.empty();
  }

  void show_members(const Colours::Change& group) {
    std::int32_t last = -1;
    for (std::uint32_t member : members_[group.member]) {
      const auto rank = static_cast<std::int32_t>(member);
      if (std::exchange(last, rank) == rank) continue;  // a rank in several slots is handled once
      each_collective(Rank(rank), [&](std::int32_t joined, int slot) {
        if (joined != group.member) return;
        ranks_.forget(rank, mark(group.before, slot));
        ranks_.see(rank, mark(groups_.colour(joined), slot));
      });
    }
  }

  const Program& program_;
  const Arrangement& arrangement_;
  IdTable<RankProgramId, std::vector<GroupSlot>> collectives_;
  Colours ranks_, groups_, links_;
  std::vector<Mark> marks_;  // by lane
  std::vector<char> is_stale_;
  Lists rank_lanes_, group_lanes_, link_lanes_, members_;
  std::vector<std::uint64_t> words_;
};

template <class Member>
Partition<Member> singletons(std::size_t count) {
  Partition<Member> alone;
  alone.class_of.resize(count);
  std::iota(alone.class_of.begin(), alone.class_of.end(), 0);
  for (std::int32_t member : alone.class_of) alone.first.push_back(Member(member));
  return alone;
}

// The slots that `slot_of` gives for the program's instructions, ascending, each once.
template <class Slot, class SlotOf>
std::vector<Slot> used_slots(const RankProgram& rank_program, SlotOf slot_of) {
  std::set<Slot> slots;
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& instruction : stream.instructions)
      if (const std::optional<Slot> slot = slot_of(instruction)) slots.insert(*slot);
  return {slots.begin(), slots.end()};
}

std::vector<PeerSlot> transfer_slots(const RankProgram& rank_program, Op op) {
  return used_slots<PeerSlot>(rank_program, [op](const Instruction& instruction) {
    return instruction.op() == op ? std::optional(instruction.message()->slot) : std::nullopt;
  });
}

void add_transfers(const Program& program, Arrangement& into) {
  IdTable<RankProgramId, std::vector<PeerSlot>> sends;
  for (const RankProgram& rank_program : program.rank_programs)
    sends.add(transfer_slots(rank_program, Op::send));
  std::size_t slots = 0;
  for (const RankEntry& entry : program.ranks) {
    into.first_slot.add(slots);
    slots += entry.peers.size();
  }
  into.sent.assign(slots, -1);
  into.received.assign(slots, -1);
  for (Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    for (PeerSlot slot : sends[entry.rank_program]) {
      into.sent[into.slot_of(rank, slot)] = static_cast<std::int32_t>(into.lanes.size());
      Lane lane;
      lane.from = rank;
      lane.to = entry.peers[slot].value();
      lane.out = slot;
      lane.in = other_end(program, rank, slot);
      into.lanes.push_back(lane);
    }
  }
  for (std::size_t i = 0; i < into.lanes.size(); ++i)
    into.received[into.slot_of(into.lanes[i].to, into.lanes[i].in.value())] = static_cast<std::int32_t>(i);
}

}  // namespace

std::vector<GroupSlot> collective_slots(const RankProgram& rank_program) {
  return used_slots<GroupSlot>(rank_program, [](const Instruction& instruction) {
    const auto* collective = instruction.as<Collective>();
    return collective != nullptr ? std::optional(collective->slot) : std::nullopt;
  });
}

Arrangement arrange(const Program& program) {
  Arrangement arrangement;
  for (const RankEntry& entry : program.ranks)
    arrangement.rank_traits.add(mark(entry.rank_program.value(), entry.stage).low64);
  for (const Group& group : program.groups)
    arrangement.group_traits.add(mark(group.kind, group.ranks.size()).low64);
  add_transfers(program, arrangement);
  return arrangement;
}

Symmetry find_symmetry(const Program& program, const Arrangement& arrangement) {
  return Refinement(program, arrangement).run();
}

Symmetry no_symmetry(const Program& program, const Arrangement& arrangement) {
  return {singletons<Rank>(program.ranks.size()), singletons<GroupId>(program.groups.size()),
          singletons<std::int32_t>(arrangement.lanes.size()),
          singletons<std::int32_t>(arrangement.link_traits.size())};
}

std::vector<std::size_t> gang_sizes(const Program& program, const Symmetry& symmetry) {
  IdTable<RankProgramId, std::vector<GroupSlot>> slots;
  for (const RankProgram& rank_program : program.rank_programs) slots.add(collective_slots(rank_program));
  IdTable<GroupId, std::size_t> joining(program.groups.size());
  for (const RankEntry& entry : program.ranks)
    for (GroupSlot slot : slots[entry.rank_program]) ++joining[entry.groups[slot].value()];
  std::vector<std::size_t> sizes(symmetry.groups.first.size());
  for (Rank rank : symmetry.ranks.first) {
    const RankEntry& entry = program.ranks[rank];
    for (GroupSlot slot : slots[entry.rank_program])
      ++sizes[at(symmetry.groups.class_of[at(entry.groups[slot].value())])];
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const GroupId group = symmetry.groups.first[i];
    if (joining[group] != program.groups[group].ranks.size())
      sizes[i] = std::numeric_limits<std::size_t>::max();
  }
  return sizes;
}

}  // namespace motley
