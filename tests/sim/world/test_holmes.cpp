// Trends that Holmes publishes (arXiv:2312.03549, abstract and table), on its clusters of four nodes. The times
// themselves are not checked, because its batch sizes and NIC speeds are not published.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/workers/child.hpp"

using namespace motley;

namespace {

double iteration_s(Job job) {
  job.fidelity.fold = true;
  const Trace trace = run_in_child([&] { return simulate(job, compile(job)); });
  double end_s = 0;
  for (const TraceEvent& event : trace.events) end_s = std::max(end_s, event.end_s);
  return end_s;
}

Job hybrid() { return load_scenario(MOTLEY_SOURCE_DIR "/scenarios/holmes-hybrid.yaml").job; }

// The same job with equal stages, on one island.
Job on(const std::string& cluster) {
  Job job = hybrid();
  job.cluster = load_cluster(cluster);
  use_usual_software(job.cluster);
  job.strategy.templates = expand(job.transformer, job.train, 1, 2, 16).templates;
  return job;
}

}  // namespace

TEST_CASE(
    "O-5: Ethernet is slower than the hybrid environment, and that than RoCE, and that than InfiniBand") {
  const double ethernet = iteration_s(on("holmes-ethernet-4")), mixed = iteration_s(hybrid());
  const double roce = iteration_s(on("holmes-roce-4")), infiniband = iteration_s(on("holmes-ib-4"));
  CHECK(ethernet > mixed);
  CHECK(mixed > roce);
  CHECK(roce >= infiniband);
}

TEST_CASE("the hybrid environment without Holmes's rule is as slow as Ethernet alone") {
  Job sockets = hybrid();
  sockets.cluster.transport = TransportPolicy::sockets;
  const double without = iteration_s(sockets), ethernet = iteration_s(on("holmes-ethernet-4"));
  CHECK(without == Approx(ethernet).epsilon(0.05));
  CHECK(without > 1.3 * iteration_s(hybrid()));
}
