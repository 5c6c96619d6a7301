// A Strategy: how a Transformer is laid over a Cluster and in which order it is run. The short form
// ({tp: 8, pp: 8, dp: 16}) expands to this explicit one; print() writes the explicit one and it
// reads back equal. Read next: models/program.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/format.hpp"
#include "models/schedule.hpp"
#include "models/transformer.hpp"

namespace motley {

// What a layer's backward computes again instead of keeping it.
// selective: attention's output, from its queries, keys and values (arXiv:2205.05198).
// full: all but the layer's input (Chen et al. 2016, arXiv:1604.06174).
// alternate: norms and the feed-forward part's first product; attention and what the other products give is kept.
// Assumes: that stands for PyTorch's selective checkpointing by operation, which computes every second of a layer's
// seven products again (torchtitan, 2024-12): 32,768 elements a token kept of Llama 3 8B, where that keeps 31,744.
enum class Recompute : std::uint8_t { none, selective, full, alternate };
enum class CollectiveLevel : std::uint8_t { formula, fluid, expanded };
// models/collective.hpp says what each is; of the last two it picks among the others: `fastest` what should take least
// by models/collective_cost, `automatic` what NCCL would take.
enum class CollectiveAlgorithm : std::uint8_t {
  ring,
  tree,
  double_binary_tree,
  recursive,
  hierarchical,
  in_switch,
  flat,
  fastest,
  automatic,
  once_a_node  // nobody asks for it: see ExpertCopies
};

// How an activation, and back its gradient, reaches the next stage.
// direct: every rank there is sent the whole of it; where this stage has more ranks, each sends a part.
// gather: every rank there is sent a part, and they gather the whole among themselves (H2's send-shards-and-all-gather;
// Megatron-LM's scatter-gather, arXiv:2104.04473 section 4.1).
enum class Resharding : std::uint8_t { direct, gather };

// What a rank keeps in the memory of its node instead of its chip's: shares, 0 to 1.
struct Offload {
  // Of the optimizer's state, in whole tensors, the first: the node's processor then steps their parameters
  // (ZeRO-Offload, arXiv:2101.06840).
  double optimizer = 0;
  double activations =
      0;  // of each chunk's layers, the first: what they keep, until shortly before their backward
  bool operator==(const Offload&) const = default;
};

struct Layers {
  std::int64_t first = 0, last = 0;  // [first, last)
  bool operator==(const Layers&) const = default;
};

struct Stage {
  std::int64_t first_layer = 0,
               last_layer = 0;  // [first, last); embedding with layer 0, head with the last
  std::int64_t tensor_parallel = 1;
  // Groups of the cluster: the replicas are divided over them evenly, in order. Empty: the first chips that no stage
  // before it took.
  std::vector<std::string> on;
  std::optional<Recompute> recompute;  // else the strategy's
  std::vector<Layers> more = {};  // further chunks, where a schedule has a stage hold several virtual stages
  // The experts of a layer are divided over so many of the stage's ranks, of all its replicas, and each of them cut
  // over so many; 0: as tensor_parallel.
  std::int64_t expert_parallel = 1, expert_tensor_parallel = 0;
  // At its boundary with the stage before. Nothing: direct where the two have the same tensor parallel degree.
  std::optional<Resharding> resharding = {};
  // Of recompute: the first so many layers of each chunk, the others keep everything; nothing: all.
  std::optional<std::int64_t> recompute_layers = {};
  // How often this stage is replicated; 0: as often as the pipeline. Of two neighbours the one's is a multiple of the
  // other's. The sequences that all replicas of the pipeline have in a micro-batch are divided over the stage's own.
  std::int64_t replicas = 0;
  std::optional<Offload> offload = {};  // else the strategy's
  bool operator==(const Stage&) const = default;
  std::int64_t expert_cut() const {
    return expert_tensor_parallel > 0 ? expert_tensor_parallel : tensor_parallel;
  }
};

// A pipeline and how often it is replicated (data parallelism). Templates of one strategy may differ in everything:
// the gradient of a parameter is summed over all who hold it, each weighted by its tokens.
struct PipelineTemplate {
  std::int64_t replicas = 1;
  std::int64_t micro_batches = 1;     // of each replica, each step
  std::int64_t micro_batch = 0;       // sequences a forward; 0: the training shape's
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
  // How often each stage's parameters are held; and those of one, where stages are replicated unlike.
  std::int64_t copies() const { return replicas * context_parallel; }
  std::int64_t copies_of(const Stage& stage) const { return replicas_of(stage) * context_parallel; }
};

struct Strategy {
  std::vector<PipelineTemplate> templates;
  Schedule schedule = Schedule::one_f_one_b;
  Timetable timetable;  // a custom schedule's, of every template's pipeline; else empty
  Recompute recompute = Recompute::none;
  int p2p_buffers = 2;             // receives posted ahead, a boundary and direction
  bool overlap_p2p = true;         // false: transfers stand in the compute stream
  bool overlap_gradients = false;  // true: gradient buckets are reduced while the last backward still runs
  // true: parameters that replicas hold whole but renew in parts (zero 1, 2) are gathered at the step's begin, bucket
  // by bucket, while the first forwards run, instead of at its end: what the step before renewed.
  bool overlap_parameters = false;
  // true: of a forward and the backward after it each runs while the other's tokens are on their way to experts and
  // back (DualPipe, arXiv:2412.19437, section 3.2.1; Megatron-Core's 1F1B overlap). One more micro-batch is in flight.
  bool overlap_experts = false;
  std::int64_t bucket_bytes = 100'000'000;  // of gradients, when they or the parameters overlap
  // What tensor-parallel ranks hold alike between their cut matmuls (norms, residuals, what crosses stages) is cut over
  // them by rows; their all-reduces become all-gathers and reduce-scatters (arXiv:2205.05198).
  bool sequence_parallel = false;
  // What the replicas divide among them instead of each holding it whole (ZeRO, arXiv:1910.02054): 0 nothing; 1 the
  // optimizer's state; 2 gradients too, reduced to parts after each micro-batch's backward; 3 parameters too, gathered
  // before each use and freed after it (FSDP, arXiv:2304.11277).
  int zero = 0;
  std::int64_t shard_over =
      0;             // replicas, consecutive, that divide it; the others hold copies (HSDP). 0: all
  int prefetch = 1;  // zero 3: uses ahead that parameters are gathered
  Offload offload;
  bool operator==(const Strategy&) const = default;

  // Of the first template; what a strategy of equal stages is called by.
  std::int64_t tp() const { return templates.at(0).stages.at(0).tensor_parallel; }
  std::int64_t pp() const { return static_cast<std::int64_t>(templates.at(0).stages.size()); }
  std::int64_t dp() const { return templates.at(0).replicas; }
  std::int64_t cp() const { return templates.at(0).context_parallel; }
  std::int64_t rank_count() const;
};

// Share of the activations at their peak that a chip's allocator loses between them, unless a job says its own.
// Assumes: 0.05; published peaks (TorchTitan 2024-12, arXiv:2401.10241, Sailor 2025) leave 0 to 0.2 unexplained.
inline constexpr double kFragmentation = 0.05;

struct Train {
  std::int64_t global_batch = 0;  // sequences a step
  std::int64_t micro_batch = 1;   // sequences a forward
  std::int64_t sequence = 0;      // tokens
  // Lengths of the documents that follow one another in every sequence, each seeing itself alone. None: one.
  std::vector<std::int64_t> documents = {};
  Format precision = Format::bf16;  // of weights in matmuls and activations
  Format gradients = Format::fp32;  // accumulated and reduced in
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  std::uint64_t seed = 1;
  std::int64_t steps = 20;
  std::string text;               // path of the training text; empty: the one that ships
  std::optional<Format> matmuls;  // of the operands of the layers' matmuls, where narrower than `precision`
  double expert_skew = 0;         // exponent of Zipf's law that routing is expected to follow; 0: even
  // What one rank may send another's experts, as a multiple of the even share; 0: as much as can come. Memory keeps
  // room for it, and a run in which more comes fails.
  double expert_room = 0;
  double fragmentation = kFragmentation;
  double tokens = 0;   // of the whole run, for what it takes; 0: not said
  double goodput = 1;  // share of the run's time in which steps are made that count
  bool operator==(const Train&) const = default;
};

// How often a token goes where several of its experts are. expert: once for each (all_to_all of copies). node: once to
// each other node that has any, along its rail, and inside a node once to each chip that has any; on the way back what
// a chip, and then a node, has of a token is summed before it leaves (DeepEP, github:deepseek-ai/DeepEP; HybridEP).
enum class ExpertCopies : std::uint8_t { expert, node };

// How collectives are imagined (a lowering of the Program and of the Sim world, not part of the
// Strategy).
struct Fidelity {
  CollectiveLevel data_parallel = CollectiveLevel::fluid;
  // formula: inside their compute (priced, no contention); otherwise cut out as instructions of
  // their own.
  CollectiveLevel tensor_parallel = CollectiveLevel::formula;
  // Simulate one rank of each class of ranks that must behave alike. Nothing: `motley simulate` does, others don't.
  std::optional<bool> fold = {};
  // Of collectives that are instructions of their own; where it does not do a kind on a group (ring: an all_to_all),
  // the plain one. What is priced inside computes is always a ring.
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  ExpertCopies expert_copies = ExpertCopies::expert;
  bool operator==(const Fidelity&) const = default;
};

// Layers as even as can be; the first L mod pp stages get one more. Refuses degrees that don't
// divide (heads, kv_heads, ffn by tp; global batch by dp*micro_batch; more stages than layers):
// Refusal(infeasible).
Strategy expand(const Transformer&, const Train&, std::int64_t tp, std::int64_t pp, std::int64_t dp,
                std::int64_t cp = 1);

// "tp 8 x pp 4 x dp 2", of the first template; cp where it is more than 1.
std::string degrees_of(const Strategy& strategy);

// At the boundary before that stage.
Resharding resharding_before(const PipelineTemplate& pipeline, int stage);

// One of a pipeline's virtual stages: a chunk of the layers of one of its stages. Only the first and the last may have
// none: then the embedding, or the head, stands alone.
struct VirtualStage {
  int stage = 0;
  Layers layers;
};
// All of a pipeline, from the first layer to the last.
std::vector<VirtualStage> virtual_stages(const PipelineTemplate& pipeline);

// Whether embedding and head count as a layer each where layers are spread (Megatron-LM's
// account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split), or come on top of them.
enum class EndLayers : std::uint8_t { besides, counted };

// Has every pipeline of the strategy follow that schedule with `chunks` virtual stages a rank, and spreads the
// layers over them as evenly as can be, the first of them getting one more. Refuses more virtual stages than layers
// (Refusal, "impossible-schedule"). What else the schedule asks for is find_complaint()'s.
void use_schedule(const Transformer&, Strategy&, Schedule schedule, int chunks,
                  EndLayers ends = EndLayers::besides);
void use_schedule(const Transformer&, Strategy&, Timetable timetable);  // a custom one

void validate(const Transformer&, const Train&, const Strategy&);

std::string print(const Strategy& strategy);       // explicit YAML
Strategy parse_strategy(const std::string& text);  // its inverse
// 16 hex digits over transformer, training shape and explicit strategy: the same strategy on the
// same job, whatever world or cluster it runs on.
std::string strategy_hash(const Transformer&, const Train&, const Strategy&);

}  // namespace motley
