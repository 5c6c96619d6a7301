// Explanations without a simulator: parts of a path, levers of a cluster, changes of a strategy, comparison of two
// texts. Durations come from the cost models, in the order of the Program. tests/sim/test_explain.cpp checks that gains
// are those of a World.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/network_cost.hpp"
#include "models/explain/explain.hpp"
#include "models/scenario/scenario.hpp"
#include "models/transformer/train_fields.hpp"
#include "tests/support/timed_trace.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// A trace in which computes and collectives take what they cost, and transfers what their bytes take over the fabric
// of the first group.
Trace priced_trace(const Job& job, const Program& program) {
  CostTable costs(program, job.cluster);
  return TimedRun(program,
                  [&](const Step& step, const Instruction& i) {
                    if (i.op() == Op::compute || i.op() == Op::optimizer)
                      return costs.price(step.rank, i).seconds();
                    if (const auto* collective = i.as<Collective>()) {
                      const auto group = program.ranks[step.rank].groups[collective->slot];
                      return collective_s(collective->kind, costs.ring(group.value()), collective->bytes);
                    }
                    const InsideFabric& inside = job.cluster.groups[0].inside;
                    return inside.latency_s + static_cast<double>(payload_bytes(i)) / inside.bandwidth;
                  })
      .run();
}

double sum_of(const std::vector<PathPart>& path) {
  double sum_s = 0;
  for (const PathPart& part : path) sum_s += part.seconds;
  return sum_s;
}

Explained explained(const Job& job, const ExplainOptions& options = {}) {
  const Program program = compile(job);
  return explain(job, program, priced_trace(job, program), {}, priced_trace, options);
}

// A cluster with two unlike groups of two nodes each, which are two sites joined by a line, a fabric of leaves and
// spines, hosts, and an idle group.
Cluster rich_cluster() {
  return parse_cluster(R"(
name: rich
groups:
  - {name: a, nodes: 2, chip: a100-80gb-sxm, chips_per_node: 2,
     host: {memory: 1 TiB, memory_bandwidth: 200 GB/s, link: 25 GB/s},
     inside: {fabric: nvswitch, bandwidth: 300 GB/s, latency: 2 us},
     nics: [{kind: infiniband, count: 2, bandwidth: 200 Gb/s, latency: 5 us},
            {kind: ethernet, count: 1, bandwidth: 25 Gb/s, latency: 30 us}]}
  - {name: b, nodes: 2, chip: h100-80gb-sxm, chips_per_node: 2,
     host: {memory: 1 TiB, memory_bandwidth: 300 GB/s, link: 50 GB/s},
     inside: {fabric: nvswitch, bandwidth: 450 GB/s, latency: 2 us},
     nics: [{kind: infiniband, count: 2, bandwidth: 400 Gb/s, latency: 5 us},
            {kind: ethernet, count: 1, bandwidth: 25 Gb/s, latency: 30 us}]}
  - {name: idle, nodes: 1, chip: h100-80gb-sxm, chips_per_node: 2,
     inside: {fabric: nvswitch, bandwidth: 450 GB/s, latency: 2 us},
     nics: [{kind: ethernet, count: 1, bandwidth: 25 Gb/s, latency: 30 us}]}
links:
  - {between: [a, b], over: ethernet, bandwidth: 100 Gb/s, latency: 10 ms, per_flow: 5 Gb/s}
  - {between: [b, idle], over: ethernet, bandwidth: 100 Gb/s, latency: 10 ms}
networks:
  - {over: infiniband, groups: [a], shape: leaf_spine, nodes_per_leaf: 1, spines: 2, uplink: 100 Gb/s, latency: 1 us}
)");
}

Job rich_job() {
  Job job = tiny_job({2, 2, 2});
  job.train.precision = Format::bf16;
  job.cluster = rich_cluster();
  for (std::size_t i = 0; i < 2; ++i) job.strategy.templates[0].stages[i].on = {i == 0 ? "a" : "b"};
  job.strategy.offload.optimizer = 1;
  return job;
}

}  // namespace

TEST_CASE("parts of the path of every small strategy add up to its step") {
  for (const Job& job : every_small_job(Family::gpt2)) {
    const Program program = compile(job);
    const Trace trace = priced_trace(job, program);
    const std::vector<PathPart> path = path_parts(job, program, trace);
    CAPTURE(print(job.strategy));
    CHECK(sum_of(path) == Approx(duration_s(trace)).epsilon(1e-12));
    const PathBreakdown same = make_report(job, program, trace).critical_path;
    double recompute_s = 0;
    for (const PathPart& part : path) recompute_s += part.recompute ? part.seconds : 0;
    CHECK(recompute_s == Approx(same.recompute_s).margin(1e-15));
  }
}

TEST_CASE("what a path is spent on is told by its kernels, its groups and its wires") {
  Job job = tiny_job({2, 2, 2});
  job.fidelity.tensor_parallel = CollectiveLevel::formula;
  const Program program = compile(job);
  std::set<std::string> seen;
  for (const PathPart& part : path_parts(job, program, priced_trace(job, program))) {
    CHECK(part.seconds > 0);
    CHECK(part.group == "all");
    const bool wire = part.spent >= Spent::tensor_parallel && part.spent <= Spent::tied_embedding;
    CHECK(part.on == (wire ? "loopback" : "tiny"));
    CHECK(part.keys.size() == 1);
    seen.insert(std::string(name_of(part.spent)));
  }
  CHECK(seen == std::set<std::string>{"matmuls", "attention", "memory-bound kernels", "kernel overheads",
                                      "tensor parallel", "pipeline transfers", "data parallel",
                                      "tied embedding", "optimizer"});
}

TEST_CASE("every lever makes one thing better, by as much as it says, and none that no rank stands on") {
  const Job job = rich_job();
  const std::vector<Lever> list = levers(job, compile(job));
  std::set<std::string> named;
  for (const Lever& lever : list) {
    CAPTURE(lever.what, lever.where);
    CHECK(named.insert(lever.what + " " + lever.where).second);
    CHECK(lever.where.find("idle") == std::string::npos);
    const Job better = improved(job, lever, 1.25);
    const auto apart = key_differences(print(job.cluster), print(better.cluster));
    REQUIRE_FALSE(apart.empty());
    const bool chip = lever.what == "chip FLOP/s" || lever.what == "kernel overhead";
    CHECK((chip || apart.size() == 1));  // a lever of chips changes several keys
    CHECK(lever.better(1.25) == (lever.is_rate ? lever.value * 1.25 : lever.value / 1.25));
    if (lever.dimension) {
      const auto printed = [&](double value) {
        return lever.in_bits ? format_line_rate(value) : format_exact(value, *lever.dimension);
      };
      const std::string now = printed(lever.value), then = printed(lever.better(1.25));
      CHECK(std::any_of(apart.begin(), apart.end(),
                        [&](const KeyDifference& each) { return each.a == now && each.b == then; }));
    }
  }
  // Levers of each of two groups: FLOP/s, memory, overhead; two of the fabric; four of its NICs; two of the host. The
  // line has three, the switches two.
  CHECK(list.size() == 2 * (3 + 2 + 4 + 2) + 3 + 2);
}

TEST_CASE(
    "switches have a lever each: links where their rate is given, else how much they are oversubscribed") {
  Job job = rich_job();
  const auto of_switches = [&](const Network& network) {
    job.cluster.networks = {network};
    build_topology(job.cluster);
    std::map<std::string, double> values;
    for (const Lever& lever : levers(job, compile(job)))
      if (lever.where.find(name_of(network.shape)) != std::string::npos) {
        const Cluster better = improved(job, lever, 2).cluster;
        CHECK_FALSE(better.networks == job.cluster.networks);
        CHECK(better.groups == job.cluster.groups);
        values[lever.what] = lever.value;
      }
    return values;
  };
  Network network;
  network.groups = {"b"};
  CHECK(of_switches(network).empty());
  network.shape = NetworkShape::rail_optimised;
  network.oversubscription = 3;
  CHECK(of_switches(network) == std::map<std::string, double>{{"infiniband oversubscription", 3}});
  network.shape = NetworkShape::dragonfly;
  network.local = 2e9;
  network.global = 1e9;
  network.latency_s = 1e-6;
  CHECK(of_switches(network) ==
        std::map<std::string, double>{{"infiniband switch links", 1e9}, {"infiniband switch latency", 1e-6}});
  network.groups = {"idle"};
  CHECK(of_switches(network).empty());
}

TEST_CASE("levers of one kind go together, and all of them at once") {
  const Job job = rich_job();
  const std::vector<Lever> list = levers(job, compile(job));
  const std::vector<Lever> sets = combined(list);
  CHECK(sets.size() == 11);  // levers that both groups have
  for (const Lever& set : sets) {
    CHECK(set.where == "both together");
    Cluster one_by_one = job.cluster, together = job.cluster;
    for (const Lever& lever : list)
      if (lever.what == set.what) lever.improve(one_by_one, 2);
    set.improve(together, 2);
    CHECK(one_by_one == together);
  }
  Cluster one_by_one = job.cluster, together = job.cluster;
  for (const Lever& lever : list) lever.improve(one_by_one, 2);
  all_together(list).improve(together, 2);
  CHECK(one_by_one == together);
  // Three of one kind are one set, whatever stands between them.
  const Lever& first = list.front();
  const auto other =
      std::find_if(list.begin(), list.end(), [&](const Lever& each) { return each.what != first.what; });
  const std::vector<Lever> of_three = combined({first, *other, first, first});
  REQUIRE(of_three.size() == 1);
  CHECK(of_three[0].what == first.what);
  CHECK(of_three[0].where == "all 3 together");
}

TEST_CASE("a lever of a NIC changes what a person would change in the file, and nothing else") {
  for (const double gigabits : {1.0, 30.0, 32.0, 40.0, 100.0}) {
    Job job = rich_job();
    job.cluster.groups[0].nics[1].bandwidth = gigabits * 1e9 / 8;
    build_topology(job.cluster);
    int improved_nics = 0;
    for (const Lever& lever : levers(job, compile(job))) {
      if (lever.what != "ethernet bandwidth" || lever.where != "NICs of a") continue;
      Cluster by_hand = job.cluster;
      by_hand.groups[0].nics[1].bandwidth *= 1.1;
      build_topology(by_hand);
      const Cluster better = improved(job, lever, 1.1).cluster;
      CHECK(better == by_hand);
      CHECK(print(better) == print(by_hand));
      ++improved_nics;
    }
    CHECK(improved_nics == 1);
  }
}

TEST_CASE("chips behind a tree of PCIe have a lever for their link and for what joins the sockets") {
  Job job = tiny_job({2, 2, 2});
  job.train.precision = Format::bf16;
  job.cluster = load_cluster("rtx-4090-8");
  std::set<std::string> named;
  for (const Lever& lever : levers(job, compile(job))) {
    named.insert(lever.what);
    if (lever.what != "PCIe link of a chip") continue;
    const Route before = route(job.cluster, 0, 1), after = route(improved(job, lever, 1.05).cluster, 0, 1);
    CHECK(after.rate == Approx(1.05 * before.rate));
  }
  CHECK(named == std::set<std::string>{"chip FLOP/s", "chip memory bandwidth", "kernel overhead",
                                       "PCIe link of a chip", "link between sockets", "pcie latency"});
}

TEST_CASE("gains are those of the changed job, the shortest step first") {
  const Job job = tiny_job({2, 2, 2});
  const Explained result = explained(job);
  CHECK(result.report.iteration_s == Approx(sum_of(result.path)));
  REQUIRE(result.levers.size() == 5);
  for (std::size_t i = 0; i < result.levers.size(); ++i) {
    const LeverGain& gain = result.levers[i];
    CAPTURE(gain.lever.what);
    if (i > 0) CHECK(gain.step_s >= result.levers[i - 1].step_s);
    const Job better = improved(job, gain.lever, 1.1);
    CHECK(gain.step_s == duration_s(priced_trace(better, compile(better))));
    // Without contention a gain never exceeds the time on the critical path.
    CHECK(gain.on_path_s.has_value() == (gain.lever.what != "loopback latency"));
    if (gain.on_path_s) CHECK(result.report.iteration_s - gain.step_s <= *gain.on_path_s * (1 + 1e-9));
  }
  CHECK(result.sets.empty());
  REQUIRE(result.all);
  CHECK(result.all->step_s == Approx(result.report.iteration_s / 1.1).epsilon(1e-9));
}

TEST_CASE("other strategies are tried with the same batch, and those that do not stand come last with why") {
  Job job = tiny_job({2, 2, 2});
  job.cluster.groups[0].chip.memory_bytes.value = 3e6;
  build_topology(job.cluster);
  const Explained result = explained(job, {.factor = 1.1, .levers = false, .changes = true, .progress = {}});
  REQUIRE(result.changes.size() > 8);
  bool fell = false;
  std::set<std::string> named;
  for (const ChangeGain& gain : result.changes) {
    CAPTURE(gain.what, gain.trial.refused);
    CHECK(named.insert(gain.what).second);
    CHECK(gain.trial.stands() == (gain.trial.step_s > 0));
    fell = fell || !gain.trial.stands();
    CHECK(fell == !gain.trial.stands());
  }
  for (const Change& change : changes(job, result.report)) {
    CAPTURE(change.what);
    const std::optional<Job> applied = apply(change.move, job);
    if (!applied) continue;
    const Job& changed = *applied;
    CHECK_FALSE((changed.strategy == job.strategy && changed.train == job.train));
    CHECK(changed.train.global_batch == job.train.global_batch);
    CHECK(print(changed.cluster) == print(job.cluster));
  }
}

TEST_CASE("a change that does not fit says so and is no failure") {
  Job job = tiny_job({1, 2, 1});
  job.cluster.groups[0].chip.memory_bytes.value = 1e5;
  build_topology(job.cluster);
  const Trial trial = try_job(job, priced_trace);
  CHECK_FALSE(trial.stands());
  CHECK(trial.refused.find("needs") != std::string::npos);
  Job wrong = tiny_job({1, 2, 1});
  wrong.train.global_batch = 3;
  CHECK_FALSE(try_job(wrong, priced_trace).stands());
}

TEST_CASE("keys that are not the same are found, wherever lists are longer or figures have sources") {
  const auto apart = key_differences(
      "{a: 1, b: {c: [1, 2]}, d: {value: 3, source: x}, e: [{name: n, f: 1}]}",
      "{a: 1, b: {c: [1, 3]}, d: {value: 3, source: y}, e: [{name: n, f: 2}, {name: m, f: 1}]}");
  CHECK(apart ==
        std::vector<KeyDifference>{
            {"b.c", "[1, 2]", "[1, 3]"}, {"e.n.f", "1", "2"}, {"e.m.name", "", "m"}, {"e.m.f", "", "1"}});
  CHECK(key_differences(print(rich_cluster()), print(rich_cluster())).empty());
}

TEST_CASE(
    "of two jobs the rows add up to what their steps are apart, and what differs is named and exchanged") {
  const Job a = tiny_job({2, 2, 2});
  Job b = a;
  b.strategy.recompute = Recompute::full;
  b.cluster.groups[0].inside.bandwidth *= 2;
  build_topology(b.cluster);
  const Explained explained_a = explained(a), explained_b = explained(b);
  const Why reasons = why({a, explained_a}, {b, explained_b}, priced_trace);
  double apart_s = 0;
  for (const PathDifference& each : reasons.path) apart_s += each.b_s - each.a_s;
  CHECK(apart_s == Approx(explained_b.report.iteration_s - explained_a.report.iteration_s).epsilon(1e-9));
  REQUIRE(reasons.parts.size() == 2);
  CHECK(reasons.parts[0].part == "cluster");
  CHECK(reasons.parts[0].keys ==
        std::vector<KeyDifference>{{"groups.all.inside.bandwidth", "1 GB/s", "2 GB/s"}});
  CHECK(reasons.parts[1].part == "strategy");
  CHECK(reasons.parts[1].keys == std::vector<KeyDifference>{{"recompute", "none", "full"}});
  Job half = a;
  half.cluster = b.cluster;
  CHECK(reasons.parts[0].a_with_b.step_s == duration_s(priced_trace(half, compile(half))));
  CHECK(reasons.parts[1].b_with_a.step_s == reasons.parts[0].a_with_b.step_s);
  const std::string text = to_text(reasons);
  CHECK(text.find("groups.all.inside.bandwidth  1 GB/s  2 GB/s") != std::string::npos);
  CHECK(text.find("recompute") != std::string::npos);
}

TEST_CASE("one part that differs is not simulated again, and a job is no different from itself") {
  const Job a = tiny_job({2, 2, 2});
  Job b = a;
  b.strategy.recompute = Recompute::full;
  const Explained explained_a = explained(a), explained_b = explained(b);
  const Simulation none = [](const Job&, const Program&) -> Trace { throw RunFailure("not asked for"); };
  const Why reasons = why({a, explained_a}, {b, explained_b}, none);
  REQUIRE(reasons.parts.size() == 1);
  CHECK(reasons.parts[0].a_with_b.step_s == explained_b.report.iteration_s);
  CHECK(reasons.parts[0].b_with_a.step_s == explained_a.report.iteration_s);
  const Why same = why({a, explained_a}, {a, explained_a}, none);
  CHECK(same.parts.empty());
  for (const PathDifference& each : same.path) CHECK(each.a_s == each.b_s);
  CHECK(to_text(same).find("the two jobs are the same") != std::string::npos);
}

TEST_CASE("jobs that differ in one field of the training shape are told apart by it, whichever it is") {
  const Job a = tiny_job({2, 2, 2});
  Job b = a;
  b.train = parse_train(
      "{global_batch: 4, micro_batch: 1, sequence: 4, precision: bf16, gradients: bf16, matmuls: fp8, "
      "optimizer: muon, master_weights: false, frozen_weights: nf4, "
      "kept_operands: precision, kept_inner: fp8, expert_dispatch: fp8, "
      "expert_skew: 1,"
      " documents: [1, 3], expert_room: 2, fragmentation: 0.5, learning_rate: 0.5, beta1: 0.5, beta2: 0.5,"
      " epsilon: 0.5, weight_decay: 0.5, seed: 7, steps: 3, tokens: 1 B, goodput: 0.5,"
      " text: " MOTLEY_SOURCE_DIR "/README.md}");
  const Explained of_a = explained(a);
  const Simulation none = [](const Job&, const Program&) -> Trace { throw RunFailure("not asked for"); };
  TrainFields{}.each([&](const auto& entry) {
    CAPTURE(entry.key);
    const auto member = std::get<0>(entry.members);
    Job changed = a;
    changed.train.*member = b.train.*member;
    REQUIRE(changed.train != a.train);
    const Why reasons = why({a, of_a}, {changed, of_a}, none);
    REQUIRE(reasons.parts.size() == 1);
    CHECK(reasons.parts[0].part == "train");
    REQUIRE(reasons.parts[0].keys.size() == 1);
    CHECK(reasons.parts[0].keys[0].key == entry.key);
    CHECK(to_text(reasons).find(fmt::format("\n    {} ", entry.key)) != std::string::npos);
  });
}

TEST_CASE(
    "an explanation as JSON has its schema and the figures of the value, and its text sums to the step") {
  const Explained result = explained(tiny_job({2, 2, 2}));
  const auto json = nlohmann::json::parse(to_json(result));
  CHECK(json["schema"] == "motley.explain/1");
  double share = 0;
  for (const auto& part : json["critical_path"]) share += part["share"].get<double>();
  CHECK(share == Approx(1));
  CHECK(json["levers"].size() == result.levers.size());
  CHECK(json["levers"][0]["iteration_s"] == result.levers[0].step_s);
  CHECK(json["levers"][0]["change"].get<double>() ==
        Approx(result.levers[0].step_s / result.report.iteration_s - 1));
  CHECK(json["changes"].size() == result.changes.size());
  CHECK(to_text(result).find("100.0 %") != std::string::npos);
  CHECK(to_text(result) == to_text(explained(tiny_job({2, 2, 2}))));
}
