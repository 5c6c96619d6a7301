// Pipelines whose first stage has only the embedding, or whose last stage has only the head. They train the same
// function, and both worlds do the same.
#include "models/compile/compile.hpp"
#include "tests/support/laws.hpp"

using namespace motley;

namespace {

// A job of 4 layers, whose embedding and head count as one layer each.
Job job_of(tests::Degrees degrees, Family family, Schedule schedule, int chunks) {
  Job job = tests::tiny_job({degrees.tp, 1, degrees.dp}, family);
  job.strategy.templates[0].stages.resize(static_cast<std::size_t>(degrees.pp),
                                          job.strategy.templates[0].stages[0]);
  use_schedule(job.transformer, job.strategy, schedule, chunks, EndLayers::counted);
  job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
  return job;
}

std::vector<Job> jobs(Family family) {
  std::vector<Job> all = {job_of({1, 6, 1}, family, Schedule::one_f_one_b, 1),
                          job_of({2, 2, 1}, family, Schedule::interleaved, 3),
                          job_of({1, 3, 2}, family, Schedule::interleaved, 2)};
  all[1].strategy.sequence_parallel = true;
  all[2].strategy.zero = 1;
  all[0].strategy.recompute = Recompute::full;
  for (Job& job : all) {
    job.train.global_batch = 12 * job.strategy.dp() * job.train.micro_batch;
    for (PipelineTemplate& pipeline : job.strategy.templates) pipeline.micro_batches = 12;
  }
  return all;
}

}  // namespace

TEST_CASE("an embedding and a head that stand alone train the same function as one rank") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  for (const Job& job : jobs(family)) {
    Job one = tests::tiny_job({1, 1, 1}, family);
    one.train = job.train;
    one.strategy = expand(one.transformer, one.train, 1, 1, 1);
    tests::check_same(job, tests::train(one, 3));
  }
}

TEST_CASE("a schedule that splits backwards is refused where the embedding or the head stands alone") {
  for (const Schedule schedule : {Schedule::zb_h1, Schedule::zb_h2}) {
    Job job = job_of({1, 6, 1}, Family::llama, Schedule::one_f_one_b, 1);
    CHECK_NOTHROW(compile(job));
    job.strategy.schedule = schedule;
    CHECK_THROWS_WITH(compile(job), Catch::Contains("alone in a chunk"));
  }
}

TEST_CASE("both worlds run an embedding and a head that stand alone alike") {
  for (const Job& job : jobs(Family::llama)) {
    const Program program = compile(job);
    const auto worlds = tests::check_same_structure(job, program);
    CHECK(worlds.real.trace.events.size() == worlds.imagined.events.size());
  }
}

TEST_CASE("norms and a product computed again train the same function as one rank") {
  const std::string name = GENERATE("llama", "qwen3", "mixtral", "deepseek-v3", "gpt2");
  const Transformer transformer = name == "gpt2" ? tests::tiny_transformer() : tests::tiny_variant(name);
  const auto alone = tests::train(tests::tiny_job({1, 1, 1}, transformer), 3);
  for (const tests::Degrees degrees : {tests::Degrees{1, 1, 1}, {2, 2, 1}}) {
    Job job = tests::tiny_job(degrees, transformer);
    job.strategy.recompute = Recompute::alternate;
    job.strategy.sequence_parallel = degrees.tp > 1;
    tests::check_same(job, alone);
  }
}
