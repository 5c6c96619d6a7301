#include "sim/world/overlap.hpp"

#include <mutex>

namespace motley {

namespace sg = simgrid::s4u;

Overlap::Overlap(const Program& program, const Cluster& cluster) {
  for (Rank rank : program.ranks.ids()) {
    const double factor = cluster.chip_of(program.ranks[rank].chip).software.overlap_slowdown.value;
    if (factor <= 1) continue;
    slowed_.resize(program.ranks.size());
    slowed_[rank] = std::make_unique<Slowed>();
    slowed_[rank]->factor = factor;
  }
}

void Overlap::begin(Rank rank) {
  Slowed* slowed = slowed_of(rank);
  if (slowed != nullptr && ++slowed->under_way == 1) slowed->changed->notify_all();
}

void Overlap::end(Rank rank) {
  Slowed* slowed = slowed_of(rank);
  if (slowed != nullptr && --slowed->under_way == 0) slowed->changed->notify_all();
}

void Overlap::compute(Rank rank, double seconds) {
  Slowed* slowed = slowed_of(rank);
  if (slowed == nullptr) {
    if (seconds > 0) sg::this_actor::sleep_for(seconds);
    return;
  }
  constexpr double kNothing_s = 1e-12;  // just above the rounding error of times
  std::unique_lock<sg::Mutex> lock(*slowed->mutex);
  while (seconds > kNothing_s) {
    const double times = slowed->under_way > 0 ? slowed->factor : 1, begin_s = sg::Engine::get_clock();
    if (slowed->changed->wait_for(lock, seconds * times) == std::cv_status::timeout) return;
    seconds -= (sg::Engine::get_clock() - begin_s) / times;
  }
}

}  // namespace motley
