// Laws of every step in virtual time, for any schedule, recompute and shape of pipelines: all memory is freed, streams
// do one thing at a time, the critical path and its gaps fill the step. The models are small and drawn from a seed that
// is printed; links are shared, so transfers slow each other. Facts are checked from the Program and the Trace, not
// from what the compiler derived for them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/report/report.hpp"
#include "models/trace/critical_path.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// One choice of an axis: its name, and the text that it adds to a strategy.
struct Choice {
  std::string name, text;
};
using Axis = std::vector<Choice>;

// Templates whose layers are not yet divided into chunks, because schedules do that. There are enough micro-batches for
// every schedule.
const Axis kShapes = {
    {"one stage", "templates: [{micro_batches: 4, stages: [{layers: 0-7}]}]"},
    {"two stages", "templates: [{micro_batches: 8, stages: [{layers: 0-3}, {layers: 4-7}]}]"},
    {"four stages",
     "templates: [{micro_batches: 8, stages: [{layers: 0-1}, {layers: 2-3}, {layers: 4-5}, {layers: 6-7}]}]"},
    {"tensor parallel, two stages",
     "templates: [{micro_batches: 6, stages: [{layers: 0-3, tp: 2}, {layers: 4-7, tp: 2}]}]"},
    {"two replicas of two stages",
     "templates: [{replicas: 2, micro_batches: 4, stages: [{layers: 0-3}, {layers: 4-7}]}]"},
    {"unequal shares of the batch",
     "templates: [{micro_batches: 6, stages: [{layers: 0-3}, {layers: 4-7}]},"
     " {micro_batches: 4, stages: [{layers: 0-3}, {layers: 4-7}]}]"},
    {"tensor parallel degrees 2 and 1",
     "templates: [{micro_batches: 4, stages: [{layers: 0-3, tp: 2}, {layers: 4-7, tp: 2}]},"
     " {micro_batches: 4, stages: [{layers: 0-3}, {layers: 4-7}]}]"},
    {"two stages beside three, other micro-batches",
     "templates: [{micro_batches: 4, stages: [{layers: 0-3}, {layers: 4-7}]},"
     " {micro_batches: 12, micro_batch: 1, stages: [{layers: 0-2}, {layers: 3-5}, {layers: 6-7}]}]"},
};
const Axis kRecompute = {{"none", "recompute: none"}, {"full", "recompute: full"}};
// What is sharded over the replicas.
const Axis kSharding = {
    {"nothing", ""}, {"optimizer", "zero: 1"}, {"gradients", "zero: 2"}, {"parameters", "zero: 3"}};

// A seed that depends only on the choices, not on the order in which they are tried.
unsigned seed_of(const std::string& name) {
  unsigned seed = 2166136261U;  // FNV-1a
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 16777619U;
  return seed;
}

Transformer random_transformer(Dice& dice) {
  Transformer t = tiny_transformer(dice.one_of({Family::gpt2, Family::llama}));
  t.layers = 8;
  t.hidden = dice.one_of({16, 32, 48});
  t.head_dim = t.hidden / t.heads;
  t.ffn = dice.one_of({32, 64, 128});
  t.vocabulary = dice.one_of({64, 256, 1024});
  return t;
}

std::int64_t sequences_of(const Strategy& strategy, std::int64_t micro_batch) {
  std::int64_t sum = 0;
  for (const PipelineTemplate& each : strategy.templates)
    sum += each.replicas * each.micro_batches * (each.micro_batch > 0 ? each.micro_batch : micro_batch);
  return sum;
}

// A cluster with one node, or with several, where each node has one NIC for all transfers and reductions.
Cluster random_cluster(int chips, Dice& dice) {
  Cluster cluster = tiny_cluster(chips);
  NodeGroup& group = cluster.groups[0];
  group.inside = {FabricKind::loopback, dice.one_of({1e7, 1e8, 1e9}), dice.one_of({0.0, 1e-5})};
  if (chips > 1 && dice.one_of({true, false})) {
    group.chips_per_node = chips % 2 == 0 ? 2 : 1;
    group.nodes = chips / group.chips_per_node;
    group.inside.kind = FabricKind::nvswitch;
    group.nics = {{NicKind::infiniband, 1, dice.one_of({1e7, 1e8}), 5e-6}};
  }
  build_topology(cluster);
  return cluster;
}

Job job_of(Schedule schedule, const std::vector<const Choice*>& choices, Dice& dice) {
  Job job = tiny_job({1, 1, 1}, random_transformer(dice));
  std::string text = "schedule: 1f1b\n";
  for (const Choice* choice : choices) text += choice->text + "\n";
  job.strategy = parse_strategy(text);
  job.train.global_batch = sequences_of(job.strategy, job.train.micro_batch);
  use_schedule(job.transformer, job.strategy, schedule, standard_chunks(schedule));
  job.strategy.p2p_buffers = dice.one_of({1, 2, 3});
  job.strategy.overlap_gradients = dice.one_of({true, false});
  job.strategy.bucket_bytes = dice.one_of({5'000, 50'000, 100'000'000});
  job.fidelity.tensor_parallel =
      dice.one_of({CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded});
  job.fidelity.data_parallel =
      dice.one_of({CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded});
  job.cluster = random_cluster(static_cast<int>(job.strategy.rank_count()), dice);
  return job;
}

void check_spans(const Program& program, const Trace& trace) {
  std::size_t expected = 0;
  for (Rank rank : program.ranks.ids())
    for (const Stream& stream : program.program_of(rank).streams) expected += stream.instructions.size();
  REQUIRE(trace.events.size() == expected);
  const TraceEvent* before = nullptr;
  for (const TraceEvent& event : trace.events) {
    const bool follows =
        before != nullptr && before->step.rank == event.step.rank && before->step.stream == event.step.stream;
    REQUIRE(event.step.index == (follows ? before->step.index + 1 : 0));
    REQUIRE(event.free_s >= (follows ? before->end_s : 0));
    REQUIRE(event.begin_s >= event.free_s);
    REQUIRE(event.matched_s >= event.begin_s);
    REQUIRE(event.end_s >= event.matched_s);
    before = &event;
  }
}

// When the tensors of each micro-batch on a rank are written, read and freed, from its kernels alone.
class Lifetimes {
 public:
  explicit Lifetimes(const RankProgram& rank_program) : rank_program_(rank_program) {}

  void add(const Instruction& instruction, const TraceEvent& event) {
    const auto instance = [&](TensorId tensor) -> Instance& {
      return instances_[{tensor, instruction.micro_batch}];
    };
    const auto write = [&](TensorId tensor) {
      Instance& written = instance(tensor);
      ++written.written;
      written.begin_s = event.begin_s;
    };
    const auto touch = [&](TensorId tensor) {
      if (!lives_shortly(tensor)) return;
      Instance& touched = instance(tensor);
      touched.touched_first_s = std::min(touched.touched_first_s, event.begin_s);
      touched.touched_last_s = std::max(touched.touched_last_s, event.end_s);
    };
    const auto free = [&](TensorId tensor) {
      Instance& freed = instance(tensor);
      ++freed.freed;
      freed.end_s = event.end_s;
    };
    const Op op = instruction.op();
    const auto moved = moved_tensors(instruction);
    const Recv* recv = instruction.as<Recv>();
    if ((recv != nullptr && recv->part == 0) || makes_tensors(rank_program_, instruction))
      std::for_each(moved.begin(), moved.end(), write);
    if (op == Op::send || op == Op::collective) std::for_each(moved.begin(), moved.end(), touch);
    std::for_each(instruction.frees.begin(), instruction.frees.end(), free);
    const Compute* compute = instruction.as<Compute>();
    if (compute == nullptr) return;
    const auto& kernels = rank_program_.blocks[compute->block].kernels;
    for (int i = compute->first_kernel; i < compute->last_kernel; ++i) {
      const Kernel& kernel = kernels[at(i)];
      if (kernel.op != KernelOp::all_reduce) std::for_each(kernel.out.begin(), kernel.out.end(), write);
      std::for_each(kernel.in.begin(), kernel.in.end(), touch);
      if (reads_parameters(kernel.op))
        std::for_each(kernel.parameters.begin(), kernel.parameters.end(), touch);
      if (adds_gradients(kernel.op))
        for (TensorId id : kernel.parameters) touch(gradient_of(id));
      std::for_each(kernel.frees.begin(), kernel.frees.end(), free);
    }
  }

  void check() const {
    for (const auto& [key, instance] : instances_) {
      INFO(rank_program_.tensors[key.first].name << " of micro-batch " << key.second);
      REQUIRE(instance.written == 1);
      REQUIRE(instance.freed == 1);
      REQUIRE(instance.begin_s <= instance.end_s);
      REQUIRE(instance.touched_first_s >= instance.begin_s);
      REQUIRE(instance.touched_last_s <= instance.end_s);
    }
  }
  // The most bytes live at once beyond those that are held throughout. At the end none must be live.
  std::int64_t peak() const {
    std::vector<std::tuple<double, int, std::int64_t>> changes;
    for (const auto& [key, instance] : instances_) {
      const std::int64_t bytes = rank_program_.tensors[key.first].bytes;
      changes.emplace_back(instance.begin_s, 0, bytes);
      changes.emplace_back(instance.end_s, 1, -bytes);
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t live = 0, most = 0;
    for (const auto& [time_s, order, bytes] : changes) most = std::max(most, live += bytes);
    REQUIRE(live == 0);
    return most;
  }

 private:
  struct Instance {
    int written = 0, freed = 0;
    double begin_s = 0, end_s = 0, touched_first_s = 1e300, touched_last_s = 0;
  };
  bool lives_shortly(TensorId tensor) const { return per_micro_batch(rank_program_.tensors[tensor].role); }
  // The gradient of a parameter's tensor, held or gathered. Throws if there is none.
  TensorId gradient_of(TensorId tensor) const {
    const std::optional<int> parameter = rank_program_.tensors[tensor].parameter;
    for (TensorId id : rank_program_.tensors.ids()) {
      const Tensor& other = rank_program_.tensors[id];
      const bool is_gradient = other.role == TensorRole::gradient || other.role == TensorRole::whole_gradient;
      if (is_gradient && other.parameter == parameter) return id;
    }
    throw std::logic_error("a parameter without a gradient");
  }
  const RankProgram& rank_program_;
  std::map<std::pair<TensorId, int>, Instance> instances_;  // by tensor and micro-batch
};

void check_memory(const Job& job, const Program& program, const Trace& trace) {
  IdTable<Rank, Lifetimes> lifetimes;
  IdTable<Rank, std::int64_t> live(program.ranks.size());
  for (Rank rank : program.ranks.ids()) lifetimes.add(Lifetimes(program.program_of(rank)));
  for (const TraceEvent& event : trace.events) {
    const Rank rank = event.step.rank;
    lifetimes[rank].add(program.at(event.step.rank, event.step.stream, event.step.index), event);
    live[rank] += event.allocated - event.freed;
  }
  for (Rank rank : lifetimes.ids()) {
    CAPTURE(rank.value());
    REQUIRE(live[rank] == 0);
    lifetimes[rank].check();
    REQUIRE(lifetimes[rank].peak() > 0);
    REQUIRE(program.program_of(rank).static_bytes + lifetimes[rank].peak() <=
            static_cast<std::int64_t>(job.cluster.chip_of(program.ranks[rank].chip).memory_bytes.value));
  }
}

bool is_after(const Program& program, const Step& step, const Step& before) {
  const auto& after = program.at(step.rank, step.stream, step.index).after;
  return before.rank == step.rank &&
         std::find(after.begin(), after.end(), After{before.stream, before.index}) != after.end();
}

// Whether the two events are sides of one transfer or collective.
bool meet(const Program& program, const TraceEvent& a, const TraceEvent& b) {
  const Instruction& one = program.at(a.step.rank, a.step.stream, a.step.index);
  const Instruction& other = program.at(b.step.rank, b.step.stream, b.step.index);
  const RankEntry &mine = program.ranks[a.step.rank], &theirs = program.ranks[b.step.rank];
  if (payload_bytes(one) != payload_bytes(other) || a.matched_s != b.matched_s) return false;
  const Collective *collective = one.as<Collective>(), *other_collective = other.as<Collective>();
  if (collective != nullptr)
    return other_collective != nullptr &&
           mine.groups[collective->slot] == theirs.groups[other_collective->slot];
  const bool pair =
      (one.op() == Op::send && other.op() == Op::recv) || (one.op() == Op::recv && other.op() == Op::send);
  return pair && one.micro_batch == other.micro_batch && mine.peers[one.message()->slot] == b.step.rank &&
         theirs.peers[other.message()->slot] == a.step.rank;
}

using Joints = std::map<Joint, int>;

void check_critical_path(const Job& job, const Program& program, const Trace& trace, Joints& joints) {
  std::map<std::tuple<Rank, StreamId, int>, const TraceEvent*> events;
  for (const TraceEvent& event : trace.events)
    events[{event.step.rank, event.step.stream, event.step.index}] = &event;
  const auto event_of = [&](const Step& step) { return *events.at({step.rank, step.stream, step.index}); };
  const double whole_s = end_of(trace);
  const CriticalPath path = find_critical_path(program, trace);
  REQUIRE_FALSE(path.links.empty());
  REQUIRE(path.duration_s() + path.gap_s() == Approx(whole_s).epsilon(1e-9));
  REQUIRE(path.gap_s() == 0);  // in virtual time nothing waits without a cause
  REQUIRE(path.links.front().begin_s == 0);
  REQUIRE(path.links.back().end_s == whole_s);
  for (std::size_t i = 0; i < path.links.size(); ++i) {
    const CriticalLink& link = path.links[i];
    ++joints[link.joint];
    CAPTURE(describe(program, link.step.rank, link.step.stream, link.step.index));
    REQUIRE(link.begin_s == event_of(link.step).matched_s);
    REQUIRE(link.end_s == event_of(link.step).end_s);
    const bool other_side = link.joined != link.step;
    if (other_side) REQUIRE(meet(program, event_of(link.step), event_of(link.joined)));
    if (i == 0) {
      REQUIRE(link.joint == Joint::first);
      continue;
    }
    const Step& before = path.links[i - 1].step;
    REQUIRE(path.links[i - 1].end_s == event_of(link.joined).begin_s);
    if (link.joint == Joint::stream || link.joint == Joint::peer_stream)
      REQUIRE(before == Step{link.joined.rank, link.joined.stream, link.joined.index - 1});
    else
      REQUIRE(is_after(program, link.joined, before));
    REQUIRE(other_side == (link.joint == Joint::peer_stream || link.joint == Joint::peer_after));
  }
  const PathBreakdown parts = make_report(job, program, trace).critical_path;
  REQUIRE(parts.compute_s + parts.recompute_s + parts.tensor_parallel_s + parts.pipeline_s +
              parts.data_parallel_s + parts.optimizer_s + parts.gap_s ==
          Approx(whole_s).epsilon(1e-9));
}

// If ranks stand for others, the path is found through stand-ins.
void check_folded(Job job, const Program& program) {
  job.fidelity.fold = true;
  const Trace trace = simulate_in_child(job, program);
  const CriticalPath path = find_critical_path(program, trace);
  REQUIRE(path.gap_s() == 0);
  REQUIRE(path.duration_s() == Approx(end_of(trace)).epsilon(1e-9));
}

void check_all(const Choice& shape, const Choice& recompute, const Choice& sharding, int draw, Joints& joints,
               int& checked) {
  for (const std::string& name : schedule_names()) {
    const unsigned seed = seed_of(name + shape.name + recompute.name + sharding.name + std::to_string(draw));
    CAPTURE(name, shape.name, recompute.name, sharding.name, seed);
    Dice dice(seed);
    Job job = job_of(schedule_named(name), {&shape, &recompute, &sharding}, dice);
    job.strategy.overlap_steps = false;
    INFO(print(job.strategy));
    Program program;
    try {
      program = compile(job);
    } catch (const Refusal& refusal) {
      if (refusal.kind() != "impossible-sharding") throw;
      continue;  // unlike templates cannot divide everything
    }
    ++checked;
    check(program, job.cluster);
    const Trace trace = simulate_in_child(job, program);
    check_spans(program, trace);
    check_memory(job, program, trace);
    check_critical_path(job, program, trace, joints);
    check_folded(job, program);
  }
}

}  // namespace

TEST_CASE(
    "for every schedule, recompute and shape: memory comes back, no spans overlap, the path fills the step",
    "[slow]") {
  Joints joints;
  constexpr int kDrawsEach = kSanitized ? 1 : 2;
  int checked = 0;
  for (const Choice& shape : kShapes)
    for (const Choice& recompute : kRecompute)
      for (const Choice& sharding : kSharding)
        for (int draw = 0; draw < kDrawsEach; ++draw)
          check_all(shape, recompute, sharding, draw, joints, checked);
  CHECK(checked >= 224 * kDrawsEach);  // half of all
  for (const Joint joint : {Joint::first, Joint::stream, Joint::after, Joint::peer_stream, Joint::peer_after})
    CHECK(joints[joint] > 0);
}
