// Copies between chips and hosts in virtual time: alone, beside each other, beside other traffic.
#include <catch2/catch.hpp>

#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr std::int64_t kBytes = 1'000'000'000;

// A cluster with chips behind PCIe switches. The uplink of a switch is as wide as the link of one chip.
Cluster pcie_cluster(int chips, int switches) {
  Cluster cluster = one_node(chips, {FabricKind::pcie, 0, 0});
  Pcie pcie;
  pcie.generation = 4;
  pcie.switches = switches;
  cluster.groups[0].pcie = pcie;
  return with_hosts(cluster);
}

double link_rate(const Cluster& cluster) { return host_route(cluster, 0, true).rate; }

// Adds a stream that copies a gradient of the rank to its host (`down`) or back.
void add_copy(RankProgram& rank_program, bool down) {
  Tensor here;
  here.name = "here";
  here.role = TensorRole::gradient;
  here.shape = {kBytes / 4};
  here.bytes = kBytes;
  here.parameter = 0;
  Tensor there = here;
  there.name = "there";
  there.on_host = true;
  rank_program.tensors = {here, there};
  Copy copy;
  copy.tensors = {TensorId(down ? 0 : 1)};
  copy.into = {TensorId(down ? 1 : 0)};
  copy.bytes = kBytes;
  Instruction instruction;
  instruction.body = copy;
  rank_program.streams.add({down ? StreamKind::to_host : StreamKind::from_host, ChunkId{}, {instruction}});
}

// A run in which each rank copies once, down or up.
Trace copies(const Cluster& cluster, const std::vector<bool>& down) {
  HandMade p(cluster);
  for (std::size_t rank = 0; rank < down.size(); ++rank)
    add_copy(p.program.rank_programs[RankProgramId(rank)], down[rank]);
  return p.run();
}

}  // namespace

TEST_CASE("a copy on an idle link takes bytes over what the link reaches") {
  const Cluster tree = pcie_cluster(2, 1);
  CHECK(last_end_s(copies(tree, {true})) == Approx(kBytes / link_rate(tree)).epsilon(1e-9));
  CHECK(last_end_s(copies(tree, {false})) == Approx(kBytes / link_rate(tree)).epsilon(1e-9));
  const Cluster own = with_hosts(one_node(2));
  CHECK(last_end_s(copies(own, {true, true})) == Approx(kBytes / 1e9).epsilon(1e-9));
}

TEST_CASE("two chips that share an uplink each get half of it; up and down do not meet") {
  const Cluster shared = pcie_cluster(4, 2);
  const double alone_s = kBytes / link_rate(shared);
  CHECK(last_end_s(copies(shared, {true, true})) == Approx(2 * alone_s).epsilon(1e-6));
  CHECK(last_end_s(copies(shared, {true, false})) == Approx(alone_s).epsilon(1e-6));
  const Cluster apart = pcie_cluster(2, 2);
  CHECK(last_end_s(copies(apart, {true, true})) == Approx(kBytes / link_rate(apart)).epsilon(1e-6));
}

TEST_CASE("a transfer that leaves a switch and a copy of a chip behind it slow each other") {
  const Cluster cluster = pcie_cluster(4, 2);  // chips 0 and 1 behind one switch, 2 and 3 behind the other
  const auto run = [&](bool copies_too, bool transfers_too) {
    HandMade p(cluster);
    if (transfers_too) {
      p.join(1_rank, 2_rank);
      p.send(1_rank, kNext, kBytes);
      p.recv(2_rank, kPrevious, kBytes);
    }
    if (copies_too) add_copy(p.program.rank_programs.front(), true);
    return last_end_s(p.run());
  };
  const double both_s = run(true, true);
  CHECK(both_s > 1.9 * run(true, false));
  CHECK(both_s > 1.5 * run(false, true));
}

TEST_CASE("offloading costs the time of its copies and of the host's step, as a share of its own") {
  Job job = tiny_job({1, 1, 1}, Family::llama);
  job.cluster = with_hosts(job.cluster);
  const Program kept = compile(job);
  const Report before = make_report(job, kept, simulate_in_child(job, kept));
  job.strategy.offload.optimizer = 1;
  const Program program = compile(job);
  const Report after = make_report(job, program, simulate_in_child(job, program));
  CHECK(before.breakdown.at(0).offload_s == 0);
  CHECK(after.breakdown.at(0).optimizer_s == 0);
  const double elements = static_cast<double>(parameter_count(job.transformer));
  // One bucket: gradients go down, the host steps, parameters go up.
  const double expected_s = elements * 4 / 1e9 + elements * 28 / (0.8 * 1e10) + elements * 4 / 1e9;
  CHECK(after.breakdown.at(0).offload_s == Approx(expected_s).epsilon(1e-6));
  CHECK(to_text(before).find("offload") == std::string::npos);
  CHECK(to_text(after).find("exposed offload") != std::string::npos);
}

TEST_CASE("buckets overlap: copying down, stepping and copying up") {
  Job job = tiny_job({1, 1, 1}, Family::llama);
  job.cluster = with_hosts(job.cluster);
  job.strategy.offload.optimizer = 1;
  const auto seconds = [&] {
    const Program program = compile(job);
    return make_report(job, program, simulate_in_child(job, program)).breakdown.at(0).offload_s;
  };
  const double one_bucket_s = seconds();
  job.strategy.bucket_bytes = 20'000;
  CHECK(seconds() < 0.7 * one_bucket_s);
}

TEST_CASE("a folded run of ranks that offload gives the times of an unfolded one") {
  for (Job job : every_offloaded_job(Family::llama)) {
    if (job.strategy.rank_count() < 2) continue;
    INFO(print(job.strategy));
    NodeGroup& group = job.cluster.groups[0];
    group.inside = {FabricKind::pcie, 0, 1e-6};
    group.pcie = Pcie{};
    group.pcie->switches = group.chips_per_node > 2 ? 2 : 1;
    job.cluster = with_hosts(job.cluster);
    const Program program = compile(job);
    job.fidelity.fold = false;
    const double whole_s = make_report(job, program, simulate_in_child(job, program)).iteration_s;
    job.fidelity.fold = true;
    CHECK(make_report(job, program, simulate_in_child(job, program)).iteration_s ==
          Approx(whole_s).epsilon(1e-9));
  }
}

namespace {

double step_s(const Job& job) {
  const Program program = compile(job);
  return make_report(job, program, simulate_in_child(job, program)).iteration_s;
}

Job with_link(Job job, double bytes_per_s) {
  job.cluster.groups[0].host->link = bytes_per_s;
  build_topology(job.cluster);
  return job;
}

}  // namespace

TEST_CASE("faster links to hosts lengthen no step, and infinitely fast ones hide what activations cost",
          "[laws]") {
  for (Job job : every_offloaded_job(Family::llama)) {
    INFO(print(job.strategy));
    double before_s = 0;
    for (const double rate : {1e15, 1e11, 1e10, 1e9, 1e8}) {
      const double seconds = step_s(with_link(job, rate));
      CHECK(seconds >= before_s * 0.995);
      before_s = seconds;
    }
    job.strategy.offload.optimizer = 0;
    Job kept = job;
    kept.strategy.offload = {};
    CHECK(step_s(with_link(job, 1e15)) == Approx(step_s(kept)).epsilon(0.01));
  }
}

TEST_CASE("activations that leave faster than layers are computed cost the ends of a micro-batch alone") {
  Job job = tiny_job({1, 1, 1}, Family::llama);
  job.transformer.layers = 16;
  job.strategy = expand(job.transformer, job.train, 1, 1, 1);
  job.cluster = with_hosts(job.cluster);
  const double kept_s = step_s(job);
  job.strategy.offload.activations = 1;
  const Program program = compile(job);
  double copied = 0;
  for (const Stream& stream : program.rank_programs.front().streams)
    if (stream.kind == StreamKind::to_host)
      for (const Instruction& each : stream.instructions)
        copied += static_cast<double>(std::get<Copy>(each.body).bytes);
  // Copies to the host take a sixth of the step, those back too: half as long as a forward.
  const double copies_s = kept_s / 6;
  const double moved_s = step_s(with_link(job, copied / copies_s));
  CHECK(moved_s > kept_s);
  // Of sixteen layers the last one's copy to the host and back stands in the way, not all of them.
  CHECK(moved_s - kept_s < 2 * copies_s / 16 * 2);
  // Slow copies are what the step takes.
  const double slow_s = step_s(with_link(job, copied / (4 * kept_s)));
  CHECK(slow_s > 8 * kept_s);
  CHECK(slow_s < 10 * kept_s);
}

TEST_CASE("gradients that go down while the last backward still runs hide that time") {
  Job job = tiny_job({1, 1, 1}, Family::llama);
  job.cluster = with_hosts(job.cluster);
  job.strategy.offload.optimizer = 1;
  job.strategy.bucket_bytes = 20'000;
  const auto run = [&] {
    const Program program = compile(job);
    return make_report(job, program, simulate_in_child(job, program));
  };
  const Report apart = run();
  job.strategy.overlap_gradients = true;
  const Report beside = run();
  CHECK(beside.breakdown.at(0).offload_s < 0.9 * apart.breakdown.at(0).offload_s);
  CHECK(beside.breakdown.at(0).compute_s == Approx(apart.breakdown.at(0).compute_s));
  CHECK(beside.iteration_s < apart.iteration_s);
}
