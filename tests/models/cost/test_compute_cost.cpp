// The compute cost model: closed forms for hand-made kernels, laws over sizes and chips, and a table that prices each
// instruction once.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/program/edit.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

Kernel product(KernelOp op, std::int64_t m, std::int64_t n, std::int64_t k) {
  Kernel kernel;
  kernel.op = op;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return kernel;
}
Kernel matmul(std::int64_t m, std::int64_t n, std::int64_t k) { return product(KernelOp::matmul, m, n, k); }

Instruction whole_of(const RankProgram& rank_program, Pass pass) {
  const BlockId block = block_of(rank_program, pass, ChunkId{});
  Instruction all;
  all.body = Compute{block, 0, static_cast<std::int32_t>(rank_program.blocks[block].kernels.size())};
  return all;
}

Kernel attention(std::int64_t heads, std::int64_t T, std::int64_t head_dim) {
  Kernel kernel = product(KernelOp::attention, heads, T, head_dim);
  kernel.flops *= 2.0 * static_cast<double>(T);
  return kernel;
}

double seconds(const Kernel& kernel, const Chip& chip, Format format = Format::bf16) {
  return kernel_time(kernel, format, chip, nullptr).seconds;
}

Chip waving_chip() {
  Chip chip = tiny_chip();
  chip.multiprocessors = {108, "assumed"};
  chip.software.gemm_wave = {0.5, "assumed"};
  return chip;
}

}  // namespace

TEST_CASE("a matmul takes its FLOPs at the efficient peak, longer for short sums, plus the overhead") {
  const Chip chip = tiny_chip();
  const double work_s = 2.0 * 1000 * 500 * 300 / (1e11 * 0.9) * (1 + 100.0 / 300);
  REQUIRE(seconds(matmul(1000, 500, 300), chip) == Approx(work_s + 1e-6).epsilon(1e-12));
}

TEST_CASE("the gradients of a matmul sum over what the forward had as columns and rows") {
  const Chip chip = tiny_chip();
  const double flops_s = 2.0 * 1000 * 500 * 300 / (1e11 * 0.9);
  const Kernel input = product(KernelOp::matmul_input_gradient, 1000, 500, 300);
  const Kernel weight = product(KernelOp::matmul_weight_gradient, 1000, 500, 300);
  REQUIRE(seconds(input, chip) == Approx(flops_s * (1 + 100.0 / 500) + 1e-6).epsilon(1e-12));
  REQUIRE(seconds(weight, chip) == Approx(flops_s * (1 + 100.0 / 1000) + 1e-6).epsilon(1e-12));
}

TEST_CASE("one tile more than the chip runs at once costs part of a wave") {
  const Chip chip = waving_chip();
  const double full = kernel_time(matmul(128 * 108, 256, 4096), Format::bf16, chip, nullptr).work_s;
  const double flops_s = matmul(128 * 108, 256, 4096).flops / (1e11 * 0.9) * (1 + 100.0 / 4096);
  REQUIRE(full == Approx(flops_s).epsilon(1e-12));
  const Kernel more = matmul(128 * 109, 256, 4096);
  const double more_s = kernel_time(more, Format::bf16, chip, nullptr).work_s;
  REQUIRE(more_s > 1.05 * full * 109 / 108);
  REQUIRE(more_s < 2 * full);
}

TEST_CASE("attention takes the unmasked half of its FLOPs at P*s/(s+s_half)") {
  const Chip chip = tiny_chip();
  for (std::int64_t T : {100, 1000, 10000}) {
    const Kernel kernel = attention(8, T, 64);
    const double rate = 1e11 * 0.5 * static_cast<double>(T) / (static_cast<double>(T) + 100);
    REQUIRE(seconds(kernel, chip) == Approx(kernel.flops / 2 / rate + 1e-6).epsilon(1e-12));
  }
}

TEST_CASE("element-wise kernels take their bytes at the efficient bandwidth; so does a thin matmul") {
  const Chip chip = tiny_chip();
  for (int op = 0; op < kKernelOpCount; ++op) {
    Kernel kernel = matmul(1, 1, 1);
    kernel.op = static_cast<KernelOp>(op);
    kernel.flops = 0;
    kernel.bytes = 12'345'678;
    if (is_collective(kernel.op)) continue;
    // Priced with a collective.
    if (kernel.op == KernelOp::take_rows || kernel.op == KernelOp::place_rows) continue;
    REQUIRE(seconds(kernel, chip) == Approx(12'345'678 / (1e10 * 0.8) + 1e-6).epsilon(1e-12));
  }
}

TEST_CASE("an all_reduce kernel takes what the ring takes, and counts as tensor parallelism") {
  const Job job = tiny_job({4, 1, 1});
  const Program program = compile(job);
  const RingCost ring = ring_cost(program, job.cluster, program.groups.front());
  Kernel kernel;
  kernel.op = KernelOp::all_reduce;
  kernel.bytes = 1'000'000;
  REQUIRE(kernel_time(kernel, Format::fp32, tiny_chip(), &ring).seconds ==
          ring_all_reduce_s(ring, 1'000'000));
  const RankProgram& stage = program.rank_programs.front();
  double rings_s = 0;
  for (const Kernel& each : stage.blocks.front().kernels)
    if (each.op == KernelOp::all_reduce) rings_s += ring_all_reduce_s(ring, each.bytes);
  const ComputeTime priced = compute_time(program, stage, stage.streams[kComputeStream].instructions[0],
                                          job.cluster.chip_of(0), &ring);
  REQUIRE(rings_s > 0);
  REQUIRE(priced.tensor_parallel_s == Approx(rings_s).epsilon(1e-12));
}

TEST_CASE("more work never takes less time") {
  for (const Chip& chip : {tiny_chip(), waving_chip()}) {
    double before = 0;
    for (std::int64_t k = 1; k < 5000; k = k * 3 / 2 + 1) {
      REQUIRE(seconds(matmul(512, 512, k), chip) > before);
      before = seconds(matmul(512, 512, k), chip);
    }
    before = 0;
    for (std::int64_t T = 1; T < 40000; T = T * 3 / 2 + 1) {
      REQUIRE(seconds(attention(8, T, 64), chip) > before);
      before = seconds(attention(8, T, 64), chip);
    }
  }
}

TEST_CASE("rates times k and overheads over k make every kernel's time over k") {
  const Chip chip = waving_chip();
  Chip faster = chip;
  for (auto& [format, peak] : faster.peak_flops) peak.value *= 4;
  faster.memory_bandwidth.value *= 4;
  faster.software.kernel_overhead.value /= 4;
  for (Kernel kernel : {matmul(777, 333, 555), attention(3, 100, 17), matmul(1, 1, 1)})
    for (std::int64_t bytes : {0, 1'000, 1'000'000'000}) {
      kernel.bytes = bytes;
      REQUIRE(seconds(kernel, faster) == Approx(seconds(kernel, chip) / 4).epsilon(1e-12));
    }
}

TEST_CASE("an optimizer step of fp32 moves 32 bytes a parameter, one of bf16 with fp32 gradients 34") {
  for (const auto& [precision, bytes] : {std::pair{Format::fp32, 32.0}, {Format::bf16, 34.0}}) {
    Job job = tiny_job({1, 1, 1});
    job.train.precision = precision;
    job.cluster.groups[0].chip.software.step_overhead = {0.25, "assumed"};
    const Program program = compile(job);
    const auto& instructions = program.rank_programs.front().streams[kComputeStream].instructions;
    REQUIRE(instructions.back().op() == Op::optimizer);
    const ComputeTime time = compute_time(program, program.rank_programs.front(), instructions.back(),
                                          job.cluster.chip_of(0), nullptr);
    const auto count = static_cast<double>(parameter_count(job.transformer));
    REQUIRE(time.seconds() == Approx(bytes * count / (1e10 * 0.8) + 0.25).epsilon(1e-12));
  }
}

TEST_CASE("recompute is priced as the forward it repeats") {
  Job job = tiny_job({1, 1, 1});
  job.strategy.recompute = Recompute::full;
  const Program program = compile(job);
  const RankProgram& stage = program.rank_programs.front();
  double forward_s = 0, recompute_s = 0;
  for (const Kernel& kernel : stage.blocks.front().kernels)
    if (kernel.layer >= 0 && kernel.layer < job.transformer.layers)
      forward_s += seconds(kernel, job.cluster.chip_of(0));
  for (const Instruction& instruction : stage.streams[kComputeStream].instructions)
    if (const auto* compute = instruction.as<Compute>();
        compute != nullptr && stage.blocks[compute->block].pass == Pass::backward)
      recompute_s = compute_time(program, stage, instruction, job.cluster.chip_of(0), nullptr).recompute_s;
  REQUIRE(forward_s > 0);
  REQUIRE(recompute_s == Approx(forward_s).epsilon(1e-12));
}

TEST_CASE("a chip without a peak of the format is refused by name, with the formats it has") {
  Chip chip = tiny_chip();
  chip.peak_flops.erase(Format::fp16);
  try {
    kernel_time(matmul(1, 1, 1), Format::fp16, chip, nullptr);
    FAIL("priced");
  } catch (const Refusal& refusal) {
    REQUIRE(refusal.kind() == "unsupported-format");
    REQUIRE(refusal.message() == "chip `tiny` has no fp16 peak");
  }
}

TEST_CASE("the cost table says what compute_time says, once for every distinct instruction") {
  for (const Job& job : every_small_job(Family::llama)) {
    const Program program = compile(job);
    CostTable table(program, job.cluster);
    std::map<const Instruction*, const ComputeTime*> priced;
    for (Rank rank : program.ranks.ids()) {
      const RankEntry& entry = program.ranks[rank];
      const std::optional<GroupId> group = entry.groups.empty() ? std::nullopt : entry.groups[kTensorGroup];
      for (const Stream& stream : program.program_of(rank).streams)
        for (const Instruction& instruction : stream.instructions) {
          if (instruction.op() != Op::compute && instruction.op() != Op::optimizer) continue;
          const ComputeTime& time = table.price(rank, instruction);
          const RingCost* ring = group ? &table.ring(*group) : nullptr;
          REQUIRE(time.seconds() == compute_time(program, program.program_of(rank), instruction,
                                                 job.cluster.chip_of(entry.chip), ring)
                                        .seconds());
          const auto [known, is_new] = priced.emplace(&instruction, &time);
          REQUIRE(known->second == &time);  // ranks with one program share one price
        }
    }
  }
}

TEST_CASE("what software adds: slower backward products, more passes, a share of collectives") {
  Chip chip = tiny_chip();
  chip.software.kernel_overhead.value = 0;
  const Kernel input = product(KernelOp::matmul_input_gradient, 1000, 500, 300);
  Kernel norm;
  norm.op = KernelOp::norm;
  norm.bytes = 1'000'000;
  const double product_s = seconds(input, chip), forward_s = seconds(matmul(1000, 500, 300), chip),
               norm_s = seconds(norm, chip);
  chip.software.gemm_backward = {1.5, "assumed"};
  chip.software.elementwise_passes = {3, "assumed"};
  CHECK(seconds(input, chip) == Approx(1.5 * product_s).epsilon(1e-12));
  CHECK(seconds(matmul(1000, 500, 300), chip) == forward_s);
  CHECK(seconds(norm, chip) == Approx(3 * norm_s).epsilon(1e-12));
  Kernel sum;
  sum.op = KernelOp::all_reduce;
  sum.bytes = 1 << 20;
  RingCost ring;
  ring.rank_count = 4;
  ring.bandwidth = 1e9;
  const double whole_s = kernel_time(sum, Format::bf16, chip, &ring).seconds;
  chip.software.collective_share = {0.5, "assumed"};
  CHECK(kernel_time(sum, Format::bf16, chip, &ring).seconds == Approx(whole_s / 2).epsilon(1e-12));
}

TEST_CASE(
    "attention that writes its scores takes two products and passes over them, eight times for odd heads") {
  Chip chip = tiny_chip();
  chip.software.kernel_overhead.value = 0;
  chip.software.unfused_attention = {1, "assumed"};
  const double heads = 64, T = 1024, D = 64, scores = heads * T * T;
  const double product_s = 4 * scores * D * (1 + 32 / D) / (1e11 * 0.37);
  const double pass_s = 2 * scores / (1e10 * 0.8);
  CHECK(seconds(attention(64, 1024, 64), chip) == Approx(product_s + 5 * pass_s).epsilon(1e-12));
  Kernel backward = attention(64, 1024, 64);
  backward.op = KernelOp::attention_backward;
  CHECK(seconds(backward, chip) == Approx(2 * product_s + 8 * pass_s).epsilon(1e-12));
  const double odd = 4 * scores * 63 * (1 + 32 / 63.0) * 8.3 / (1e11 * 0.37);
  CHECK(seconds(attention(64, 1024, 63), chip) == Approx(odd + 5 * pass_s).epsilon(1e-12));
}

TEST_CASE("a layer that is launched more slowly than it runs takes the launches' time, however it is cut") {
  Job job = tiny_job({1, 1, 1});
  const Program program = compile(job);
  const RankProgram& rank_program = program.rank_programs.front();
  Chip chip = tiny_chip();
  const auto whole = [&](Pass pass) { return whole_of(rank_program, pass); };
  const auto time = [&](const Instruction& each) {
    return compute_time(program, rank_program, each, chip, nullptr).seconds();
  };
  const double forward_s = time(whole(Pass::forward));
  chip.software.layer_launch = {1, "assumed"};
  const auto layers = static_cast<double>(job.transformer.layers + 2);  // embedding and head count as layers
  CHECK(time(whole(Pass::forward)) == Approx(layers).epsilon(1e-6));
  CHECK(time(whole(Pass::backward)) == Approx(1.8 * layers).epsilon(1e-6));
  Instruction first = whole(Pass::forward), second = first;
  auto& first_half = std::get<Compute>(first.body);
  auto& second_half = std::get<Compute>(second.body);
  first_half.last_kernel = second_half.first_kernel = first_half.last_kernel / 2;
  CHECK(time(first) + time(second) == Approx(layers).epsilon(1e-6));
  chip.software.layer_launch.value = 1e-9;
  CHECK(time(whole(Pass::forward)) == Approx(forward_s).epsilon(1e-6));
  // Launches that wait for kernels add to them, and hide behind them in part if only some wait.
  chip.software.layer_launch.value = forward_s / layers;
  const double hidden_s = time(whole(Pass::forward));
  chip.software.launch_wait = {1, "assumed"};
  CHECK(time(whole(Pass::forward)) == Approx(2 * forward_s).epsilon(1e-12));
  CHECK(time(first) + time(second) == Approx(2 * forward_s).epsilon(1e-12));
  chip.software.launch_wait.value = 0.5;
  CHECK(time(whole(Pass::forward)) == Approx((hidden_s + 2 * forward_s) / 2).epsilon(1e-12));
  CHECK(hidden_s < 1.95 * forward_s);
  chip.software.launch_wait.value = 0;
  chip.software.layer_launch.value = 0;
  chip.software.micro_batch_overhead = {0.5, "assumed"};
  CHECK(time(whole(Pass::forward)) == Approx(forward_s + 0.25).epsilon(1e-12));
}

TEST_CASE(
    "overheads of micro-batches are shared by a rank's chunks, those of passes are not; weight gradients "
    "have neither") {
  for (const Schedule schedule :
       {Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_h1, Schedule::zb_v}) {
    Job job = tiny_job({1, 2, 1});
    const bool cut = schedule == Schedule::interleaved || schedule == Schedule::zb_v;
    use_schedule(job.transformer, job.strategy, schedule, cut ? 2 : 1);
    const Program program = compile(job);
    for (const RankProgram& rank_program : program.rank_programs)
      for (std::size_t i = 0; i < rank_program.blocks.size(); ++i) {
        const Block& block = rank_program.blocks[BlockId(static_cast<std::int32_t>(i))];
        Instruction whole;
        whole.body = Compute{BlockId(static_cast<std::int32_t>(i)), 0,
                             static_cast<std::int32_t>(block.kernels.size())};
        const auto more_s = [&](Sourced ChipSoftware::*overhead) {
          Chip chip = tiny_chip();
          const double before_s = compute_time(program, rank_program, whole, chip, nullptr).seconds();
          chip.software.*overhead = {6, "assumed"};
          return compute_time(program, rank_program, whole, chip, nullptr).seconds() - before_s;
        };
        const bool weights = block.pass == Pass::weight_gradient;
        CHECK(rank_program.chunks.size() == (cut ? 2 : 1));
        CHECK(more_s(&ChipSoftware::micro_batch_overhead) == Approx(weights ? 0 : cut ? 1.5 : 3));
        CHECK(more_s(&ChipSoftware::pass_overhead) == Approx(weights ? 0 : 6));
      }
  }
}

TEST_CASE("a layer with experts is launched in so much longer, a dense one is not") {
  const Job job = tiny_job({1, 1, 1}, tiny_variant("deepseek-v3"));  // one dense layer
  const Program program = compile(job);
  const RankProgram& rank_program = program.rank_programs.front();
  Chip chip = tiny_chip();
  const auto time = [&](Pass pass) {
    return compute_time(program, rank_program, whole_of(rank_program, pass), chip, nullptr).seconds();
  };
  const auto with_experts = static_cast<double>(job.transformer.layers - 1);
  const double ends_s = time(Pass::forward);
  chip.software.expert_launch = {10, "assumed"};
  CHECK(time(Pass::forward) == Approx(10 * with_experts).epsilon(1e-3));
  CHECK(time(Pass::backward) == Approx(18 * with_experts).epsilon(1e-3));
  chip.software.layer_launch = {5, "assumed"};
  CHECK(time(Pass::forward) == Approx(5 * (with_experts + 3) + 10 * with_experts).epsilon(1e-3));
  chip.software.layer_launch.value = chip.software.expert_launch.value = 0;
  CHECK(time(Pass::forward) == ends_s);
}

TEST_CASE("computes wait for the slowest of all ranks, in terms of the slowest of eight") {
  const auto time = [](std::int64_t replicas, double deviation) {
    Job job = tiny_job({1, 1, 1});
    job.cluster = tiny_cluster(static_cast<int>(replicas));
    job.train.global_batch = 4 * replicas;
    job.strategy = expand(job.transformer, job.train, 1, 1, replicas);
    const Program program = compile(job);
    Chip chip = tiny_chip();
    chip.software.variation = {deviation, "assumed"};
    for (const Instruction& each : program.rank_programs.front().streams[kComputeStream].instructions)
      if (each.op() == Op::compute)
        return compute_time(program, program.rank_programs.front(), each, chip, nullptr).seconds();
    return 0.0;
  };
  CHECK(time(4, 0.01) == time(4, 0));
  CHECK(time(8, 0.01) == time(8, 0));
  // The largest of 8 and of 32 normal numbers are 1.4236 and 2.0697 deviations above the mean (Harter 1961).
  CHECK(time(32, 0.01) == Approx((1 - 0.014236) / (1 - 0.020697) * time(32, 0)).epsilon(1e-5));
}
