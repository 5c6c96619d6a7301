// What policies choose before anything is simulated: their formulas, Holmes's partition and NICs from measured speeds,
// and what ablations leave of a strategy.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <set>

#include "models/base/units.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/carrier.hpp"
#include "models/plan/ablation.hpp"
#include "models/plan/findings_text.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/plan/policies_text.hpp"
#include "models/plan/policy_heteroauto.hpp"
#include "models/plan/policy_hethub.hpp"
#include "models/plan/policy_holmes.hpp"
#include "models/plan/type_degrees.hpp"
#include "models/report/published_metrics.hpp"
#include "models/scenario/scenario.hpp"
#include "models/strategy/partition.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

using ChipCounts = std::vector<std::int64_t>;

std::int64_t sum_of(const ChipCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Holmes's GPTs on its hybrid cluster of four nodes, with two stages alone.
Job holmes_job(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  Job job = load_scenario(MOTLEY_SOURCE_DIR "/scenarios/holmes-hybrid.yaml").job;
  job.transformer.layers = layers;
  job.transformer.hidden = hidden;
  job.transformer.heads = job.transformer.kv_heads = heads;
  job.transformer.head_dim = hidden / heads;
  job.transformer.ffn = 4 * hidden;
  job.strategy = {};
  return job;
}

// Steps of islands alone in which InfiniBand reaches 197 and RoCE 160 TFLOP/s.
std::vector<std::optional<double>> as_published(const std::vector<Job>& jobs) {
  std::vector<std::optional<double>> steps;
  for (const Job& job : jobs) {
    REQUIRE(job.cluster.groups.size() == 1);
    steps.emplace_back(1 / (job.cluster.groups[0].name == "ib" ? 197.0 : 160.0));
  }
  return steps;
}

ChipCounts layers_of(const Strategy& strategy) {
  ChipCounts layers;
  for (const Stage& stage : strategy.templates.at(0).stages)
    layers.push_back(stage.last_layer - stage.first_layer);
  return layers;
}

}  // namespace

TEST_CASE(
    "Holmes's policy divides layers by measured speeds as Holmes ships them, over the NICs that it names",
    "[plan]") {
  struct Case {
    std::int64_t layers, hidden, heads;
    ChipCounts by_island;
  };
  for (const Case& each : {Case{30, 3072, 32, {16, 14}}, Case{48, 3072, 32, {26, 22}}}) {
    const Job job = holmes_job(each.layers, each.hidden, each.heads);
    StagePricer pricer(job);
    const Measure measure = as_published;
    const Proposals proposals = propose(PlanPolicy::holmes, {job, pricer, measure});
    REQUIRE_FALSE(proposals.list.empty());
    int of_two_stages = 0;
    for (const Proposal& proposal : proposals.list) {
      const Strategy& strategy = proposal.job.strategy;
      CHECK(proposal.job.cluster.transport == TransportPolicy::holmes);
      CHECK(strategy.overlap_gradients);
      CHECK(strategy.bucket_bytes == 2'000'000'000);  // 5e8 elements of fp32
      CHECK(strategy.schedule == Schedule::one_f_one_b);
      CHECK(strategy.templates.at(0).stages.front().on == std::vector<std::string>{"ib"});
      CHECK(strategy.templates.at(0).stages.back().on == std::vector<std::string>{"roce"});
      if (strategy.pp() != 2) continue;
      ++of_two_stages;
      CHECK(layers_of(strategy) == each.by_island);
      const Program program = compile(proposal.job);
      for (const GroupId id : program.groups.ids()) {
        const Group& group = program.groups[id];
        if (group.kind == GroupKind::embedding || group.ranks.size() < 2) continue;
        const CarrierChoice choice = choose_carrier(program, proposal.job.cluster, group);
        CHECK_FALSE(choice.carrier.sockets);  // inside an island: its own RDMA, or a node's fabric
      }
    }
    CHECK(of_two_stages > 0);
  }
}

TEST_CASE("Holmes's islands are InfiniBand, then RoCE, then the rest; HeteroAuto's types go by memory",
          "[plan]") {
  Cluster cluster = load_cluster("holmes-three-islands");
  CHECK(islands_in_order(cluster) == std::vector<int>{0, 1, 2});
  std::swap(cluster.groups[0], cluster.groups[2]);
  CHECK(islands_in_order(cluster) == std::vector<int>{1, 2, 0});
  const std::array kinds = {NicKind::ethernet, NicKind::roce, NicKind::infiniband};
  for (std::size_t i = 0; i < kinds.size(); ++i) cluster.groups[i].nics = {{kinds[i], 1, 1e9, 1e-6}};
  CHECK(islands_in_order(cluster) == std::vector<int>{2, 1, 0});
  cluster = load_cluster("h2-four-types-1024");
  const std::vector<int> order = groups_by_memory(cluster);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const auto memory = [&](int group) {
      return cluster.groups[static_cast<std::size_t>(group)].chip.memory_bytes.value;
    };
    CHECK(memory(order[i]) >= memory(order[i + 1]));
  }
}

TEST_CASE("frameworks without groups of NICs use sockets where RDMA is mixed, and only there", "[plan]") {
  Cluster mixed = load_cluster("holmes-hybrid-4"), alike = load_cluster("h2-four-types-1024");
  for (const PlanPolicy policy :
       {PlanPolicy::megatron, PlanPolicy::megatron_llama, PlanPolicy::megatron_deepspeed}) {
    use_transport(policy, mixed);
    use_transport(policy, alike);
    CHECK(mixed.transport == TransportPolicy::sockets);
    CHECK(alike.transport == TransportPolicy::by_group);
  }
  use_transport(PlanPolicy::holmes, mixed);
  CHECK(mixed.transport == TransportPolicy::sockets);  // a cluster without RDMA keeps sockets
}

TEST_CASE("layers in proportion are all layers, at most what fits, and even for equal speeds", "[plan]") {
  std::mt19937_64 random(3);
  int full = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t stages = 1 + random() % 8;
    const auto layers = static_cast<std::int64_t>(stages + random() % 60);
    std::vector<double> speeds;
    ChipCounts most;
    const bool equal = round % 4 == 0;
    for (std::size_t i = 0; i < stages; ++i) {
      speeds.push_back(equal ? 3.7 : 0.1 + static_cast<double>(random() % 1000) * 0.01);
      most.push_back(equal ? layers : static_cast<std::int64_t>(1 + random() % 40));
    }
    const ChipCounts counts = layers_in_proportion(layers, speeds, most);
    if (sum_of(most) < layers) {
      CHECK(counts.empty());
      continue;
    }
    REQUIRE(sum_of(counts) == layers);
    for (std::size_t i = 0; i < stages; ++i) {
      CHECK(counts[i] >= 1);
      CHECK(counts[i] <= most[i]);
      full += counts[i] == most[i];
    }
    if (equal) CHECK(counts == even_layers(layers, static_cast<std::int64_t>(stages)));
  }
  CHECK(full > 100);
}

TEST_CASE("no division of layers has a shorter longest stage than the balanced one", "[plan]") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 400; ++round) {
    const std::size_t stages = 1 + random() % 3;
    const auto layers = static_cast<std::int64_t>(stages + random() % 8);
    std::vector<double> layer_s, fixed_s;
    ChipCounts most;
    for (std::size_t i = 0; i < stages; ++i) {
      layer_s.push_back(0.5 + static_cast<double>(random() % 100) * 0.01);
      fixed_s.push_back(static_cast<double>(random() % 3));
      most.push_back(static_cast<std::int64_t>(1 + random() % 9));
    }
    const auto longest = [&](const ChipCounts& counts) {
      double seconds = 0;
      for (std::size_t i = 0; i < stages; ++i)
        seconds = std::max(seconds, fixed_s[i] + layer_s[i] * static_cast<double>(counts[i]));
      return seconds;
    };
    double least = std::numeric_limits<double>::infinity();
    ChipCounts counts(stages, 1);
    for (bool more = true; more;) {  // counts up through every division
      if (sum_of(counts) == layers) least = std::min(least, longest(counts));
      std::size_t place = 0;
      while (place < stages && counts[place] == most[place]) counts[place++] = 1;
      more = place < stages;
      if (more) ++counts[place];
    }
    const ChipCounts balanced = balanced_layers(layers, layer_s, fixed_s, most);
    CHECK(balanced.empty() == (least == std::numeric_limits<double>::infinity()));
    if (balanced.empty()) continue;
    REQUIRE(sum_of(balanced) == layers);
    for (std::size_t i = 0; i < stages; ++i) CHECK(balanced[i] <= most[i]);
    CHECK(longest(balanced) <= least * (1 + 1e-5));
  }
}

TEST_CASE("HeteroAuto's formula is H2's estimate where updates take no time, and never falls with an update",
          "[plan]") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> stage_s, none, some;
    for (std::size_t i = 0; i < 1 + random() % 6; ++i) {
      stage_s.push_back(0.1 + static_cast<double>(random() % 100) * 0.01);
      none.push_back(0);
      some.push_back(static_cast<double>(random() % 5));
    }
    const auto count = static_cast<std::int64_t>(1 + random() % 20);
    CHECK(hetero_auto_step_s(stage_s, none, count) == Approx(hetero_auto_estimate_s(stage_s, count)));
    CHECK(hetero_auto_step_s(stage_s, some, count) >= hetero_auto_step_s(stage_s, none, count));
    CHECK(hetero_auto_step_s(stage_s, none, count, 0) <= hetero_auto_step_s(stage_s, none, count));
  }
}

TEST_CASE("HetHub's tree looks at all degrees, or leaves them out because others are faster", "[plan]") {
  Job job = tiny_job({1, 1, 1}, Family::gpt2);
  job.cluster.groups[0].nodes = 2;
  job.cluster.groups[0].chips_per_node = 4;
  job.cluster.groups[0].nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
  build_topology(job.cluster);
  job.train.global_batch = 64;
  job.strategy = {};
  StagePricer pricer(job);
  const Measure measure = as_published;
  const Proposals proposals = propose(PlanPolicy::hethub, {job, pricer, measure});
  CHECK_FALSE(proposals.list.empty());
  CHECK(proposals.pruned > 0);
  // One group has one order, and each of the two variants looks at all degrees.
  const auto degrees = static_cast<std::int64_t>(type_degrees(job, pricer).size());
  CHECK(proposals.explored + proposals.pruned == 2 * degrees);
}

TEST_CASE("the best plan of all policies is the fastest, and of equal ones the first", "[plan]") {
  PoliciesReport report;
  CHECK(best_plan(report) == nullptr);
  for (const double step_s : {0.0, 3.0, 2.0, 2.0, 4.0}) {
    PolicyPlan& each = report.plans.emplace_back();
    if (step_s <= 0) continue;
    each.plan.emplace();
    each.plan->simulated_s = step_s;
  }
  CHECK(best_plan(report) == &*report.plans[2].plan);
}

TEST_CASE("a form of a policy has the step of its fastest pipeline, or none that fits", "[plan]") {
  Plan plan;
  plan.variants = {{"even layers", 2}, {"layers by speed", 0}};
  CHECK(findings_text(plan, "  ") ==
        "  even layers: " + format_seconds(2) + "\n  layers by speed: none that was tried fits\n");
}

TEST_CASE("what is ablated is not in a strategy, and what is ablated twice is ablated once", "[plan]") {
  std::array<int, 6> legal{};
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const Job job = any_job(seed);
    for (const Ablation ablation : every<Ablation>()) {
      CAPTURE(name_of(ablation));
      const std::vector<Ablation> list = {ablation};
      const std::optional<Job> without = ablated(job, list);
      if (!without) continue;
      ++legal[static_cast<std::size_t>(ablation)];
      CHECK(ablated(*without, list)->strategy == without->strategy);
      const Strategy& strategy = without->strategy;
      if (ablation == Ablation::no_overlap)
        CHECK_FALSE((strategy.overlap_p2p || strategy.overlap_gradients || strategy.overlap_parameters ||
                     strategy.overlap_experts || strategy.overlap_context));
      for (const PipelineTemplate& pipeline : strategy.templates) {
        std::set<std::int64_t> counts;
        for (const VirtualStage& each : virtual_stages(pipeline))
          counts.insert(each.layers.last - each.layers.first);
        if (ablation == Ablation::uniform_layers) CHECK(*counts.rbegin() - *counts.begin() <= 1);
        for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
          const Stage& stage = pipeline.stages[s];
          if (ablation == Ablation::uniform_recompute)
            CHECK(stage.recompute.value_or(strategy.recompute) == strategy.recompute);
          if (s > 0 && ablation == Ablation::naive_resharding)
            CHECK(resharding_between(pipeline.stages[s - 1], pipeline.stages[s]) == Resharding::direct);
          if (s > 0 && ablation == Ablation::gathered_resharding)
            CHECK(resharding_between(pipeline.stages[s - 1], pipeline.stages[s]) == Resharding::gather);
        }
      }
    }
  }
  for (const int count : legal) CHECK(count > 30);
}

TEST_CASE("a cluster without RDMA is one that a person could have written", "[plan]") {
  const auto check = [](Cluster cluster) {
    // A file cannot name the shape of networks that are not described.
    std::erase_if(cluster.networks, [](const Network& each) { return each.shape == NetworkShape::single; });
    use_ethernet_alone(cluster);
    for (const NodeGroup& group : cluster.groups)
      for (const Nic& nic : group.nics) CHECK(nic.kind == NicKind::ethernet);
    Cluster again = parse_cluster(print(cluster));
    again.name = cluster.name;
    CHECK(print(again) == print(cluster));
    Cluster twice = cluster;
    use_ethernet_alone(twice);
    CHECK(twice == cluster);
  };
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    check(any_job(seed).cluster);
  }
  for (const char* name :
       {"holmes-hybrid-8", "h2-four-types-1024", "hethub-768", "two-site-wan", "dgx-h100-pod"}) {
    CAPTURE(name);
    check(load_cluster(name));
  }
}

TEST_CASE("every policy says what of it rests on recollection", "[plan]") {
  for (const PlanPolicy policy : every<PlanPolicy>())
    CHECK(recollection_of(policy).empty() == (policy == PlanPolicy::all));
  for (const PlanPolicy policy : {PlanPolicy::hethub, PlanPolicy::heteroauto, PlanPolicy::megatron_deepspeed})
    CHECK(recollection_of(policy).find("recalled, unverified") != std::string_view::npos);
}
