// What replicas divide (ZeRO): how much each rank holds, and how much ranks move. Totals are those of the papers.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/compile_passes.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

Job job_of(int zero, std::int64_t dp, std::int64_t shard_over = 0) {
  Job job = tests::tiny_job({1, 1, dp}, Family::llama);  // embeddings are not tied
  job.strategy.zero = zero;
  job.strategy.shard_over = shard_over;
  return job;
}

double elements(const Job& job) { return static_cast<double>(parameter_count(job.transformer)); }

// The payloads of one rank's collectives in a step, by kind.
std::map<CollectiveKind, double> moved(const Program& program) {
  std::map<CollectiveKind, double> bytes;
  for (const Stream& stream : program.rank_programs.front().streams)
    for (const Instruction& instruction : stream.instructions)
      if (const auto* collective = instruction.as<Collective>())
        bytes[collective->kind] += static_cast<double>(collective->bytes);
  return bytes;
}

}  // namespace

TEST_CASE("each stage of ZeRO divides one more of the model's states among the replicas") {
  // In fp32 a parameter and a gradient have 4 bytes each, the optimizer state 8. Parts are rounded up by a few
  // elements.
  const double all[] = {16, 8 + 8.0 / 4, 4 + 12.0 / 4, 16.0 / 4};
  for (int zero = 0; zero <= 3; ++zero) {
    INFO("zero " << zero);
    const Job job = job_of(zero, 4);
    const Program program = compile(job);
    REQUIRE(static_cast<double>(program.rank_programs.front().static_bytes) ==
            Approx(all[zero] * elements(job)).epsilon(1e-3));
    const auto memory = check(program, job.cluster);
    CHECK(memory.at(0).parameters + memory.at(0).gradients + memory.at(0).optimizer ==
          program.rank_programs.front().static_bytes);
  }
}

TEST_CASE("gradients that are reduced last are held whole until then, and move once a step") {
  Job two = job_of(2, 4), three = job_of(3, 4);
  const double one_size = 4 * elements(two), table = 4.0 * 256 * 32, micro_batches = 2;
  two.strategy.reduce_gradients = three.strategy.reduce_gradients = ReduceGradients::last;
  // The optimizer's state alone is divided throughout: the same program as with zero 1.
  Program program = compile(two);
  CHECK(program.rank_programs == compile(job_of(1, 4)).rank_programs);
  program = compile(three);
  REQUIRE(static_cast<double>(program.rank_programs.front().static_bytes) ==
          Approx((4 + 12.0 / 4) * elements(three)).epsilon(1e-3));
  auto bytes = moved(program);
  CHECK(bytes[CollectiveKind::reduce_scatter] == Approx(one_size));
  CHECK(bytes[CollectiveKind::all_gather] == Approx(micro_batches * (2 * one_size - table)));
}

TEST_CASE("without resharding each parameter is gathered once a micro-batch, and stays until its last use") {
  Job again = job_of(3, 4);
  again.transformer.layers = 8;
  again.strategy = expand(again.transformer, again.train, 1, 1, 4);
  again.strategy.zero = 3;
  for (const Recompute recompute : {Recompute::none, Recompute::full})
    for (const int prefetch : {0, 1, 2}) {
      again.strategy.recompute = recompute;
      again.strategy.prefetch = prefetch;
      Job once = again;
      once.strategy.reshard_after_forward = false;
      const Program twice_gathered = compile(again), gathered = compile(once);
      const double size = 4 * elements(once), micro_batches = 2;
      auto bytes = moved(gathered), others = moved(twice_gathered);
      CHECK(bytes[CollectiveKind::all_gather] == Approx(micro_batches * size));
      CHECK(others[CollectiveKind::all_gather] > 1.8 * micro_batches * size);
      CHECK(bytes[CollectiveKind::reduce_scatter] == others[CollectiveKind::reduce_scatter]);
      const StageMemory freed = check(twice_gathered, again.cluster).at(0);
      const StageMemory stays = check(gathered, once.cluster).at(0);
      CHECK(stays.parameters == freed.parameters);
      // Where they are freed, a few layers are whole at once; where they stay, all.
      CHECK(static_cast<double>(stays.peak - freed.peak) > 0.4 * size);
      CHECK(static_cast<double>(stays.peak - freed.peak) <= size);
    }
}

TEST_CASE("half precision adds the master weights to what is divided") {
  // arXiv:1910.02054 has 2 + 2 + 12 bytes for each parameter; here gradients are fp32, so 2 + 4 + 12.
  Job job = job_of(3, 2);
  job.train.precision = Format::bf16;
  REQUIRE(static_cast<double>(compile(job).rank_programs.front().static_bytes) ==
          Approx(18.0 / 2 * elements(job)).epsilon(1e-3));
}

TEST_CASE("replicas move as much as an all-reduce does, and half as much again where they gather twice") {
  // arXiv:1910.02054, section 7: 2 model sizes in a step if gradients are divided, 3 if parameters are, too. Each of
  // several micro-batches moves as much.
  const double size = 4 * elements(job_of(0, 4));
  const double micro_batches = 2;
  REQUIRE(moved(compile(job_of(0, 4)))[CollectiveKind::all_reduce] == Approx(size));
  auto one = moved(compile(job_of(1, 4)));
  CHECK(one[CollectiveKind::all_reduce] == 0);
  CHECK(one[CollectiveKind::reduce_scatter] == Approx(size));
  CHECK(one[CollectiveKind::all_gather] == Approx(size));
  auto two = moved(compile(job_of(2, 4)));
  CHECK(two[CollectiveKind::reduce_scatter] == Approx(micro_batches * size));
  CHECK(two[CollectiveKind::all_gather] == Approx(size));
  auto three = moved(compile(job_of(3, 4)));
  CHECK(three[CollectiveKind::reduce_scatter] == Approx(micro_batches * size));
  // A backward does not need the look-up table: the embedding is gathered once, for the forward.
  const double table = 4.0 * 256 * 32;
  CHECK(three[CollectiveKind::all_gather] == Approx(micro_batches * (2 * size - table)));
}

TEST_CASE("copies of a divided state sum their parts once a step") {
  const Job job = job_of(3, 4, 2);
  const Program program = compile(job);
  CHECK(static_cast<double>(program.rank_programs.front().static_bytes) ==
        Approx(16.0 / 2 * elements(job)).epsilon(1e-3));
  CHECK(moved(program)[CollectiveKind::all_reduce] == Approx(4 * elements(job) / 2).epsilon(1e-3));
  std::map<GroupKind, std::vector<std::vector<Rank>>> groups;
  for (const Group& group : program.groups) groups[group.kind].push_back(group.ranks);
  CHECK(groups[GroupKind::gather] == std::vector<std::vector<Rank>>{{0_rank, 1_rank}, {2_rank, 3_rank}});
  CHECK(
      groups[GroupKind::data] ==
      std::vector<std::vector<Rank>>{{0_rank, 1_rank}, {2_rank, 3_rank}, {0_rank, 2_rank}, {1_rank, 3_rank}});
}

TEST_CASE("experts are divided among those who hold the same ones, the rest among all replicas") {
  // As in Megatron Core's distributed optimizer: the data group divides dense parameters, the expert-data group those
  // of experts.
  const Transformer transformer = tests::tiny_variant("mixtral");
  double dense = 0, experts = 0;
  for (const Parameter& parameter : parameters(transformer))
    (parameter.experts > 0 ? experts : dense) += static_cast<double>(parameter.count());
  const auto job_with = [&](int zero, std::int64_t parts, std::int64_t shard_over) {
    Job job = tests::tiny_job({1, 1, 4}, transformer);
    job.strategy.templates[0].stages[0].expert_parallel = parts;
    job.strategy.zero = zero;
    job.strategy.shard_over = shard_over;
    return job;
  };
  struct Case {
    std::int64_t parts, shard_over;
    double dense_over, experts_over;  // how many ranks divide what each of them would hold
  };
  for (const Case& c : {Case{2, 0, 4, 2}, {4, 0, 4, 1}, {2, 2, 2, 1}})
    for (int zero = 1; zero <= 3; ++zero) {
      INFO("zero " << zero << " parts " << c.parts << " shard_over " << c.shard_over);
      const double whole[] = {0, 8, 4, 0};  // bytes of an element that are not divided (fp32)
      const double held = experts / static_cast<double>(c.parts);
      const auto bytes = [&](double elements, double over) {
        return over == 1 ? 16 * elements : (whole[zero] + (16 - whole[zero]) / over) * elements;
      };
      const Job job = job_with(zero, c.parts, c.shard_over);
      const Program program = compile(job);
      CHECK(static_cast<double>(program.rank_programs.front().static_bytes) ==
            Approx(bytes(dense, c.dense_over) + bytes(held, c.experts_over)).epsilon(2e-3));
      check(program, job.cluster);
      // Gradients are scattered once in a step (zero 1) or for each micro-batch.
      const double times = zero == 1 ? 1 : 2;
      auto bytes_moved = moved(program);
      CHECK(bytes_moved[CollectiveKind::reduce_scatter] ==
            Approx(4 * times * (dense + (c.experts_over > 1 ? held : 0))));
      CHECK(bytes_moved[CollectiveKind::all_reduce] ==
            Approx(4 * ((c.shard_over > 0 ? dense / c.dense_over : 0) +
                        (c.parts == 2 && c.experts_over == 1 ? held : 0)))
                .epsilon(2e-3));
    }
}

TEST_CASE("gathering ahead holds more parameters at once") {
  std::int64_t last = 0;
  for (int prefetch : {0, 1, 2}) {
    Job job = job_of(3, 4);
    job.strategy.prefetch = prefetch;
    const auto memory = check(compile(job), job.cluster);
    CHECK(memory.at(0).activations_peak >= last);
    last = memory.at(0).activations_peak;
  }
}

TEST_CASE("among unlike templates all ranks together hold the optimizer's state once, or so many copies") {
  struct Case {
    std::string text;
    double copies;
  };
  const std::string one = "{micro_batches: 4, stages: [{layers: 0-3}]}";
  const std::string two = "{micro_batches: 4, stages: [{layers: 0-0, tp: 2}, {layers: 1-3, tp: 4}]}";
  const std::string half = "{replicas: 2, micro_batches: 2, stages: [{layers: 0-3}]}";
  const std::string half_cut = "{replicas: 2, micro_batches: 2, stages: [{layers: 0-3, tp: 2}]}";
  for (const Case& c : {Case{"zero: 1\ntemplates: [" + one + ", " + two + "]", 1},
                        {"zero: 1\ntemplates: [" + half + ", " + half_cut + "]", 1},
                        {"zero: 1\nshard_over: 2\ntemplates: [" + half + ", " + half_cut + "]", 2}})
    for (const Family family : {Family::llama, Family::gpt2}) {
      INFO(c.text);
      Job job = tests::tiny_job({1, 1, 1}, family);
      job.strategy = parse_strategy(c.text + "\n");
      job.cluster = tests::tiny_cluster(static_cast<int>(job.strategy.rank_count()));
      const Program program = compile(job);
      check(program, job.cluster);
      double held = 0;
      for (const RankEntry& entry : program.ranks)
        for (const Tensor& tensor : program.rank_programs[entry.rank_program].tensors)
          if (tensor.role == TensorRole::optimizer) held += static_cast<double>(tensor.bytes);
      CHECK(held == Approx(8 * c.copies * elements(job)).epsilon(5e-3));  // since parts are rounded up
    }
}

TEST_CASE("templates divide gradients and parameters each within itself, and sum the copies once a step") {
  Job job = tests::tiny_job({1, 1, 1}, Family::llama);
  job.strategy = parse_strategy(
      "zero: 3\ntemplates: [{replicas: 2, micro_batches: 2, stages: [{layers: 0-3}]},"
      " {replicas: 2, micro_batches: 4, micro_batch: 1, stages: [{layers: 0-3}]}]\n");
  job.cluster = tests::tiny_cluster(4);
  const Program program = compile(job);
  check(program, job.cluster);
  for (const RankProgram& rank_program : program.rank_programs)
    CHECK(static_cast<double>(rank_program.static_bytes) == Approx(16.0 / 2 * elements(job)).epsilon(1e-3));
  CHECK(moved(program)[CollectiveKind::all_reduce] == Approx(4 * elements(job) / 2).epsilon(1e-3));
  CHECK(moved(program)[CollectiveKind::reduce_scatter] == Approx(2 * 4 * elements(job)));
}

TEST_CASE(
    "parameters that overlap are gathered at the step's begin, each before the first compute that reads it") {
  Job job = tests::tiny_job({1, 2, 2});
  job.strategy.zero = 1;
  job.strategy.overlap_parameters = true;
  job.strategy.bucket_bytes = 1;
  const Program program = compile(job);
  for (const RankProgram& rank_program : program.rank_programs) {
    const auto stream = find_stream(rank_program, StreamKind::gather);
    REQUIRE(stream);
    const auto& gathers = rank_program.streams[*stream].instructions;
    const auto& computes = rank_program.streams[kComputeStream].instructions;
    CHECK(gathers.size() == rank_program.shards.size());
    CHECK(gathers.size() > 2);
    std::set<TensorId> ready;
    for (const Instruction& each : computes) {
      for (const After& after : each.after)
        if (after.stream == stream)
          for (int g = 0; g <= after.index; ++g) {
            const auto tensors = moved_tensors(gathers[at(g)]);
            ready.insert(tensors.begin(), tensors.end());
          }
      const auto* compute = each.as<Compute>();
      if (compute == nullptr) continue;
      const auto& kernels = rank_program.blocks[compute->block].kernels;
      for (int k = compute->first_kernel; k < compute->last_kernel; ++k)
        if (const Kernel& kernel = kernels[at(k)]; reads_parameters(kernel.op))
          for (const TensorId id : kernel.parameters) CHECK(ready.contains(id));
    }
    for (const Instruction& gather : gathers) CHECK(gather.after.empty());
    CHECK(computes.back().op() == Op::optimizer);
  }
  // Without overlap parameters are gathered at the end, after the optimizer.
  job.strategy.overlap_parameters = false;
  const Program plain = compile(job);
  for (const RankProgram& rank_program : plain.rank_programs)
    for (const Instruction& gather :
         rank_program.streams[find_stream(rank_program, StreamKind::gather).value()].instructions)
      CHECK_FALSE(gather.after.empty());
}
