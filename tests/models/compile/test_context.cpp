// Sequences cut over ranks: which rank has which tokens, and what is gathered, computed and kept, by closed forms.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "models/base/refusal.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/costs_text.hpp"
#include "models/transformer/sequence_layout.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;

namespace {

Job job_of(std::int64_t cp, tests::Degrees degrees = {}) {
  Transformer transformer = tests::tiny_transformer(Family::llama);
  transformer.kv_heads = 2;
  return tests::context_job(degrees, cp, transformer);
}

// The FLOPs of all ranks in a step.
double flops_of(const Program& program) {
  double flops = 0;
  for (const RankEntry& entry : program.ranks)
    for (const Stream& stream : program.rank_programs[entry.rank_program].streams)
      for (const Instruction& instruction : stream.instructions) flops += instruction.flops;
  return flops;
}

// The payloads of one rank's collectives over its context group in a step, by kind.
std::map<CollectiveKind, std::int64_t> gathered(const Program& program) {
  std::map<CollectiveKind, std::int64_t> bytes;
  const RankProgram& rank_program = program.rank_programs.front();
  for (const Stream& stream : rank_program.streams)
    for (const Instruction& instruction : stream.instructions)
      if (const auto* collective = instruction.as<Collective>();
          collective != nullptr && collective->slot == context_slot(rank_program))
        bytes[collective->kind] += collective->bytes;
  return bytes;
}

}  // namespace

TEST_CASE("ranks of a context group have every token once, and as many pairs of query and key each") {
  for (const std::int64_t parts : {1, 2, 3, 8}) {
    const std::int64_t sequence = 2 * parts * 3;
    std::vector<int> seen(static_cast<std::size_t>(sequence));
    std::set<std::int64_t> pairs;
    for (std::int64_t index = 0; index < parts; ++index) {
      const SequenceLayout layout{sequence, parts, index};
      std::int64_t mine = 0;
      for (std::int64_t row = 0; row < layout.rows(); ++row) {
        const std::int64_t place = layout.place(row);
        ++seen.at(static_cast<std::size_t>(place));
        mine += place + 1;
        REQUIRE(layout.owner(place).index == index);
        REQUIRE(layout.owner(place).row == row);
      }
      pairs.insert(mine);
    }
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    REQUIRE(pairs.size() == 1);
  }
}

TEST_CASE("ranks that have parts of the same sequences stand between tensor-parallel peers and replicas") {
  const Program program = compile(job_of(2, {2, 2, 2}));
  REQUIRE(program.rank_count() == 16);
  const RankEntry& entry = program.ranks.get(2_rank);
  CHECK(entry.context_index == 1);
  CHECK(entry.replica == 0);
  CHECK(entry.tensor_index == 0);
  CHECK(program.ranks.get(4_rank).replica == 1);
  CHECK(program.ranks.get(4_rank).first_sequence == 8);
  CHECK(entry.first_sequence == 0);
  const auto group = [&](GroupSlot slot) { return program.groups.get(entry.groups.get(slot).value()); };
  CHECK(group(context_slot(program.program_of(2_rank))).ranks == std::vector<Rank>{0_rank, 2_rank});
  CHECK(group(kDataGroup).ranks ==
        std::vector{0_rank, 2_rank, 4_rank, 6_rank});  // all who hold the parameters sum their gradients
  CHECK(entry.peers.get(next_slot(ChunkId{})) == 10_rank);
  CHECK(program.ranks.get(10_rank).context_index == 1);
}

TEST_CASE("keys and values are gathered forward and backward, and their gradients scattered") {
  for (const std::int64_t cp : {2, 4})
    for (const std::int64_t tp : {1, 2}) {
      Job job = job_of(cp, {tp, 1, 1});
      // Bytes for a layer and a micro-batch: B T (keys and values of kv_heads / tp) elements of 4 bytes.
      const std::int64_t once = 2 * 16 * (2 * 2 * 8 / tp) * 4, times = 4 * 8;
      auto bytes = gathered(compile(job));
      CHECK(bytes[CollectiveKind::all_gather] == 2 * once * times);
      CHECK(bytes[CollectiveKind::reduce_scatter] == once * times);
      job.strategy.recompute = Recompute::full;
      CHECK(gathered(compile(job))[CollectiveKind::all_gather] == 3 * once * times);
    }
  CHECK(gathered(compile(job_of(1))).empty());
}

TEST_CASE("ranks that cut sequences do together what one does, each its share, whatever the model") {
  std::vector<Transformer> all = {tests::tiny_transformer(Family::gpt2)};
  for (const std::string& name : tests::variants()) all.push_back(tests::tiny_variant(name));
  for (const Transformer& transformer : all) {
    INFO(transformer.name);
    const double whole = flops_of(compile(tests::tiny_job({1, 1, 1}, transformer)));
    for (const std::int64_t cp : {2, 8}) {
      const Program program = compile(tests::context_job({1, 1, 1}, cp, transformer));
      CHECK(program.rank_programs.size() == 1);
      CHECK(flops_of(program) == Approx(whole).epsilon(1e-12));
    }
  }
}

TEST_CASE("a rank keeps its share of the activations, and what is gathered of one layer beside them") {
  const auto peak = [](const Job& job) { return check(compile(job), job.cluster).at(0).activations_peak; };
  const std::int64_t whole = peak(job_of(1)), once = 2 * 16 * 2 * 2 * 8 * 4, queries = 2 * 16 * 32 * 4;
  for (const std::int64_t cp : {2, 4, 8}) {
    CHECK(peak(job_of(cp)) >= whole / cp);
    CHECK(peak(job_of(cp)) <= whole / cp + 2 * once + queries / cp);
  }
}

TEST_CASE("what a context group gathers is priced, and said") {
  const Job job = job_of(4);
  const auto passes = price_passes(job, compile(job));
  double seconds = 0;
  for (const PassCost& pass : passes)
    for (const KernelCost& kernel : pass.kernels)
      if (kernel.op == KernelOp::all_gather || kernel.op == KernelOp::reduce_scatter) {
        CHECK(kernel.bound == Bound::network);
        seconds += kernel.seconds;
      }
  // A ring of four takes three steps for each of two gathers and one scatter of 4 KiB, in four layers, at 1 GB/s.
  CHECK(seconds == Approx(4 * 3 * 3 * (1e-5 + 4096.0 / 4 / 1e9)).epsilon(1e-9));
}

TEST_CASE("sequences that ranks cannot have two equal chunks of are refused") {
  Job job = job_of(1);
  const auto kind = [&](std::int64_t cp) -> std::string {
    job.strategy.templates[0].context_parallel = cp;
    try {
      validate(job.transformer, job.train, job.strategy);
    } catch (const Refusal& refusal) {
      return refusal.kind();
    }
    return "accepted";
  };
  CHECK(kind(8) == "accepted");
  CHECK(kind(16) == "impossible-context");
  CHECK(kind(3) == "impossible-context");
  CHECK(kind(0) == "impossible-context");
}
