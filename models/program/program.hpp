// A Program: what every rank does in one training step, as plain data. compile() makes it, check()
// proves it, a World runs it. Equal ranks share one RankProgram; what differs (peers, groups)
// stands in the rank table. It prints as text, and parse(print(p)) == p. Read next:
// models/world/world.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/base/index.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

using Rank = std::int32_t;
using RankProgramId = Id<struct RankProgramTag>;  // of Program::rank_programs
using GroupId = Id<struct GroupTag>;              // of Program::groups
using TensorId = Id<struct TensorTag>;            // of RankProgram::tensors
using ChunkId = Id<struct ChunkTag>;              // of RankProgram::chunks
using BlockId = Id<struct BlockTag>;              // of RankProgram::blocks
using StreamId = Id<struct StreamTag>;            // of RankProgram::streams
using ShardId = Id<struct ShardTag>;              // of RankProgram::shards
using PeerSlot = Id<struct PeerSlotTag>;          // of RankEntry::peers
using GroupSlot = Id<struct GroupSlotTag>;        // of RankEntry::groups

// What a kernel does: hw/kernels runs it, models/cost prices it. N = B*T rows. `in`, `out` and `par` of a
// Kernel list tensors in the order given here; what stands in [] is there only when the family has it. "+="
// accumulates into the parameter's gradient.
//
//   op                      in                                out                 par
//   embed                   - (tokens come from the data)     x(N,C)              token[, position]
//                           the position part only where tensor_index = 0: an all_reduce follows if tp > 1
//   embed_backward          dx                                -                   token[, position] +=
//   norm                    x                                 y, statistics       weight[, bias]
//                           over the hidden width, or the first k of n elements a row; the rest has no y
//   norm_backward           dy, x, statistics[, dresidual]    dx (+ dresidual)    weight[, bias] +=
//   matmul                  x(N,k)                            y(N,n)              weight(n,k)[, bias]
//   matmul_input_gradient   dy(N,n)                           dx(N,k)             weight
//   matmul_weight_gradient  dy(N,n), x(N,k)                   -                   weight[, bias] +=
//   rope                    qkv                               qkv, q and k turned -
//   rope_backward           dqkv                              dqkv, turned back   -
//   qk_norm                 qkv                               qkv, q and k normed; statistics(N,heads+kv)   q, k weight
//   qk_norm_backward        dqkv, qkv, statistics             dqkv, dweights(2,D) q, k weight
//   accumulate              gradients, one after the other    -                   each of n elements: +=
//   attention               qkv[, keys]                       y, lse(B,heads,T)   -    causal, windowed, fused
//   attention_backward      dy, qkv, y, lse[, keys]           dqkv, or where keys are gathered dq, dkeys
//   place_keys              qkv(N,row)                        keys(P*N,..): only this rank's rows are defined
//                           keys and values of the P ranks of the context group, which follow one another
//   take_keys               dq, dkeys                         dqkv, of this rank's rows of dkeys
//   activation              u                                 GELU(u) or SiLU(gate)*up
//   activation_backward     da, u                             du
//   route                   logits(N,E)                       weights, taken, rows (N,K), counts(E)   [bias]
//                           fp32, and whole numbers kept as such (hw/kernels/experts.hpp); K experts a token, R = N*K
//   route_backward          dweights, logits, taken           dlogits             [bias]
//   dispatch                x(N,C), rows                      copies(R,C), expert by expert; 0 where there is none
//   dispatch_backward       dcopies, rows                     dx
//   grouped_matmul          x(R,k), counts                    y(R,n)              weight(E*n,k): each its own rows
//   grouped_matmul_input_gradient   dy, counts                dx                  weight
//   grouped_matmul_weight_gradient  dy, x, counts             -                   weight +=
//   combine                 copies, rows, weights             y(N,C)
//   combine_backward        dy, copies, rows, weights         dcopies, dweights
//   gate                    x(N,C), gate(N,1)                 x * sigmoid(gate)
//   gate_backward           dy, x, gate                       dx, dgate
//   latent_heads            q, kv, latent                     qkv, keys and queries turned by position
//   latent_heads_backward   dqkv                              dq, dkv, dlatent
//   add_residual            x, residual                       y = sum             [bias of a row-parallel matmul]
//   add_residual_backward   dy                                -                   bias +=
//   logits_maximum          logits(N,V/tp)                    maximum(N)          fp32 from here on
//   logits_sum              logits, maximum                   sums(N,2): sum of exp, the target's logit (else 0)
//   loss                    maximum, sums                     losses(N)
//   loss_backward           logits, maximum, sums             factor * (softmax - onehot) / tokens of the global batch
//   regroup                 x(R,C), counts(P,L)               copies(R,C), expert by expert[; rows of each (L)]
//                           of what P ranks sent, each expert by expert, to this one and its L experts
//   ungroup                 copies(R,C), counts(P,L)          x(R,C): the inverse
//   clear                   -                                 gradients of one micro-batch, zeroed: n elements each
//   scale                   x(m,n)                            x * factor
//   take_rows               x(m,n)                            y(m/P,n): this rank's of the P of group `over`
//   place_rows              y(m/P,n)                          x(m,n): only this rank's rows are defined
//                           P ranks' rows follow one another: those two and a collective are its form out of place
//   all_reduce              t                                 t, in place: over the tensor-parallel group
//   all_to_all              t                                 t, in place: over the expert-parallel group
//   reduce_scatter          t                                 t, in place, as CollectiveKind says: over group `over`
//   all_gather              t                                 t, likewise
enum class KernelOp : std::uint8_t {
  embed,
  embed_backward,
  norm,
  norm_backward,
  matmul,
  matmul_input_gradient,
  matmul_weight_gradient,
  rope,
  rope_backward,
  qk_norm,
  qk_norm_backward,
  accumulate,
  attention,
  attention_backward,
  activation,
  activation_backward,
  route,
  route_backward,
  dispatch,
  dispatch_backward,
  grouped_matmul,
  grouped_matmul_input_gradient,
  grouped_matmul_weight_gradient,
  combine,
  combine_backward,
  gate,
  gate_backward,
  latent_heads,
  latent_heads_backward,
  add_residual,
  add_residual_backward,
  logits_maximum,
  logits_sum,
  loss,
  loss_backward,
  regroup,
  ungroup,
  clear,
  scale,
  take_rows,
  place_rows,
  place_keys,
  take_keys,
  all_reduce,
  all_to_all,
  reduce_scatter,
  all_gather,
};
inline constexpr int kKernelOpCount = static_cast<int>(KernelOp::all_gather) + 1;
constexpr bool is_collective(KernelOp op) { return op >= KernelOp::all_reduce; }  // in place, a World's to do
// Whether a kernel of this kind reads the values of the parameters it names, and whether it adds to their gradients.
bool reads_parameters(KernelOp op);
bool adds_gradients(KernelOp op);

enum class ReduceOp : std::uint8_t { sum, maximum };

enum class TensorRole : std::uint8_t {
  activation,           // an instance per micro-batch in flight
  activation_gradient,  // likewise
  parameter,            // held throughout
  gradient,             // held throughout, accumulates over micro-batches
  optimizer,            // held throughout: master weights (if precision != fp32), both AdamW moments
  gathered,             // a parameter while a micro-batch needs it; its parts are held by a group (Shard)
  whole_gradient,       // a gradient while a micro-batch adds to it, until a group reduces it to parts
};
// Comes and goes with a micro-batch.
constexpr bool per_micro_batch(TensorRole role) {
  return role != TensorRole::parameter && role != TensorRole::gradient && role != TensorRole::optimizer;
}

// What a pass or a count of memory must know of a tensor beyond its role; its gradient has the same use.
enum class TensorUse : std::uint8_t {
  plain,
  chunk_input,      // what its chunk takes in
  chunk_output,     // what its chunk gives out; no tensor has it where the head follows
  attention_sum,    // the sum behind a layer's attention, where dropout's mask would lie
  logits,           // of the head, and of no further prediction
  token_embedding,  // the weight that first and last stage share where embeddings are tied
};

struct Tensor {
  std::string name;  // "layers.3.fc1" ; parameters: Parameter::name
  TensorRole role = TensorRole::activation;
  TensorUse use = TensorUse::plain;
  ChunkId chunk;  // chunk_input, chunk_output: whose
  Format format = Format::fp32;
  std::vector<std::int64_t> shape;  // of this rank's shard
  std::int64_t bytes = 0;
  std::optional<int> parameter;  // roles parameter/gradient/optimizer: index into parameters(transformer)
  bool on_host = false;          // in the memory of the rank's node, not of its chip
  bool operator==(const Tensor&) const = default;
};

enum class GroupKind : std::uint8_t {
  tensor,
  data,
  embedding,  // tied weights of first and last stage
  expert,     // ranks that exchange tokens, as each holds some of the experts
  gather,     // the ranks of a data group, when they gather parameters
  // The ranks of a tensor group, when each is sent a part of what crosses a boundary and they gather the whole.
  activation_gather,
  gradient_gather,
  context,  // ranks that each have a part of every sequence
  // The ranks of a tensor group, when they sum gradients of which each has a part.
  tensor_gradient
};
std::string_view name_of(GroupKind kind);

struct Kernel {
  KernelOp op = KernelOp::embed;
  int layer = -1;                      // -1: of no layer, as Parameter::layer
  bool recompute = false;              // repeats a forward inside a backward
  ReduceOp reduce = ReduceOp::sum;     // all_reduce
  GroupKind over = GroupKind::tensor;  // *_rows, reduce_scatter, all_gather: tensor or context
  std::vector<TensorId> in, out, parameters;
  std::vector<TensorId> frees;  // dead after this kernel (lifetimes pass)
  // matmul*: as for out(m,n) = x(m,k) w(n,k)'; attention: B*heads, T, head_dim; activations of experts: m rows of n;
  // norm*, add_residual*: m rows, where not N
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t groups = 0,
               busiest = 0;      // grouped_matmul*: experts, and the expected rows of the busiest of them
  double factor = 1;             // scale, loss_backward
  std::int64_t ahead = 0;        // embed*, logits_sum, loss*: of the tokens that stand so many further on
  std::optional<Format> format;  // of its operands, where that is not the precision of training
  double flops = 0;  // matmuls 2*m*n*k; attention 4*m*pairs*k forward, 8 backward (+2: scores again); else 0
  std::int64_t bytes = 0;  // moved to and from memory; all_reduce: payload
  bool operator==(const Kernel&) const = default;
};

// A collective that stands inside a compute where fidelity has tensor-parallel ones priced there. Others are
// instructions of their own.
constexpr bool priced_in_computes(const Kernel& kernel) {
  return is_collective(kernel.op) && kernel.op != KernelOp::all_to_all && kernel.over == GroupKind::tensor;
}

// The kernels of one pass of one chunk (a stage's layers) for one micro-batch.
struct Block {
  std::string name;  // "forward", "backward"; "forward 1" where the class holds several chunks
  Pass pass = Pass::forward;
  ChunkId chunk;
  std::vector<Kernel> kernels;
  bool operator==(const Block&) const = default;
};

enum class Op : std::uint8_t {
  compute,
  send,
  recv,
  collective,
  optimizer,
  copy
};  // in the order of InstructionBody
// What a collective leaves behind. Collective::bytes is S, the whole payload: all the tensors one after the other, cut
// into R parts, one for each member of the group, the last ones shorter (or empty) where R does not divide it. Part i
// is that of the member at place i of Group::ranks.
enum class CollectiveKind : std::uint8_t {
  all_reduce,      // every member ends with the sum (or maximum) of every part
  reduce_scatter,  // member i ends with the sum of part i, in its place; its other parts are undefined
  all_gather,      // the inverse: member i brings part i, every member ends with all parts in place
  all_to_all,      // part j of member i ends as part i of member j; R divides S
};
std::string_view name_of(CollectiveKind kind);
CollectiveKind collective_of(KernelOp op);

// An instruction of the same rank that must have ended: stream and index in it.
struct After {
  StreamId stream;
  std::int32_t index = 0;
  bool operator==(const After&) const = default;
};

// Kernels [first_kernel, last_kernel) of a block.
struct Compute {
  BlockId block;
  std::int32_t first_kernel = 0, last_kernel = 0;
  auto operator<=>(const Compute&) const = default;
};

// What a send or recv moves: a tensor, or a part of it.
struct PeerMessage {
  PeerSlot slot;  // previous_slot and next_slot of a chunk, and their further partners
  TensorId tensor;
  // The tensor is moved in `parts` equal parts, of them number (part + part_stride * tensor_index) % parts.
  std::int32_t part = 0, parts = 1, part_stride = 0;
  // Of the tensor's `rows` equal blocks, each of some of the sequences, block `row`.
  std::int32_t row = 0, rows = 1;
  std::int64_t bytes = 0;
  bool operator==(const PeerMessage&) const = default;
};
struct Send : PeerMessage {
  bool operator==(const Send&) const = default;
};
// The recv whose `part` and `row` are 0 makes the tensor, others only fill it.
struct Recv : PeerMessage {
  bool operator==(const Recv&) const = default;
};

struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ReduceOp reduce = ReduceOp::sum;
  GroupSlot slot;
  std::vector<TensorId> tensors;  // a tensor (tensor-parallel), or a bucket of gradients or parameters
  // Only this part of each tensor, cut along the axis that tensor parallelism cuts.
  std::int32_t part = 0, parts = 1;
  // The all_gather of what was received in blocks of sequences: block `row` of `rows` equal ones.
  std::int32_t row = 0, rows = 1;
  double scale = 1.0;  // what a member multiplies its contribution by
  // None: in place. all_gather: `tensors` come to be, of the parts held. reduce_scatter: the sum is added to the part
  // held. all_reduce: only of this rank's part of `tensors`. Where no part is held, in place.
  std::optional<ShardId> shard;
  std::int64_t bytes = 0;     // payload a rank
  std::int64_t expected = 0;  // all_to_all of routed tokens: bytes expected to be of use; 0: all of `bytes`
  bool operator==(const Collective&) const = default;
};

struct OptimizerStep {
  std::vector<TensorId>
      tensors;  // on the host, the states it steps; on the chip none are listed: all that are there
  bool operator==(const OptimizerStep&) const = default;
};

// Between the chip and its node's memory; each of `tensors` into that of `into` at the same place. A gradient that is
// copied to the host is zeroed on the chip.
struct Copy {
  std::vector<TensorId> tensors, into;
  // Then of the part of that Shard's gradients or parameters that this rank holds, laid out as one run.
  std::optional<ShardId> shard;
  std::int64_t bytes = 0;
  bool operator==(const Copy&) const = default;
};

using InstructionBody = std::variant<Compute, Send, Recv, Collective, OptimizerStep, Copy>;

inline constexpr std::int32_t kNoMicroBatch = -1;  // -1: of no micro-batch

struct Instruction {
  InstructionBody body;
  std::int32_t micro_batch = kNoMicroBatch;
  std::vector<After> after;     // besides everything earlier in its own stream
  std::vector<TensorId> frees;  // of this micro-batch, dead after it: a sent one, once sent and read
  // Derived by the lifetimes pass; a World that really allocates must find the same.
  double flops = 0;
  std::int64_t allocated = 0;  // bytes newly live during it, in all
  std::int64_t freed = 0;      // bytes dead by its end
  std::int64_t peak = 0;       // most bytes live at once during it, above what was live at its start
  bool operator==(const Instruction&) const = default;

  Op op() const { return static_cast<Op>(body.index()); }
  template <class Body>
  const Body* as() const {  // null: it is something else
    return std::get_if<Body>(&body);
  }
  template <class Body>
  Body* as() {
    return std::get_if<Body>(&body);
  }
  // Of a send or recv what it moves; null: it is something else.
  const PeerMessage* message() const;
  PeerMessage* message();
};

// The tensors that it sends, receives, reduces, steps or copies from; none of a compute.
std::span<const TensorId> moved_tensors(const Instruction& instruction);
// Payload a rank: of a message, collective or copy; else 0.
std::int64_t payload_bytes(const Instruction& instruction);
// What it is expected to move of that.
std::int64_t expected_bytes(const Instruction& instruction);
std::int64_t expected_bytes(const Collective& collective);
// The shard of a collective or copy.
std::optional<ShardId> shard_of(const Instruction& instruction);

enum class StreamKind : std::uint8_t {
  compute,
  recv_activation,
  send_activation,
  recv_gradient,
  send_gradient,
  collective,
  gather,    // of parameters
  exchange,  // of tokens between the ranks that hold experts, where it overlaps
  to_host,   // copies
  host,      // optimizer steps of the node's processor
  from_host  // copies
};
std::string_view name_of(StreamKind kind);

struct Stream {
  StreamKind kind = StreamKind::compute;
  ChunkId chunk;  // whose transfers; of others the first
  std::vector<Instruction> instructions;
  bool operator==(const Stream&) const = default;
};

// Consecutive layers of a stage. A pipeline numbers the chunks of all its stages in the order in which a micro-batch
// passes them: their virtual stages. Most schedules have one chunk a stage, and there the two numbers are the same.
struct Chunk {
  int virtual_stage = 0;
  std::int64_t first_layer = 0, last_layer = 0;
  bool operator==(const Chunk&) const = default;
};

// Parameters whose optimizer state the R members of a group divide among them (ZeRO, arXiv:1910.02054): laid one after
// the other, member i of the group holds part i as CollectiveKind cuts them. What else is divided says which tensors
// there are.
struct Shard {
  GroupSlot slot;         // group of its reduce-scatters
  GroupSlot gather_slot;  // the same ranks, for its all-gathers: they have a stream of their own
  std::optional<GroupSlot> replica_slot;        // the ranks that hold the same part; none: this one alone
  std::vector<TensorId> parameters, gradients;  // whole; as the forward reads them
  TensorId optimizer;                           // of the part
  std::optional<TensorId> parameter_part, gradient_part;  // none: the whole is held throughout
  std::int32_t part = 0, parts = 1;  // of each tensor, as of a Collective: other shards have its other parts
  bool operator==(const Shard&) const = default;
};

struct RankProgram;
// An all_gather of a shard whose parameters are held in parts: `tensors` come to be, as those of a recv do. Where each
// of several shards has a part of them: in the first one's.
bool makes_tensors(const RankProgram& rank_program, const Instruction& instruction);
// Of a copy: its direction.
bool goes_to_host(const RankProgram& rank_program, const Instruction& instruction);
inline bool makes_received(const Instruction& instruction) {
  const Recv* recv = instruction.as<Recv>();
  return recv != nullptr && recv->part == 0 && recv->row == 0;
}

struct RankProgram {
  std::string name;  // "stage 0"
  IdTable<ChunkId, Chunk> chunks;
  bool first_stage = false, last_stage = false;  // holds the first, the last virtual stage
  std::int32_t pipeline = 0, stage = 0;          // template of the strategy, and stage in it
  std::int64_t tensor_parallel = 1;
  std::int64_t expert_parallel = 1;  // ranks over which the experts of a layer are divided
  std::int64_t expert_tensor_parallel =
      1;                              // and over which each of them is cut; as tensor_parallel unless given
  std::int64_t context_parallel = 1;  // ranks over which each sequence is cut
  bool sequence_parallel = false;     // rows between cut matmuls are divided over the tensor-parallel group
  std::int64_t micro_batch = 1, micro_batches = 1;  // sequences a forward; forwards a step
  std::int64_t sequence_stride = 0;  // sequences from one micro-batch's first to the next's; 0: micro_batch
  IdTable<TensorId, Tensor> tensors;
  IdTable<ShardId, Shard> shards;
  IdTable<BlockId, Block> blocks;
  IdTable<StreamId, Stream> streams;  // the first is the compute stream
  std::int64_t static_bytes = 0;      // parameters + gradients + optimizer, on the chip
  bool operator==(const RankProgram&) const = default;
};
inline constexpr StreamId kComputeStream{0};

bool gathers_at_boundary(GroupKind kind);
struct Group {
  GroupKind kind = GroupKind::tensor;
  std::vector<Rank> ranks;  // in ring order
  bool operator==(const Group&) const = default;
};

// Peer slots: of chunk c, 2c towards the model's input and 2c + 1 towards its loss. Where a neighbour has r times the
// tensor parallel degree or the replicas, or both together, partner k of a boundary stands k * 2 * chunks slots further
// on, k < r: replica by replica.
constexpr PeerSlot previous_slot(ChunkId chunk) { return PeerSlot(2 * chunk.value()); }
constexpr PeerSlot next_slot(ChunkId chunk) { return PeerSlot(2 * chunk.value() + 1); }
constexpr bool is_next(PeerSlot slot) {
  return slot.value() % 2 == 1;
}  // towards the loss: activations go there
ChunkId chunk_of(const RankProgram& rank_program, PeerSlot slot);

// Group slots; further ones are data or embedding groups (models/compile/gradient_shares.hpp). The expert group's is
// there only in a program whose experts are divided.
inline constexpr GroupSlot kTensorGroup{0}, kDataGroup{1}, kEmbeddingGroup{2}, kExpertGroup{3};
// The context group's, after the expert group's where that is there.
inline GroupSlot context_slot(const RankProgram& rank_program) {
  return GroupSlot(kExpertGroup.value() + (rank_program.expert_parallel > 1 ? 1 : 0));
}
struct RankEntry {
  RankProgramId rank_program;
  std::int32_t chip = 0;  // global chip index in the cluster
  // Stages are numbered through all templates, replicas within theirs.
  std::int32_t stage = 0, replica = 0, tensor_index = 0, context_index = 0;
  std::int64_t first_sequence = 0;  // of its replica, in the global batch
  IdTable<PeerSlot, std::optional<Rank>>
      peers;  // none: no neighbour, or this rank holds that virtual stage too
  IdTable<GroupSlot, std::optional<GroupId>> groups;  // none: no such group, or one of this rank alone
  bool operator==(const RankEntry&) const = default;
};

// Where a rank stands among those of its stage when experts are divided: tensor cut fastest, then expert part, then
// copies (Megatron-LM's folding, arXiv:2504.14960). Ranks of one tensor-parallel group, which all have the same tokens,
// each route a slice of them where experts are cut less than the rest.
struct ExpertPlace {
  std::int64_t tensor_index = 0;  // of expert_tensor_parallel
  std::int64_t part = 0;          // of expert_parallel
  std::int64_t copy = 0;
  std::int64_t slice = 0, slices = 1;  // of the tokens of a micro-batch
};
ExpertPlace expert_place(const RankProgram& rank_program, const RankEntry& entry);

// How routers are expected to choose, where a token goes once to each node (ExpertCopies); experts 0: once to each
// expert, and this is not asked.
struct ExpertRouting {
  std::int64_t experts = 0, per_token = 0;
  std::int64_t groups = 1, groups_per_token = 1;  // as Experts
  double skew = 0;                                // as Train::expert_skew
  std::uint64_t seed = 1;
  bool operator==(const ExpertRouting&) const = default;
};

struct Program {
  std::string strategy_hash;
  // The shape of the job, so that a World needs nothing but the Program and the Transformer.
  std::int64_t sequence = 0, global_batch = 0;
  Format precision = Format::bf16;
  Format gradients = Format::fp32;
  std::int64_t layers = 0;
  int p2p_buffers = 2;
  ExpertRouting routing;
  IdTable<RankProgramId, RankProgram> rank_programs;
  IdTable<GroupId, Group> groups;
  std::vector<RankEntry> ranks;
  bool operator==(const Program&) const = default;

  Rank rank_count() const { return static_cast<Rank>(ranks.size()); }
  const RankProgram& program_of(Rank rank) const {
    return rank_programs[ranks[motley::at(rank)].rank_program];
  }
  const Instruction& at(Rank rank, StreamId stream, int index) const {
    return program_of(rank).streams[stream].instructions[motley::at(index)];
  }
};

// The slot of the peer's that is the other end of a transfer through this slot; none: it has none.
std::optional<PeerSlot> other_end(const Program& program, Rank rank, PeerSlot slot);

std::string print(const Program& program);
Program parse_program(const std::string& text, const std::string& file_name = "program");
std::string program_hash(const Program& program);  // 16 hex digits over print()

// "stage 3 rank 25 compute[17] backward micro-batch 4": for messages and tables.
std::string describe(const Program& program, Rank rank, StreamId stream, int index);
std::string_view name_of(KernelOp op);

}  // namespace motley
