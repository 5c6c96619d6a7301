// Mixes of unlike pipelines against every mix of small clusters.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "models/base/index.hpp"
#include "models/plan/template_mix.hpp"
#include "tests/support/dice.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Case {
  std::vector<TemplateKind> kinds;
  std::vector<double> chips;
  std::int64_t batch = 1;
};

// One to three groups of a few chips, and kinds of which some take chips of several groups.
Case random_case(unsigned seed) {
  Dice dice(seed);
  Case one;
  one.batch = dice.one_of({6, 12, 17, 40});
  const int groups = dice.one_of({1, 2, 3});
  for (int i = 0; i < groups; ++i) one.chips.push_back(dice.one_of({0, 2, 3, 5, 8}));
  for (int i = dice.one_of({1, 2, 3, 4}); i > 0; --i) {
    TemplateKind kind;
    for (int j = 0; j < groups; ++j) kind.chips.push_back(dice.one_of({0, 0, 1, 2, 3}));
    if (std::all_of(kind.chips.begin(), kind.chips.end(), [](double chips) { return chips == 0; }))
      kind.chips[0] = 1;
    kind.sequences = dice.one_of({1, 1, 2});
    kind.once_s = dice.one_of({0.0, 0.5, 3.0});
    kind.each_s = dice.one_of({0.2, 0.7, 1.0, 1.9});
    one.kinds.push_back(kind);
  }
  return one;
}

// The least time in which whole replicas of the kinds finish the batch or more. It counts them all.
double least_whole_s(const Case& one, std::size_t kind, std::vector<double> left,
                     std::vector<std::int64_t>& replicas) {
  if (kind == one.kinds.size()) {
    double least_s = std::numeric_limits<double>::infinity();
    for (const TemplateKind& ends_last : one.kinds)  // the mix ends as some replica ends a micro-batch
      for (std::int64_t count = 1; count <= one.batch; ++count) {
        const double step_s = ends_last.once_s + static_cast<double>(count) * ends_last.each_s;
        std::int64_t sequences = 0;
        for (std::size_t i = 0; i < one.kinds.size(); ++i)
          sequences += replicas[i] * one.kinds[i].sequences * one.kinds[i].most_micro_batches(step_s);
        if (sequences >= one.batch) least_s = std::min(least_s, step_s);
      }
    return least_s;
  }
  double least_s = std::numeric_limits<double>::infinity();
  for (replicas[kind] = 0;; ++replicas[kind]) {
    least_s = std::min(least_s, least_whole_s(one, kind + 1, left, replicas));
    for (std::size_t group = 0; group < left.size(); ++group) left[group] -= one.kinds[kind].chips[group];
    if (std::any_of(left.begin(), left.end(), [](double chips) { return chips < 0; })) break;
  }
  replicas[kind] = 0;
  return least_s;
}

}  // namespace

TEST_CASE("no whole mix is below the bound of mixtures, and a good one is proposed", "[plan]") {
  int mixed = 0, counted = 0;
  double worse = 0;
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    const Case one = random_case(seed);
    const TemplateMixer mixer(one.kinds, one.chips, one.batch);
    std::vector<std::int64_t> replicas(one.kinds.size(), 0);
    const double least_s = least_whole_s(one, 0, one.chips, replicas);
    CHECK(std::isfinite(mixer.least_step_s()) == std::isfinite(least_s));
    if (!std::isfinite(least_s)) {
      CHECK(mixer.mixes().empty());
      continue;
    }
    CHECK(mixer.least_step_s() <= least_s * (1 + 1e-9));
    const std::vector<TemplateMix> mixes = mixer.mixes();
    for (const TemplateMix& mix : mixes) {
      std::vector<double> taken(one.chips.size(), 0);
      std::int64_t sequences = 0;
      double longest_s = 0;
      for (const MixPart& part : mix.parts) {
        const TemplateKind& kind = one.kinds[part.kind];
        CHECK(part.replicas > 0);
        CHECK(part.micro_batches > 0);
        sequences += part.replicas * part.micro_batches * kind.sequences;
        longest_s = std::max(longest_s, kind.once_s + static_cast<double>(part.micro_batches) * kind.each_s);
        for (std::size_t group = 0; group < taken.size(); ++group)
          taken[group] += static_cast<double>(part.replicas) * kind.chips[group];
      }
      CHECK(sequences == one.batch);
      CHECK(longest_s == Approx(mix.step_s));
      CHECK(mix.step_s >= least_s * (1 - 1e-9));
      for (std::size_t group = 0; group < taken.size(); ++group) CHECK(taken[group] <= one.chips[group]);
    }
    const bool is_any_batch = std::all_of(one.kinds.begin(), one.kinds.end(),
                                          [](const TemplateKind& kind) { return kind.sequences == 1; });
    if (is_any_batch) CHECK(!mixes.empty());
    if (mixes.empty()) continue;
    mixed += mixes.front().parts.size() > 1 ? 1 : 0;
    worse += mixes.front().step_s / least_s - 1;
    ++counted;
  }
  CHECK(mixed > 300);
  CHECK(counted > 1000);
  CHECK(worse / counted < 0.002);
}

TEST_CASE("one more chip never makes the bound of mixtures worse", "[plan]") {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    Case one = random_case(seed);
    const double before_s = TemplateMixer(one.kinds, one.chips, one.batch).least_step_s();
    one.chips[seed % one.chips.size()] += 1;
    const double after_s = TemplateMixer(one.kinds, one.chips, one.batch).least_step_s();
    CHECK(after_s <= before_s * (1 + 1e-3));
  }
}
