// Follows the steps of a collective by hand: which members' contributions are in which chunk that a member holds, and
// whether the collective ends as CollectiveKind says.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "models/base/index.hpp"
#include "models/program/collective.hpp"

namespace motley::tests {

// For each member, how often its contribution is in a chunk that some member holds.
using Contributions = std::map<int, int>;

class FollowedCollective {
 public:
  FollowedCollective(const CollectiveTask& task, const CollectiveSteps& steps)
      : kind_(task.kind), root_(task.root), steps_(steps) {
    const int R = steps_.rank_count;
    held_.resize(at(R));
    has_heard_of_.resize(at(R));
    for (int member = 0; member < R; ++member) {
      has_heard_of_[at(member)] = {member};
      for (int chunk = 0; chunk < (kind_ == CollectiveKind::all_to_all ? R * R : steps_.chunks); ++chunk)
        if (brings(member, chunk)) held(member)[chunk] = {{member, 1}};
    }
  }

  // All messages of a round leave before any of them arrives.
  void run() {
    std::map<int, std::vector<CollectiveStep>> rounds;
    int last = 0;
    for (const CollectiveStep& step : steps_.steps) {
      REQUIRE((step.round >= last && step.round < steps_.rounds));
      REQUIRE(step.from != step.to);
      rounds[last = step.round].push_back(step);
    }
    for (const auto& [round, steps] : rounds) run_round(steps);
  }

  void check_end() {
    const int R = steps_.rank_count;
    Contributions each_once;
    for (int member = 0; member < R; ++member) each_once[member] = 1;
    for (int member = 0; member < R; ++member) {
      if (kind_ == CollectiveKind::barrier) REQUIRE(has_heard_of_[at(member)].size() == at(R));
      for (int i = 0; i < (kind_ == CollectiveKind::all_to_all ? R : steps_.chunks); ++i) {
        const bool is_root = member == root_;
        if (kind_ == CollectiveKind::all_reduce) REQUIRE(held(member)[i] == each_once);
        if (kind_ == CollectiveKind::reduce_scatter && i == member) REQUIRE(held(member)[i] == each_once);
        if (kind_ == CollectiveKind::all_gather) REQUIRE(held(member)[i] == Contributions{{i, 1}});
        if (kind_ == CollectiveKind::all_to_all)
          REQUIRE(held(member)[i * R + member] == Contributions{{i, 1}});
        if (kind_ == CollectiveKind::broadcast) REQUIRE(held(member)[i] == Contributions{{root_, 1}});
        if (kind_ == CollectiveKind::reduce && is_root) REQUIRE(held(member)[i] == each_once);
        if (kind_ == CollectiveKind::gather && is_root) REQUIRE(held(member)[i] == Contributions{{i, 1}});
        if (kind_ == CollectiveKind::scatter && i == member)
          REQUIRE(held(member)[i] == Contributions{{root_, 1}});
      }
    }
  }

 private:
  std::map<int, Contributions>& held(int member) { return held_[at(member)]; }

  bool brings(int member, int chunk) const {
    switch (kind_) {
      case CollectiveKind::all_gather:
      case CollectiveKind::gather:
        return chunk == member;
      case CollectiveKind::all_to_all:
        return chunk / steps_.rank_count == member;
      case CollectiveKind::broadcast:
      case CollectiveKind::scatter:
        return member == root_;
      case CollectiveKind::barrier:
        return false;
      default:
        return true;
    }
  }

  void run_round(const std::vector<CollectiveStep>& steps) {
    const auto heard_before = has_heard_of_;
    for (const CollectiveStep& step : steps) {
      const std::set<int>& told = heard_before[at(step.from)];
      has_heard_of_[at(step.to)].insert(told.begin(), told.end());
    }
    if (kind_ == CollectiveKind::barrier) return;
    std::vector<Contributions> sent;
    std::set<std::pair<int, int>> replaced, left;  // member, chunk
    for (const CollectiveStep& step : steps) {
      REQUIRE(held(step.from).contains(step.chunk));
      sent.push_back(held(step.from)[step.chunk]);
      left.emplace(step.from, step.chunk);
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      // A rooted collective can be done in place: no chunk comes while the one that it changes leaves.
      if (is_rooted(kind_)) REQUIRE_FALSE(left.contains({steps[i].to, steps[i].chunk}));
      Contributions& into = held(steps[i].to)[steps[i].chunk];
      if (!steps[i].reduce) {
        REQUIRE(replaced.emplace(steps[i].to, steps[i].chunk).second);
        into = sent[i];
        continue;
      }
      for (const auto& [member, times] : sent[i]) into[member] += times;
    }
  }

  CollectiveKind kind_;
  int root_;
  const CollectiveSteps& steps_;
  std::vector<std::map<int, Contributions>> held_;  // indexed by member; then by chunk
  std::vector<std::set<int>> has_heard_of_;         // indexed by member: the members whose begin it follows
};

}  // namespace motley::tests
