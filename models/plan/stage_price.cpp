// Seconds come from the kernels of a job with one stage, layer by layer. Bytes come from two pipelines of four stages,
// with one and with two layers a stage: their middle stages have three and two micro-batches in flight, which tells
// what a layer keeps, what a micro-batch keeps, and what is there once.
#include "models/plan/stage_price.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "models/base/index.hpp"
#include "models/base/refusal.hpp"
#include "models/check/memory.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/predicted_order.hpp"
#include "models/cost/compute_cost.hpp"

namespace motley {
namespace {

int number_of(const Recompute& recompute) { return (recompute.layer ? 256 : 0) + recompute.modules; }

// So many nodes of one group, which reach each other through one switch; chips without NICs stand in one node.
Cluster alone(const Cluster& cluster, int group, std::int64_t chips) {
  Cluster part;
  part.name = cluster.name;
  part.transport = cluster.transport;
  NodeGroup nodes = cluster.groups[at(group)];
  if (nodes.nics.empty()) nodes.chips_per_node = std::max(nodes.chips_per_node, static_cast<int>(chips));
  nodes.nodes = static_cast<int>((chips + nodes.chips_per_node - 1) / nodes.chips_per_node);
  part.groups.push_back(std::move(nodes));
  build_topology(part);
  return part;
}

// The model with its first layers alone.
Transformer shortened(Transformer transformer, std::int64_t layers) {
  transformer.layers = layers;
  for (std::vector<std::int64_t>* list : {&transformer.full_attention, &transformer.experts.dense_layers})
    std::erase_if(*list, [&](std::int64_t layer) { return layer >= layers; });
  return transformer;
}

// Seconds of kernels [first, last) of a block: exchanges between the ranks that hold experts or parts of sequences by
// their price on an idle network, beside the share of attention that runs meanwhile, if there is one.
class KernelPricer {
 public:
  // `slower`: than in that program, as more ranks wait for each other.
  KernelPricer(const Program& program, const Cluster& cluster, bool communicates, double slower)
      : program_(program), communicates_(communicates), slower_(slower), costs_(program, cluster) {}

  double seconds(BlockId block, std::int32_t first, std::int32_t last) {
    const std::vector<Kernel>& kernels = rank_program().blocks[block].kernels;
    double sum_s = 0;
    std::int32_t begin = first;
    for (std::int32_t i = first; i < last; ++i) {
      const Kernel& kernel = kernels[at(i)];
      if (!is_collective(kernel.op) || priced_in_computes(kernel)) continue;
      sum_s += compute_s(block, begin, i);
      const bool is_beside = i + 1 < last && is_share_of_attention(kernels[at(i + 1)]);
      const double beside_s = is_beside ? compute_s(block, i + 1, i + 2) : 0;
      const double exchanged_s = communicates_ ? exchange_s(kernel) : 0;
      sum_s += std::max(exchanged_s, beside_s);
      if (exchanged_s > beside_s) waited_s_ += exchanged_s;
      if (is_beside) ++i;
      begin = i + 1;
    }
    return sum_s + compute_s(block, begin, last);
  }

  // Seconds, since this was asked last, in which kernels waited for exchanges that take longer than what runs beside.
  double take_waited_s() { return std::exchange(waited_s_, 0); }

 private:
  const RankProgram& rank_program() const { return program_.program_of(kRank); }

  double compute_s(BlockId block, std::int32_t first, std::int32_t last) {
    if (first == last) return 0;
    Instruction instruction;
    instruction.body = Compute{block, first, last};
    const ComputeTime& time = costs_.price(kRank, instruction);
    return slower_ * (communicates_ ? time.seconds() : time.compute_s);
  }

  double exchange_s(const Kernel& kernel) {
    const GroupSlot slot = kernel.op == KernelOp::all_to_all ? kExpertGroup : context_slot(rank_program());
    const std::optional<GroupId> group = program_.ranks[kRank].groups[slot];
    if (!group) return 0;
    const CollectiveKind kind = collective_of(kernel.op);
    const CollectiveAlgorithm algorithm =
        costs_.algorithm_of(kind, *group, CollectiveAlgorithm::ring, kernel.bytes);
    return costs_.collective(kind, *group, algorithm).seconds(kernel.bytes);
  }

  static constexpr Rank kRank{0};
  const Program& program_;
  const bool communicates_;
  const double slower_;
  double waited_s_ = 0;
  CostTable costs_;
};

// Whether chips of two groups need the same bytes for the same stage: models/check counts by these figures.
bool needs_alike(const NodeGroup& a, const NodeGroup& b) {
  const ChipSoftware &one = a.chip.software, &other = b.chip.software;
  const auto are_alike = [&](Sourced ChipSoftware::*figure) {
    return (one.*figure).value == (other.*figure).value;
  };
  return a.chips_per_node == b.chips_per_node && a.inside.kind == b.inside.kind &&
         a.chip.kind == b.chip.kind &&
         (one.unfused_attention.value > 0) == (other.unfused_attention.value > 0) &&
         are_alike(&ChipSoftware::reserved_memory) && are_alike(&ChipSoftware::kept_scores) &&
         are_alike(&ChipSoftware::kept_masks) && are_alike(&ChipSoftware::kept_logits) &&
         are_alike(&ChipSoftware::kept_weight_gradients) && are_alike(&ChipSoftware::kept_optimizer) &&
         are_alike(&ChipSoftware::kept_weights) && one.one_master.value == other.one_master.value;
}

// The different layers of a model: kinds[i] is the kind of layer i. `transformer` is the model with one layer of each.
struct LayerKinds {
  Transformer transformer;
  std::vector<std::size_t> kinds;
};
LayerKinds layer_kinds(const Transformer& whole) {
  LayerKinds list{whole, {}};
  Transformer& small = list.transformer;
  small.full_attention.clear();
  small.experts.dense_layers.clear();
  std::vector<std::pair<bool, bool>> known;
  for (std::int64_t layer = 0; layer < whole.layers; ++layer) {
    const std::pair kind{whole.has_experts(layer), whole.sees_all(layer)};
    const auto place = std::find(known.begin(), known.end(), kind);
    list.kinds.push_back(static_cast<std::size_t>(place - known.begin()));
    if (place != known.end()) continue;
    const auto number = static_cast<std::int64_t>(known.size());
    if (!kind.first && whole.experts.count > 0) small.experts.dense_layers.push_back(number);
    if (kind.second && (whole.sliding_window > 0 || whole.attention_chunk > 0))
      small.full_attention.push_back(number);
    known.push_back(kind);
  }
  small.layers = static_cast<std::int64_t>(known.size());
  return list;
}

// Fills in what no layer, and no stage, passes. `layers` has each different layer once.
void note_least(StageSeconds& seconds, const std::vector<PassSeconds>& layers) {
  seconds.least_layer_s = std::numeric_limits<double>::infinity();
  // Recompute makes backwards longer: where they are the longer passes already, the share only falls.
  const auto note_share = [&](const PassSeconds& part) {
    if (part.seconds() > 0)
      seconds.shorter_share = std::max(
          seconds.shorter_share, part.forward_s <= part.backward_s ? part.forward_s / part.seconds() : 0.5);
  };
  note_share(seconds.embedding);
  note_share(seconds.head);
  for (const PassSeconds& layer : layers) {
    seconds.least_layer_s = std::min(seconds.least_layer_s, layer.seconds());
    seconds.weights_share = std::max(seconds.weights_share, layer.weights_s / layer.seconds());
    note_share(layer);
    PassSeconds with_pass = seconds.pass;
    with_pass += layer;
    note_share(with_pass);
  }
}

// A job of so many stages of that way, with `transformer` as its model.
std::optional<Job> small_job(const Job& job, const StageWay& way, std::int64_t micro_batch,
                             std::int64_t stages, std::int64_t replicas, std::int64_t micro_batches,
                             Transformer transformer) {
  const NodeGroup& group = job.cluster.groups[at(way.group)];
  if (way.tensor_parallel > group.chips_per_node || group.chips_per_node % way.tensor_parallel != 0)
    return std::nullopt;
  Job small;
  small.transformer = std::move(transformer);
  small.train = job.train;
  small.train.micro_batch = micro_batch;
  small.train.global_batch = micro_batch * replicas * micro_batches;
  try {
    small.strategy =
        expand(small.transformer, small.train, way.tensor_parallel, stages, replicas, way.context_parallel);
    for (Stage& stage : small.strategy.templates[0].stages) divide_experts(stage, way.expert_parallel);
    small.strategy.recompute = way.recompute;
    small.strategy.expert_weights = planned_expert_weights(small.transformer);
    small.strategy.zero = replicas > 1 ? 1 : 0;
    small.strategy.sequence_parallel = way.tensor_parallel > 1;
    validate(small.transformer, small.train, small.strategy);
  } catch (const Refusal&) {
    return std::nullopt;
  }
  small.cluster = alone(job.cluster, way.group, small.strategy.rank_count());
  return small;
}

}  // namespace

void divide_experts(Stage& stage, std::int64_t expert_parallel) {
  stage.expert_parallel = expert_parallel;
  stage.expert_tensor_parallel = expert_parallel > 1 && stage.tensor_parallel > 1 ? 1 : 0;
}

ExpertWeights planned_expert_weights(const Transformer& transformer) {
  return transformer.experts.count > 0 ? ExpertWeights::activation : ExpertWeights::combine;
}

std::array<double, StagePricer::kCountedStages> StagePricer::Peaks::with(double share_of_optimizer) const {
  std::array<double, kCountedStages> peaks{};
  for (std::size_t i = 0; i < peaks.size(); ++i) peaks[i] = rest[i] + share_of_optimizer * optimizer[i];
  return peaks;
}

StagePricer::Key StagePricer::key_of(const StageWay& way, std::int64_t micro_batch) {
  return {way.group,           way.tensor_parallel, number_of(way.recompute), way.context_parallel,
          way.expert_parallel, micro_batch};
}

PassSeconds& PassSeconds::operator+=(const PassSeconds& other) {
  forward_s += other.forward_s;
  backward_s += other.backward_s;
  weights_s += other.weights_s;
  return *this;
}

PassSeconds StageSeconds::of_layers(std::int64_t first, std::int64_t last) const {
  PassSeconds sum = pass;
  const PassSeconds &before = layers[at(first)], &after = layers[at(last)];
  sum += {after.forward_s - before.forward_s, after.backward_s - before.backward_s,
          after.weights_s - before.weights_s};
  if (first == 0) sum += embedding;
  if (last + 1 == static_cast<std::int64_t>(layers.size())) sum += head;
  return sum;
}

std::int64_t StageBytes::most_layers(double flying, bool is_first, bool is_last) const {
  const double room = capacity - fixed - in_flight * flying - (is_first ? first : 0) - (is_last ? last : 0);
  const double each = layer + layer_in_flight * flying;
  if (room <= 0) return 0;
  if (each <= 0) return std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int64_t>(std::floor(room / each * (1 + 1e-9)));
}

std::optional<StageSeconds> StagePricer::timed(const StageWay& way, std::int64_t micro_batch,
                                               const Timing& timing) const {
  try {
    return timed_or_refused(way, micro_batch, timing);
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

std::optional<StageSeconds> StagePricer::timed_or_refused(const StageWay& way, std::int64_t micro_batch,
                                                          const Timing& timing) const {
  const LayerKinds kinds = layer_kinds(job_.transformer);
  std::optional<Job> small = small_job(job_, way, micro_batch, 1, way.least_replicas(), 1, kinds.transformer);
  if (!small) return std::nullopt;
  if (timing.expert_weights) small->strategy.expert_weights = *timing.expert_weights;
  const Program program = compile(*small);
  const RankProgram& rank_program = program.program_of(Rank(0));
  const Chip& chip = job_.cluster.groups[at(way.group)].chip;
  const double counted = usual_slowness(chip, static_cast<double>(program.ranks.size()));
  KernelPricer kernels(program, small->cluster, timing.communicates, timing.slowness / counted);
  const double once_s =
      timing.slowness * (chip.software.micro_batch_overhead.value / 2 + chip.software.pass_overhead.value);
  StageSeconds sum;
  sum.pass = {once_s, once_s, 0};
  std::vector<PassSeconds> layers(at(small->transformer.layers));
  for (const BlockId id : rank_program.blocks.ids()) {
    const Block& block = rank_program.blocks[id];
    const bool forward = block.pass == Pass::forward;
    const auto end = static_cast<std::int32_t>(block.kernels.size());
    for (std::int32_t first = 0, last = 0; first < end; first = last) {
      const int layer = block.kernels[at(first)].layer;
      while (last < end && block.kernels[at(last)].layer == layer) ++last;
      kernels.take_waited_s();
      const double priced_s = kernels.seconds(id, first, last) - (first == 0 ? once_s : 0);
      if (const double waited_s = kernels.take_waited_s(); waited_s > 0)
        sum.slowed_share = std::min(sum.slowed_share, std::max(0.0, 1 - waited_s / priced_s));
      const bool is_layer = layer >= 0 && layer < static_cast<int>(layers.size());
      PassSeconds& part = is_layer ? layers[at(layer)] : layer < 0 ? sum.embedding : sum.head;
      (forward ? part.forward_s : part.backward_s) += priced_s;
      for (std::int32_t i = first; !forward && i < last; ++i)
        if (only_weights(block.kernels[at(i)])) part.weights_s += kernels.seconds(id, i, i + 1);
    }
  }
  sum.layers.push_back({});
  for (const std::size_t kind : kinds.kinds) {
    sum.layers.push_back(sum.layers.back());
    sum.layers.back() += layers[kind];
  }
  note_least(sum, layers);
  return sum;
}

std::optional<StagePricer::Peaks> StagePricer::peaks(const StageWay& way, std::int64_t micro_batch,
                                                     std::int64_t replicas, std::int64_t layers,
                                                     bool puts_off) const {
  constexpr std::int64_t kMicroBatches = 5;
  Transformer transformer = shortened(job_.transformer, kCountedStages * layers);
  // Layers without experts are the first ones, and take less: every layer counts as one with experts.
  transformer.experts.dense_layers.clear();
  std::optional<Job> small =
      small_job(job_, way, micro_batch, kCountedStages, replicas, kMicroBatches, std::move(transformer));
  if (!small) return std::nullopt;
  if (puts_off) {
    // As if no more were held for gradients of weights than for a micro-batch in flight: as many are put off.
    const PipelineShape shape{kCountedStages, 1, kMicroBatches, 0, true};
    small->strategy.schedule = Schedule::custom;
    small->strategy.timetable = make_timetable(Schedule::zb_h1, shape);
    small->strategy.overlap_steps = true;
  }
  small->strategy.offload = offload_;
  Peaks peaks;
  for (const StageMemory& stage :
       memory_by_stage(compile(*small), small->cluster, small->train.fragmentation)) {
    peaks.optimizer[at(stage.stage)] = static_cast<double>(stage.optimizer);
    peaks.rest[at(stage.stage)] = static_cast<double>(stage.peak - stage.optimizer);
  }
  return peaks;
}

std::optional<StageBytes> StagePricer::bytes(const StageWay& way, std::int64_t micro_batch,
                                             std::int64_t replicas) {
  // More than two replicas, or than hold all experts once, keep what these keep, but for their shares of the optimizer
  // state.
  const std::int64_t counted = std::min(replicas, std::max<std::int64_t>(2, way.least_replicas()));
  StageWay alike = way;
  alike.group = first_alike(way.group);
  const auto [place, is_new] = peaks_.try_emplace({key_of(alike, micro_batch), counted});
  if (is_new)
    place->second = {peaks(alike, micro_batch, counted, 1, false),
                     peaks(alike, micro_batch, counted, 2, false)};
  const auto& [of_one_layer, of_two_layers] = place->second;
  if (!of_one_layer || !of_two_layers) return std::nullopt;
  const double share = static_cast<double>(counted) / static_cast<double>(replicas);
  const auto one = of_one_layer->with(share), two = of_two_layers->with(share);
  // Stage 1 has three micro-batches in flight, stage 2 two: peak = fixed + in_flight w + layers (layer + kept w).
  StageBytes sum;
  const double more_of_one = one[1] - one[2], more_of_two = two[1] - two[2];
  sum.layer_in_flight = std::max(more_of_two - more_of_one, 0.0);
  sum.in_flight = std::max(more_of_one - sum.layer_in_flight, 0.0);
  sum.layer = std::max(two[2] - one[2] - 2 * sum.layer_in_flight, 0.0);
  sum.fixed = std::max(one[2] - (sum.layer + 2 * sum.layer_in_flight) - 2 * sum.in_flight, 0.0);
  const auto of_stage = [&](double w) {
    return sum.fixed + w * sum.in_flight + sum.layer + w * sum.layer_in_flight;
  };
  sum.first = std::max(one[0] - of_stage(4), 0.0);
  sum.last = std::max(one[3] - of_stage(1), 0.0);
  sum.capacity = std::floor(job_.cluster.groups[at(way.group)].chip.memory_bytes.value);
  return sum;
}

int StagePricer::first_alike(int group) const {
  const std::vector<NodeGroup>& groups = job_.cluster.groups;
  for (int other = 0; other < group; ++other)
    if (needs_alike(groups[at(other)], groups[at(group)])) return other;
  return group;
}

const PutOffShares& StagePricer::put_off(const StageWay& way) {
  StageWay whole = way;
  whole.context_parallel = 1;
  Key alike = key_of(whole, 1);
  alike.group = 0;
  const auto [place, is_new] = put_off_.try_emplace(alike);
  if (!is_new) return place->second;
  const std::int64_t counted = std::max<std::int64_t>(2, whole.least_replicas());
  const std::optional<StageBytes> plain = bytes(whole, 1, counted);
  const auto two = peaks(whole, 1, counted, 2, true);
  const auto four = peaks(whole, 1, counted, 4, true);
  if (!plain || !two || !four || plain->layer_in_flight <= 0) return place->second;
  // Of four stages, the first has four micro-batches in flight and nothing put off, the last three put off.
  const auto more = [&](std::size_t stage, double in_flight) {
    const double layer = (four->with(1)[stage] - two->with(1)[stage]) / 2;
    return std::max(0.0, layer - plain->layer - in_flight * plain->layer_in_flight) / plain->layer_in_flight;
  };
  place->second.once = more(0, kCountedStages);
  place->second.each = std::max(0.0, more(kCountedStages - 1, 1) - place->second.once) / (kCountedStages - 1);
  return place->second;
}

const StageSeconds* StagePricer::seconds(const StageWay& way, std::int64_t micro_batch) {
  const auto [place, is_new] = seconds_.try_emplace(key_of(way, micro_batch));
  if (is_new) place->second = timed(way, micro_batch, {true, slowness(way.group)});
  return place->second ? &*place->second : nullptr;
}

const StagePrice* StagePricer::price(const StageWay& way, std::int64_t micro_batch, std::int64_t replicas) {
  const auto [place, is_new] = prices_.try_emplace({key_of(way, micro_batch), replicas});
  std::optional<StagePrice>& price = place->second;
  if (!is_new) return price ? &*price : nullptr;
  const StageSeconds* const known = seconds(way, micro_batch);
  if (known == nullptr) return nullptr;
  const std::optional<StageBytes> counted = bytes(way, micro_batch, replicas);
  if (!counted) return nullptr;
  price = {*known, *counted};
  return &*price;
}

const StagePricer::LeastWork& StagePricer::least_work(int group) {
  constexpr std::int64_t kMostSequences = 64;
  // Sequences in as many parts as this go with every batch; those in more with the largest alone, whose kernels are the
  // most efficient.
  constexpr std::int64_t kFewParts = 8, kMostParts = 64;
  const std::int64_t largest = std::min(kMostSequences, job_.train.global_batch);
  const auto [place, is_new] = least_work_.try_emplace(group);
  LeastWork& least = place->second;
  if (!is_new) return least;
  least = {std::vector<double>(at(job_.transformer.layers), std::numeric_limits<double>::infinity()),
           std::numeric_limits<double>::infinity()};
  const std::int64_t chips = job_.cluster.groups[at(group)].chips_per_node;
  const auto lower_if = [&](const StageWay& way, std::int64_t batch, ExpertWeights weights) {
    const std::optional<StageSeconds> seconds = timed(way, batch, {false, 1, weights});
    if (!seconds) return;
    const double scale =
        static_cast<double>(way.tensor_parallel * way.context_parallel) / static_cast<double>(batch);
    least.ends = std::min(least.ends, scale * (seconds->embedding.seconds() + seconds->head.seconds()));
    for (std::size_t layer = 0; layer < least.layers.size(); ++layer) {
      const PassSeconds &before = seconds->layers[layer], &after = seconds->layers[layer + 1];
      least.layers[layer] = std::min(least.layers[layer], scale * (after.seconds() - before.seconds()));
    }
  };
  const auto lower = [&](const StageWay& way, std::int64_t batch) {
    lower_if(way, batch, ExpertWeights::combine);
    if (job_.transformer.experts.count > 0) lower_if(way, batch, ExpertWeights::activation);
  };
  // Kernels are the more efficient the more rows they have, but for steps that a half of the rows, or one sequence, may
  // avoid. A backward that is split takes no less than a whole one.
  const std::set<std::int64_t> batches{1, std::max<std::int64_t>(largest / 2, 1), largest};
  for (std::int64_t cut = 1; cut <= chips; cut *= 2)
    for (const std::int64_t batch : batches)
      for (std::int64_t parts = 1; parts <= (batch == largest ? kMostParts : kFewParts); parts *= 2)
        lower({group, cut, Recompute::none, parts}, batch);
  return least;
}

double StagePricer::LeastWork::seconds() const { return std::accumulate(layers.begin(), layers.end(), ends); }

// The fastest chips first, until they have half of the strength of all: fewer take twice as long as all at least.
void StagePricer::count_ranks() {
  std::vector<std::pair<double, double>> rates;  // sequences a second of a chip, and number of such chips
  double all = 0;
  for (std::size_t group = 0; group < job_.cluster.groups.size(); ++group) {
    const NodeGroup& nodes = job_.cluster.groups[group];
    const double chips = static_cast<double>(nodes.nodes) * nodes.chips_per_node;
    rates.emplace_back(1 / least_work(static_cast<int>(group)).seconds(), chips);
    all += chips * rates.back().first;
  }
  std::sort(rates.rbegin(), rates.rend());
  double left = all / 2;
  least_ranks_ = 1;
  for (const auto& [rate, chips] : rates) {
    const double used = std::min(chips, std::floor(left / rate));
    least_ranks_ += used;
    left -= used * rate;
    if (used < chips) break;
  }
  few_ranks_step_s_ = std::numeric_limits<double>::infinity();
  for (const NodeGroup& group : job_.cluster.groups)
    if (usual_slowness(group.chip, least_ranks_) > 1)
      few_ranks_step_s_ = 2 * static_cast<double>(job_.train.global_batch) / all;
}

double StagePricer::slowness(int group) {
  if (least_ranks_ == 0) count_ranks();
  return usual_slowness(job_.cluster.groups[at(group)].chip, least_ranks_);
}

double StagePricer::slower_among(int group, double ranks) {
  constexpr double kParts = 8;
  const auto all = static_cast<double>(job_.cluster.chip_count());
  const double parts = std::floor(kParts * ranks / all * (1 + 1e-9));
  const Chip& chip = job_.cluster.groups[at(group)].chip;
  const auto [known, is_new] =
      slower_.try_emplace({chip.software.variation.value, static_cast<std::int64_t>(parts)}, 1);
  if (is_new) known->second = std::max(1.0, usual_slowness(chip, all * parts / kParts) / slowness(group));
  return known->second;
}

const StagePricer::LeastTrained& StagePricer::least_trained() {
  if (least_trained_) return *least_trained_;
  std::vector<double> layers(at(job_.transformer.layers), 0);
  least_trained_ = LeastTrained{};
  for (const Parameter& each : parameters(job_.transformer)) {
    if (!each.trained || each.experts > 0) continue;
    if (each.layer < 0) least_trained_->embedding += static_cast<double>(each.count());
    if (each.layer >= 0 && each.layer < job_.transformer.layers)
      layers[at(each.layer)] += static_cast<double>(each.count());
  }
  least_trained_->layer = *std::min_element(layers.begin(), layers.end());
  return *least_trained_;
}

double StagePricer::few_ranks_step_s() {
  if (least_ranks_ == 0) count_ranks();
  return few_ranks_step_s_;
}

}  // namespace motley
