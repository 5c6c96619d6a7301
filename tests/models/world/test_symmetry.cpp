// Colour refinement against a plain one that looks at everything in every round and hashes nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "models/symmetry.hpp"

using namespace motley;

namespace {

using Words = std::vector<std::int64_t>;
using Colouring = std::vector<std::int32_t>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

struct Case {
  Program program;
  Arrangement arrangement;
};

// Ranks, groups and links of few sorts, with lanes between any of them.
Case random_case(std::mt19937_64& random) {
  const auto below = [&](std::size_t bound) { return static_cast<std::int32_t>(random() % bound); };
  Case made;
  const int ranks = 2 + below(12), groups = 1 + below(4), links = 1 + below(10), slots = below(3);
  for (int i = 0; i < 2; ++i) {
    ProgramClass of_class;
    of_class.streams.resize(1);
    for (int slot = 0; slot < (i == 0 ? slots : slots / 2); ++slot) {
      Instruction join;
      join.op = Op::collective;
      join.slot = slot;
      of_class.streams[0].instructions.push_back(join);
    }
    made.program.classes.push_back(of_class);
  }
  made.program.groups.resize(at(groups));
  for (Rank rank = 0; rank < ranks; ++rank) {
    RankEntry entry;
    entry.of_class = below(2);
    for (int slot = 0; slot < slots; ++slot) {
      entry.groups.push_back(below(at(groups)));
      made.program.groups[at(entry.groups.back())].ranks.push_back(rank);
    }
    made.program.ranks.push_back(entry);
    made.arrangement.rank_traits.push_back(random() % 2);
  }
  for (int i = 0; i < groups; ++i) made.arrangement.group_traits.push_back(random() % 2);
  for (int i = 0; i < links; ++i) made.arrangement.link_traits.push_back(random() % 2);
  const bool ring = below(2) == 0;  // long chains of small differences
  for (int i = 0, count = ring ? ranks : below(20); i < count; ++i) {
    Lane lane;
    lane.from = ring ? i : below(at(ranks));
    lane.to = ring ? (i + 1) % ranks : below(at(ranks));
    lane.out = lane.in = below(2);
    lane.traits = i == 0 ? 1 : 0;
    if (below(3) == 0) lane.group = below(at(groups));
    lane.by_ranks = lane.group < 0 || below(2) == 0;
    lane.first_link = static_cast<std::uint32_t>(made.arrangement.links.size());
    for (int hops = below(4); hops > 0; --hops) made.arrangement.links.push_back(below(at(links)));
    lane.last_link = static_cast<std::uint32_t>(made.arrangement.links.size());
    made.arrangement.lanes.push_back(lane);
  }
  return made;
}

// Numbers equal words alike, in the order they come.
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

class Plain {
 public:
  explicit Plain(const Case& of)
      : of_(of),
        ranks(number(words_of(of.arrangement.rank_traits))),
        groups(number(words_of(of.arrangement.group_traits))),
        links(number(words_of(of.arrangement.link_traits))) {
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
    for (const Lane& lane : of_.arrangement.lanes) {
      Words words = {static_cast<std::int64_t>(lane.traits), lane.out, lane.in,
                     lane.group < 0 ? -1 : groups[at(lane.group)], lane.by_ranks};
      if (lane.by_ranks) words.insert(words.end(), {ranks[at(lane.from)], ranks[at(lane.to)]});
      for (std::uint32_t link = lane.first_link; link < lane.last_link; ++link)
        words.push_back(links[at(of_.arrangement.links[link])]);
      seen.push_back(words);
    }
    lanes = number(seen);
  }

  void look_again() {
    Seen rank_sees(ranks.size()), group_sees(groups.size()), link_sees(links.size());
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const Lane& lane = of_.arrangement.lanes[i];
      for (std::uint32_t link = lane.first_link; link < lane.last_link; ++link)
        link_sees[at(of_.arrangement.links[link])].push_back({lanes[i], link - lane.first_link});
      if (lane.group >= 0) group_sees[at(lane.group)].push_back({lanes[i]});
      if (!lane.by_ranks) continue;
      rank_sees[at(lane.from)].push_back({lanes[i], 0});
      rank_sees[at(lane.to)].push_back({lanes[i], 1});
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const RankEntry& entry = of_.program.ranks[rank];
      for (int slot : collective_slots(of_.program.classes[at(entry.of_class)])) {
        group_sees[at(entry.groups[at(slot)])].push_back({ranks[rank], slot, -1});
        rank_sees[rank].push_back({groups[at(entry.groups[at(slot)])], slot, -1});
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

  const Case& of_;

 public:
  Colouring ranks, groups, links, lanes;
};

}  // namespace

TEST_CASE("what looks again only where something changed finds the same classes as what looks everywhere") {
  std::mt19937_64 random(25);
  std::size_t split = 0, alike = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    const Case each = random_case(random);
    const Plain plain(each);
    const Symmetry found = find_symmetry(each.program, each.arrangement);
    REQUIRE(found.ranks.of == plain.ranks);
    REQUIRE(found.groups.of == plain.groups);
    REQUIRE(found.links.of == plain.links);
    REQUIRE(found.lanes.of == plain.lanes);
    REQUIRE(std::is_sorted(found.ranks.first.begin(), found.ranks.first.end()));
    split += found.ranks.first.size() > 2;
    alike += found.ranks.first.size() < each.program.ranks.size();
  }
  CHECK(split > 100);
  CHECK(alike > 100);
}
