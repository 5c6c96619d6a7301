// Expected numbers of tokens of experts with skewed routing, and what skew and narrow formats cost.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/program/routing.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;

namespace {

Experts experts(std::int64_t count, std::int64_t per_token) {
  Experts e;
  e.count = count;
  e.per_token = per_token;
  e.ffn = 64;
  return e;
}

// The chance that a token takes any of the experts [first, last), over all choices of groups and of experts in them.
double chance_of_any(const ExpertRouting& routing, const std::vector<double>& odds, std::size_t first,
                     std::size_t last) {
  const std::size_t each = odds.size() / at(routing.groups);
  double all = 0, any = 0;
  for (std::uint32_t groups = 0; groups < 1U << routing.groups; ++groups) {
    if (std::popcount(groups) != routing.groups_per_token) continue;
    for (std::uint32_t set = 0; set < 1U << odds.size(); ++set) {
      if (std::popcount(set) != routing.per_token) continue;
      double weight = 1;
      bool touches = false;
      for (std::size_t i = 0; i < odds.size(); ++i) {
        if ((set >> i & 1U) == 0) continue;
        weight *= (groups >> (i / each) & 1U) != 0 ? odds[i] : 0;
        touches = touches || (i >= first && i < last);
      }
      all += weight;
      if (touches) any += weight;
    }
  }
  return any / all;
}

double block_seconds(const Job& job) {
  const Program program = compile(job);
  double seconds = 0;
  for (const Block& block : program.rank_programs.front().blocks)
    for (const Kernel& kernel : block.kernels)
      seconds += kernel_time(kernel, program.precision, job.cluster.groups[0].chip, nullptr).seconds;
  return seconds;
}

}  // namespace

TEST_CASE("shares of experts add up to one, and none is more than a token can give") {
  const double zipf = GENERATE(0.0, 0.5, 1.0, 3.0);
  const Experts e = experts(16, GENERATE(1, 4, 16));
  const auto shares = expert_shares(e, zipf, 7, 3);
  CHECK(std::accumulate(shares.begin(), shares.end(), 0.0) == Approx(1.0).epsilon(1e-12));
  for (double share : shares) {
    CHECK(share > 0);
    CHECK(share <= 1.0 / static_cast<double>(e.per_token) * (1 + 1e-9));
  }
}

TEST_CASE("even routing gives all experts the same, skewed routing more to one the more it is skewed") {
  const Experts e = experts(8, 2);
  CHECK(busiest_rows(e, 0, 1, 0, 1000) == 250);
  CHECK(busiest_rows(e, 0.5, 1, 0, 1000) > 250);
  CHECK(busiest_rows(e, 1.0, 1, 0, 1000) > busiest_rows(e, 0.5, 1, 0, 1000));
  CHECK(busiest_rows(e, 9.0, 1, 0, 1000) == 1000);  // every token sends one copy
}

TEST_CASE("shares are those of Zipf's law, in an order that the seed and the layer decide") {
  const Experts e = experts(4, 1);
  auto shares = expert_shares(e, 1.0, 5, 0);
  CHECK(shares == expert_shares(e, 1.0, 5, 0));
  bool another = false;
  for (int layer = 1; layer < 8; ++layer) another = another || expert_shares(e, 1.0, 5, layer) != shares;
  CHECK(another);
  std::sort(shares.rbegin(), shares.rend());
  for (std::size_t i = 0; i < 4; ++i) CHECK(shares[i] == Approx(12.0 / 25 / static_cast<double>(i + 1)));
}

TEST_CASE("skewed routing costs time where tiles are wasted, and never FLOPs") {
  Job even = tests::tiny_job({1, 1, 1}, tests::tiny_variant("mixtral"));
  even.cluster.groups[0].chip.multiprocessors = {4, "assumed"};
  even.cluster.groups[0].chip.software.gemm_wave = {1, "assumed"};
  Job skewed = even;
  skewed.train.expert_skew = 2;
  CHECK(compile(even).rank_programs.front().streams[kComputeStream].instructions[0].flops ==
        compile(skewed).rank_programs.front().streams[kComputeStream].instructions[0].flops);
  CHECK(block_seconds(skewed) != block_seconds(even));
}

TEST_CASE("copies to distinct nodes are those of all sets of experts that a token may take") {
  for (const auto& [groups, groups_per_token] : {std::pair(1, 1), std::pair(4, 2), std::pair(4, 3)})
    for (const double skew : {0.0, 0.4, 0.6}) {  // that no expert is taken by every token
      const ExpertRouting routing{8, 3, groups, groups_per_token, skew, 5};
      const std::vector<double> shares = expert_shares(experts(8, 3), skew, 5, 0);
      std::vector<double> odds;
      for (const double share : shares) odds.push_back(3 * share / (1 - 3 * share));
      double busiest = 0, rank = 0, node = 0;
      for (std::size_t first = 0; first < 8; first += 2) {  // four ranks, of two experts each
        const double copies = 3 * (shares[first] + shares[first + 1]);
        busiest = std::max(busiest, copies);
        rank = std::max(rank, std::min(copies, chance_of_any(routing, odds, first, first + 2)));
      }
      for (std::size_t first = 0; first < 8; first += 4)  // two nodes, of two ranks each
        node = std::max(node, chance_of_any(routing, odds, first, first + 4));
      const DistinctCopies copies = distinct_copies(routing, 4, 2);
      INFO(groups << " groups, " << groups_per_token << " taken, skew " << skew);
      CHECK(copies.a_rank == Approx(rank / busiest));
      CHECK(copies.a_node == Approx(node / busiest));
    }
}

TEST_CASE("a routing is refused by the work of counting its copies, of experts and of groups") {
  const auto is_refused = [](std::int64_t count, std::int64_t per_token, std::int64_t groups,
                             std::int64_t parts) {
    try {
      refuse_dear_routing({count, per_token, groups, groups, 0, 1}, parts);
      return false;
    } catch (const Refusal&) {
      return true;
    }
  };
  // 2 parts (count K + groups^2 K^2) steps, of 10^9 at most.
  CHECK_FALSE(is_refused(256, 8, 1, 1024));
  CHECK_FALSE(is_refused(128, 32, 64, 119));
  CHECK(is_refused(128, 32, 64, 120));
  CHECK_FALSE(is_refused(65'536, 30, 1, 254));
  CHECK(is_refused(65'536, 30, 1, 255));
}

TEST_CASE("narrow matmuls leave head, router, norms and attention as they are") {
  Job job = tests::tiny_job({1, 1, 1}, tests::tiny_variant("mixtral"));
  const Program wide = compile(job);
  job.train.matmuls = Format::fp8;
  const Program narrow = compile(job);
  for (BlockId block : IdRange<BlockId>(2))
    for (std::size_t i = 0; i < narrow.rank_programs.front().blocks[block].kernels.size(); ++i) {
      const Kernel& kernel = narrow.rank_programs.front().blocks[block].kernels[i];
      const Kernel& before = wide.rank_programs.front().blocks[block].kernels[i];
      bool router = false;
      for (TensorId id : kernel.parameters)
        router = router || narrow.rank_programs.front().tensors[id].name.find("router") != std::string::npos;
      const bool product = name_of(kernel.op).find("matmul") != std::string_view::npos;
      const bool expected = product && !router && kernel.layer >= 0 && kernel.layer < job.transformer.layers;
      INFO(name_of(kernel.op) << " of layer " << kernel.layer);
      REQUIRE(kernel.format.has_value() == expected);
      REQUIRE(kernel.bytes >= before.bytes);
      REQUIRE((kernel.bytes > before.bytes) == (expected && kernel.op != KernelOp::matmul_weight_gradient &&
                                                kernel.op != KernelOp::grouped_matmul_weight_gradient));
    }
}

TEST_CASE("a kernel's own format sets its rate, and a chip without it refuses") {
  Chip chip = tests::tiny_chip();
  Kernel kernel;
  kernel.op = KernelOp::matmul;
  kernel.m = kernel.n = kernel.k = 1024;
  kernel.flops = 2.0 * 1024 * 1024 * 1024;
  const double wide_s = kernel_time(kernel, Format::bf16, chip, nullptr).work_s;
  kernel.format = Format::fp8;
  CHECK_THROWS_AS(kernel_time(kernel, Format::bf16, chip, nullptr), Refusal);
  chip.peak_flops[Format::fp8] = {2e11, "assumed"};
  CHECK(kernel_time(kernel, Format::bf16, chip, nullptr).work_s == Approx(wide_s / 2).epsilon(1e-12));
}

TEST_CASE(
    "an exchange keeps room for the most copies and expects the mean, or the busiest rank's where skewed") {
  const Experts e = experts(8, 3);
  Train train;
  const ExpertExchange even = expert_exchange(e, 100, 4, train, 0);
  CHECK(even.segment_rows == 200);  // a rank has two experts for a token at most
  CHECK(even.rows == 800);
  CHECK(even.sent == 300);
  CHECK(even.expected_rows == 300);
  train.expert_skew = 1;
  const ExpertExchange skewed = expert_exchange(e, 100, 4, train, 0);
  CHECK(skewed.expected_rows > 300);
  CHECK(skewed.expected_rows <= 800);
  CHECK(expert_exchange(e, 100, 1, train, 0).expected_rows == 300);
  train.expert_skew = 50;
  CHECK(expert_exchange(e, 100, 4, train, 0).expected_rows >= 400);  // all 400 tokens take the busiest expert
}

TEST_CASE("expert_room bounds what an exchange keeps room for, and a skew must fit into it") {
  const Experts e = experts(8, 3);
  Train train;
  train.expert_room = 1.5;
  const ExpertExchange bounded = expert_exchange(e, 100, 4, train, 0);
  CHECK(bounded.segment_rows == 113);  // 1.5 x 300 / 4, rounded up
  CHECK(bounded.expected_rows == 300);
  train.expert_room = 100;
  CHECK(expert_exchange(e, 100, 4, train, 0).segment_rows == 200);
  train.expert_room = 1;
  train.expert_skew = 2;
  CHECK_THROWS_AS(expert_exchange(e, 100, 4, train, 0), Refusal);
}

TEST_CASE("divided experts are held once by those who divide them, whatever is cut") {
  const Transformer transformer = tests::tiny_variant("deepseek-v3");
  const auto all = parameters(transformer);
  for (const Job& job : tests::every_expert_job(transformer)) {
    INFO(print(job.strategy));
    const Program program = compile(job);
    REQUIRE(parse_program(print(program)) == program);
    REQUIRE(parse_strategy(print(job.strategy)) == job.strategy);
    REQUIRE_NOTHROW(check(program, job.cluster));
    const Stage& stage = job.strategy.templates[0].stages[0];
    const std::int64_t ranks = job.strategy.templates[0].replicas * stage.tensor_parallel;
    std::map<int, std::int64_t> held;
    for (Rank rank : program.ranks.ids())
      for (const Tensor& tensor : program.program_of(rank).tensors)
        if (tensor.role == TensorRole::parameter) held[tensor.parameter.value()] += tensor.bytes / 4;
    for (const auto& [parameter, count] : held) {
      const Parameter& whole = all[at(parameter)];
      INFO(whole.name);
      if (whole.experts > 0)
        REQUIRE(count == whole.count() * ranks / (stage.expert_parallel * stage.expert_cut()));
    }
  }
}

TEST_CASE("expert parallelism divides the work: its FLOPs are the model's, however experts are divided") {
  const Transformer transformer = tests::tiny_variant("mixtral");
  const auto grouped_flops = [](const Job& job) {
    const Program program = compile(job);
    double flops = 0;
    for (Rank rank : program.ranks.ids())
      for (const Stream& stream : program.program_of(rank).streams)
        for (const Instruction& instruction : stream.instructions) {
          const auto* compute = instruction.as<Compute>();
          if (compute == nullptr) continue;
          const auto& kernels = program.program_of(rank).blocks[compute->block].kernels;
          for (int i = compute->first_kernel; i < compute->last_kernel; ++i)
            if (const Kernel& kernel = kernels[at(i)]; kernel.groups > 0 && !kernel.recompute)
              flops += kernel.flops;
        }
    return flops;
  };
  const double alone = grouped_flops(tests::tiny_job({1, 1, 1}, transformer));
  for (const Job& job : tests::every_expert_job(transformer)) {
    INFO(print(job.strategy));
    REQUIRE(grouped_flops(job) == Approx(alone).epsilon(1e-12));
  }
}

TEST_CASE("experts' ranks are folded as Megatron-LM folds them: tensor cut, expert part, copies") {
  Job job = tests::tiny_job({2, 1, 4}, tests::tiny_variant("mixtral"));
  job.strategy.templates[0].stages[0].expert_parallel = 4;
  job.strategy.templates[0].stages[0].expert_tensor_parallel = 1;
  const Program program = compile(job);
  std::vector<std::vector<Rank>> exchanges, copies;
  for (const Group& group : program.groups) {
    if (group.kind == GroupKind::expert) exchanges.push_back(group.ranks);
    if (group.kind == GroupKind::data && group.ranks.size() == 2) copies.push_back(group.ranks);
  }
  CHECK(exchanges ==
        std::vector<std::vector<Rank>>{{0_rank, 1_rank, 2_rank, 3_rank}, {4_rank, 5_rank, 6_rank, 7_rank}});
  CHECK(copies == std::vector<std::vector<Rank>>{
                      {0_rank, 4_rank}, {1_rank, 5_rank}, {2_rank, 6_rank}, {3_rank, 7_rank}});
}

TEST_CASE("an exchange moves what is expected and keeps room for the most") {
  Job job = tests::tiny_job({1, 1, 4}, tests::tiny_variant("deepseek-v3"));
  job.strategy.templates[0].stages[0].expert_parallel = 4;
  const Program program = compile(job);
  int exchanges = 0;
  for (const Instruction& instruction : program.rank_programs.front().streams[kComputeStream].instructions) {
    const auto* exchange = instruction.as<Collective>();
    if (exchange == nullptr) continue;
    ++exchanges;
    const Tensor& tensor = program.rank_programs.front().tensors[exchange->tensors[0]];
    REQUIRE(exchange->kind == CollectiveKind::all_to_all);
    REQUIRE(exchange->bytes == tensor.bytes);
    if (tensor.shape.size() == 1) continue;  // the counts of copies for each expert
    const std::int64_t tokens = 2 * 16, width = 4 * job.transformer.hidden;
    CHECK(exchange->bytes == 4 * tokens * 2 * width);  // two experts on each rank
    CHECK(exchange->expected == tokens * 3 * width);   // three experts for each token
  }
  const std::int64_t layers = job.transformer.layers - 1, micro_batches = 16 / 2 / 4;
  CHECK(exchanges == micro_batches * layers * 5);
}

namespace {

double choices(int there, int taken) {
  double count = 1;
  for (int i = 0; i < taken; ++i) count *= static_cast<double>(there - i) / (i + 1);
  return count;
}

// The probability that even routing sends a token to any of the experts [first, last), counted over all sets of experts
// that it may take.
double counted_chance(const ExpertRouting& routing, std::int64_t first, std::int64_t last) {
  const std::int64_t each = routing.experts / routing.groups;
  double any = 0, all = 0;
  for (unsigned set = 0; set < 1U << routing.experts; ++set) {
    unsigned groups = 0;
    bool has = false;
    for (std::int64_t e = 0; e < routing.experts; ++e) {
      if ((set >> e & 1U) == 0) continue;
      groups |= 1U << (e / each);
      has = has || (e >= first && e < last);
    }
    if (std::popcount(set) != routing.per_token || std::popcount(groups) > routing.groups_per_token) continue;
    // A set counts once for each choice of groups that contains it.
    const double times = choices(static_cast<int>(routing.groups) - std::popcount(groups),
                                 static_cast<int>(routing.groups_per_token) - std::popcount(groups));
    all += times;
    any += has ? times : 0;
  }
  return any / all;
}

}  // namespace

TEST_CASE("a token goes to as many ranks and nodes as there are among the sets of experts that it may take") {
  for (const auto& [groups, taken] : {std::pair{1, 1}, {2, 1}, {4, 2}, {4, 4}})
    for (const std::int64_t per_token : {1, 2, 3}) {
      const ExpertRouting routing{12, per_token, groups, taken};
      CAPTURE(groups, taken, per_token);
      const DistinctCopies copies = distinct_copies(routing, 4, 2);
      const auto even = static_cast<double>(per_token) / 4;  // copies of a token for each rank
      CHECK(copies.a_rank * even == Approx(counted_chance(routing, 0, 3)).epsilon(1e-12));
      CHECK(copies.a_node * even == Approx(counted_chance(routing, 0, 6)).epsilon(1e-12));
    }
  // DeepSeek-V3: 256 experts, 8 for each token, over 4 nodes of 8 ranks.
  const DistinctCopies free = distinct_copies({256, 8, 1, 1}, 32, 8);
  CHECK(free.a_node * 8 / 32 == Approx(1 - choices(192, 8) / choices(256, 8)).epsilon(1e-12));
  CHECK(distinct_copies({256, 8, 8, 4}, 32, 8).a_node < free.a_node);
}

TEST_CASE("under skewed routing a token never goes to more ranks than it has copies there") {
  for (const double skew : {0.0, 0.5, 1.0, 3.0})
    for (const std::int64_t per_token : {1, 2, 6}) {
      const DistinctCopies copies = distinct_copies({16, per_token, 1, 1, skew, 7}, 8, 4);
      CAPTURE(skew, per_token);
      CHECK(copies.a_rank > 0);
      CHECK(copies.a_rank <= 1 + 1e-9);
      CHECK(copies.a_node >= copies.a_rank * (1 - 1e-9));
      CHECK(copies.a_node <= 4 + 1e-9);
      if (per_token == 1 && skew == 0) CHECK(copies.a_node == Approx(4));
    }
  CHECK(distinct_copies({16, 6, 1, 1, 1.0, 7}, 8, 4).a_node <
        distinct_copies({16, 6, 1, 1, 0, 7}, 8, 4).a_node);
}

TEST_CASE("how a router chooses stands in the Program where tokens go once to each node, and nowhere else") {
  Job job = tests::tiny_job({1, 1, 4}, tests::tiny_variant("deepseek-v3"));
  job.strategy.templates[0].stages[0].expert_parallel = 2;
  const Program plain = compile(job);
  CHECK(plain.routing == ExpertRouting{});
  CHECK(print(plain).find("routing") == std::string::npos);
  job.fidelity.expert_copies = ExpertCopies::node;
  job.train.expert_skew = 0.5;
  const Program program = compile(job);
  CHECK(program.routing == ExpertRouting{8, 3, 4, 2, 0.5, job.train.seed});
  CHECK(parse_program(print(program)) == program);
}
