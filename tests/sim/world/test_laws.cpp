// Laws that relate two runs of one Program, over random strategies on random clusters, with contention: run again, in
// other units, with other names, beside idle neighbours, folded, on a better fabric. Under fair sharing a better part
// can lengthen a step (tests/sim/world/test_closed_forms.cpp has the example): a flow that starts sooner takes its
// share from one for which all wait. So better parts are held to three laws: for the recurrence over an idle fabric,
// for a single message, and for the whole step, where each exception must be sharing alone. A bound on what contention
// may add is the sum of everything, one after the other. Invariants of one trace are in
// tests/sim/world/test_invariants.cpp.
#include <cmath>
#include <numeric>
#include <random>

#include "models/compile/compile.hpp"
#include "models/plan/levers.hpp"
#include "models/report/report.hpp"
#include "models/scenario/software.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/simulated_draw.hpp"
#include "tests/support/timeline.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr unsigned kFirst = 5000, kLawDraws = kSanitized ? 8 : 30;
constexpr double kTolerance = 1e-9;  // share of the iteration
// The same if SimGrid sees flows in another order and so rounds in another way.
constexpr double kReordered = 1e-8;

template <class Check>
void for_every_law_draw(const Check& check) {
  for (unsigned seed = kFirst; seed < kFirst + kLawDraws; ++seed) {
    CAPTURE(seed);
    const SimulatedDraw& run = simulated_draw(seed);
    INFO(written_out(run.job));
    check(run, seed);
  }
}

Trace on(const SimulatedDraw& run, Cluster cluster) {
  Job job = run.job;
  job.cluster = std::move(cluster);
  build_topology(job.cluster);
  return simulate_in_child(job, run.program);
}

// The largest difference in time between an event of one trace and the same event of the other, whose times are
// multiplied by `scale`. If there are names, rank r of one is rank names[r] of the other.
double apart(const Trace& one, const Trace& other, const std::vector<Rank>& names = {}, double scale = 1) {
  REQUIRE(one.events.size() == other.events.size());
  std::map<StepKey, const TraceEvent*> there;
  for (const TraceEvent& event : other.events) there[Timeline::key(event.step)] = &event;
  double most = 0;
  for (const TraceEvent& event : one.events) {
    Step step = event.step;
    if (!names.empty()) step.rank = names[at(step.rank)];
    const TraceEvent& same = *there.at(Timeline::key(step));
    most = std::max({most, std::abs(event.begin_s - scale * same.begin_s),
                     std::abs(event.matched_s - scale * same.matched_s),
                     std::abs(event.end_s - scale * same.end_s)});
  }
  return most;
}

// Multiplies every rate of chips by `chips` and every rate of wires by `wires`.
void multiply_rates(Cluster& cluster, double chips, double wires) {
  for (NodeGroup& group : cluster.groups) {
    for (auto& [format, peak] : group.chip.peak_flops) peak.value *= chips;
    group.chip.memory_bandwidth.value *= chips;
    group.inside.bandwidth *= wires;
    for (Nic& nic : group.nics) nic.bandwidth *= wires;
    if (group.host) group.host->memory_bandwidth *= chips;
    if (group.host) group.host->link *= wires;
  }
  for (GroupLink& link : cluster.links) {
    link.bandwidth *= wires;
    link.per_flow *= wires;
  }
  for (Network& network : cluster.networks) {
    network.uplink *= wires;
    network.local *= wires;
    network.global *= wires;
  }
}

// Halves every rate and doubles the latency of every message and kernel. The latency of software is not a figure of the
// cluster, so that of the wire grows by as much.
Cluster at_half_speed(Cluster cluster) {
  multiply_rates(cluster, 0.5, 0.5);
  for (NodeGroup& group : cluster.groups) {
    group.chip.software.kernel_overhead.value *= 2;
    group.chip.software.step_overhead.value *= 2;
    InsideFabric& inside = group.inside;
    inside.latency_s = 2 * inside.latency_s + inside_message_cost(inside.kind).software_latency_s;
    for (Nic& nic : group.nics)
      nic.latency_s = 2 * nic.latency_s + native_message_cost(nic).software_latency_s;
  }
  for (GroupLink& link : cluster.links) link.latency_s *= 2;
  for (Network& network : cluster.networks) network.latency_s *= 2;
  return cluster;
}
// Each wire a million times slower or faster, or anything between; each latency, too, or none.
Cluster at_any_speed(Cluster cluster, Dice& dice) {
  const auto factor = [&] {
    return std::pow(10.0, std::uniform_real_distribution<double>(-6, 6)(dice.engine()));
  };
  const auto latency = [&](double seconds) { return dice.once_in(4) ? 0 : seconds * factor(); };
  for (NodeGroup& group : cluster.groups) {
    group.inside.bandwidth *= factor();
    group.inside.latency_s = latency(group.inside.latency_s);
    for (Nic& nic : group.nics) {
      nic.bandwidth *= factor();
      nic.latency_s = latency(nic.latency_s);
    }
    if (group.host) group.host->link *= factor();
  }
  for (GroupLink& link : cluster.links) {
    link.bandwidth *= factor();
    link.latency_s = latency(link.latency_s);
  }
  for (Network& network : cluster.networks) {
    network.uplink *= factor();
    network.latency_s = latency(network.latency_s);
  }
  return cluster;
}

// Whether the job uses constants that do not scale with units: other transports than the NIC's own, staging, site links
// over RDMA, and algorithms that depend on times of a switch or a library.
bool has_constants(const Job& job) {
  const Cluster& cluster = job.cluster;
  using Algorithm = CollectiveAlgorithm;
  for (const Algorithm each : {Algorithm::in_switch, Algorithm::fastest, Algorithm::automatic})
    if (job.fidelity.algorithm == each) return true;
  return cluster.transport != TransportPolicy::by_group ||
         std::any_of(cluster.links.begin(), cluster.links.end(), [](const GroupLink& link) {
           return link.staged || (link.is_site_link() && link.over != NicKind::ethernet);
         });
}

// The same program with rank r called names[r].
Program renamed(const Program& program, const std::vector<Rank>& names) {
  const auto name = [&](Rank rank) { return names[at(rank)]; };
  Program copy = program;
  for (Rank rank : program.ranks.ids()) {
    RankEntry& entry = copy.ranks[name(rank)];
    entry = program.ranks[rank];
    for (std::optional<Rank>& peer : entry.peers)
      if (peer) peer = name(*peer);
  }
  for (Group& group : copy.groups)
    for (Rank& rank : group.ranks) rank = name(rank);
  return copy;
}

bool has_switches(const Cluster& cluster) {
  return std::any_of(cluster.networks.begin(), cluster.networks.end(),
                     [](const Network& network) { return network.shape != NetworkShape::single; });
}

// The seconds of the longest path if flows never share a link. Collectives are taken as wholes.
double idle_s(const Job& job, const Program& program, const Trace& any) {
  Job whole = job;
  whole.fidelity.data_parallel = whole.fidelity.tensor_parallel = CollectiveLevel::formula;
  Timeline timeline(whole, program, any);
  std::map<StepKey, double> seconds;
  for (const Meeting& meeting : timeline.meetings) {
    const Step& first = meeting.sides[0];
    seconds[Timeline::key(first)] =
        meeting.group ? timeline.collective_s_of(meeting)
        : meeting.sides.size() > 1
            ? timeline.message_s(meeting, first, meeting.sides[1], payload_bytes(timeline.instruction(first)))
        : timeline.is_copy(meeting) ? timeline.copy_s(first)
                                    : timeline.work_s(first);
  }
  return timeline
      .recurrence([&](const Step& step) { return seconds.at(Timeline::key(step)); },
                  [](const Step&) { return 0.0; })
      .last_s;
}

}  // namespace

TEST_CASE("the same job twice: the same program, trace and report, byte for byte", "[laws]") {
  for_every_law_draw([](const SimulatedDraw& run, unsigned seed) {
    const Job again = any_job(seed);
    const Program program = compile(again);
    CHECK(print(program) == print(run.program));
    const Trace trace = simulate_in_child(again, program);
    CHECK(trace == run.trace);
    CHECK(to_json(make_report(again, program, trace)) ==
          to_json(make_report(run.job, run.program, run.trace)));
  });
}

TEST_CASE("half of every rate and twice every latency make all times twice as long", "[laws]") {
  unsigned tried = 0;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned) {
    if (has_constants(run.job)) return;
    ++tried;
    CHECK(apart(on(run, at_half_speed(run.job.cluster)), run.trace, {}, 2) <= kReordered * end_of(run.trace));
  });
  CHECK(tried > kLawDraws / 8);
}

// Seconds of very unlike sizes must neither end a simulation (a deadlock that is none) nor lose what is short.
TEST_CASE("a program that runs on some links runs on any, however slow or fast", "[laws]") {
  for_every_law_draw([&](const SimulatedDraw& run, unsigned seed) {
    Dice dice(seed);
    const Trace trace = on(run, at_any_speed(run.job.cluster, dice));
    REQUIRE(trace.events.size() % run.trace.events.size() ==
            0);  // steps that overlap may be more until they are steady
    for (const TraceEvent& event : trace.events) {
      REQUIRE(std::isfinite(event.end_s));
      REQUIRE((event.begin_s >= 0 && event.matched_s >= event.begin_s && event.end_s >= event.matched_s));
    }
  });
}

TEST_CASE("ranks under other numbers do the same at the same time", "[laws]") {
  for_every_law_draw([](const SimulatedDraw& run, unsigned seed) {
    std::vector<Rank> names;
    for (Rank rank : run.program.ranks.ids()) names.push_back(rank);
    Dice(seed).shuffle(names);
    const Trace trace = simulate_in_child(run.job, renamed(run.program, names));
    CHECK(apart(run.trace, trace, names) <= kReordered * end_of(run.trace));
  });
}

TEST_CASE("equal nodes under one switch change places, and nothing changes", "[laws]") {
  unsigned moved = 0;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned seed) {
    if (has_switches(run.job.cluster)) return;
    Dice dice(seed);
    std::vector<int> chip_of;
    for (const NodeGroup& group : run.job.cluster.groups) {
      std::vector<int> nodes(static_cast<std::size_t>(group.nodes));
      std::iota(nodes.begin(), nodes.end(), 0);
      dice.shuffle(nodes);
      const int first = static_cast<int>(chip_of.size());
      for (int node : nodes)
        for (int chip = 0; chip < group.chips_per_node; ++chip)
          chip_of.push_back(first + node * group.chips_per_node + chip);
    }
    Program program = run.program;
    for (RankEntry& entry : program.ranks) entry.chip = chip_of[at(entry.chip)];
    if (program == run.program) return;
    ++moved;
    CHECK(apart(run.trace, simulate_in_child(run.job, program)) <= kReordered * end_of(run.trace));
  });
  CHECK(moved > (kSanitized ? 0 : kLawDraws / 8));
}

TEST_CASE("nodes that stay idle, beside the others or apart, change nothing", "[laws]") {
  for_every_law_draw([](const SimulatedDraw& run, unsigned) {
    Cluster more = run.job.cluster;
    NodeGroup apart_from_all = more.groups[0];
    apart_from_all.name = "apart";
    if (!has_switches(more)) more.groups.back().nodes += 2;
    more.groups.push_back(apart_from_all);
    for (Network& network : more.networks)  // an empty list meant all groups
      for (const NodeGroup& group : run.job.cluster.groups) network.groups.push_back(group.name);
    CHECK(apart(run.trace, on(run, more)) <= kReordered * end_of(run.trace));
  });
}

TEST_CASE("groups under other names, or cut in two that one network joins, do the same", "[laws]") {
  unsigned cut = 0;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned) {
    Cluster named = run.job.cluster;
    const auto other_name = [](const std::string& name) {
      return "z" + std::string(name.rbegin(), name.rend());
    };
    for (NodeGroup& group : named.groups) group.name = other_name(group.name);
    for (GroupLink& link : named.links) {
      link.from = other_name(link.from);
      link.to = other_name(link.to);
    }
    CHECK(on(run, named) == run.trace);

    // A group is cut only if it is the only one: several groups would need links from each part, and its own nodes are
    // on one network.
    Cluster parts = run.job.cluster;
    if (parts.groups.size() > 1 || parts.groups[0].nodes < 2 || parts.transport == TransportPolicy::sockets)
      return;
    ++cut;
    NodeGroup rest = parts.groups[0];
    rest.name = "rest";
    parts.groups[0].nodes = 1;
    rest.nodes -= 1;
    parts.groups.push_back(rest);
    parts.links.push_back({parts.groups[0].name, "rest", rest.nics[0].kind});
    CHECK(apart(run.trace, on(run, parts)) <= kReordered * end_of(run.trace));
  });
  CHECK(cut > kLawDraws / 15);
}

TEST_CASE("folded equals unfolded where pipelines, chips, fabrics and carriers are unlike", "[laws]") {
  std::size_t stand_ins = 0;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned) {
    Job job = run.job;
    job.fidelity.fold = true;
    const Trace folded = simulate_in_child(job, run.program);
    stand_ins += folded.stand_ins.size();
    CHECK(end_of(folded) == Approx(end_of(run.trace)).epsilon(kTolerance));
    std::map<StepKey, const TraceEvent*> all;
    for (const TraceEvent& event : run.trace.events) all[Timeline::key(event.step)] = &event;
    double most = 0;
    for (const TraceEvent& event : folded.events)
      most = std::max(most, std::abs(event.end_s - all.at(Timeline::key(event.step))->end_s));
    CHECK(most <= kTolerance * end_of(run.trace));
  });
  CHECK(stand_ins > 0);
}

TEST_CASE("no instruction ends sooner than with infinite bandwidth, and the null world takes none",
          "[laws]") {
  unsigned shorter = 0;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned) {
    Cluster infinite = run.job.cluster;
    multiply_rates(infinite, 1, 1e12);
    const Trace bound = on(run, infinite);
    double sooner = 0;
    for (std::size_t i = 0; i < bound.events.size(); ++i)
      sooner = std::max(sooner, bound.events[i].end_s - run.trace.events[i].end_s);
    CHECK(sooner <= kTolerance * end_of(run.trace));
    shorter += end_of(bound) < 0.9 * end_of(run.trace) ? 1 : 0;
    SimOptions null;
    null.null = true;
    CHECK(end_of(simulate_in_child(run.job, run.program, null)) == 0);
  });
  CHECK(shorter > kLawDraws / 2);
}

TEST_CASE("without contention faster chips, wider links and lower latencies never lengthen a step",
          "[laws]") {
  for_every_law_draw([](const SimulatedDraw& run, unsigned seed) {
    Dice dice(seed);
    Job better = run.job;
    const double wires = dice.one_of({1.0, 1.3});
    multiply_rates(better.cluster, dice.one_of({1.0, 1.5}), wires);
    NodeGroup& group = better.cluster.groups[dice.engine()() % better.cluster.groups.size()];
    group.chip.memory_bandwidth.value *= dice.one_of({1.0, 3.0});
    group.nics[0].bandwidth *= dice.one_of({1.0, 2.0});
    group.inside.latency_s *= dice.one_of({0.0, 0.5});
    build_topology(better.cluster);
    CHECK(idle_s(better, run.program, run.trace) <=
          idle_s(run.job, run.program, run.trace) * (1 + kTolerance));
  });
}

namespace {

struct BetterParts {
  int tried = 0, longer = 0;
};

// Makes each of some parts better, one at a time, as `explain` does: no step gets more than 0.5 % longer. Counts the
// exceptions of fair sharing: the recurrence over an idle fabric must not be longer, and the step not 10 %.
void try_better_parts(const SimulatedDraw& run, Dice& dice, std::size_t parts, BetterParts& sum) {
  std::vector<Lever> all = levers(run.job, run.program);
  dice.shuffle(all);
  if (all.size() > parts) all.resize(parts);
  for (const Lever& lever : all) {
    const double factor = dice.one_of({1.02, 1.1, 1.5, 2.0, 8.0});
    const Job better = improved(run.job, lever, factor);
    const Program program = compile(better);
    const double before_s = step_s(run.trace), after_s = step_s(simulate_in_child(better, program));
    ++sum.tried;
    if (after_s <= before_s * 1.005) continue;
    ++sum.longer;
    CAPTURE(lever.what, lever.where, factor, before_s, after_s);
    CHECK(after_s <= before_s * 1.1);
    if (print(program) != print(run.program))
      continue;  // the times of kernels decide the order of some schedules
    CHECK(idle_s(better, program, run.trace) <= idle_s(run.job, run.program, run.trace) * (1 + kTolerance));
  }
}

}  // namespace

TEST_CASE("one better part lengthens no step, but where fair sharing alone does", "[laws]") {
  BetterParts sum;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned seed) {
    Dice dice(seed);
    try_better_parts(run, dice, kSanitized ? 1 : 4, sum);
  });
  CHECK(sum.longer * 100 <= sum.tried);
}

// Run by hand (tests/README.md): 1,000 jobs.
TEST_CASE("one better part lengthens no step of 1,000 jobs, but where fair sharing alone does",
          "[.thousand]") {
  BetterParts sum;
  for (unsigned seed = 20'000; seed < 21'000; ++seed) {
    CAPTURE(seed);
    SimulatedDraw run;
    run.job = any_job(seed);
    run.program = compile(run.job);
    run.trace = simulate_in_child(run.job, run.program);
    Dice dice(seed);
    try_better_parts(run, dice, 5, sum);
  }
  WARN(sum.tried << " better parts, " << sum.longer << " longer steps");
  CHECK(sum.longer * 200 <= sum.tried);
}

TEST_CASE("a message alone takes its closed form, longer for more bytes, no longer over better links",
          "[laws]") {
  unsigned sent = 0;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned seed) {
    const int chips = run.job.cluster.chip_count();
    if (chips < 2) return;
    ++sent;
    Dice dice(seed);
    const auto count = static_cast<unsigned>(chips);
    const unsigned first = dice.engine()() % count;
    const Rank from(first), to((first + 1 + dice.engine()() % (count - 1)) % count);
    const auto seconds = [&](const Cluster& cluster, std::int64_t bytes) {
      HandMade p(cluster);
      p.join(from, to);
      p.program.rank_programs[RankProgramId(from.value())].chunks.front().virtual_stage = 0;
      p.program.rank_programs[RankProgramId(to.value())].chunks.front().virtual_stage = 1;
      p.send(from, kNext, bytes);
      p.recv(to, kPrevious, bytes);
      const Carrier carrier = carrier_between(p.program, cluster, from, to);
      const double closed_s = message_time_s(message_cost_of(cluster, from.value(), to.value(), carrier),
                                             route(cluster, from.value(), to.value(), carrier), bytes);
      const double simulated_s = end_of(p.run());
      CHECK(simulated_s == Approx(closed_s).epsilon(kTolerance));
      return simulated_s;
    };
    Cluster better = run.job.cluster;
    multiply_rates(better, 1, 1.5);
    build_topology(better);
    double before_s = 0;
    for (std::int64_t bytes : {1, 1'000, 1'000'001}) {
      const double seconds_here = seconds(run.job.cluster, bytes);
      CHECK(seconds_here > before_s);
      CHECK(seconds(better, bytes) <= seconds_here * (1 + kTolerance));
      before_s = seconds_here;
    }
  });
  CHECK(sent > kLawDraws / 2);
}

TEST_CASE("the usual software makes no step shorter than the chips' own figures allow", "[laws]") {
  int longer = 0;
  for_every_law_draw([&](const SimulatedDraw& run, unsigned) {
    Cluster usual = run.job.cluster;
    for (NodeGroup& group : usual.groups) group.chip.kind = "gpu";  // CPUs keep their figures
    const OwnFigures own = own_figures(usual);
    use_usual_software(usual);
    Cluster bound = usual;
    use_own_figures(own, bound);
    const double bound_s = end_of(on(run, bound)), usual_s = end_of(on(run, usual));
    CHECK(bound_s <= 1.005 * usual_s);
    longer += usual_s > 1.01 * bound_s ? 1 : 0;
  });
  CHECK(longer > static_cast<int>(kLawDraws / 3));
}
