// The law on which the whole suite depends: any legal Strategy trains the same function. Every small Strategy is really
// trained and must have, step by step, the losses of one rank.
#include <catch2/catch.hpp>
#include <map>

#include "models/compile/compile.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/row_jobs.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using tests::check_same;
using tests::train;

namespace {

void check_family(Family family) {
  std::map<std::int64_t, std::vector<double>> alone_with;  // by global batch: one schedule has a smaller one
  std::vector<Job> jobs = tests::every_small_job(family);
  for (const Job& job : tests::every_scheduled_job(family)) jobs.push_back(job);
  for (const Job& job : jobs) {
    INFO(print(job.strategy));
    std::vector<double>& alone = alone_with[job.train.global_batch];
    if (alone.empty()) {
      Job one = tests::tiny_job({1, 1, 1}, family);
      one.train = job.train;
      one.strategy = expand(one.transformer, one.train, 1, 1, 1);
      alone = tests::falling_losses(one, 0.5);
    }
    check_same(job, alone);
  }
}

}  // namespace

TEST_CASE("whatever replicas divide among them, they train the same function as one rank", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  std::map<std::int64_t, std::vector<double>> alone;  // by global batch
  for (const Job& job : tests::every_divided_job(family)) {
    auto& losses = alone[job.train.global_batch];
    if (losses.empty()) {
      Job one = tests::tiny_job({1, 1, 1}, family);
      one.train.global_batch = job.train.global_batch;
      one.strategy = expand(one.transformer, one.train, 1, 1, 1);
      losses = tests::compared_losses(one);
    }
    check_same(job, losses);
  }
}

TEST_CASE("whatever the node's memory keeps, ranks train the same function as one rank", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  const std::vector<double> alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, family));
  for (const Job& job : tests::every_offloaded_job(family)) check_same(job, alone);
}

TEST_CASE("experts on several ranks train the same function when the node's memory keeps what is theirs") {
  const Transformer transformer = tests::tiny_variant("mixtral");
  const std::vector<double> alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (Job& job : tests::every_expert_job(transformer)) {
    job.cluster = tests::with_hosts(job.cluster);
    job.strategy.offload = {1, 0.5};
    check_same(job, alone);
  }
}

TEST_CASE("stages cut in unlike ways train the same function as one rank", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  const std::vector<double> alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, family));
  for (const Job& job : tests::every_resharded_job(family)) check_same(job, alone);
}

TEST_CASE("three stages of several chunks that are cut in unlike ways train the same function as one rank") {
  Transformer transformer = tests::tiny_transformer(Family::llama);
  transformer.layers = 6;
  const auto sized = [&](tests::Degrees degrees) {
    Job job = tests::tiny_job(degrees, transformer);
    job.train.global_batch = 12;
    for (PipelineTemplate& pipeline : job.strategy.templates) pipeline.micro_batches = 6;
    return job;
  };
  const std::vector<double> alone = tests::compared_losses(sized({1, 1, 1}));
  for (const bool by_rows : {false, true})
    for (const Schedule schedule : {Schedule::interleaved, Schedule::zb_v})
      for (const std::vector<std::int64_t>& degrees : {std::vector<std::int64_t>{1, 2, 4}, {4, 1, 2}}) {
        Job job = sized({1, 3, 1});
        use_schedule(job.transformer, job.strategy, schedule, 2);
        job.strategy.sequence_parallel = by_rows;
        for (std::size_t i = 0; i < degrees.size(); ++i)
          job.strategy.templates[0].stages[i].tensor_parallel = degrees[i];
        job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
        check_same(job, alone);
      }
}

TEST_CASE("stages replicated more and less often train the same function as one rank", "[slow]") {
  const Family family = GENERATE(Family::gpt2, Family::llama);
  const std::vector<double> alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, family));
  for (const Job& job : tests::every_job_of_unlike_replicas(family)) check_same(job, alone);
}

TEST_CASE("experts of stages that are replicated unlike train the same function") {
  const Transformer transformer = tests::tiny_variant("mixtral");
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (int zero = 0; zero <= 3; ++zero) {
    Job job = tests::tiny_job({1, 2, 1}, transformer);
    job.strategy.zero = zero;
    auto& stages = job.strategy.templates[0].stages;
    stages[0].tensor_parallel = 2;
    stages[0].expert_parallel = 2;
    stages[0].expert_tensor_parallel = 1;
    stages[1].replicas = 2;
    stages[1].expert_parallel = zero < 2 ? 2 : 1;
    job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
    check_same(job, alone);
  }
}

TEST_CASE("every small strategy trains the same GPT-2 as one rank", "[slow]") { check_family(Family::gpt2); }

TEST_CASE("every small strategy trains the same Llama as one rank", "[slow]") { check_family(Family::llama); }

TEST_CASE("a vocabulary that tensor parallelism must pad trains the same function") {
  Job job = tests::tiny_job({1, 1, 1});
  job.transformer.vocabulary = 257;
  const auto alone = tests::compared_losses(job);
  Job cut = tests::tiny_job({4, 1, 1});
  cut.transformer.vocabulary = 257;
  check_same(cut, alone);
}

TEST_CASE("heads that share keys train the same function when tensor parallelism cuts them") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  job.transformer.kv_heads = 2;
  const auto alone = tests::compared_losses(job);
  Job cut = tests::tiny_job({2, 1, 1}, Family::llama);
  cut.transformer.kv_heads = 2;
  check_same(cut, alone);
}

TEST_CASE("every family trains the same function however it is cut", "[slow]") {
  const std::string name = GENERATE(from_range(tests::variants()));
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::falling_losses(tests::tiny_job({1, 1, 1}, transformer), 1.0);
  for (tests::Degrees degrees : {tests::Degrees{2, 1, 1}, {2, 2, 1}, {1, 2, 2}})
    for (Recompute recompute : {Recompute::none, Recompute::full}) {
      Job job = tests::tiny_job(degrees, transformer);
      job.strategy.recompute = recompute;
      job.strategy.overlap_gradients = recompute == Recompute::full;
      if (degrees.pp > 1 && recompute == Recompute::none) job.strategy.schedule = Schedule::zb_h1;
      if (degrees.dp > 1) job.strategy.zero = recompute == Recompute::none ? 2 : 3;
      check_same(job, alone);
    }
}

TEST_CASE("gradients that are reduced once a step train the same function, in every family", "[slow]") {
  const std::string name = GENERATE(from_range(tests::variants()));
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (const int zero : {2, 3})
    for (const tests::Degrees degrees : {tests::Degrees{1, 1, 4}, {2, 1, 2}, {1, 2, 2}}) {
      Job job = tests::tiny_job(degrees, transformer);
      job.strategy.zero = zero;
      job.strategy.reduce_gradients = ReduceGradients::last;
      job.strategy.overlap_gradients = degrees.pp == 1;
      if (degrees.dp == 4) job.strategy.shard_over = 2;
      check_same(job, alone);
    }
}

TEST_CASE("parameters that stay from forward to backward train the same function, in every family") {
  const std::string name = GENERATE(from_range(tests::variants()));
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (const tests::Degrees degrees : {tests::Degrees{1, 1, 4}, {2, 1, 2}}) {
    Job job = tests::tiny_job(degrees, transformer);
    job.strategy.zero = 3;
    job.strategy.reshard_after_forward = false;
    if (degrees.dp == 4) job.strategy.shard_over = 2;
    if (degrees.dp == 2) job.strategy.recompute = Recompute::full;
    check_same(job, alone);
  }
}

TEST_CASE("modules that are computed again train the same function, in every family", "[slow]") {
  const std::string name = GENERATE(from_range(tests::variants()));
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (const Job& job : tests::every_module_job(transformer)) check_same(job, alone);
}

TEST_CASE("experts weighed inside train the same function, with modules computed again", "[slow]") {
  const std::string name = GENERATE("mixtral", "qwen2-moe", "deepseek-v3");
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  Recompute all;
  for (const Module module : tests::modules_of(transformer)) all.add(module);
  bool again = false;
  for (Job& job : tests::every_expert_job(transformer)) {
    job.strategy.expert_weights = ExpertWeights::activation;
    if (again) job.strategy.recompute = all;
    again = !again;
    check_same(job, alone);
  }
}

TEST_CASE("parameters gathered while the next step's first forwards run train the same function") {
  const Transformer transformer = tests::tiny_variant("llama");
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (tests::Degrees degrees : {tests::Degrees{1, 1, 4}, {2, 1, 2}, {1, 2, 2}})
    for (const int zero : {1, 2})
      for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::interleaved}) {
        if (schedule == Schedule::interleaved && degrees.pp == 1) continue;
        Job job = tests::tiny_job(degrees, transformer);
        use_schedule(job.transformer, job.strategy, schedule, schedule == Schedule::interleaved ? 2 : 1);
        job.strategy.zero = zero;
        job.strategy.overlap_gradients = zero == 1;
        job.strategy.overlap_parameters = true;
        job.strategy.bucket_bytes = 2'000;
        check_same(job, alone);
      }
}

TEST_CASE("experts divided over ranks, and cut less than the rest, train the same function", "[slow]") {
  const std::string name = GENERATE("mixtral", "qwen2-moe", "deepseek-v3");
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (Job& job : tests::every_expert_job(transformer)) check_same(job, alone);
}

TEST_CASE("forwards and backwards side by side, while tokens travel to experts, train the same function") {
  const std::string name = GENERATE("mixtral", "deepseek-v3");
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (Job& job : tests::every_overlapped_expert_job(transformer)) check_same(job, alone);
}

TEST_CASE("replicas that divide what they hold, experts among it, train the same function", "[slow]") {
  const std::string name = GENERATE("mixtral", "qwen2-moe", "deepseek-v3");
  const Transformer transformer = tests::tiny_variant(name);
  const auto alone = tests::compared_losses(tests::tiny_job({1, 1, 1}, transformer));
  for (Job& job : tests::every_divided_expert_job(transformer)) check_same(job, alone);
}

TEST_CASE("copies of experts that keep their gradients to themselves train another function") {
  Job job = tests::tiny_job({1, 1, 4}, tests::tiny_variant("mixtral"));
  job.strategy.templates[0].stages[0].expert_parallel = 2;
  Program program = compile(job);
  const auto right = train(job, program);
  int dropped = 0;
  const RankProgram& rank_program = program.rank_programs.front();
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& instruction : stream.instructions) {
      if (stream.kind != StreamKind::collective) continue;
      const auto& collective = std::get<Collective>(instruction.body);
      const Tensor& tensor = rank_program.tensors[collective.tensors[0]];
      if (tensor.name.find("experts") == std::string::npos) continue;
      ++dropped;
      for (RankEntry& entry : program.ranks) entry.groups[collective.slot] = std::nullopt;
    }
  REQUIRE(dropped == 1);
  const auto wrong = train(job, program);
  REQUIRE(std::abs(wrong.back() - right.back()) > 1e-4);
}

TEST_CASE("what sets a family apart changes the function, so agreeing is no accident", "[slow]") {
  const auto plain = train(tests::tiny_job({1, 1, 1}, tests::tiny_variant("none")));
  for (const std::string& name : tests::variants()) {
    INFO(name);
    const auto other = train(tests::tiny_job({1, 1, 1}, tests::tiny_variant(name)));
    CHECK(std::abs(other.back() - plain.back()) > 1e-4);
  }
}

TEST_CASE("another seed trains another function, so agreeing is no accident") {
  Job job = tests::tiny_job({1, 1, 1});
  const auto one = train(job);
  job.train.seed = 2;
  REQUIRE(std::abs(train(job)[0] - one[0]) > 1e-3);
}
