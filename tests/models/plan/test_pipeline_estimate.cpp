// What closed forms say of the network between stages and replicas, of the energy of chips that wait, and of how layers
// are shared.
#include <catch2/catch.hpp>
#include <set>

#include "models/cluster/message_cost.hpp"
#include "models/plan/part_search.hpp"
#include "models/plan/pipeline_estimate.hpp"
#include "models/report/spending.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Two groups of one node each, of so many chips, joined by Ethernet.
Job job_on_two_groups(int chips_per_node) {
  Job job = tiny_job({1, 1, 1}, Family::gpt2);
  NodeGroup node = job.cluster.groups[0];
  node.chips_per_node = chips_per_node;
  node.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
  job.cluster.groups.clear();
  for (const char* name : {"one", "other"}) {
    node.name = name;
    job.cluster.groups.push_back(node);
  }
  job.cluster.links.push_back({"one", "other"});
  build_topology(job.cluster);
  return job;
}

PlannedPipeline two_stages() {
  PlannedPipeline pipeline;
  pipeline.micro_batch = 2;
  pipeline.micro_batches = 8;
  for (const int group : {0, 1}) {
    StageWay way;
    way.group = group;
    pipeline.stages.push_back({way, 2});
  }
  return pipeline;
}

}  // namespace

TEST_CASE(
    "replicas in other nodes go at the rate of sockets over Ethernet, and over any NIC of a cluster of "
    "sockets",
    "[plan]") {
  Cluster cluster = tiny_cluster(1);
  cluster.groups[0].inside = {FabricKind::nvswitch, 1e12, 0};
  for (const NicKind kind : {NicKind::infiniband, NicKind::roce, NicKind::ethernet})
    for (const TransportPolicy transport : {TransportPolicy::by_group, TransportPolicy::sockets}) {
      CAPTURE(name_of(kind), name_of(transport));
      const Nic nic{kind, 2, 5e10, 1e-6};
      const double rdma = nic.bandwidth * efficiency_of(nic), sockets = socket_rate(nic);
      CHECK((kind == NicKind::ethernet || sockets < rdma / 2));
      cluster.transport = transport;
      cluster.groups[0].nics = {nic};
      const bool is_socket = kind == NicKind::ethernet || transport == TransportPolicy::sockets;
      CHECK(rate_to_replicas(cluster, cluster.groups[0], 2, 1) == 2 * (is_socket ? sockets : rdma));
    }
}

TEST_CASE(
    "the parts of a sequence pass to the next stage in the time of the whole, where they share its NICs",
    "[plan]") {
  const Job job = job_on_two_groups(2);
  StagePricer pricer(job);
  const PipelineEstimator estimator(job, pricer);
  PlannedPipeline pipeline = two_stages();
  const std::vector<double> whole = estimator.transfer_seconds(pipeline);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0] > 0);
  pipeline.context_parallel = 2;
  CHECK(estimator.transfer_seconds(pipeline)[0] == Approx(whole[0]));
  pipeline.context_parallel = 1;
  pipeline.replicas = 2;
  CHECK(estimator.transfer_seconds(pipeline)[0] == Approx(2 * whole[0]));
}

TEST_CASE(
    "chips draw the power of computing while their stage computes, and that of waiting for the rest of a "
    "step",
    "[plan]") {
  Job job = job_on_two_groups(1);
  for (NodeGroup& group : job.cluster.groups) group.chip.watts = {100, "assumed"};
  job.cluster.site = Site{.pue = 1.5, .electricity = {}, .carbon = {}, .node_watts = 30};
  build_topology(job.cluster);
  StagePricer pricer(job);
  PlannedPipeline pipeline = two_stages();
  const auto joules_in = [&](double step_s) {
    pipeline.estimate_s = step_s;
    return estimated(job, pricer, pipeline).bill.kwh.value() * 3.6e6;
  };
  const auto watts = [](double share) { return 2 * 1.5 * (30 + 100 * share); };
  const double short_s = 1e-9, long_s = 1e3;  // no stage has computed all; every stage has long done so
  CHECK(joules_in(short_s) == Approx(watts(kComputingPower) * short_s));
  CHECK(joules_in(2 * long_s) - joules_in(long_s) == Approx(watts(kWaitingPower) * long_s));
}

TEST_CASE("stages that are alike share the layers evenly, whatever the micro-batch", "[plan]") {
  Job job = job_on_two_groups(1);
  job.transformer.hidden = 256;
  job.transformer.head_dim = 64;
  job.transformer.ffn = 1024;
  job.transformer.layers = 16;
  job.train.global_batch = 64;
  StagePricer pricer(job);
  std::set<std::int64_t> micro_batches;
  for (const PlannedPipeline& each : search_pipelines(job, pricer, 64, [] { return true; }).best)
    if (each.schedule == Schedule::one_f_one_b && each.stages.size() == 2 && each.stages[0].layers == 8)
      micro_batches.insert(each.micro_batch);
  CHECK(micro_batches.size() > 2);
}
