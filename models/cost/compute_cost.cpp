// Prices kernels by the forms of models/cluster/chip.hpp. It knows nothing of contention, overlap or other ranks.
// Read next: models/cost/network_cost.cpp.
#include "models/cost/compute_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "models/base/refusal.hpp"
#include "models/cost/busy_ranks.hpp"
#include "models/cost/measured_kernels.hpp"
#include "models/cost/rated_kernels.hpp"

namespace motley {
namespace {

struct Tile {
  double rows, columns, speed;
};
// Tile shapes of GEMM libraries and their relative speeds; the best one is used. Fitted to published GEMMs of A100,
// H100.
constexpr std::array<Tile, 5> kTiles = {
    {{128, 256, 1.0}, {256, 128, 1.0}, {128, 128, 0.9}, {64, 128, 0.72}, {64, 64, 0.55}}};

// The product that a kernel computes: out(rows, columns), summed over `inner`. A Kernel keeps the forward's m, n, k:
// dx(m,k) sums over n, dw(n,k) over the m rows of the micro-batch.
struct Product {
  double rows, columns, inner;
};
Product product_of(const Kernel& kernel) {
  const auto m = static_cast<double>(kernel.m), n = static_cast<double>(kernel.n),
             k = static_cast<double>(kernel.k);
  switch (kernel.op) {
    case KernelOp::matmul_input_gradient:
    case KernelOp::grouped_matmul_input_gradient:
      return {m, k, n};
    case KernelOp::matmul_weight_gradient:
    case KernelOp::grouped_matmul_weight_gradient:
      return {n, k, m};
    default:
      return {m, n, k};
  }
}

// A product, and how many there are of it. Assumes: all experts except the busiest have the same number of rows.
struct Products {
  Product product;
  double count;
};
std::vector<Products> products_of(const Kernel& kernel) {
  if (kernel.groups <= 1) return {{product_of(kernel), 1}};
  Kernel busiest = kernel, other = kernel;
  busiest.m = kernel.busiest;
  other.m = std::max<std::int64_t>(1, (kernel.m - kernel.busiest) / (kernel.groups - 1));
  return {{product_of(busiest), 1}, {product_of(other), static_cast<double>(kernel.groups - 1)}};
}

// Factor, at least 1, for tiles that do not fill the chip's last wave. The tiles of a grouped product share waves.
double wave_quantisation(const std::vector<Products>& all, double multiprocessors) {
  if (multiprocessors <= 0) return 1.0;
  double best = 1e300, elements = 0;
  for (const auto& [product, count] : all) elements += count * product.rows * product.columns;
  for (const Tile& tile : kTiles) {
    double tiles = 0;
    for (const auto& [product, count] : all)
      tiles += count * std::ceil(product.rows / tile.rows) * std::ceil(product.columns / tile.columns);
    const double waves = std::ceil(tiles / multiprocessors);
    best = std::min(best, waves * multiprocessors * tile.rows * tile.columns / elements / tile.speed);
  }
  return std::max(1.0, best);
}

double peak_of(const Chip& chip, Format format) {
  const auto entry = chip.peak_flops.find(format);
  if (entry != chip.peak_flops.end()) return entry->second.value;
  std::vector<std::string> known;
  for (const auto& [other, peak] : chip.peak_flops) known.emplace_back(name_of(other));
  throw Refusal(Exit::infeasible, "unsupported-format", {},
                fmt::format("chip `{}` has no {} peak", chip.name, name_of(format)),
                fmt::format("it has: {}", fmt::join(known, ", ")));
}

bool is_matmul(KernelOp op) {
  switch (op) {
    case KernelOp::matmul:
    case KernelOp::matmul_input_gradient:
    case KernelOp::matmul_weight_gradient:
    case KernelOp::grouped_matmul:
    case KernelOp::grouped_matmul_input_gradient:
    case KernelOp::grouped_matmul_weight_gradient:
      return true;
    default:
      return false;
  }
}

// Factor, at least 1, for short sums: the mean over the products, weighted by their work.
double short_sums(const std::vector<Products>& all, double k_half) {
  if (all.size() == 1) return 1 + k_half / all[0].product.inner;
  double work = 0, slowed = 0;
  for (const auto& [product, count] : all) {
    const double part = count * product.rows * product.columns * product.inner;
    work += part;
    slowed += part * (1 + k_half / product.inner);
  }
  return slowed / work;
}

double matmul_work_s(const Kernel& kernel, Format format, const Chip& chip) {
  const auto products = products_of(kernel);
  return priced_flops(kernel) / (peak_of(chip, format) * chip.software.gemm_efficiency.value) *
         short_sums(products, chip.software.gemm_k_half.value) *
         (1 + chip.software.gemm_wave.value * (wave_quantisation(products, chip.multiprocessors.value) - 1));
}

double factor(const Sourced& figure) { return figure.value > 0 ? figure.value : 1; }

bool is_backward_product(KernelOp op) {
  switch (op) {
    case KernelOp::matmul_input_gradient:
    case KernelOp::matmul_weight_gradient:
    case KernelOp::grouped_matmul_input_gradient:
    case KernelOp::grouped_matmul_weight_gradient:
      return true;
    default:
      return false;
  }
}

double attention_work_s(const Kernel& kernel, Format format, const Chip& chip) {
  const double T = static_cast<double>(kernel.n);
  return computed_flops(kernel) / (peak_of(chip, format) * chip.software.attention_efficiency.value) *
         (1 + chip.software.attention_s_half.value / T);
}

// Attention whose scores are written and read between two batched products; the mask saves nothing. Form and
// constants were fitted to Megatron-LM runs of 2021-22 on A100 and BLOOM's topology sweep: the products reach 0.37 of
// the peak, less for narrow heads, an eighth where a head's width is not a multiple of 8; the forward passes 5 times
// over the scores, the backward 8 times, with two bytes each.
double unfused_attention_s(const Kernel& kernel, Format format, const Chip& chip) {
  constexpr double kReached = 0.37, kNarrow = 32, kMisaligned = 8.3;
  const bool backward = kernel.op == KernelOp::attention_backward;
  const auto T = static_cast<double>(kernel.n), D = static_cast<double>(kernel.k);
  const double scores = static_cast<double>(kernel.m) * T * T;
  const double products = (backward ? 2.0 : 1.0) * 4.0 * scores * D;
  const double slowed = (1 + kNarrow / D) * (kernel.k % 8 == 0 ? 1 : kMisaligned);
  const double passes_s = (backward ? 8 : 5) * 2 * scores /
                          (chip.memory_bandwidth.value * chip.software.bandwidth_efficiency.value);
  return kernel.factor * chip.software.unfused_attention.value *
         (products * slowed / (peak_of(chip, format) * kReached) + passes_s);
}

}  // namespace

double optimizer_step_bytes(const Program& program, const RankProgram& rank_program) {
  const double written = program.optimizer_rule().has_masters() ? 1 : 2;  // without masters it is read, too
  double bytes = 0;
  std::set<TensorId> divided;
  std::set<std::optional<int>> elsewhere;  // parameters whose optimizer states are on the host
  for (const Tensor& tensor : rank_program.tensors)
    if (tensor.on_host && tensor.role == TensorRole::optimizer) elsewhere.insert(tensor.parameter);
  for (const Shard& shard : rank_program.shards) {
    const Tensor& state = rank_program.tensors[shard.optimizer];
    const double elements = state.on_host ? 0 : static_cast<double>(state.shape[1]);
    bytes += elements * (written * bytes_of(program.precision) + 2.0 * bytes_of(program.gradients));
    for (const auto* ids : {&shard.parameters, &shard.gradients}) divided.insert(ids->begin(), ids->end());
    for (const auto& part : {shard.parameter_part, shard.gradient_part})
      if (part) divided.insert(*part);
  }
  std::set<std::optional<int>> trained;
  for (const Tensor& tensor : rank_program.tensors)
    if (tensor.role == TensorRole::gradient) trained.insert(tensor.parameter);
  for (TensorId id : rank_program.tensors.ids()) {
    const Tensor& tensor = rank_program.tensors[id];
    if (divided.contains(id) || tensor.on_host) continue;
    if (tensor.parameter && elsewhere.contains(tensor.parameter)) continue;
    if (tensor.role == TensorRole::parameter && trained.contains(tensor.parameter))
      bytes += written * static_cast<double>(tensor.bytes);
    if (tensor.role == TensorRole::gradient || tensor.role == TensorRole::optimizer)
      bytes += 2.0 * static_cast<double>(tensor.bytes);
  }
  return bytes;
}

double computed_flops(const Kernel& kernel) {
  return is_attention(kernel.op) ? kernel.flops / 2 : kernel.flops;
}

KernelTime kernel_time(const RankProgram& rank_program, const Kernel& kernel, Format format, const Chip& chip,
                       const RingCost* tensor_ring) {
  return kernel_time(kernel, format, chip, tensor_ring, rated_kernel(rank_program, kernel).variant);
}

KernelTime kernel_time(const Kernel& kernel, Format format, const Chip& chip, const RingCost* tensor_ring,
                       KernelVariant variant) {
  KernelTime time;
  if (kernel.format) format = *kernel.format;
  if (is_collective(kernel.op)) {
    if (!priced_in_computes(kernel)) return time;  // an instruction of its own, which a World prices
    MOTLEY_CHECK(tensor_ring != nullptr);
    time.seconds = time.memory_s = factor(chip.software.collective_share) *
                                   priced_collective_s(collective_of(kernel.op), *tensor_ring, kernel.bytes);
    return time;
  }
  if (const auto rated = rated_time({kernel.op, variant}, kernel, format, chip.software.kernels))
    return {rated->seconds, rated->work_s, rated->memory_s};
  if (kernel.op == KernelOp::take_rows || kernel.op == KernelOp::place_rows) return time;
  if (is_matmul(kernel.op)) time.work_s = matmul_work_s(kernel, format, chip);
  if (is_backward_product(kernel.op)) time.work_s *= factor(chip.software.gemm_backward);
  if (is_attention(kernel.op))
    time.work_s = chip.software.unfused_attention.value > 0 ? unfused_attention_s(kernel, format, chip)
                                                            : attention_work_s(kernel, format, chip);
  time.memory_s = static_cast<double>(kernel.bytes) /
                  (chip.memory_bandwidth.value * chip.software.bandwidth_efficiency.value);
  if (!is_matmul(kernel.op) && !is_attention(kernel.op))
    time.memory_s *= factor(chip.software.elementwise_passes);
  const double launched = is_attention(kernel.op) ? kernel.factor : 1;  // shares are launched together
  time.seconds = std::max(time.work_s, time.memory_s) + launched * chip.software.kernel_overhead.value;
  return time;
}

double host_step_s(const Program& program, const RankProgram& rank_program, const OptimizerStep& step,
                   const NodeGroup& nodes) {
  MOTLEY_CHECK(nodes.host.has_value());
  constexpr double kReached = 0.8;
  double bytes = 0;
  for (TensorId id : step.tensors) {
    const Tensor& tensor = rank_program.tensors[id];
    const bool both = tensor.role == TensorRole::optimizer ||
                      (tensor.role == TensorRole::parameter && program.precision == Format::fp32);
    bytes += (both ? 2.0 : 1.0) * static_cast<double>(tensor.bytes);
  }
  return bytes * nodes.chips_per_node / (nodes.host->memory_bandwidth * kReached);
}

namespace {

// The kernels of a layer that one instruction runs.
struct LayerPart {
  double seconds = 0, kernels = 0;
  bool backward = false;
};

// Seconds that kernels wait for the processor that launches them. A layer takes (G^4 + C^4)^(1/4): G is the time of
// its kernels, C the time of their launches, which with experts includes the host's wait for the router. It takes G + C
// where each launch waits for the kernel before it (CUDA_LAUNCH_BLOCKING=1). If several instructions share a layer,
// each has the part of its kernels. `known`: the layers of the block; null: they are counted here.
double launch_wait_s(const RankProgram& rank_program, const Compute& compute, const Chip& chip,
                     const std::vector<double>& seconds, const BlockLayers* known) {
  constexpr double kParallel = 1.3,
                   kBackward = 1.8;  // collectives are launched too; a backward has more kernels
  if (chip.software.layer_launch.value <= 0 && chip.software.expert_launch.value <= 0) return 0;
  const Block& block = rank_program.blocks[compute.block];
  const BlockLayers counted = known == nullptr ? layers_of(block) : BlockLayers{};
  const BlockLayers& all = known == nullptr ? counted : *known;
  std::map<std::pair<int, bool>, LayerPart> layers;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const Kernel& kernel = block.kernels[at(i)];
    LayerPart& part = layers[{kernel.layer, kernel.recompute}];
    part.seconds += seconds[at(i - compute.first_kernel)];
    if (!is_collective(kernel.op)) part.kernels += 1;
    part.backward = block.pass != Pass::forward && !kernel.recompute;
  }
  double wait_s = 0;
  for (const auto& [layer, part] : layers) {
    if (part.kernels == 0) continue;
    const LayerOfBlock& whole = all.at(layer);
    const double layer_s =
        chip.software.layer_launch.value + (whole.experts ? chip.software.expert_launch.value : 0);
    const double launches_s = layer_s * (rank_program.tensor_parallel > 1 ? kParallel : 1) *
                              (part.backward ? kBackward : 1) * part.kernels / whole.kernels;
    const double hidden_s =
        std::pow(std::pow(part.seconds, 4) + std::pow(launches_s, 4), 0.25) - part.seconds;
    wait_s += hidden_s + chip.software.launch_wait.value * (launches_s - hidden_s);
  }
  return wait_s;
}

}  // namespace

namespace {

// Speed of the slowest chip of so many, where speeds have that standard deviation.
double expected_slowest(double deviation, double chips) {
  return std::max(kLeastSpeed, 1 - deviation * expected_largest(chips));
}

}  // namespace

// Assumes: causes that make one rank slower than another (clocks, memory, other work of the machine) are independent
// for each rank, and normal. All ranks wait for the slowest, whose expected speed falls with their number. A chip's
// figures describe the slowest of eight, as a node of them was measured. Published weak-scaling series lose -0.05 to
// 1.8 % for each doubling (DGXC Benchmarking, H100, 2024-11 to 2025-05); V100 and MI60 vary by 8 % between the
// whiskers of a box plot, a standard deviation of 1.5 % (arXiv:2208.11035, 2022).
double usual_slowness(const Chip& chip, double ranks) {
  constexpr double kMeasured = 8;
  const double deviation = chip.software.variation.value;
  if (deviation <= 0 || ranks <= kMeasured) return 1;
  return expected_slowest(deviation, kMeasured) / expected_slowest(deviation, ranks);
}

namespace {

// Half of a micro-batch's overhead in the forward, half in the backward, over all chunks. Assumes: a weight gradient
// that runs by itself is its products alone (measured: 77 to 81 % of an A100's peak at four sizes of models,
// arXiv:2401.10241, table 9).
double pass_overhead_s(const RankProgram& rank_program, const Compute& compute, const Chip& chip) {
  if (compute.first_kernel > 0 || rank_program.blocks[compute.block].pass == Pass::weight_gradient) return 0;
  return chip.software.micro_batch_overhead.value / 2 / static_cast<double>(rank_program.chunks.size()) +
         chip.software.pass_overhead.value;
}

// Seconds of each kernel of a compute.
std::vector<double> kernel_seconds(const Program& program, const RankProgram& rank_program,
                                   const Compute& compute, const Chip& chip, const RingCost* tensor_ring,
                                   const MeasuredKernels& measured) {
  const Block& block = rank_program.blocks[compute.block];
  std::vector<double> seconds;
  for (int i = compute.first_kernel; i < compute.last_kernel; ++i) {
    const Kernel& kernel = block.kernels[at(i)];
    seconds.push_back(kernel_time(rank_program, kernel, program.precision, chip, tensor_ring).seconds *
                      measured.factor(block, kernel));
  }
  return seconds;
}

}  // namespace

BlockLayers layers_of(const Block& block) {
  BlockLayers layers;
  for (const Kernel& kernel : block.kernels) {
    LayerOfBlock& layer = layers[{kernel.layer, kernel.recompute}];
    if (!is_collective(kernel.op)) layer.kernels += 1;
    if (kernel.op == KernelOp::dispatch || kernel.op == KernelOp::dispatch_backward) layer.experts = true;
  }
  return layers;
}

std::vector<KernelSpan> kernel_spans(const Program& program, const RankProgram& rank_program,
                                     const Compute& compute, const Chip& chip, const RingCost* tensor_ring,
                                     const BlockLayers* layers) {
  const MeasuredKernels measured(program, rank_program, chip, tensor_ring);
  const std::vector<double> seconds =
      kernel_seconds(program, rank_program, compute, chip, tensor_ring, measured);
  double now_s = pass_overhead_s(rank_program, compute, chip);
  if (!measured.any()) now_s += launch_wait_s(rank_program, compute, chip, seconds, layers);
  std::vector<KernelSpan> spans;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const std::int32_t place = compute.first_kernel + static_cast<std::int32_t>(i);
    const Kernel& kernel = rank_program.blocks[compute.block].kernels[at(place)];
    spans.push_back({place, now_s, now_s + seconds[i], is_collective(kernel.op) ? 0 : kernel.flops});
    now_s += seconds[i];
  }
  return spans;
}

ComputeTime compute_time(const Program& program, const RankProgram& rank_program,
                         const Instruction& instruction, const Chip& chip, const RingCost* tensor_ring) {
  return compute_time(program, rank_program, instruction, chip, tensor_ring,
                      usual_slowness(chip, static_cast<double>(program.ranks.size())));
}

namespace {

// Assumes: Muon's matrix products are large, and run in bf16 (kellerjordan.github.io/posts/muon, 2024-12) at the speed
// of large matmuls.
double orthogonalization_s(const Program& program, const Instruction& instruction, const Chip& chip) {
  if (instruction.flops == 0) return 0;
  const Format format = chip.peak_flops.contains(Format::bf16) ? Format::bf16 : program.precision;
  return instruction.flops / (peak_of(chip, format) * chip.software.gemm_efficiency.value);
}

}  // namespace

ComputeTime compute_time(const Program& program, const RankProgram& rank_program,
                         const Instruction& instruction, const Chip& chip, const RingCost* tensor_ring,
                         double slowness, const BlockLayers* layers) {
  ComputeTime time;
  const MeasuredKernels measured(program, rank_program, chip, tensor_ring);
  if (instruction.op() == Op::optimizer) {
    if (const auto& rate = chip.software.kernels.optimizer) {
      time.compute_s = rate->seconds({0, optimizer_step_bytes(program, rank_program), 0}) +
                       orthogonalization_s(program, instruction, chip) + chip.software.step_overhead.value;
      return time;
    }
    // The measured time is for optimizer states that are not divided.
    time.compute_s = measured.any() && rank_program.shards.empty() && program.optimizer == Optimizer::adamw
                         ? measured.optimizer_s(rank_program)
                         : optimizer_step_bytes(program, rank_program) /
                               (chip.memory_bandwidth.value * chip.software.bandwidth_efficiency.value);
    time.compute_s += orthogonalization_s(program, instruction, chip) + chip.software.step_overhead.value;
    return time;
  }
  const auto& compute = std::get<Compute>(instruction.body);
  const auto& kernels = rank_program.blocks[compute.block].kernels;
  const std::vector<double> all = kernel_seconds(program, rank_program, compute, chip, tensor_ring, measured);
  time.compute_s += pass_overhead_s(rank_program, compute, chip);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Kernel& kernel = kernels[at(compute.first_kernel) + i];
    if (is_collective(kernel.op))
      time.tensor_parallel_s += all[i];
    else if (kernel.recompute)
      time.recompute_s += all[i];
    else
      time.compute_s += all[i];
  }
  if (!measured.any()) time.compute_s += launch_wait_s(rank_program, compute, chip, all, layers);
  return {time.compute_s * slowness, time.recompute_s * slowness, time.tensor_parallel_s * slowness};
}

namespace {

// The time on a chip with that speed. Where computes contain their tensor-parallel collectives, every member goes at
// the speed of the slowest one; what it waits counts as tensor parallelism.
ComputeTime at_speed(ComputeTime time, double speed, double slowest) {
  const double computes_s = time.compute_s + time.recompute_s;
  time.compute_s /= speed;
  time.recompute_s /= speed;
  time.tensor_parallel_s += computes_s / slowest - computes_s / speed;
  return time;
}

bool contains_collective(const RankProgram& rank_program, const Instruction& instruction) {
  const auto* compute = instruction.as<Compute>();
  if (compute == nullptr) return false;
  const auto& kernels = rank_program.blocks[compute->block].kernels;
  return std::any_of(kernels.begin() + compute->first_kernel, kernels.begin() + compute->last_kernel,
                     [](const Kernel& kernel) { return is_collective(kernel.op); });
}

}  // namespace

CostTable::CostTable(const Program& program, const Cluster& cluster)
    : program_(program), busy_(as_busy_as(program, cluster)), cluster_(busy_ ? *busy_ : cluster) {}

CostTable::Key CostTable::key_of(Rank rank, const Instruction& instruction) {
  const RankEntry& entry = program_.ranks[rank];
  const std::optional<GroupId> group =
      entry.groups.has(kTensorGroup) ? entry.groups[kTensorGroup] : std::nullopt;
  Key key{entry.rank_program, cluster_.chip_group[at(entry.chip)], group ? &ring(*group) : nullptr, {}, {}};
  if (!cluster_.chip_speed.empty()) {
    key.speed = key.slowest = cluster_.speed_of(entry.chip);
    if (group && contains_collective(program_.program_of(rank), instruction))
      key.slowest = slowest_of(*group);
  }
  if (const auto* compute = instruction.as<Compute>()) key.compute = *compute;
  return key;
}

const std::vector<KernelSpan>& CostTable::kernels(Rank rank, const Instruction& instruction) {
  Key key = key_of(rank, instruction);
  key.speed = key.slowest = 1;
  const auto [known, is_new] = kernels_.try_emplace(key);
  if (is_new)
    known->second = kernel_spans(program_, program_.program_of(rank), *key.compute,
                                 cluster_.chip_of(program_.ranks[rank].chip), key.ring,
                                 layers_of(key.rank_program, key.compute));
  return known->second;
}

const ComputeTime& CostTable::price(Rank rank, const Instruction& instruction) {
  Key key = key_of(rank, instruction);
  const auto* step = instruction.as<OptimizerStep>();
  const bool on_host = step != nullptr && !step->tensors.empty();
  if (on_host) key.first_state = step->tensors[0];
  const auto known = times_.find(key);
  if (known != times_.end()) return known->second;
  ComputeTime time;
  if (on_host)
    time.compute_s =
        host_step_s(program_, program_.program_of(rank), *step, cluster_.groups[at(key.chip_group)]);
  else
    time = compute_time(program_, program_.program_of(rank), instruction,
                        cluster_.chip_of(program_.ranks[rank].chip), key.ring, slowness_of(key.chip_group),
                        layers_of(key.rank_program, key.compute));
  if (!on_host) time = at_speed(time, key.speed, key.slowest);
  return times_.emplace(key, time).first->second;
}

const BlockLayers* CostTable::layers_of(RankProgramId id, const std::optional<Compute>& compute) {
  if (!compute) return nullptr;
  const auto [known, is_new] = layers_.try_emplace({id, compute->block});
  if (is_new) known->second = motley::layers_of(program_.rank_programs[id].blocks[compute->block]);
  return &known->second;
}

double CostTable::slowness_of(int chip_group) {
  const auto [known, is_new] = slowness_.try_emplace(chip_group, 1);
  if (is_new)
    known->second =
        usual_slowness(cluster_.groups[at(chip_group)].chip, static_cast<double>(program_.ranks.size()));
  return known->second;
}

double CostTable::slowest_of(GroupId group) {
  const auto [known, is_new] = slowest_.try_emplace(group, kMostSpeed);
  if (is_new)
    for (const Rank rank : program_.groups[group].ranks)
      known->second = std::min(known->second, cluster_.speed_of(program_.ranks[rank].chip));
  return known->second;
}

const RingCost& CostTable::ring(GroupId group) {
  const auto known = rings_.find(group);
  if (known != rings_.end()) return *known->second;
  const RingCost cost = ring_or_switch_cost(program_, cluster_, program_.groups[group]);
  auto ring = std::find(ring_classes_.begin(), ring_classes_.end(), cost);
  if (ring == ring_classes_.end()) ring = ring_classes_.insert(ring, cost);
  return *rings_.emplace(group, &*ring).first->second;
}

const RingCost& CostTable::pairwise(GroupId group) {
  const auto known = pairwise_.find(group);
  if (known != pairwise_.end()) return known->second;
  return pairwise_.emplace(group, pairwise_cost(program_, cluster_, program_.groups[group])).first->second;
}

CollectiveAlgorithm CostTable::algorithm_of(const CollectiveTask& task, GroupId id,
                                            CollectiveAlgorithm wanted, std::int64_t bytes) {
  const CollectiveKind kind = task.kind;
  const Group& group = program_.groups[id];
  if (group.ranks.size() < 2) return plain_algorithm(kind);
  if (kind == CollectiveKind::all_to_all && group.kind == GroupKind::expert && program_.routing.experts > 0 &&
      task.part_bytes.empty())
    return CollectiveAlgorithm::once_a_node;
  if (wanted == CollectiveAlgorithm::ring)
    return ring(id).reduces_in_switch(kind, bytes) ? CollectiveAlgorithm::in_switch : plain_algorithm(kind);
  if (wanted == CollectiveAlgorithm::fastest) return fastest(collectives(task, id), bytes);
  const auto [tuning, is_new] = tunings_.try_emplace(id);
  if (is_new) tuning->second = nccl_tuning(program_, cluster_, group);
  if (wanted == CollectiveAlgorithm::automatic) return nccl_choice(tuning->second, kind, bytes);
  return does(wanted, task, tuning->second.shape) ? wanted : plain_algorithm(kind);
}

const CollectiveCost& CostTable::collective(const CollectiveTask& task, GroupId group,
                                            CollectiveAlgorithm algorithm) {
  const auto [cost, is_new] = collective_.try_emplace({group, task, algorithm});
  if (is_new) cost->second = collective_cost(program_, cluster_, program_.groups[group], task, algorithm);
  return cost->second;
}

const std::vector<CollectiveCost>& CostTable::collectives(const CollectiveTask& task, GroupId group) {
  const auto [costs, is_new] = collectives_.try_emplace({group, task});
  if (is_new) costs->second = collective_costs(program_, cluster_, program_.groups[group], task);
  return costs->second;
}

}  // namespace motley
