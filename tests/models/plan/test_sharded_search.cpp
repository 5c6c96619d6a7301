// One stage on all chips, of which replicas divide everything, against every such strategy of small clusters.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/sharded_search.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// One or two groups of one or two nodes. Their memory holds some micro-batches, or all.
Job sharded_job(unsigned seed) {
  Dice dice(seed);
  Job job = tiny_job({1, 1, 1}, dice.one_of({Family::gpt2, Family::llama}));
  job.train.global_batch = dice.one_of({8, 12, 24, 40});
  const NodeGroup node = job.cluster.groups[0];
  job.cluster.groups.clear();
  const int nodes = dice.one_of({1, 2}), chips = dice.one_of({1, 2});
  for (int i = dice.one_of({1, 1, 2}); i > 0; --i) {
    NodeGroup& group = job.cluster.groups.emplace_back(node);
    group.name = "group" + std::to_string(i);
    group.nodes = nodes;
    group.chips_per_node = chips;
    group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
    group.inside = {FabricKind::loopback, 1e9, 0};
    group.chip.memory_bytes.value = dice.one_of({1e5, 1.5e5, 2e5, 3e5, 4e5, 6e5, 8e5, 1.2e6, 1.6e6, 2.4e6});
  }
  if (job.cluster.groups.size() > 1)
    job.cluster.links.push_back({job.cluster.groups[0].name, job.cluster.groups[1].name});
  build_topology(job.cluster);
  return job;
}

std::optional<Job> laid_out_by_hand(const Job& job, std::int64_t tensor, std::int64_t micro_batch,
                                    const Recompute& recompute) {
  Job planned = job;
  Train train = job.train;
  train.micro_batch = micro_batch;
  const std::int64_t replicas = job.cluster.chip_count() / tensor;
  try {
    planned.strategy = expand(job.transformer, train, tensor, 1, replicas);
    if (micro_batch != job.train.micro_batch) planned.strategy.templates[0].micro_batch = micro_batch;
    planned.strategy.recompute = recompute;
    planned.strategy.sequence_parallel = tensor > 1;
    planned.strategy.zero = replicas > 1 ? 3 : 0;
    planned.strategy.overlap_gradients = replicas > 1;
    validate(planned.transformer, planned.train, planned.strategy);
    check(compile(planned), planned.cluster, planned.train.fragmentation);
  } catch (const Refusal&) {
    return std::nullopt;
  }
  return planned;
}

}  // namespace

TEST_CASE("every sharded strategy of one stage that fits is proposed", "[plan][slow]") {
  int fitting = 0, dropped = 0;
  constexpr unsigned kJobs = kSanitized ? 15 : 120;
  for (unsigned seed = 1; seed <= kJobs; ++seed) {
    const Job job = sharded_job(seed);
    StagePricer pricer(job);
    std::set<std::string> proposed;
    for (const Job& each : sharded_proposals(job, pricer, 1000, std::numeric_limits<double>::infinity()))
      proposed.insert(print(each.strategy));
    for (std::int64_t tensor = 1; tensor <= job.cluster.groups[0].chips_per_node; tensor *= 2)
      for (std::int64_t micro_batch = 1; micro_batch <= job.train.global_batch; ++micro_batch)
        for (const Recompute& recompute : pricer.recomputes()) {
          const std::optional<Job> planned = laid_out_by_hand(job, tensor, micro_batch, recompute);
          if (!planned) continue;
          ++fitting;
          INFO("seed " << seed << "\n" << print(planned->strategy));
          CHECK(proposed.contains(print(planned->strategy)));
        }
    dropped +=
        sharded_proposals(job, pricer, 1, std::numeric_limits<double>::infinity()).size() < proposed.size()
            ? 1
            : 0;
  }
  CHECK(fitting > 4 * static_cast<int>(kJobs));
  CHECK(dropped > static_cast<int>(kJobs) / 3);
}

TEST_CASE("large micro-batches that divide the batch are among the sharded strategies", "[plan]") {
  Job job = sharded_job(1);
  job.cluster.groups.resize(1);
  job.cluster.links.clear();
  job.cluster.groups[0].nodes = 2;
  job.cluster.groups[0].chips_per_node = 1;
  job.cluster.groups[0].chip.memory_bytes.value = 4e9;
  build_topology(job.cluster);
  job.train.global_batch = 52;
  StagePricer pricer(job);
  const std::vector<Job> jobs = sharded_proposals(job, pricer, 1000, std::numeric_limits<double>::infinity());
  CHECK(std::any_of(jobs.begin(), jobs.end(), [](const Job& each) {
    return each.strategy.templates[0].micro_batch == 26 && each.strategy.templates[0].micro_batches == 1;
  }));
}
