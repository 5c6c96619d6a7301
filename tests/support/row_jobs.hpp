// Small jobs whose rows between cut matmuls are divided over the tensor-parallel ranks (sequence parallelism), and
// small jobs that recompute a part of what a backward needs.
#pragma once

#include "tests/support/tiny_job.hpp"

namespace motley::tests {

inline void set_tensor_parallel(Job& job, const std::vector<std::int64_t>& degrees) {
  for (std::size_t i = 0; i < degrees.size(); ++i)
    job.strategy.templates[0].stages[i].tensor_parallel = degrees[i];
  job.cluster = tiny_cluster(static_cast<int>(job.strategy.rank_count()));
}

// Jobs with divided rows in many degrees and schedules, with ZeRO and with stages cut in unlike ways, on up to eight
// ranks.
inline std::vector<Job> every_row_job(const Transformer& transformer) {
  std::vector<Job> jobs;
  const auto add = [&](Job job, int zero, bool overlap) {
    job.strategy.sequence_parallel = true;
    job.strategy.zero = zero;
    job.strategy.overlap_gradients = overlap;
    job.strategy.bucket_bytes = 10'000;
    job.fidelity.tensor_parallel = overlap ? CollectiveLevel::fluid : CollectiveLevel::formula;
    jobs.push_back(job);
  };
  const bool four = transformer.kv_heads % 4 == 0;
  for (bool overlap : {false, true}) {
    add(tiny_job({2, 1, 1}, transformer), 0, overlap);
    if (four) add(tiny_job({4, 1, 1}, transformer), 0, overlap);
    add(tiny_job({2, 2, 1}, transformer), 0, overlap);
    for (int zero = 0; zero <= 3; ++zero) add(tiny_job({2, 1, 2}, transformer), zero, overlap);
  }
  Job split = tiny_job({2, 2, 1}, transformer);
  split.strategy.schedule = Schedule::zb_h1;
  add(split, 0, false);
  Job chunks = tiny_job({2, 2, 1}, transformer);
  use_schedule(chunks.transformer, chunks.strategy, Schedule::interleaved, 2);
  add(chunks, 0, true);
  for (const std::vector<std::int64_t>& degrees :
       {std::vector<std::int64_t>{1, 2}, {2, 1}, {4, 2}, {2, 4}, {1, 4}}) {
    if (!four && std::max(degrees[0], degrees[1]) == 4) continue;
    Job unlike = tiny_job({1, 2, 1}, transformer);
    set_tensor_parallel(unlike, degrees);
    add(unlike, 0, degrees[0] == 1);
  }
  return jobs;
}

// Jobs that recompute attention only or whole layers, in all layers or in some, with and without divided rows.
inline std::vector<Job> every_recomputing_job(const Transformer& transformer) {
  std::vector<Job> jobs;
  for (Recompute recompute : {Recompute::selective, Recompute::full})
    for (std::int64_t layers : {0, 1})
      for (Degrees degrees : {Degrees{1, 1, 1}, {2, 2, 1}, {1, 2, 2}})
        for (bool rows : {false, true}) {
          if (rows && degrees.tp == 1) continue;
          Job job = tiny_job(degrees, transformer);
          job.strategy.recompute = recompute;
          job.strategy.sequence_parallel = rows;
          job.strategy.zero = degrees.dp > 1 ? 3 : 0;
          if (layers > 0)
            for (Stage& stage : job.strategy.templates[0].stages) stage.recompute_layers = layers;
          jobs.push_back(job);
        }
  return jobs;
}

// The modules that a layer of the model has.
inline std::vector<Module> modules_of(const Transformer& transformer) {
  std::vector<Module> modules;
  for (const Module module : every<Module>())
    if ((module != Module::latent || transformer.latent.used()) &&
        (module != Module::router || transformer.experts.count > 0) &&
        (module != Module::norms || transformer.norms_inputs() || transformer.latent.used()))
      modules.push_back(module);
  return modules;
}

// Jobs that recompute one module, or all of them, with and without divided rows.
inline std::vector<Job> every_module_job(const Transformer& transformer) {
  std::vector<Recompute> choices(1);
  for (const Module module : modules_of(transformer)) {
    choices.front().add(module);
    choices.emplace_back().add(module);
  }
  std::vector<Job> jobs;
  for (const Recompute& recompute : choices)
    for (const bool rows : {false, true}) {
      Job job = tiny_job(rows ? Degrees{2, 1, 1} : Degrees{1, 2, 1}, transformer);
      job.strategy.recompute = recompute;
      job.strategy.sequence_parallel = rows;
      if (!rows) job.strategy.schedule = Schedule::zb_h1;
      jobs.push_back(job);
    }
  return jobs;
}

}  // namespace motley::tests
