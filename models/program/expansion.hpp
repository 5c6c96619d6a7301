// A list of steps while it is written. Private to models/program/collective.cpp and models/program/rooted.cpp. Read
// next: models/program/collective.hpp.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "models/program/collective.hpp"

namespace motley {

using Chunks = std::vector<int>;
using Places = std::vector<int>;

class Expansion {
 public:
  Expansion(int rank_count, int chunks) {
    steps_.rank_count = rank_count;
    steps_.chunks = chunks;
  }
  int R() const { return steps_.rank_count; }
  void send(int round, int from, int to, const Chunks& chunks, bool reduce) {
    for (int chunk : chunks) steps_.steps.push_back({begun_ + round, from, to, chunk, reduce});
  }
  // Sends `times` chunks that belong to no member: it counts only that they pass.
  void pass(int round, int from, int to, int times) {
    steps_.steps.push_back({begun_ + round, from, to, -1, false, times});
  }
  void end_phase(int rounds) { begun_ += rounds; }
  Chunks all() const {
    Chunks chunks(static_cast<std::size_t>(steps_.chunks));
    std::iota(chunks.begin(), chunks.end(), 0);
    return chunks;
  }
  CollectiveSteps take() {
    steps_.rounds = begun_;
    const auto by_round = [](const CollectiveStep& a, const CollectiveStep& b) { return a.round < b.round; };
    std::stable_sort(steps_.steps.begin(), steps_.steps.end(), by_round);
    return std::move(steps_);
  }

 private:
  CollectiveSteps steps_;
  int begun_ = 0;
};

}  // namespace motley
