#include "sim/world/overlap.hpp"

#include <algorithm>

namespace motley {

Overlap::Overlap(const Program& program, const Cluster& cluster, Clock& clock) : clock_(clock) {
  for (Rank rank : program.ranks.ids()) {
    const double factor = cluster.chip_of(program.ranks[rank].chip).software.overlap_slowdown.value;
    if (factor <= 1) continue;
    slowed_.resize(program.ranks.size());
    slowed_[rank] = std::make_unique<Slowed>();
    slowed_[rank]->factor = factor;
  }
}

auto Overlap::Pace::until(double at_s) {
  changed_ = false;
  clock_.set(*this, at_s);
  return parking_.wait();
}

void Overlap::Pace::change() {
  changed_ = true;
  clock_.cancel(*this);
  ring();
}

void Overlap::Pace::ring() { parking_.wake(clock_); }

void Overlap::begin(Rank rank) {
  Slowed* slowed = slowed_of(rank);
  if (slowed != nullptr && ++slowed->under_way == 1)
    for (Pace* pace : slowed->computes) pace->change();
}

void Overlap::end(Rank rank) {
  Slowed* slowed = slowed_of(rank);
  if (slowed != nullptr && --slowed->under_way == 0)
    for (Pace* pace : slowed->computes) pace->change();
}

Task Overlap::compute(Rank rank, double seconds) {
  Slowed* slowed = slowed_of(rank);
  if (slowed == nullptr) {
    co_await clock_.sleep(seconds);
    co_return;
  }
  Pace pace(clock_);
  slowed->computes.push_back(&pace);
  // Its time is over when the alarm rings: what is left then is rounding, however little the clock has moved.
  for (bool goes_on = true; goes_on && seconds > 0; goes_on = pace.changed()) {
    const double times = slowed->under_way > 0 ? slowed->factor : 1, begin_s = clock_.now_s();
    co_await pace.until(begin_s + seconds * times);
    seconds -= (clock_.now_s() - begin_s) / times;
  }
  slowed->computes.erase(std::find(slowed->computes.begin(), slowed->computes.end(), &pace));
}

}  // namespace motley
