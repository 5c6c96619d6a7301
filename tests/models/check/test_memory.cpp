// Memory that a chip uses beyond the tensors of a Program, and the part of logits in it, counted by hand.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/check/memory_extra.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

// The bytes of one channel's connection: the buffers of three protocols.
constexpr std::int64_t kConnection = 4'194'304 + 524'288 + 4'915'200;

// A job on chips that are not host processors, joined inside their nodes by `kind`.
Job gpu_job(tests::Degrees degrees, FabricKind kind, int nodes = 1) {
  Job job = tests::tiny_job(degrees, Family::llama);
  NodeGroup& group = job.cluster.groups[0];
  group.chip.kind = "gpu";
  group.chip.memory_bytes.value = 4e10;
  group.inside.kind = kind;
  group.nodes = nodes;
  group.chips_per_node /= nodes;
  group.nics = {{NicKind::ethernet, 1, 1e9, 1e-5}};
  build_topology(job.cluster);
  return job;
}

}  // namespace

TEST_CASE("a communicator inside a node has three connections for each of its fabric's channels") {
  const std::pair<FabricKind, std::int64_t> channels[] = {{FabricKind::nvswitch, 24},
                                                          {FabricKind::nvlink_mesh, 12},
                                                          {FabricKind::xgmi_mesh, 28},
                                                          {FabricKind::loopback, 2}};
  for (const auto& [kind, count] : channels) {
    const Job job = gpu_job({4, 1, 1}, kind);
    CHECK(memory_by_stage(compile(job), job.cluster).at(0).buffers == count * 3 * kConnection);
  }
}

TEST_CASE("buffers between nodes lie at both ends; neighbours in a pipeline have two channels") {
  const Job apart = gpu_job({1, 1, 2}, FabricKind::nvswitch, 2);
  CHECK(memory_by_stage(compile(apart), apart.cluster).at(0).buffers == 2 * 3 * 2 * kConnection);
  const Job pipeline = gpu_job({1, 2, 1}, FabricKind::nvswitch);
  const Job far = gpu_job({1, 2, 1}, FabricKind::nvswitch, 2);
  for (int stage : {0, 1}) {
    CHECK(memory_by_stage(compile(pipeline), pipeline.cluster).at(at(stage)).buffers == 2 * kConnection);
    CHECK(memory_by_stage(compile(far), far.cluster).at(at(stage)).buffers == 2 * 2 * kConnection);
  }
}

TEST_CASE("hosts have nothing beyond their tensors, and one chip alone talks to nobody") {
  const Job host = tests::tiny_job({2, 1, 2}, Family::llama);
  const StageMemory of_host = memory_by_stage(compile(host), host.cluster).at(0);
  CHECK(of_host.buffers + of_host.buckets + of_host.runtime + of_host.fragmentation == 0);
  CHECK(of_host.peak ==
        of_host.parameters + of_host.gradients + of_host.optimizer + of_host.activations_peak);
  const Job alone = gpu_job({1, 1, 1}, FabricKind::nvswitch);
  CHECK(memory_by_stage(compile(alone), alone.cluster).at(0).buffers == 0);
}

TEST_CASE("the peak is the sum of its parts, and each of them can be what does not fit") {
  Job job = gpu_job({2, 1, 2}, FabricKind::nvlink_mesh);
  job.strategy.zero = 3;
  job.transformer.vocabulary = 8192;
  job.cluster.groups[0].chip.software.reserved_memory = {1e8, "assumed"};
  const Program program = compile(job);
  const StageMemory memory = memory_by_stage(program, job.cluster, 0.25).at(0);
  CHECK(memory.runtime == 100'000'000);
  CHECK(memory.fragmentation == memory.activations_peak / 4);
  CHECK(memory.buckets > 0);
  CHECK(memory.peak == memory.parameters + memory.gradients + memory.optimizer + memory.activations_peak +
                           memory.buffers + memory.buckets + memory.runtime + memory.fragmentation);
  job.cluster.groups[0].chip.memory_bytes.value = static_cast<double>(memory.peak);
  CHECK_NOTHROW(check(program, job.cluster, 0.25));
  CHECK_NOTHROW(check(program, job.cluster, 0));
  job.cluster.groups[0].chip.memory_bytes.value = static_cast<double>(memory.peak - 1);
  try {
    check(program, job.cluster, 0.25);
    FAIL("one byte too much");
  } catch (const Refusal& refusal) {
    for (const char* word :
         {"logits", "communication buffers", "copies of buckets", "driver and libraries", "fragmentation"})
      CHECK(refusal.message().find(word) != std::string::npos);
  }
}

TEST_CASE("only what is gathered from parts or reduced to parts is copied") {
  for (int zero : {0, 1, 2, 3}) {
    Job job = gpu_job({1, 1, 2}, FabricKind::nvswitch);
    job.strategy.zero = zero;
    const Program program = compile(job);
    std::int64_t gathered = 0, reduced = 0;
    for (const Stream& stream : program.rank_programs.front().streams)
      for (const Instruction& each : stream.instructions) {
        const auto* collective = each.as<Collective>();
        if (collective == nullptr) continue;
        if (collective->kind == CollectiveKind::all_gather && zero == 3)
          gathered = std::max(gathered, collective->bytes);
        if (collective->kind == CollectiveKind::reduce_scatter && zero >= 2)
          reduced = std::max(reduced, collective->bytes);
      }
    CHECK(copied_buckets(program.rank_programs.front()) == gathered + reduced);
    CHECK((reduced > 0) == (zero >= 2));
  }
}

TEST_CASE("logits and their gradient are the part of the peak that their shapes say") {
  for (int tp : {1, 2}) {
    Job job = tests::tiny_job({tp, 1, 1}, Family::llama);
    job.transformer.vocabulary = 8192;  // so large that the peak is at the loss
    const StageMemory memory = memory_by_stage(compile(job), job.cluster).at(0);
    const std::int64_t rows = job.train.micro_batch * job.train.sequence;
    CHECK(memory.logits == 2 * 4 * rows * 8192 / tp);
    CHECK(memory.logits < memory.activations_peak);
  }
  const Job job = tests::tiny_job({1, 2, 1}, Family::llama);
  CHECK(memory_by_stage(compile(job), job.cluster).at(0).logits == 0);
}
