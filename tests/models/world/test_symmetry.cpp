// Colour refinement compared with a plain one that looks at everything in every round and hashes nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "models/base/index.hpp"
#include "models/world/symmetry.hpp"

using namespace motley;

namespace {

using Words = std::vector<std::int64_t>;
using Colouring = std::vector<std::int32_t>;

struct SymmetryCase {
  Program program;
  Arrangement arrangement;
};

// A random case: ranks, groups and links of few kinds, with lanes between any of them.
SymmetryCase random_case(std::mt19937_64& random) {
  const auto below = [&](std::size_t bound) { return static_cast<std::int32_t>(random() % bound); };
  SymmetryCase drawn;
  const int ranks = 2 + below(12), groups = 1 + below(4), links = 1 + below(10), slots = below(3);
  for (int i = 0; i < 2; ++i) {
    RankProgram rank_program;
    rank_program.streams.resize(1);
    for (int slot = 0; slot < (i == 0 ? slots : slots / 2); ++slot) {
      Collective collective;
      collective.slot = GroupSlot(slot);
      Instruction join;
      join.body = collective;
      rank_program.streams[kComputeStream].instructions.push_back(join);
    }
    drawn.program.rank_programs.add(rank_program);
  }
  drawn.program.groups.resize(at(groups));
  for (Rank rank : IdRange<Rank>(at(ranks))) {
    RankEntry entry;
    entry.rank_program = RankProgramId(below(2));
    for (int slot = 0; slot < slots; ++slot) {
      const GroupId group(below(at(groups)));
      entry.groups.add(group);
      drawn.program.groups[group].ranks.push_back(rank);
    }
    drawn.program.ranks.add(entry);
    drawn.arrangement.rank_traits.add(random() % 2);
  }
  for (int i = 0; i < groups; ++i) drawn.arrangement.group_traits.add(random() % 2);
  for (int i = 0; i < links; ++i) drawn.arrangement.link_traits.push_back(random() % 2);
  const bool ring = below(2) == 0;  // long chains of small differences
  for (int i = 0, count = ring ? ranks : below(20); i < count; ++i) {
    Lane lane;
    lane.from = Rank(ring ? i : below(at(ranks)));
    lane.to = Rank(ring ? (i + 1) % ranks : below(at(ranks)));
    lane.out = lane.in = PeerSlot(below(2));
    lane.traits = i == 0 ? 1 : 0;
    if (below(3) == 0) lane.group = GroupId(below(at(groups)));
    lane.by_ranks = !lane.group || below(2) == 0;
    lane.first_link = static_cast<std::uint32_t>(drawn.arrangement.links.size());
    for (int hops = below(4); hops > 0; --hops) drawn.arrangement.links.push_back(below(at(links)));
    lane.last_link = static_cast<std::uint32_t>(drawn.arrangement.links.size());
    drawn.arrangement.lanes.push_back(lane);
  }
  return drawn;
}

// Gives equal words the same number, in the order in which they first appear.
Colouring number(const std::vector<Words>& seen) {
  std::map<Words, std::int32_t> known;
  Colouring colours;
  for (const Words& words : seen)
    colours.push_back(known.emplace(words, static_cast<std::int32_t>(known.size())).first->second);
  return colours;
}

std::vector<Words> words_of(const std::vector<std::uint64_t>& traits) {
  std::vector<Words> words;
  for (std::uint64_t trait : traits) words.push_back({static_cast<std::int64_t>(trait)});
  return words;
}

class PlainRefinement {
 public:
  explicit PlainRefinement(const SymmetryCase& refined)
      : case_(refined),
        ranks(number(words_of(refined.arrangement.rank_traits.items()))),
        groups(number(words_of(refined.arrangement.group_traits.items()))),
        links(number(words_of(refined.arrangement.link_traits))) {
    for (;;) {
      look_at_lanes();
      const Colouring ranks_before = ranks, groups_before = groups, links_before = links;
      look_again();
      if (ranks == ranks_before && groups == groups_before && links == links_before) return;
    }
  }

 private:
  using Seen = std::vector<std::vector<Words>>;

  void look_at_lanes() {
    std::vector<Words> seen;
    for (const Lane& lane : case_.arrangement.lanes) {
      Words words = {static_cast<std::int64_t>(lane.traits), lane.out->value(), lane.in->value(),
                     lane.group ? groups[at(*lane.group)] : -1, lane.by_ranks};
      if (lane.by_ranks) words.insert(words.end(), {ranks[at(lane.from)], ranks[at(lane.to)]});
      for (std::uint32_t link = lane.first_link; link < lane.last_link; ++link)
        words.push_back(links[at(case_.arrangement.links[link])]);
      seen.push_back(words);
    }
    lanes = number(seen);
  }

  void look_again() {
    Seen rank_sees(ranks.size()), group_sees(groups.size()), link_sees(links.size());
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const Lane& lane = case_.arrangement.lanes[i];
      for (std::uint32_t link = lane.first_link; link < lane.last_link; ++link)
        link_sees[at(case_.arrangement.links[link])].push_back({lanes[i], link - lane.first_link});
      if (lane.group) group_sees[at(*lane.group)].push_back({lanes[i]});
      if (!lane.by_ranks) continue;
      rank_sees[at(lane.from)].push_back({lanes[i], 0});
      rank_sees[at(lane.to)].push_back({lanes[i], 1});
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const RankEntry& entry = case_.program.ranks[Rank(rank)];
      for (GroupSlot slot : collective_slots(case_.program.rank_programs[entry.rank_program])) {
        const GroupId group = entry.groups[slot].value();
        group_sees[at(group)].push_back({ranks[rank], slot.value(), -1});
        rank_sees[rank].push_back({groups[at(group)], slot.value(), -1});
      }
    }
    split(ranks, rank_sees);
    split(groups, group_sees);
    split(links, link_sees);
  }

  static void split(Colouring& colours, Seen& seen) {
    std::vector<Words> all;
    for (std::size_t i = 0; i < colours.size(); ++i) {
      std::sort(seen[i].begin(), seen[i].end());
      Words words = {colours[i]};
      for (const Words& each : seen[i]) {
        words.push_back(static_cast<std::int64_t>(each.size()));
        words.insert(words.end(), each.begin(), each.end());
      }
      all.push_back(words);
    }
    colours = number(all);
  }

  const SymmetryCase& case_;

 public:
  Colouring ranks, groups, links, lanes;
};

}  // namespace

TEST_CASE("what looks again only where something changed finds the same classes as what looks everywhere") {
  std::mt19937_64 random(25);
  std::size_t split = 0, alike = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    const SymmetryCase each = random_case(random);
    const PlainRefinement plain(each);
    const Symmetry symmetry = find_symmetry(each.program, each.arrangement);
    REQUIRE(symmetry.ranks.class_of == plain.ranks);
    REQUIRE(symmetry.groups.class_of == plain.groups);
    REQUIRE(symmetry.links.class_of == plain.links);
    REQUIRE(symmetry.lanes.class_of == plain.lanes);
    REQUIRE(std::is_sorted(symmetry.ranks.first.begin(), symmetry.ranks.first.end()));
    split += symmetry.ranks.first.size() > 2;
    alike += symmetry.ranks.first.size() < each.program.ranks.size();
  }
  CHECK(split > 100);
  CHECK(alike > 100);
}
