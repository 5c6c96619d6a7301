// A Strategy: how a Transformer is laid over a Cluster and in which order it is run. The short form ({tp: 8, pp: 8,
// dp: 16}) expands to this explicit one; print() writes the explicit one, and it reads back equal. Read next:
// models/program/program.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/words.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/schedule/schedule.hpp"
#include "models/strategy/recompute.hpp"
#include "models/transformer/train.hpp"
#include "models/transformer/transformer.hpp"

namespace motley {

// How an activation reaches the next stage, and its gradient the stage before.
// direct: every rank there is sent the whole tensor; if this stage has more ranks, each sends a part.
// gather: every rank there is sent a part, and the ranks gather the whole (H2's send-shards-and-all-gather;
// Megatron-LM's scatter-gather, arXiv:2104.04473 section 4.1).
enum class Resharding : std::uint8_t { direct, gather };
template <>
inline constexpr auto kWords<Resharding> = words("direct", "gather");

// Shares, 0 to 1, that a rank keeps in the memory of its node instead of its chip's; the first tensors or layers go
// there.
struct Offload {
  // Share of the optimizer state, in whole tensors. The node's processor then steps their parameters (ZeRO-Offload,
  // arXiv:2101.06840).
  double optimizer = 0;
  // Share of each chunk's layers. What these layers keep stays in the node's memory until shortly before their
  // backward.
  double activations = 0;
  bool operator==(const Offload&) const = default;
};

// Where a token's copies get the weights that the router gave their experts. combine: where the experts' outputs come
// together, so these are kept for the weights' gradients. activation: the weights travel with the copies, and each
// expert's activation is multiplied (Megatron-Core 0.13, 2025-07); the outputs are not kept.
enum class ExpertWeights : std::uint8_t { combine, activation };
template <>
inline constexpr auto kWords<ExpertWeights> = words("combine", "activation");

// When gradients that replicas divide (zero 2, 3) are reduced to parts. each: after each micro-batch's backward, so
// that no rank holds them whole (DeepSpeed's ZeRO-2 and ZeRO-3, FSDP). last: once a step, after the last micro-batch;
// until then each rank holds them whole (FSDP's no_sync(), Megatron-LM's distributed optimizer).
enum class ReduceGradients : std::uint8_t { each, last };
template <>
inline constexpr auto kWords<ReduceGradients> = words("each", "last");

// How far schedules that split backwards put off gradients of weights. count: as many micro-batches are in flight or
// put off as the schedule has in flight (arXiv:2401.10241 counts so), although what is put off may hold more bytes: the
// gradients of outputs, and inputs that were gathered or computed again. memory: no further than the bytes that so many
// micro-batches in flight hold.
enum class PutOff : std::uint8_t { count, memory };
template <>
inline constexpr auto kWords<PutOff> = words("count", "memory");

struct Layers {
  std::int64_t first = 0, last = 0;  // layers [first, last)
  bool operator==(const Layers&) const = default;
};

struct Stage {
  // Layers [first, last). The embedding is in the stage of layer 0, the head in the stage of the last layer.
  std::int64_t first_layer = 0, last_layer = 0;
  std::int64_t tensor_parallel = 1;
  // Groups of the cluster over which the replicas are divided evenly, in order. Empty: the first chips that no
  // earlier stage took.
  std::vector<std::string> on;
  std::optional<Recompute> recompute;  // nothing: Strategy::recompute
  std::vector<Layers> more = {};       // further chunks, for schedules in which a stage holds several virtual
                                       // stages
  // The experts of a layer are divided over expert_parallel of the stage's ranks, counting all its replicas, and each
  // expert is cut over expert_tensor_parallel ranks; 0: over tensor_parallel ranks.
  std::int64_t expert_parallel = 1, expert_tensor_parallel = 0;
  // How activations reach this stage's chunks from the stages before them. Nothing: direct if the two stages have the
  // same tensor_parallel, else gather.
  std::optional<Resharding> resharding = {};
  // Number of layers at the beginning of each chunk that recompute; the others keep everything. Nothing: all
  // recompute.
  std::optional<std::int64_t> recompute_layers = {};
  // Number of replicas of this stage; 0: that of the pipeline. Of two neighbours' counts, the larger is a multiple of
  // the smaller. The sequences that all replicas of the pipeline have in a micro-batch are divided over the stage's
  // own replicas.
  std::int64_t replicas = 0;
  std::optional<Offload> offload = {};  // nothing: Strategy::offload
  bool operator==(const Stage&) const = default;
  std::int64_t expert_cut() const {
    return expert_tensor_parallel > 0 ? expert_tensor_parallel : tensor_parallel;
  }
};

// A pipeline and its number of replicas (data parallelism). Templates of one strategy may differ in everything: the
// gradient of a parameter is summed over all ranks that hold it, each weighted by its tokens.
struct PipelineTemplate {
  std::int64_t replicas = 1;
  std::int64_t micro_batches = 1;     // micro-batches of each replica in a step
  std::int64_t micro_batch = 0;       // sequences in a micro-batch; 0: Train::micro_batch
  std::int64_t context_parallel = 1;  // ranks over which each sequence is cut, in every stage
  std::vector<Stage> stages;
  bool operator==(const PipelineTemplate&) const = default;
  std::int64_t replicas_of(const Stage& stage) const {
    return stage.replicas > 0 ? stage.replicas : replicas;
  }
  bool has_unlike_replicas() const {
    for (const Stage& stage : stages)
      if (replicas_of(stage) != replicas) return true;
    return false;
  }
  // Number of ranks that hold the same parameters of a stage; copies_of() is for a stage with its own number of
  // replicas.
  std::int64_t copies() const { return replicas * context_parallel; }
  std::int64_t copies_of(const Stage& stage) const { return replicas_of(stage) * context_parallel; }
};

struct Strategy {
  std::vector<PipelineTemplate> templates;
  Schedule schedule = Schedule::one_f_one_b;
  Timetable timetable;  // timetable of a custom schedule, for the pipeline of every template; empty for other
                        // schedules
  PutOff put_off = PutOff::count;
  Recompute recompute = Recompute::none;
  int p2p_buffers = 2;             // number of receives posted ahead for each boundary and direction
  bool overlap_p2p = true;         // false: transfers stand in the compute stream
  bool overlap_gradients = false;  // true: gradient buckets are reduced while the last backward still runs
  // True: parameters that replicas hold whole but renew in parts (zero 1, 2) are gathered at the beginning of the
  // next step, bucket by bucket, while its first forwards run, instead of at the end of the step.
  bool overlap_parameters = false;
  // True: a forward and the backward after it take turns, each running while the other's tokens are on their way to
  // experts and back (DualPipe, arXiv:2412.19437, section 3.2.1; Megatron-Core's 1F1B overlap). One more micro-batch
  // is in flight.
  bool overlap_experts = false;
  // True: ranks that cut sequences pass keys and values round a ring while they attend to those that they have (ring
  // attention, arXiv:2310.01889; Megatron-Core's `cp_comm_type: p2p`). False: they gather them first (Llama 3,
  // arXiv:2407.21783, section 3.3.2). Where experts overlap they gather first, too.
  bool overlap_context = true;
  bool passes_context_in_ring() const { return overlap_context && !overlap_experts; }
  ExpertWeights expert_weights = ExpertWeights::combine;
  // True: a rank begins its next step as soon as it has ended this one. False: ranks end a step together, because the
  // norm of all gradients is needed before any rank may update its parameters. Nothing: as the schedule's authors do.
  std::optional<bool> overlap_steps;
  bool steps_overlap() const { return overlap_steps.value_or(overlaps_steps(schedule)); }
  std::int64_t bucket_bytes = 100'000'000;  // bytes of gradients in a bucket, if gradients or parameters
                                            // overlap
  // True: tensors that tensor-parallel ranks would hold alike between cut matmuls (norms, residuals, boundary
  // tensors) are cut over the ranks by rows; all-reduces become all-gathers and reduce-scatters (arXiv:2205.05198).
  bool sequence_parallel = false;
  // What the replicas divide among themselves (ZeRO, arXiv:1910.02054): 0 nothing; 1 the optimizer state; 2 also
  // gradients, reduced to parts after each micro-batch's backward; 3 also parameters, gathered before each use and
  // freed after it (FSDP, arXiv:2304.11277).
  int zero = 0;
  ReduceGradients reduce_gradients = ReduceGradients::each;
  // Number of consecutive replicas that divide it; the next replicas hold copies (HSDP). 0: all replicas divide it.
  std::int64_t shard_over = 0;
  int prefetch = 1;  // zero 3: parameters are gathered this many uses ahead
  // Zero 3. True: a forward frees what it gathered, and the backward gathers it again. False: gathered parameters stay
  // from a micro-batch's forward to its backward (FSDP's reshard_after_forward).
  bool reshard_after_forward = true;
  Offload offload;
  bool operator==(const Strategy&) const = default;

  // The degrees of the first template's first stage, by which a strategy with equal stages is named.
  std::int64_t tp() const { return templates.at(0).stages.at(0).tensor_parallel; }
  std::int64_t pp() const { return static_cast<std::int64_t>(templates.at(0).stages.size()); }
  std::int64_t dp() const { return templates.at(0).replicas; }
  std::int64_t cp() const { return templates.at(0).context_parallel; }
  std::int64_t rank_count() const;
};

// Expands degrees to a Strategy. Layers are as even as possible; the first L mod pp stages get one more. Refuses
// degrees that do not divide (heads, kv_heads, ffn by tp; global batch by dp*micro_batch; more stages than layers):
// Refusal(infeasible).
Strategy expand(const Transformer&, const Train&, std::int64_t tp, std::int64_t pp, std::int64_t dp,
                std::int64_t cp = 1);

// The degrees of the first template: "tp 8 x pp 4 x dp 2"; cp is there if it is more than 1.
std::string degrees_of(const Strategy& strategy);

// How activations go from a chunk of one stage to the next chunk, which is another stage's.
Resharding resharding_between(const Stage& before, const Stage& after);

// Whether one of the stage's chunks gets its input from another stage. A first stage of several chunks may.
bool has_stage_before(const PipelineTemplate& pipeline, int stage);

// Lets activations cross every boundary of the pipeline that way.
void use_resharding(PipelineTemplate& pipeline, Resharding resharding);

// One of a pipeline's virtual stages: a chunk of the layers of one of its stages. Only the first and the last virtual
// stage may have no layers: they then have only the embedding, or only the head.
struct VirtualStage {
  int stage = 0;
  Layers layers;
};
// All virtual stages of a pipeline, from the first layer to the last.
std::vector<VirtualStage> virtual_stages(const PipelineTemplate& pipeline);

// Whether embedding and head count as a layer each when layers are spread (Megatron-LM's
// account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split), or do not count.
enum class EndLayers : std::uint8_t { besides, counted };
template <>
inline constexpr auto kWords<EndLayers> = words("besides", "counted");

// Makes every pipeline of the strategy follow that schedule with `chunks` virtual stages on each rank, and spreads
// the layers over the virtual stages as evenly as possible; the first ones get one more. Refuses
// ("impossible-schedule") more virtual stages than layers. find_complaint() checks the other conditions of the
// schedule.
void use_schedule(const Transformer&, Strategy&, Schedule schedule, int chunks,
                  EndLayers ends = EndLayers::besides);
void use_schedule(const Transformer&, Strategy&, Timetable timetable);  // for a custom schedule

// Throws the first complaint of find_complaint() as a Refusal.
void validate(const Transformer&, const Train&, const Strategy&);

std::string print(const Layers& layers);      // "0-11"; "before 12" has none: only the embedding, or the head
std::string print(const Strategy& strategy);  // explicit YAML
Strategy parse_strategy(const std::string& text);  // the inverse of print()
// Reads the explicit or the short form. In the short form tensor_parallel, pipeline_parallel and data_parallel stand
// in place of the templates; they are expanded for the transformer and training shape. Every refusal points at its
// key. Throws the Refusals of strategy_complaint.hpp.
Strategy read_strategy(const Yaml& node, const Transformer& transformer, const Train& train);
// Reads only the explicit form, without checking it against a transformer.
Strategy read_explicit_strategy(const Yaml& node);
// 16 hex digits over transformer, training shape and explicit strategy: they identify the strategy on its job,
// independent of world and cluster.
std::string strategy_hash(const Transformer&, const Train&, const Strategy&);

}  // namespace motley
