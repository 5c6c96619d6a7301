// Sensitivities in virtual time: a listed gain is the gain of the scenario after its file was edited by hand.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <tuple>
#include <type_traits>

#include "models/compile/compile.hpp"
#include "models/explain/explain.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/workers/child.hpp"
#include "sim/workers/pool.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace motley {

template <class T>
requires std::is_same_v<std::remove_const_t<T>, Trial>
auto fields_of(T& trial) {
  auto& [step_s, refused] = trial;
  return std::tie(step_s, refused);
}

}  // namespace motley

namespace {

Trace simulated(const Job& job, const Program& program) { return simulate_in_child(job, program); }

Explained explained(const Job& job, bool changes = false) {
  const Program program = compile(job);
  return explain(job, program, simulated(job, program), {}, simulated,
                 {.factor = 1.1, .levers = true, .changes = changes});
}

// The text in which the n-th occurrence of `from`, counted from 0, is replaced by `to`.
std::string edited(std::string text, const std::string& from, const std::string& to, int nth) {
  std::size_t place = text.find(from);
  for (; nth > 0 && place != std::string::npos; --nth) place = text.find(from, place + 1);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

struct Edit {
  std::string what, where, from, to;
  int nth;  // which occurrence of `from` is edited, counted from 0
};

void check_edits(const std::string& name, const std::vector<Edit>& edits) {
  Scenario scenario = load_scenario(std::string(MOTLEY_SOURCE_DIR) + "/scenarios/" + name + ".yaml");
  scenario.job.fidelity.fold = true;
  const Explained all = explained(scenario.job);
  // The time that software takes for a message is not a figure of a cluster, so all figures together, when better by
  // that factor, gain a little less.
  REQUIRE(all.all);
  CHECK(all.all->step_s >= all.report.iteration_s / 1.1);
  CHECK(all.all->step_s <= all.levers.front().step_s);
  CHECK(all.all->step_s <= 1.01 * all.report.iteration_s / 1.1);
  const std::string text = print(scenario.job.cluster);
  for (const Edit& edit : edits) {
    CAPTURE(name, edit.what, edit.where);
    Job job = scenario.job;
    job.cluster = parse_cluster(edited(text, edit.from, edit.to, edit.nth));
    job.cluster.transport = scenario.job.cluster.transport;
    const double by_hand_s = duration_s(simulated(job, compile(job)));
    const auto listed = std::find_if(all.levers.begin(), all.levers.end(), [&](const LeverGain& gain) {
      return gain.lever.what == edit.what && gain.lever.where == edit.where;
    });
    REQUIRE(listed != all.levers.end());
    CHECK(listed->step_s == Approx(by_hand_s).epsilon(1e-6));
  }
}

}  // namespace

TEST_CASE("a listed gain is that of the cluster's file edited by hand: two islands") {
  check_edits(
      "holmes-hybrid",
      {{"chip memory bandwidth", "ib (a100-80gb-sxm)", "memory_bandwidth: {value: 2039 GB/s",
        "memory_bandwidth: {value: 2242.9 GB/s", 0},
       {"chip memory bandwidth", "roce (a100-80gb-sxm)", "memory_bandwidth: {value: 2039 GB/s",
        "memory_bandwidth: {value: 2242.9 GB/s", 1},
       {"chip FLOP/s", "roce (a100-80gb-sxm)", "fp16: {value: 312 TFLOP/s", "fp16: {value: 343.2 TFLOP/s", 1},
       {"infiniband bandwidth", "NICs of ib", "count: 4, bandwidth: 200 Gb/s",
        "count: 4, bandwidth: 220 Gb/s", 0},
       {"infiniband latency", "NICs of ib", "200 Gb/s, latency: 5 us", "200 Gb/s, latency: 4.5454545454 us",
        0},
       {"roce bandwidth", "NICs of roce", "count: 2, bandwidth: 200 Gb/s", "count: 2, bandwidth: 220 Gb/s",
        0},
       {"ethernet bandwidth", "NICs of roce", "bandwidth: 25 Gb/s", "bandwidth: 27.5 Gb/s", 1},
       {"nvswitch bandwidth", "inside nodes of roce", "nvswitch, bandwidth: 300 GB/s",
        "nvswitch, bandwidth: 330 GB/s", 1}});
}

TEST_CASE("a listed gain is that of the cluster's file edited by hand: two sites", "[slow]") {
  check_edits("two-site-wan",
              {{"link bandwidth", "east - west", "bandwidth: 100 Gb/s", "bandwidth: 110 Gb/s", 0},
               {"bandwidth of one flow", "east - west", "per_flow: 5 Gb/s", "per_flow: 5.5 Gb/s", 0},
               {"link latency", "east - west", "latency: 10 ms", "latency: 9.0909090909 ms", 0},
               {"nvswitch latency", "inside nodes of west", "450 GB/s, latency: 2 us",
                "450 GB/s, latency: 1.8181818181 us", 1}});
}

TEST_CASE("everything so much better makes the step so much shorter where nothing else takes time") {
  // On loopback no software takes time for messages.
  for (const Degrees& degrees : {Degrees{2, 2, 1}, {1, 2, 2}, {2, 1, 2}}) {
    const Explained result = explained(tiny_job(degrees));
    REQUIRE(result.all);
    CHECK(result.all->step_s == Approx(result.report.iteration_s / 1.1).epsilon(1e-9));
  }
}

TEST_CASE("parts of the path of random jobs add up to the step") {
  for (unsigned seed = 7000; seed < 7025; ++seed) {
    const Job job = any_job(seed);
    INFO(written_out(job));
    const Program program = compile(job);
    const Trace trace = simulated(job, program);
    double sum_s = 0;
    for (const PathPart& part : path_parts(job, program, trace)) sum_s += part.seconds;
    CHECK(sum_s == Approx(duration_s(trace)).epsilon(1e-9));
  }
}

TEST_CASE("gains of random jobs are those of the same figures multiplied by hand") {
  for (unsigned seed = 7100; seed < 7106; ++seed) {
    const Job job = any_job(seed);
    INFO(written_out(job));
    for (const LeverGain& gain : explained(job).levers) {
      Job better = job;
      for (NodeGroup& group : better.cluster.groups) {
        const bool chip = gain.lever.where == group.name + " (" + group.chip.name + ")";
        if (chip && gain.lever.what == "chip FLOP/s") group.chip.peak_flops[Format::fp32].value *= 1.1;
        if (chip && gain.lever.what == "chip memory bandwidth") group.chip.memory_bandwidth.value *= 1.1;
        for (Nic& nic : group.nics)
          if (gain.lever.where == "NICs of " + group.name &&
              gain.lever.what == std::string(name_of(nic.kind)) + " bandwidth")
            nic.bandwidth *= 1.1;
      }
      if (better.cluster == job.cluster) continue;
      build_topology(better.cluster);
      CAPTURE(gain.lever.what, gain.lever.where);
      CHECK(gain.step_s == Approx(duration_s(simulated(better, compile(better)))).epsilon(1e-9));
    }
  }
}

TEST_CASE(
    "trials in any number of processes give the same bytes as one by one, and each is shown once it begins",
    "[slow]") {
  const auto with = [](std::size_t processes, std::vector<std::string>& shown) {
    ExplainOptions options;
    options.progress = [&](std::int64_t done, std::int64_t total, const std::string& what) {
      CHECK(0 <= done);
      CHECK(done <= total);
      if (std::find(shown.begin(), shown.end(), what) == shown.end()) shown.push_back(what);
    };
    if (processes > 0)
      options.run_trials = [processes](std::size_t count, const auto& trial, const auto& progress) {
        return map_in_pool(count, trial, {.processes = processes, .name = {}, .progress = progress});
      };
    return options;
  };
  std::size_t refused = 0;
  for (unsigned seed = 7200; seed < 7202; ++seed) {
    const Job a = any_job(seed), b = any_job(seed + 1);
    INFO(written_out(a));
    const Program program_a = compile(a), program_b = compile(b);
    const Trace trace_a = simulated(a, program_a), trace_b = simulated(b, program_b);
    const ExplainOptions path_alone{.levers = false, .changes = false};
    const Explained path_a = explain(a, program_a, trace_a, {}, simulated, path_alone);
    const Explained path_b = explain(b, program_b, trace_b, {}, simulated, path_alone);
    std::vector<std::string> in_order;
    const std::string expected = to_json(explain(a, program_a, trace_a, {}, simulated, with(0, in_order)));
    const Why reasons = why({a, path_a}, {b, path_b}, simulated, with(0, in_order));
    for (const PartDifference& part : reasons.parts) refused += part.a_with_b.stands() ? 0 : 1;
    for (std::size_t processes : {1U, 3U}) {
      std::vector<std::string> shown;
      const auto in_child = [](const Job& job, const Program& program) { return simulate(job, program); };
      CHECK(to_json(explain(a, program_a, trace_a, {}, in_child, with(processes, shown))) == expected);
      CHECK(to_json(why({a, path_a}, {b, path_b}, in_child, with(processes, shown))) == to_json(reasons));
      CHECK(shown == in_order);
    }
  }
  CHECK(refused > 0);
}
