#include "tests/support/priced_jobs.hpp"

#include "tests/support/dice.hpp"
#include "tests/support/random_jobs.hpp"

namespace motley::tests {

void price_chips(Job& job, unsigned seed) {
  Dice dice(seed);
  for (NodeGroup& group : job.cluster.groups) {
    group.chip.price_per_hour = {dice.one_of({0.5, 1.0, 3.0, 8.0}), "assumed"};
    group.chip.watts = {dice.one_of({100.0, 300.0, 700.0}), "assumed"};
    Site site;
    site.pue = dice.one_of({1.0, 1.1, 1.5});
    site.carbon = dice.one_of({20.0, 400.0});
    site.node_watts = dice.one_of({0.0, 500.0});
    group.site = site;
  }
  build_topology(job.cluster);
}

Job priced_job(unsigned seed) {
  Job job = any_job(seed);
  while (job.transformer.experts.count > 0 || job.transformer.trained_extra() > 0)
    job = any_job(seed += 1000);
  job.fidelity.fold = true;
  price_chips(job, seed);
  return job;
}

}  // namespace motley::tests
