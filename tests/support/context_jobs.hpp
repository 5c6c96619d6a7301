// Small jobs whose sequences are cut over ranks.
#pragma once

#include "tests/support/tiny_job.hpp"

namespace motley::tests {

// A job whose sequences are each cut over cp ranks.
inline Job context_job(Degrees degrees, std::int64_t cp, const Transformer& transformer) {
  Job job = tiny_job({1, 1, 1}, transformer);
  job.cluster = tiny_cluster(static_cast<int>(degrees.tp * degrees.pp * degrees.dp * cp));
  job.strategy = expand(job.transformer, job.train, degrees.tp, degrees.pp, degrees.dp, cp);
  return job;
}

// Jobs whose sequences are cut over 2 and 4 ranks, combined with the other degrees, with ZeRO and with recompute.
inline std::vector<Job> every_context_job(Family family) {
  struct Shape {
    Degrees degrees;
    std::int64_t cp;
    int zero;
    Schedule schedule = Schedule::one_f_one_b;
  };
  std::vector<Job> jobs;
  for (const Shape& shape : {Shape{{1, 1, 1}, 2, 0},
                             {{1, 1, 1}, 4, 0},
                             {{2, 1, 1}, 2, 0},
                             {{1, 2, 1}, 2, 0, Schedule::zb_h1},
                             {{2, 2, 1}, 2, 0},
                             {{1, 1, 2}, 2, 1},
                             {{1, 1, 1}, 4, 2},
                             {{1, 2, 2}, 2, 1},
                             {{1, 1, 2}, 2, 3}}) {
    Job job = context_job(shape.degrees, shape.cp, tiny_transformer(family));
    job.strategy.schedule = shape.schedule;
    job.strategy.zero = shape.zero;
    const bool other = shape.cp == 4 || shape.degrees.pp == 2;
    job.strategy.recompute = other                   ? Recompute::full
                             : shape.degrees.tp == 2 ? Recompute::selective
                                                     : Recompute::none;
    job.strategy.sequence_parallel = shape.degrees.tp == 2;
    job.strategy.overlap_gradients = other;
    job.strategy.bucket_bytes = 10'000;
    job.fidelity.tensor_parallel = other ? CollectiveLevel::fluid : CollectiveLevel::formula;
    jobs.push_back(job);
  }
  return jobs;
}

}  // namespace motley::tests
