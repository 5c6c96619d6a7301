#include "models/frameworks/runnable.hpp"

#include <array>

#include "models/base/refusal.hpp"
#include "models/frameworks/export.hpp"

namespace motley {
namespace {

bool is_sayable(const Job& job, ExportTarget target) {
  try {
    validate(job.transformer, job.train, job.strategy);
    export_job("", job, target);
    return true;
  } catch (const Refusal&) {
    return false;
  }
}

}  // namespace

std::optional<Job> runnable_job(const Job& job, ExportTarget target) {
  if (is_sayable(job, target)) return job;
  const Schedule schedule = job.strategy.schedule;
  const bool may_wait = schedule == Schedule::one_f_one_b || schedule == Schedule::gpipe;
  for (const bool overlaps_p2p : {true, false}) {
    if (!overlaps_p2p && !may_wait) continue;
    for (const int zero : std::array{job.strategy.zero, 3, 0})
      for (const bool overlaps_parameters : {true, false}) {
        Job changed = job;
        Strategy& strategy = changed.strategy;
        strategy.overlap_p2p = strategy.overlap_p2p && overlaps_p2p;
        strategy.zero = zero;
        if (zero == 0) strategy.shard_over = 0;
        strategy.overlap_parameters = strategy.overlap_parameters && overlaps_parameters && zero > 0;
        if (is_sayable(changed, target)) return changed;
      }
  }
  return std::nullopt;
}

}  // namespace motley
