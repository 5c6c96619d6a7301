// What a rank keeps in the memory of its node: the bytes that move from the chip to the node, and what is copied when.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/costs_text.hpp"
#include "models/plan/remedies.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

Job job_with(Offload offload, tests::Degrees degrees = {}, int zero = 0) {
  Job job = tests::tiny_job(degrees, Family::llama);
  job.cluster = tests::with_hosts(job.cluster);
  job.strategy.offload = offload;
  job.strategy.zero = zero;
  return job;
}

StageMemory memory_of(const Job& job, int stage = 0) {
  return check(compile(job), job.cluster).at(at(stage));
}

// The bytes that are copied in a step: to the host, and back.
std::pair<std::int64_t, std::int64_t> copied(const Program& program) {
  std::pair<std::int64_t, std::int64_t> bytes;
  for (const Stream& stream : program.rank_programs.front().streams)
    for (const Instruction& each : stream.instructions)
      if (const auto* copy = each.as<Copy>())
        (goes_to_host(program.rank_programs.front(), each) ? bytes.first : bytes.second) += copy->bytes;
  return bytes;
}

const Stream* find(const RankProgram& rank_program, StreamKind kind) {
  for (const Stream& stream : rank_program.streams)
    if (stream.kind == kind) return &stream;
  return nullptr;
}

}  // namespace

TEST_CASE(
    "an offloaded optimizer frees exactly its bytes on the chip, and the node keeps them with what it "
    "steps") {
  for (int zero : {0, 1, 2, 3}) {
    const tests::Degrees degrees{1, 1, zero == 0 ? 1 : 2};
    const StageMemory kept = memory_of(job_with({}, degrees, zero));
    const StageMemory moved = memory_of(job_with({1, 0}, degrees, zero));
    CHECK(kept.optimizer > 0);
    CHECK(moved.optimizer == 0);
    CHECK(moved.parameters == kept.parameters);
    CHECK(moved.gradients == kept.gradients);
    CHECK(moved.activations_peak == kept.activations_peak);
    CHECK(kept.peak - moved.peak == kept.optimizer);
    // The moments have 8 bytes for each element (fp32), the copies of gradient and parameter 4 each; the host has those
    // of all ranks of the node.
    CHECK(moved.host == degrees.dp * 2 * kept.optimizer);
    CHECK(kept.host == 0);
  }
}

TEST_CASE("without a share of the optimizer no state leaves the chip, even if it has no bytes") {
  Job job = job_with({0, 1});
  job.train.optimizer = Optimizer::sgd;
  const Program program = compile(job);
  const RankProgram& rank_program = program.rank_programs.front();
  CHECK(find(rank_program, StreamKind::to_host) != nullptr);  // activations
  CHECK(find(rank_program, StreamKind::host) == nullptr);
}

TEST_CASE("a share of the optimizer is as many whole states as it holds, and the chip steps the others") {
  const StageMemory kept = memory_of(job_with({}));
  const Program half = compile(job_with({0.5, 0}));
  const StageMemory moved = memory_of(job_with({0.5, 0}));
  CHECK(moved.optimizer >= kept.optimizer / 2);
  CHECK(static_cast<double>(moved.optimizer) < 0.7 * static_cast<double>(kept.optimizer));
  const auto& computes = half.rank_programs.front().streams[kComputeStream].instructions;
  CHECK(std::get<OptimizerStep>(computes.back().body).tensors.empty());
  const Program all = compile(job_with({1, 0}));
  CHECK(all.rank_programs.front().streams[kComputeStream].instructions.back().op() == Op::compute);
}

TEST_CASE("gradients go down and parameters come up once a step, in buckets that the host steps in turn") {
  Job job = job_with({1, 0});
  const std::int64_t bytes = 4 * parameter_count(job.transformer);
  CHECK(copied(compile(job)) == std::pair{bytes, bytes});
  job.train.precision = Format::bf16;  // gradients are still fp32
  CHECK(copied(compile(job)) == std::pair{bytes, bytes / 2});
  job.strategy.bucket_bytes = 10'000;
  const Program program = compile(job);
  CHECK(copied(program) == std::pair{bytes, bytes / 2});
  const Stream* const steps = find(program.rank_programs.front(), StreamKind::host);
  REQUIRE(steps != nullptr);
  CHECK(steps->instructions.size() > 3);
  CHECK(find(program.rank_programs.front(), StreamKind::to_host)->instructions.size() ==
        steps->instructions.size());
}

TEST_CASE("ZeRO divides what is copied as well as what is kept") {
  const auto whole = copied(compile(job_with({1, 0}, {1, 1, 1})));
  for (int zero : {1, 2, 3}) {
    const auto half = copied(compile(job_with({1, 0}, {1, 1, 2}, zero)));
    CHECK(static_cast<double>(half.first) == Approx(static_cast<double>(whole.first) / 2).epsilon(1e-3));
    CHECK(static_cast<double>(half.second) == Approx(static_cast<double>(whole.second) / 2).epsilon(1e-3));
  }
}

TEST_CASE("offloaded activations leave the chip between forward and backward") {
  Job job = job_with({}, {1, 4, 1});
  job.transformer.hidden *= 4;
  job.transformer.head_dim *= 4;
  job.strategy.schedule = Schedule::gpipe;  // every micro-batch in flight at once
  const StageMemory kept = memory_of(job);
  job.strategy.offload = {0, 1};
  const Program program = compile(job);
  const StageMemory moved = memory_of(job);
  CHECK(moved.activations_peak < kept.activations_peak / 2);
  CHECK(moved.optimizer == kept.optimizer);
  const auto [down, up] = copied(program);
  CHECK(down == up);
  CHECK(down > 0);
  CHECK(moved.host > 0);
  std::map<int, int> copies;  // for each micro-batch
  for (const Instruction& each : find(program.rank_programs.front(), StreamKind::to_host)->instructions)
    ++copies[each.micro_batch];
  CHECK(copies.size() == static_cast<std::size_t>(job.strategy.templates[0].micro_batches));
}

TEST_CASE(
    "layer by layer: the chip keeps a few layers' activations at once, and the fewer stay, the lower its "
    "peak") {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    Job job = job_with({});
    job.transformer.layers = 16;
    job.strategy = expand(job.transformer, job.train, 1, 1, 1);
    job.strategy.recompute = recompute;
    const StageMemory kept = memory_of(job);
    std::int64_t peak = kept.activations_peak, host = 0, down_before = 0;
    for (const double share : {0.25, 0.5, 0.75, 1.0}) {
      job.strategy.offload = {0, share};
      const StageMemory moved = memory_of(job);
      CHECK(moved.activations_peak < peak);
      CHECK(moved.host > host);
      peak = moved.activations_peak;
      host = moved.host;
      // Copies of all layers are alike, and as many as layers leave in each micro-batch.
      const Program program = compile(job);
      const auto [down, up] = copied(program);
      CHECK(down == up);
      CHECK(down > down_before);
      down_before = down;
      const auto& copies = find(program.rank_programs.front(), StreamKind::to_host)->instructions;
      const auto layers = static_cast<std::size_t>(16 * share);
      CHECK(copies.size() >= layers * at(job.strategy.templates[0].micro_batches));
      CHECK(copies.size() <= (layers + 1) * at(job.strategy.templates[0].micro_batches));
      // However slow the copies are: each layer's forward waits for the copy of the one before the last.
      std::set<std::int32_t> awaited;
      for (const Instruction& each : program.rank_programs.front().streams[kComputeStream].instructions)
        for (const After& after : each.after)
          if (program.rank_programs.front().streams[after.stream].kind == StreamKind::to_host)
            awaited.insert(after.index);
      CHECK(awaited.size() == copies.size() - 2);
    }
    // Two layers of sixteen, what a layer's kernels need besides, embedding and head.
    if (recompute == Recompute::none) CHECK(peak < kept.activations_peak / 2);
    const std::int64_t in_a_micro_batch = down_before / job.strategy.templates[0].micro_batches;
    CHECK(kept.activations_peak - peak < in_a_micro_batch);
    CHECK(kept.activations_peak - peak > in_a_micro_batch * 12 / 16);
  }
}

TEST_CASE("a stage may offload otherwise than its strategy says") {
  Job job = job_with({1, 0}, {1, 2, 1});
  job.strategy.templates[0].stages[1].offload = Offload{};
  CHECK(memory_of(job, 0).optimizer == 0);
  CHECK(memory_of(job, 1).optimizer > 0);
  CHECK(parse_strategy(print(job.strategy)) == job.strategy);
}

TEST_CASE("the host's step is bound by the bandwidth of the node's memory, shared by its chips") {
  const Job job = job_with({1, 0}, {2, 1, 1});
  const Program program = compile(job);
  const double elements = static_cast<double>(program.rank_programs.front().static_bytes) /
                          8;  // parameters and gradients are left on the chip
  CostTable costs(program, job.cluster);
  double seconds = 0;
  for (const Instruction& each : find(program.rank_programs.front(), StreamKind::host)->instructions)
    seconds += costs.price(0_rank, each).seconds();
  // Both moments and the parameter (fp32 has no master weights) are read and written; the gradient is read.
  CHECK(seconds == Approx(elements * (2 * 8 + 2 * 4 + 4) / (0.8 * 1e10 / 2)));
}

TEST_CASE("what is offloaded must find a host, with room") {
  Job job = job_with({1, 0});
  job.cluster.groups[0].host.reset();
  build_topology(job.cluster);
  try {
    compile(job);
    FAIL("there is no host");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "no-host");
  }
  job = job_with({1, 0}, {1, 1, 2});
  job.cluster.groups[0].host->memory = static_cast<double>(memory_of(job).host - 1);
  try {
    check(compile(job), job.cluster);
    FAIL("one byte too much");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "out-of-host-memory");
  }
  for (const Offload& wrong : {Offload{1.5, 0}, {0, -0.5}}) {
    job.strategy.offload = wrong;
    CHECK_THROWS_AS(validate(job.transformer, job.train, job.strategy), Refusal);
  }
}

TEST_CASE("what is out of memory is told that offloading fits, where it does") {
  Job job = job_with({});
  const Job moved = job_with({1, 0});
  job.cluster.groups[0].chip.memory_bytes.value = static_cast<double>(memory_of(moved).peak);
  const auto tried = remedies(job);
  const auto remedy = std::find_if(tried.begin(), tried.end(), [](const Remedy& each) {
    return each.change == "offload: {optimizer: 1}";
  });
  REQUIRE(remedy != tried.end());
  CHECK(remedy->fits());
  CHECK(remedy->peak == memory_of(moved).peak);
}

TEST_CASE("a share of more than all is refused whoever made the strategy") {
  Job job = tests::tiny_job({1, 1, 1});
  job.strategy.offload.optimizer = 2;
  CHECK(tests::refusal_on_page([&] { validate(job.transformer, job.train, job.strategy); }) ==
        tests::expected_refusal("impossible-offload: more than all, in a strategy that no file says"));
}

TEST_CASE("a chip without units for a format is refused by name when a kernel of that format is priced") {
  Job job = tests::tiny_job({1, 1, 1});
  const Program program = compile(job);
  Chip& chip = job.cluster.groups[0].chip;
  const Sourced peak = chip.peak_flops.begin()->second;
  chip.peak_flops = {{Format::bf16, peak}};
  CHECK(tests::refusal_on_page([&] { price_passes(job, program); }) ==
        tests::expected_refusal("unsupported-format: a kernel that the chip has no units for"));
}
