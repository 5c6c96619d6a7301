// Folded equals unfolded: one rank of each class gives the times of all ranks in the class, on any cluster.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "models/compile/compile.hpp"
#include "models/program/collective.hpp"
#include "models/report/report.hpp"
#include "sim/fold/fold.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/hand_made.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

struct Nodes {
  int count = 2, chips = 4, nics = 4;
};

NodeGroup group_of(const std::string& name, Nodes nodes) {
  NodeGroup group;
  group.name = name;
  group.nodes = nodes.count;
  group.chip = tiny_chip();
  group.chips_per_node = nodes.chips;
  group.inside = {FabricKind::nvswitch, 1e9, 2e-6};
  if (nodes.nics > 0) group.nics = {{NicKind::infiniband, nodes.nics, 1e8, 5e-6}};
  return group;
}

Job job_on(const std::vector<NodeGroup>& groups, Degrees degrees) {
  Job job = tiny_job(degrees);
  job.cluster = {};
  job.cluster.name = "nodes";
  job.cluster.groups = groups;
  for (const NodeGroup& a : groups)
    for (const NodeGroup& b : groups)
      if (a.name < b.name) job.cluster.links.push_back({a.name, b.name, NicKind::infiniband});
  build_topology(job.cluster);
  return job;
}

Job job_on(Nodes nodes, Degrees degrees) { return job_on(std::vector{group_of("all", nodes)}, degrees); }

Folding folding_of(const Job& job, const Program& program) {
  CostTable costs(program, job.cluster);
  return fold(job, program, costs, {true, {}});
}

std::size_t classes_of(const Job& job, const Program& program) {
  return folding_of(job, program).symmetry.ranks.first.size();
}

// The largest difference in time between an event of a rank and the same event of its stand-in.
double furthest_apart(const Folding& folding, const Trace& folded, const Trace& all) {
  double apart = 0;
  for (const TraceEvent& event : all.events) {
    Step wanted = event.step;
    wanted.rank = folding.symmetry.ranks.stand_in(wanted.rank);
    const auto key = [](const Step& step) { return std::tuple(step.rank, step.stream, step.index); };
    const auto same = std::lower_bound(
        folded.events.begin(), folded.events.end(), wanted,
        [&](const TraceEvent& each, const Step& step) { return key(each.step) < key(step); });
    REQUIRE(same != folded.events.end());
    REQUIRE(same->step == wanted);
    apart = std::max({apart, std::abs(event.begin_s - same->begin_s), std::abs(event.end_s - same->end_s),
                      std::abs(event.matched_s - same->matched_s)});
  }
  return apart;
}

void check_same_breakdown(const Report& folded, const Report& all) {
  REQUIRE(folded.breakdown.size() == all.breakdown.size());
  const auto close = [&](double x, double y) { return std::abs(x - y) <= 1e-9 * all.iteration_s; };
  CHECK(close(folded.iteration_s, all.iteration_s));
  for (std::size_t i = 0; i < all.breakdown.size(); ++i) {
    const StageBreakdown &a = folded.breakdown[i], &b = all.breakdown[i];
    CHECK(close(a.compute_s, b.compute_s));
    CHECK(close(a.recompute_s, b.recompute_s));
    CHECK(close(a.tensor_parallel_s, b.tensor_parallel_s));
    CHECK(close(a.pipeline_s, b.pipeline_s));
    CHECK(close(a.data_parallel_s, b.data_parallel_s));
    CHECK(close(a.bubble_s, b.bubble_s));
    CHECK(close(a.optimizer_s, b.optimizer_s));
  }
}

// Returns how many ranks ran, and how many there are.
std::pair<std::size_t, std::size_t> check_folds(Job job, const Program& program) {
  const Trace all = simulate_in_child(job, program);
  job.fidelity.fold = true;
  const Trace folded = simulate_in_child(job, program);
  const Folding folding = folding_of(job, program);
  CHECK(furthest_apart(folding, folded, all) <= 1e-9 * end_of(all));
  const std::size_t ran = folding.symmetry.ranks.first.size();
  CHECK(folded.stand_ins.size() == (ran == program.ranks.size() ? 0 : ran));
  check_same_breakdown(make_report(job, program, folded), make_report(job, program, all));
  return {ran, program.ranks.size()};
}

CollectiveLevel any_level(Dice& dice) {
  return dice.one_of({CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded});
}

CollectiveAlgorithm any_algorithm(Dice& dice) {
  return dice.one_of({CollectiveAlgorithm::tree, CollectiveAlgorithm::double_binary_tree,
                      CollectiveAlgorithm::recursive, CollectiveAlgorithm::hierarchical,
                      CollectiveAlgorithm::in_switch, CollectiveAlgorithm::fastest,
                      CollectiveAlgorithm::automatic});
}

// Gives a chip, a node or the NICs of a node a speed of their own.
void slow_some(Cluster& cluster, Dice& dice) {
  const int chip = static_cast<int>(dice.engine()() % at(cluster.chip_count()));
  const int node = cluster.chip_node[dice.engine()() % cluster.chip_node.size()];
  if (dice.once_in(2)) cluster.slow.push_back(Slow{.chip = chip, .factor = dice.one_of({0.5, 0.9})});
  if (dice.once_in(2)) cluster.slow.push_back(Slow{.node = node, .factor = 0.8});
  if (dice.once_in(2)) cluster.slow.push_back(Slow{.node = node, .nics = 0.5});
  build_topology(cluster);
}

// A job on one to three groups of nodes that may differ in chips, fabric inside, NICs and in what shares them.
Job any_folded_job(Dice& dice) {
  const Degrees degrees{dice.one_of<std::int64_t>({1, 2, 4}), dice.one_of<std::int64_t>({1, 2, 4}),
                        dice.one_of<std::int64_t>({1, 2, 4})};
  std::vector<NodeGroup> groups;
  std::int64_t chips = 0;
  for (int i = 0; chips < degrees.tp * degrees.pp * degrees.dp; ++i) {
    Nodes nodes{dice.one_of({1, 2, 4}), dice.one_of({1, 2, 4, 8}), 0};
    nodes.nics = dice.one_of({1, 2, 3, nodes.chips});
    NodeGroup group = group_of("group" + std::to_string(i), nodes);
    if (dice.once_in(2)) group.inside.bandwidth = 4e8;
    if (dice.once_in(2)) group.nics[0].bandwidth = dice.one_of({3e7, 2.5e8});
    if (dice.once_in(3)) group.chip.memory_bandwidth = {5e9, "assumed"};
    chips += nodes.count * nodes.chips;
    groups.push_back(group);
  }
  Job job = job_on(groups, degrees);
  if (dice.once_in(3)) slow_some(job.cluster, dice);
  job.fidelity.data_parallel = any_level(dice);
  job.fidelity.tensor_parallel = any_level(dice);
  job.strategy.overlap_gradients = dice.once_in(2);
  job.strategy.overlap_p2p = !dice.once_in(4);
  job.strategy.bucket_bytes = 10'000;
  job.strategy.schedule = dice.one_of({Schedule::gpipe, Schedule::one_f_one_b});
  return job;
}

// Puts ranks on other chips, so that ranks that were alike may differ.
void shuffle_some(Program& program, Dice& dice) {
  std::vector<std::int32_t> chips;
  for (const RankEntry& entry : program.ranks) chips.push_back(entry.chip);
  if (dice.once_in(2))
    std::shuffle(chips.begin(), chips.end(), dice.engine());
  else
    std::swap(chips.front(), chips[dice.engine()() % chips.size()]);
  for (std::size_t i = 0; i < chips.size(); ++i) program.ranks[Rank(i)].chip = chips[i];
}

// Gives every all_to_all of more than one member parts of its own.
void exchange_unlike_parts(Program& program, Dice& dice) {
  std::map<std::pair<RankProgramId, GroupSlot>, std::size_t> members;
  for (const RankEntry& entry : program.ranks)
    for (const GroupSlot slot : entry.groups.ids())
      if (entry.groups[slot])
        members[{entry.rank_program, slot}] = program.groups[*entry.groups[slot]].ranks.size();
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::int64_t>> tables;  // by members, and turn
  for (const RankProgramId id : program.rank_programs.ids()) {
    std::map<GroupSlot, std::size_t> turns;
    for (Stream& stream : program.rank_programs[id].streams)
      for (Instruction& instruction : stream.instructions) {
        auto* collective = instruction.as<Collective>();
        if (collective == nullptr || collective->kind != CollectiveKind::all_to_all) continue;
        const std::size_t R = members.at({id, collective->slot});
        const auto [table, is_new] = tables.try_emplace({R, turns[collective->slot]++ % 2}, R * R, 0);
        if (is_new)
          for (std::int64_t& part : table->second) part = dice.one_of({0, 16, 16'000, 160'000});
        collective->part_bytes = table->second;
        collective->bytes = payload_of(table->second, static_cast<int>(R));
        collective->expected = 0;
      }
  }
}

// Gives the collectives of each slot these kinds in turn.
void change_collectives(Program& program, const std::vector<CollectiveKind>& kinds) {
  constexpr std::int64_t kParts = 16;  // a multiple of the members of any group here
  for (RankProgram& rank_program : program.rank_programs) {
    std::map<GroupSlot, std::size_t> turns;  // the next kind of each slot
    for (Stream& stream : rank_program.streams)
      for (Instruction& instruction : stream.instructions) {
        auto* collective = instruction.as<Collective>();
        if (collective == nullptr) continue;
        const std::size_t turn = turns[collective->slot]++;
        collective->kind = kinds[turn % kinds.size()];
        collective->bytes = (collective->bytes + kParts - 1) / kParts * kParts;
        if (is_rooted(collective->kind)) collective->root = static_cast<std::int32_t>(turn / 2 % 2);
        if (collective->kind == CollectiveKind::barrier) collective->bytes = 0;
      }
  }
}

}  // namespace

TEST_CASE("folded equals unfolded where links are shared", "[fold]") {
  struct Case {
    Nodes nodes;
    Degrees degrees;
    std::size_t at_most;  // how many ranks may run
  };
  const std::vector<Case> cases = {
      {{1, 4, 0}, {4, 1, 1}, 1},  // one node, no NIC
      {{2, 4, 4}, {4, 2, 1}, 2},  // each chip has a NIC
      {{2, 4, 2}, {4, 1, 2}, 1},  // two chips share a NIC
      {{2, 8, 4}, {4, 2, 2}, 2},  // 8 chips on 4 NICs, two replicas on each node
      {{2, 8, 2}, {4, 2, 2}, 2},  // four peers have a NIC of their own
      {{2, 8, 1}, {2, 4, 2}, 4},  // all chips of a node share one NIC
      {{4, 4, 1}, {4, 2, 2}, 2},
  };
  for (const Case& each : cases)
    for (CollectiveLevel data : {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded})
      for (CollectiveLevel tensor :
           {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded}) {
        Job job = job_on(each.nodes, each.degrees);
        job.fidelity.data_parallel = data;
        job.fidelity.tensor_parallel = tensor;
        job.strategy.overlap_gradients = true;
        job.strategy.bucket_bytes = 10'000;
        CAPTURE(each.nodes.chips, each.nodes.nics, each.degrees.tp, int(data), int(tensor));
        CHECK(check_folds(job, compile(job)).first <= each.at_most);
      }
}

TEST_CASE("folded equals unfolded for rings over nodes, whether meshes or switches join their chips",
          "[fold]") {
  for (FabricKind kind : {FabricKind::nvswitch, FabricKind::xgmi_mesh})
    for (const Nodes& nodes : {Nodes{2, 4, 4}, Nodes{2, 4, 2}, Nodes{4, 2, 1}})
      for (CollectiveLevel data :
           {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded}) {
        NodeGroup group = group_of("all", nodes);
        group.inside.kind = kind;
        Job job = job_on(std::vector{group}, {1, 1, nodes.count * nodes.chips});
        job.fidelity.data_parallel = data;
        CAPTURE(nodes.count, nodes.nics, int(kind), int(data));
        CHECK(check_folds(job, compile(job)).first == 1);
      }
}

TEST_CASE("folded equals unfolded for random strategies on random clusters", "[fold][slow]") {
  std::size_t ran = 0, ranks = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Job job = any_folded_job(dice);
    Program program = compile(job);
    if (dice.once_in(2)) shuffle_some(program, dice);
    const auto [some, all] = check_folds(job, program);
    ran += some;
    ranks += all;
  }
  CHECK(ran < ranks);  // otherwise nothing was tested
}

TEST_CASE("folded equals unfolded for every kind of collective on random clusters", "[fold]") {
  const std::vector<CollectiveKind> kinds = {CollectiveKind::all_to_all, CollectiveKind::reduce_scatter,
                                             CollectiveKind::all_gather, CollectiveKind::all_reduce};
  std::size_t ran = 0, ranks = 0;
  for (unsigned seed = 1000; seed < 1090; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    const Job job = any_folded_job(dice);
    Program program = compile(job);
    change_collectives(program, dice.once_in(3) ? std::vector{CollectiveKind::all_to_all} : kinds);
    if (dice.once_in(2)) shuffle_some(program, dice);
    const auto [some, all] = check_folds(job, program);
    ran += some;
    ranks += all;
  }
  CHECK(ran < ranks);
}

TEST_CASE("folded equals unfolded for collectives with a root, barriers and exchanges of unlike parts",
          "[fold]") {
  std::vector<CollectiveKind> kinds = {CollectiveKind::broadcast, CollectiveKind::reduce,
                                       CollectiveKind::gather,    CollectiveKind::scatter,
                                       CollectiveKind::barrier,   CollectiveKind::all_to_all};
  std::size_t ran = 0, ranks = 0;
  for (unsigned seed = 3000; seed < 3090; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Job job = any_folded_job(dice);
    job.fidelity.algorithm = any_algorithm(dice);
    Program program = compile(job);
    dice.shuffle(kinds);
    change_collectives(program, kinds);
    exchange_unlike_parts(program, dice);
    if (dice.once_in(2)) shuffle_some(program, dice);
    CAPTURE(name_of(job.fidelity.algorithm));
    const auto [some, all] = check_folds(job, program);
    ran += some;
    ranks += all;
  }
  CHECK(ran < ranks);
}

TEST_CASE("folded equals unfolded for every algorithm on random clusters", "[fold]") {
  const std::vector<CollectiveKind> kinds = {CollectiveKind::all_reduce, CollectiveKind::all_to_all,
                                             CollectiveKind::reduce_scatter, CollectiveKind::all_gather};
  std::size_t ran = 0, ranks = 0;
  for (unsigned seed = 2000; seed < 2120; ++seed) {
    CAPTURE(seed);
    Dice dice(seed);
    Job job = any_folded_job(dice);
    job.fidelity.algorithm = any_algorithm(dice);
    for (NodeGroup& group : job.cluster.groups)
      if (dice.once_in(2)) group.inside.in_switch = group.inside.bandwidth / 2;
    Program program = compile(job);
    change_collectives(program, dice.once_in(2) ? std::vector{CollectiveKind::all_reduce} : kinds);
    if (dice.once_in(2)) shuffle_some(program, dice);
    CAPTURE(name_of(job.fidelity.algorithm));
    const auto [some, all] = check_folds(job, program);
    ran += some;
    ranks += all;
  }
  CHECK(ran < ranks);
}

TEST_CASE("one rank of many stands for all of an all_to_all", "[fold]") {
  for (CollectiveLevel level :
       {CollectiveLevel::formula, CollectiveLevel::fluid, CollectiveLevel::expanded}) {
    Job job = job_on({4, 1, 1}, {1, 1, 4});
    job.fidelity.data_parallel = level;
    Program program = compile(job);
    change_collectives(program, {CollectiveKind::all_to_all});
    CHECK(check_folds(job, program).first == 1);
  }
}

TEST_CASE("ranks that differ in a link, a chip or a sharer are not folded", "[fold]") {
  const Degrees replicas{1, 1, 4};
  Job alike = job_on({4, 1, 1}, replicas);
  CHECK(classes_of(alike, compile(alike)) == 1);

  NodeGroup fast = group_of("fast", {2, 1, 1}), slow = group_of("slow", {2, 1, 1});
  Job equal_groups = job_on({fast, slow}, replicas);
  slow.nics[0].bandwidth /= 2;
  Job unlike_nics = job_on({fast, slow}, replicas);
  // Every second edge of the ring connects two unlike groups.
  CHECK(classes_of(unlike_nics, compile(unlike_nics)) > classes_of(alike, compile(alike)));
  CHECK(classes_of(equal_groups, compile(equal_groups)) ==
        2);  // chips of two groups are never treated as equal

  // Of four chips on three NICs, two share one NIC and two have one each.
  Job shared = job_on({2, 4, 3}, {4, 2, 1});
  CHECK(classes_of(shared, compile(shared)) == 4);
}

TEST_CASE("a rank that really computes stands for nobody else", "[fold]") {
  Job job = job_on({2, 4, 4}, {4, 2, 1});
  const Program program = compile(job);
  CostTable costs(program, job.cluster);
  const Folding folding = fold(job, program, costs, {true, {2_rank}});
  CHECK(folding.symmetry.ranks.counts() == std::vector<std::int64_t>{3, 1, 3, 1});
  CHECK(folding.runs(2_rank));
}

TEST_CASE("everyone shifts to the next: one rank that sends to itself stands for a ring", "[fold]") {
  Job job = job_on({4, 1, 1}, {1, 1, 4});
  Program program = compile(job);
  std::size_t ran = 0;
  RankProgram& rank_program = program.rank_programs.front();
  rank_program.chunks = {{0, 0, 2}, {1, 2, 4}};
  for (RankEntry& entry : program.ranks)
    entry.peers = {std::nullopt, Rank((entry.chip + 1) % 4), Rank((entry.chip + 3) % 4), std::nullopt};
  Send send;
  Recv recv;
  send.slot = next_slot(ChunkId{0});
  recv.slot = previous_slot(ChunkId{1});
  send.bytes = recv.bytes = 1'000'000;
  Instruction sends, receives;
  sends.body = send;
  receives.body = recv;
  rank_program.streams.add({StreamKind::send_activation, ChunkId{}, {sends}});
  rank_program.streams.add({StreamKind::recv_activation, ChunkId{}, {receives}});
  ran = check_folds(job, program).first;
  CHECK(ran == 1);
}

TEST_CASE("folded equals unfolded where ranks exchange tokens of experts", "[fold]") {
  struct Division {
    Degrees degrees;
    std::int64_t parts, cut;
  };
  for (const Division& d :
       {Division{{1, 1, 8}, 4, 1}, {{2, 1, 4}, 4, 1}, {{2, 2, 2}, 2, 2}, {{4, 1, 2}, 4, 2}})
    for (const int nics : {4, 1}) {
      Job job = job_on({2, 4, nics}, d.degrees);
      job.transformer = tiny_variant("deepseek-v3");
      job.strategy = expand(job.transformer, job.train, d.degrees.tp, d.degrees.pp, d.degrees.dp);
      for (Stage& stage : job.strategy.templates[0].stages) {
        stage.expert_parallel = d.parts;
        stage.expert_tensor_parallel = d.cut;
      }
      CAPTURE(print(job.strategy), nics);
      const auto [ran, ranks] = check_folds(job, compile(job));
      CHECK(ran < ranks);
    }
}
