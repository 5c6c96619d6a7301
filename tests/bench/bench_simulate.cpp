// How fast Motley simulates, compared with a plain SimGrid DAG of the same Program in the same run: every compute is an
// Exec, every transfer a Comm, all created up front and ordered by add_successor, on the same fabric. Both price
// collectives by formula, so that both simulate the same thing; the iteration times must agree. Then whole runs of
// large scenarios, from file to report, with their limits. Every measurement is a process of its own.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "models/base/data_files.hpp"
#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/report/report.hpp"
#include "models/scenario/scenario.hpp"
#include "sim/fabric/simgrid_fabric.hpp"
#include "sim/simulate.hpp"
#include "tests/support/measured_child.hpp"

using namespace motley;
using namespace motley::tests;
namespace sg = simgrid::s4u;

namespace {

struct Result {
  double iteration_s = 0;
  std::int64_t activities = 0;
  double wall_s = 0, cpu_s = 0, peak_mib = 0;
};

Result measure(const std::function<Result()>& work) {
  const MeasuredChild<Result> child = measure_child(work);
  Result result = child.answer;
  result.wall_s = child.wall_s;
  result.cpu_s = child.cpu_s;
  result.peak_mib = child.peak_bytes / (1 << 20);
  return result;
}

// The plain SimGrid DAG with which Motley is compared.
class UpFrontDag {
 public:
  UpFrontDag(const Program& program, const Job& job)
      : program_(program),
        costs_(program, job.cluster),
        folding_(fold(job, program, costs_, {})),
        fabric_(program, job.cluster, folding_),
        simgrid_(fabric_, SimGridFabric::Latency::flows) {}

  Result run() {
    each([this](const Step& step, const Instruction& instruction) { activity(step, instruction); });
    each([this](const Step& step, const Instruction& instruction) {
      const Activity& to = activity(step, instruction);
      if (step.index > 0) order({step.rank, step.stream, step.index - 1}, to);
      for (const After& after : instruction.after) order({step.rank, after.stream, after.index}, to);
    });
    for (const auto& [key, activity] : activities_) {
      if (activity.exec != nullptr) activity.exec->vetoable_start();
      if (activity.comm != nullptr) activity.comm->vetoable_start();
    }
    simgrid_.engine().run();
    return {sg::Engine::get_clock(), static_cast<std::int64_t>(activities_.size()), 0, 0, 0};
  }

 private:
  // The key of an activity: the step of its compute or send, or a collective's group and place in the stream.
  using Key = std::tuple<int, int, int>;
  struct Activity {  // one of the two is set
    sg::ExecPtr exec;
    sg::CommPtr comm;
    void before(const Activity& later) const {
      const sg::ActivityPtr to =
          later.exec != nullptr ? sg::ActivityPtr(later.exec) : sg::ActivityPtr(later.comm);
      if (exec != nullptr) exec->add_successor(to);
      if (comm != nullptr) comm->add_successor(to);
    }
  };

  void each(const std::function<void(const Step&, const Instruction&)>& visit) {
    for (Rank rank : program_.ranks.ids()) {
      const auto& streams = program_.program_of(rank).streams;
      for (StreamId stream : streams.ids())
        for (std::size_t index = 0; index < streams[stream].instructions.size(); ++index)
          visit({rank, stream, static_cast<std::int32_t>(index)}, streams[stream].instructions[index]);
    }
  }

  Key key_of(const Step& step, const Instruction& instruction) const {
    const RankEntry& entry = program_.ranks[step.rank];
    if (const auto* collective = instruction.as<Collective>())
      return {-1 - entry.groups[collective->slot].value().value(), 0, step.index};
    const Recv* recv = instruction.as<Recv>();
    if (recv == nullptr) return {step.rank.value(), step.stream.value(), step.index};
    const Rank sender = entry.peers[recv->slot].value();
    const auto& streams = program_.program_of(sender).streams;
    for (StreamId stream : streams.ids()) {
      const Send* first = streams[stream].instructions.front().as<Send>();
      if (first != nullptr && first->slot == PeerSlot(1 - recv->slot.value()))
        return {sender.value(), stream.value(), step.index};
    }
    throw std::logic_error("a recv without its send");
  }

  const Activity& activity(const Step& step, const Instruction& instruction) {
    Activity& activity = activities_[key_of(step, instruction)];
    if (activity.exec != nullptr || activity.comm != nullptr) return activity;
    const RankEntry& entry = program_.ranks[step.rank];
    if (const PeerMessage* message = instruction.message()) {
      const Arrangement& arrangement = folding_.arrangement;
      const auto [from, to] = simgrid_.ends_of(at(fabric_.lane_class(
          instruction.op() == Op::send ? arrangement.sent_lane(step.rank, message->slot)
                                       : arrangement.received_lane(step.rank, message->slot))));
      activity.comm =
          sg::Comm::sendto_init(from, to)->set_payload_size(static_cast<std::uint64_t>(message->bytes));
      return activity;
    }
    const auto* collective = instruction.as<Collective>();
    const double seconds =
        collective != nullptr
            ? ring_all_reduce_s(costs_.ring(entry.groups[collective->slot].value()), collective->bytes)
            : costs_.price(step.rank, instruction).seconds();
    activity.exec = sg::Exec::init()
                        ->set_host(simgrid_.host_of(step.rank))
                        ->set_flops_amount(seconds);  // one flop a second
    return activity;
  }

  void order(const Step& before, const Activity& to) {
    const Activity& from = activity(before, program_.at(before.rank, before.stream, before.index));
    if (ordered_.emplace(&from, &to).second) from.before(to);
  }

  const Program& program_;
  CostTable costs_;
  Folding folding_;
  Fabric fabric_;
  SimGridFabric simgrid_;
  std::map<Key, Activity> activities_;
  std::set<std::pair<const Activity*, const Activity*>> ordered_;
};

double iteration_of(const Trace& trace) {
  double end_s = 0;
  for (const TraceEvent& event : trace.events) end_s = std::max(end_s, event.end_s);
  return end_s;
}

struct Size {
  std::int64_t data_parallel, micro_batches;
};

void compare(Job job, Size size) {
  job.train.global_batch = size.data_parallel * size.micro_batches * job.train.micro_batch;
  const Strategy given = job.strategy;
  job.strategy = expand(job.transformer, job.train, given.tp(), given.pp(), size.data_parallel);
  job.strategy.schedule = given.schedule;
  job.strategy.recompute = given.recompute;
  job.fidelity.data_parallel = CollectiveLevel::formula;
  const Program program = compile(job);
  const Result rival = measure([&] { return UpFrontDag(program, job).run(); });
  const Result ours = measure([&] {
    const Trace trace = simulate(job, program);
    return Result{iteration_of(trace), 0, 0, 0, 0};
  });
  const Result shared = measure([&] {  // the same, with every flow in SimGrid
    SimOptions options;
    options.all_shared = true;
    return Result{iteration_of(simulate(job, program, options)), 0, 0, 0, 0};
  });
  fmt::print("{:>6}{:>15}{:>12}{:>13.3f}{:>16.3f}{:>10.3f}{:>8.1f}x{:>8.1f}x\n", program.rank_count(),
             size.micro_batches, rival.activities, rival.cpu_s, shared.cpu_s, ours.cpu_s,
             rival.cpu_s / ours.cpu_s, shared.cpu_s / ours.cpu_s);
  MOTLEY_CHECK(std::abs(shared.iteration_s - ours.iteration_s) < 1e-6 * ours.iteration_s);
  MOTLEY_CHECK(std::abs(rival.iteration_s - ours.iteration_s) < 1e-6 * ours.iteration_s);
}

// A scenario that is run from its file to its report, and the limits for it.
struct Target {
  const char* what;
  const char* scenario;
  bool folded;
  std::int64_t data_parallel;  // 0: as in the scenario; others: same global batch, on `cluster`
  const char* cluster;
  double most_s, most_mib;  // 0: no limit
  CollectiveLevel data_parallel_level = CollectiveLevel::fluid;
};

Job load(const Target& target) {
  Job job = load_scenario(data_folder() + "/scenarios/" + target.scenario + ".yaml").job;
  job.fidelity.fold = target.folded;
  job.fidelity.data_parallel = target.data_parallel_level;
  if (target.data_parallel == 0) return job;
  job.cluster = load_cluster(target.cluster);
  const Strategy given = job.strategy;
  job.strategy = expand(job.transformer, job.train, given.tp(), given.pp(), target.data_parallel);
  job.strategy.schedule = given.schedule;
  job.strategy.recompute = given.recompute;
  return job;
}

void whole_run(const Target& target) {
  const Result result = measure([&] {
    const Job job = load(target);
    const Program program = compile(job);
    const std::vector<StageMemory> memory = check(program, job.cluster);
    const Trace trace = simulate(job, program);
    const std::string json = to_json(make_report(job, program, trace, memory));
    MOTLEY_CHECK(!json.empty());
    return Result{iteration_of(trace), static_cast<std::int64_t>(trace.events.size()), 0, 0, 0};
  });
  const bool held = (target.most_s == 0 || result.cpu_s < target.most_s) &&
                    (target.most_mib == 0 || result.peak_mib < target.most_mib);
  fmt::print("{:<44}{:>10}{:>9.2f}{:>9.2f}{:>10.0f}{:>8}{:>8}\n", target.what, result.activities,
             result.wall_s, result.cpu_s, result.peak_mib,
             target.most_s > 0 ? fmt::format("{} s", target.most_s) : "-",
             target.most_s == 0 ? "-"
             : held             ? "yes"
                                : "NO");
  std::fflush(stdout);
}

// Limits are in CPU seconds, because machines are shared.
constexpr Target kTargets[] = {
    {"gpt3-175b-1024, every rank", "gpt3-175b-1024", false, 0, "", 1.2, 0},
    {"gpt3-175b-1024, every rank, expanded", "gpt3-175b-1024", false, 0, "", 4.8, 0,
     CollectiveLevel::expanded},
    {"gpt3-175b-1024, folded", "gpt3-175b-1024", true, 0, "", 0.3, 0},
    {"gpt3-175b-16384, folded", "gpt3-175b-16384", true, 0, "", 1, 0},
    {"mixed-100k, folded, 4 GB", "mixed-100k", true, 0, "", 10, 4e9 / 1048576},
    {"gpt3-175b-16384, every rank", "gpt3-175b-16384", false, 0, "", 20, 1.5e9 / 1048576},
    {"gpt3-175b on 4,096, every rank", "gpt3-175b-1024", false, 64, "a100-16384", 60, 0},
};

}  // namespace

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::strcmp(argv[1], "--smoke") == 0;
  const Scenario scenario = load_scenario(data_folder() + "/scenarios/gpt3-175b-1024.yaml");
  Job job = scenario.job;
  use_own_figures(scenario.own.value(),
                  job.cluster);  // the DAG knows no computes that communication slows down
  fmt::print("GPT-3 175B, TP 8, PP 8; CPU seconds, one process each\n");
  fmt::print("{:>6}{:>15}{:>12}{:>13}{:>16}{:>10}{:>9}{:>9}\n", "ranks", "micro-batches", "activities",
             "SimGrid DAG", "all in SimGrid", "Motley", "faster", "faster");
  const std::vector<Size> sizes =
      smoke ? std::vector<Size>{{1, 8}} : std::vector<Size>{{1, 16}, {2, 16}, {2, 32}, {4, 32}};
  for (const Size& size : sizes) compare(job, size);
  if (smoke) return 0;
  fmt::print("\nFrom file to report: load, compile, check, simulate, report and JSON\n");
  fmt::print("{:<44}{:>10}{:>9}{:>9}{:>10}{:>8}{:>8}\n", "", "events", "wall s", "CPU s", "peak MiB", "limit",
             "held");
  for (const Target& target : kTargets) whole_run(target);
  return 0;
}
