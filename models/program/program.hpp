// A Program: what every rank does in one training step, as plain data. compile() makes it, check() proves it, a World
// runs it. Equal ranks share one RankProgram; their differences (peers, groups) stand in the rank table. It prints as
// text, and parse(print(p)) == p. Read next: models/world/world.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/base/index.hpp"
#include "models/base/kernel_op.hpp"
#include "models/base/words.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

using Rank = Id<struct RankTag>;                  // indexes Program::ranks
using RankProgramId = Id<struct RankProgramTag>;  // indexes Program::rank_programs
using GroupId = Id<struct GroupTag>;              // indexes Program::groups
using TensorId = Id<struct TensorTag>;            // indexes RankProgram::tensors
using ChunkId = Id<struct ChunkTag>;              // indexes RankProgram::chunks
using BlockId = Id<struct BlockTag>;              // indexes RankProgram::blocks
using StreamId = Id<struct StreamTag>;            // indexes RankProgram::streams
using ShardId = Id<struct ShardTag>;              // indexes RankProgram::shards
using PeerSlot = Id<struct PeerSlotTag>;          // indexes RankEntry::peers
using GroupSlot = Id<struct GroupSlotTag>;        // indexes RankEntry::groups

// The rank that is `distance` after `rank`: ranks of one rank program follow one another.
constexpr Rank operator+(Rank rank, std::int64_t distance) { return Rank(rank.value() + distance); }

// Whether a kernel of this kind reads the values of its parameters, and whether it adds to their gradients.
bool reads_parameters(KernelOp op);
bool adds_gradients(KernelOp op);

enum class ReduceOp : std::uint8_t { sum, maximum, minimum };
template <>
inline constexpr auto kWords<ReduceOp> = words("sum", "maximum", "minimum");

enum class TensorRole : std::uint8_t {
  activation,           // one instance for each micro-batch in flight
  activation_gradient,  // one instance for each micro-batch in flight
  parameter,            // a parameter, held throughout
  gradient,             // a gradient, held throughout, which accumulates over micro-batches
  optimizer,            // state held throughout: master weights and moments, as optimizer_bytes() has them
  gathered,             // a parameter while a micro-batch needs it; a group holds its parts (Shard)
  whole_gradient,       // a gradient while a micro-batch adds to it, before a group reduces it to parts
};
// Whether tensors of this role come and go with a micro-batch.
constexpr bool per_micro_batch(TensorRole role) {
  return role != TensorRole::parameter && role != TensorRole::gradient && role != TensorRole::optimizer;
}

// What a pass or a count of memory must know about a tensor beyond its role; its gradient has the same use.
enum class TensorUse : std::uint8_t {
  plain,
  chunk_input,      // input of its chunk
  chunk_output,     // output of its chunk; there is none where the head follows
  attention_sum,    // the sum after a layer's attention, where dropout's mask would lie
  logits,           // logits of the head, not of a further prediction
  token_embedding,  // the weight that first and last stage share where embeddings are tied
  expert_rows,      // rows for as many copies of tokens as can come: Train::expert_room sets no limit
};

struct Tensor {
  std::string name;  // "layers.3.fc1"; parameters: Parameter::name
  TensorRole role = TensorRole::activation;
  TensorUse use = TensorUse::plain;
  ChunkId chunk;  // the chunk of a chunk_input or chunk_output
  Format format = Format::fp32;
  std::vector<std::int64_t> shape;  // shape of this rank's shard
  std::int64_t bytes = 0;
  std::optional<int> parameter;  // roles parameter/gradient/optimizer: index into parameters(transformer)
  bool on_host = false;          // true: in the memory of the rank's node, not of its chip
  bool operator==(const Tensor&) const = default;
};

enum class GroupKind : std::uint8_t {
  tensor,
  data,
  embedding,  // first and last stage, which share tied weights
  expert,     // ranks that exchange tokens, because each holds some of the experts
  gather,     // the ranks of a data group, for gathering parameters
  // The ranks of a tensor group, for gathering what crosses a boundary when each rank is sent a part.
  activation_gather,
  gradient_gather,
  context,  // ranks that each have a part of every sequence
  // The ranks of a tensor group, for summing gradients of which each rank has a part.
  tensor_gradient
};
std::string_view name_of(GroupKind kind);

struct Kernel {
  KernelOp op = KernelOp::embed;
  int layer = -1;                      // number of the layer, as Parameter::layer; -1: none
  bool recompute = false;              // the kernel repeats a forward inside a backward
  ReduceOp reduce = ReduceOp::sum;     // operation of an all_reduce
  GroupKind over = GroupKind::tensor;  // group of *_rows, reduce_scatter, all_gather: tensor or context
  std::vector<TensorId> in, out, parameters;
  std::vector<TensorId> frees;  // tensors that are dead after this kernel (lifetimes pass)
  // Shape. matmul*: out(m,n) = x(m,k) w(n,k)'; attention: B*heads, T, head_dim; activations of experts: m rows of n;
  // norm*, add_residual*: m rows, if not N.
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t groups = 0,
               busiest = 0;      // grouped_matmul*: experts, and the expected rows of the busiest expert
  double factor = 1;             // factor of scale and loss_backward; attention*: the share of its work
  std::int64_t ahead = 0;        // embed*, logits_sum, loss*: how many tokens further on the token of a row
                                 // stands
  std::optional<Format> format;  // format of the operands; nothing: the precision of training
  double flops = 0;  // matmuls 2*m*n*k; attention 4*m*pairs*k forward, 8 backward (+2: scores again); else 0
  std::int64_t bytes = 0;  // bytes moved to and from memory; all_reduce: payload
  bool operator==(const Kernel&) const = default;
};

// Whether a collective stands inside a compute where fidelity prices tensor-parallel collectives in computes. Other
// collectives are instructions of their own.
constexpr bool priced_in_computes(const Kernel& kernel) {
  return is_collective(kernel.op) && kernel.op != KernelOp::all_to_all && kernel.over == GroupKind::tensor;
}

// Whether the kernel only takes time: it stands for a share of the attention beside it, that with the keys which are
// here while others are on their way. A real rank attends to all of them in the one kernel that has operands.
inline bool is_share_of_attention(const Kernel& kernel) {
  return (kernel.op == KernelOp::attention || kernel.op == KernelOp::attention_backward) &&
         kernel.out.empty();
}

// The kernels of one pass of one chunk (a stage's layers) for one micro-batch.
struct Block {
  std::string name;  // "forward", "backward"; "forward 1" where the program holds several chunks
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
};  // the order is that of InstructionBody
// The result of a collective. Collective::bytes is S, the whole payload: all tensors one after the other, cut into R
// parts, one for each member of the group; the last parts are shorter (or empty) where R does not divide S. Part i
// belongs to the member at place i of Group::ranks. `root` is the member at place Collective::root. Where a member ends
// with some parts only, its other parts are undefined.
enum class CollectiveKind : std::uint8_t {
  all_reduce,      // every member ends with the sum (or maximum, or minimum) of every part
  reduce_scatter,  // member i ends with the sum of part i, in its place
  all_gather,      // the inverse: member i brings part i, every member ends with all parts in place
  all_to_all,  // part j of member i ends as part i of member j; R divides S, or part_bytes says each part's size
  broadcast,  // root brings every part, every member ends with all parts in place
  reduce,     // root ends with the sum (or maximum, or minimum) of every part
  gather,     // member i brings part i, root ends with all parts in place
  scatter,    // the inverse: root brings every part, member i ends with part i, in its place
  barrier,    // no payload: no member ends before every member has begun
};
// Whether one member, the root, has what the others have not.
constexpr bool is_rooted(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce ||
         kind == CollectiveKind::gather || kind == CollectiveKind::scatter;
}
std::string_view name_of(CollectiveKind kind);
CollectiveKind collective_of(KernelOp op);

// An earlier instruction of the same rank that must have ended: its stream, and its index there.
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
  PeerSlot slot;  // previous_slot or next_slot of a chunk, or a further partner's slot
  TensorId tensor;
  // The tensor is cut in `parts` equal parts; part number (part + part_stride * tensor_index) % parts is moved.
  std::int32_t part = 0, parts = 1, part_stride = 0;
  // The tensor is cut in `rows` equal blocks of sequences; block `row` is moved.
  std::int32_t row = 0, rows = 1;
  std::int64_t bytes = 0;
  bool operator==(const PeerMessage&) const = default;
};
struct Send : PeerMessage {
  bool operator==(const Send&) const = default;
};
// The recv whose `part` and `row` are 0 allocates the tensor; other recvs only fill it.
struct Recv : PeerMessage {
  bool operator==(const Recv&) const = default;
};

struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ReduceOp reduce = ReduceOp::sum;
  GroupSlot slot;
  std::int32_t root = 0;          // broadcast, reduce, gather, scatter: the root's place in the group
  std::vector<TensorId> tensors;  // one tensor (tensor-parallel), or a bucket of gradients or parameters
  // The collective is over this part of each tensor, cut along the axis that tensor parallelism cuts.
  std::int32_t part = 0, parts = 1;
  // An all_gather of a tensor received in blocks of sequences is over block `row` of `rows` equal blocks.
  std::int32_t row = 0, rows = 1;
  double scale = 1.0;  // factor on a member's contribution
  // The shard whose parts are used. all_gather: `tensors` are allocated and filled from the parts. reduce_scatter:
  // the sum is added to this rank's part. all_reduce: only this rank's part of `tensors` is reduced. None, or a shard
  // that holds no part: the collective is in place.
  std::optional<ShardId> shard;
  std::int64_t bytes = 0;     // payload of each rank
  std::int64_t expected = 0;  // all_to_all of routed tokens: bytes that are expected to be used; 0: all of
                              // `bytes`
  // all_to_all of unlike parts: bytes of part j of member i, at i * R + j, and `bytes` is the most that one member
  // sends or receives, its own part included. Empty: all parts are equal.
  std::vector<std::int64_t> part_bytes;
  bool operator==(const Collective&) const = default;
};

struct OptimizerStep {
  std::vector<TensorId>
      tensors;  // on the host: the states that it steps; empty on the chip: all states there are stepped
  bool operator==(const OptimizerStep&) const = default;
};

// A copy between the chip and its node's memory: each of `tensors` into the tensor at the same place in `into`. A
// gradient that is copied to the host is zeroed on the chip.
struct Copy {
  std::vector<TensorId> tensors, into;
  // If set, only this rank's part of the shard's gradients or parameters is copied, laid out in one run.
  std::optional<ShardId> shard;
  std::int64_t bytes = 0;
  bool operator==(const Copy&) const = default;
};

using InstructionBody = std::variant<Compute, Send, Recv, Collective, OptimizerStep, Copy>;

inline constexpr std::int32_t kNoMicroBatch = -1;  // -1: no micro-batch

struct Instruction {
  InstructionBody body;
  std::int32_t micro_batch = kNoMicroBatch;
  std::vector<After> after;     // instructions to wait for, beside all earlier ones of its own stream
  std::vector<TensorId> frees;  // tensors of this micro-batch that are dead after it; a sent tensor: once it
                                // is sent and read
  // The lifetimes pass derives these. A World that really allocates must find the same values.
  double flops = 0;
  std::int64_t allocated = 0;  // bytes that it allocates in all
  std::int64_t freed = 0;      // bytes that are dead by its end
  std::int64_t peak = 0;       // most bytes live at once during it, minus the bytes live at its start
  bool operator==(const Instruction&) const = default;

  Op op() const { return static_cast<Op>(body.index()); }
  template <class Body>
  const Body* as() const {  // null: another kind of instruction
    return std::get_if<Body>(&body);
  }
  template <class Body>
  Body* as() {
    return std::get_if<Body>(&body);
  }
  // The message of a send or recv; null: another kind of instruction.
  const PeerMessage* message() const;
  PeerMessage* message();
};

// The tensors that the instruction sends, receives, reduces, steps or copies from; a compute has none.
std::span<const TensorId> moved_tensors(const Instruction& instruction);
// The payload of each rank in a message, collective or copy; 0 for other instructions.
std::int64_t payload_bytes(const Instruction& instruction);
// The part of the payload that is expected to be used.
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
  gather,  // all-gathers of parameters
  exchange,  // exchanges between the ranks that hold experts, or parts of sequences, where they overlap computes
  to_host,   // copies to the host
  host,      // optimizer steps of the node's processor
  from_host  // copies from the host
};
std::string_view name_of(StreamKind kind);

struct Stream {
  StreamKind kind = StreamKind::compute;
  ChunkId chunk;  // the chunk of a stream of transfers; other streams have chunk 0
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

// Parameters whose optimizer state the R members of a group divide (ZeRO, arXiv:1910.02054): the parameters lie one
// after the other, and member i of the group holds part i, cut as CollectiveKind says. parameter_part and
// gradient_part tell whether parameters and gradients are divided too.
struct Shard {
  GroupSlot slot;         // group of its reduce-scatters
  GroupSlot gather_slot;  // group of its all-gathers: the same ranks, with a stream of their own
  std::optional<GroupSlot> replica_slot;        // group of the ranks that hold the same part; none: no other
                                                // rank holds it
  std::vector<TensorId> parameters, gradients;  // whole tensors, as the forward reads them
  TensorId optimizer;                           // optimizer state of the part
  std::optional<TensorId> parameter_part, gradient_part;  // none: the whole is held throughout
  std::int32_t part = 0, parts = 1;  // part of each tensor that the shard has, as in a Collective; other
                                     // shards have the other parts
  bool operator==(const Shard&) const = default;
};

struct RankProgram;
// Whether the instruction is an all_gather that makes its tensors, as a recv does, because the shard's parameters are
// held in parts. Where several shards have parts of the tensors, only the all_gather of the first shard makes them.
bool makes_tensors(const RankProgram& rank_program, const Instruction& instruction);
// Whether a copy goes to the host.
bool goes_to_host(const RankProgram& rank_program, const Instruction& instruction);
inline bool makes_received(const Instruction& instruction) {
  const Recv* recv = instruction.as<Recv>();
  return recv != nullptr && recv->part == 0 && recv->row == 0;
}

struct RankProgram {
  std::string name;  // "stage 0"
  IdTable<ChunkId, Chunk> chunks;
  bool first_stage = false, last_stage = false;  // whether it holds the first and the last virtual stage
  std::int32_t pipeline = 0, stage = 0;          // template of the strategy, and the stage in that template
  std::int64_t tensor_parallel = 1;
  std::int64_t expert_parallel = 1;         // ranks over which the experts of a layer are divided
  std::int64_t expert_tensor_parallel = 1;  // ranks over which each expert is cut; by default tensor_parallel
  std::int64_t context_parallel = 1;        // ranks over which each sequence is cut
  bool sequence_parallel = false;  // rows between cut matmuls are divided over the tensor-parallel group
  std::int64_t micro_batch = 1, micro_batches = 1;  // sequences in a micro-batch; micro-batches in a step
  std::int64_t sequence_stride = 0;  // sequences from the first of one micro-batch to the first of the next;
                                     // 0: micro_batch
  IdTable<TensorId, Tensor> tensors;
  IdTable<ShardId, Shard> shards;
  IdTable<BlockId, Block> blocks;
  IdTable<StreamId, Stream> streams;  // the first is the compute stream
  std::int64_t static_bytes = 0;      // bytes of parameters, gradients and optimizer state on the chip
  bool operator==(const RankProgram&) const = default;
};
inline constexpr StreamId kComputeStream{0};

bool gathers_at_boundary(GroupKind kind);
struct Group {
  GroupKind kind = GroupKind::tensor;
  std::vector<Rank> ranks;  // in ring order
  bool operator==(const Group&) const = default;
};

// Slots of peers. The peer of chunk c towards the model's input has slot 2c, the peer towards its loss has slot 2c +
// 1. Where a neighbour has r times the tensor-parallel degree or the replicas, or both together, a boundary has r
// partners, replica by replica: partner k < r has a slot that is k * 2 * chunks higher.
constexpr PeerSlot previous_slot(ChunkId chunk) { return PeerSlot(2 * chunk.value()); }
constexpr PeerSlot next_slot(ChunkId chunk) { return PeerSlot(2 * chunk.value() + 1); }
constexpr bool is_next(PeerSlot slot) {
  return slot.value() % 2 == 1;
}  // true: the peer is towards the loss, where activations go
ChunkId chunk_of(const RankProgram& rank_program, PeerSlot slot);

// Slots of groups; higher slots are data or embedding groups (models/compile/gradient_shares.hpp). Only a program
// whose experts are divided has the slot of the expert group.
inline constexpr GroupSlot kTensorGroup{0}, kDataGroup{1}, kEmbeddingGroup{2}, kExpertGroup{3};
// The slot of the context group: after the slot of the expert group, if there is one.
inline GroupSlot context_slot(const RankProgram& rank_program) {
  return GroupSlot(kExpertGroup.value() + (rank_program.expert_parallel > 1 ? 1 : 0));
}
struct RankEntry {
  RankProgramId rank_program;
  std::int32_t chip = 0;  // global index of the chip in the cluster
  // Stages are numbered through all templates; replicas are numbered in their template.
  std::int32_t stage = 0, replica = 0, tensor_index = 0, context_index = 0;
  std::int64_t first_sequence = 0;  // first sequence of the rank's replica in the global batch
  IdTable<PeerSlot, std::optional<Rank>>
      peers;  // none: no neighbour, or this rank itself holds that virtual stage
  IdTable<GroupSlot, std::optional<GroupId>> groups;  // none: there is no such group, or the rank is its only
                                                      // member
  bool operator==(const RankEntry&) const = default;
};

// Place of a rank among the ranks of its stage when experts are divided: the tensor index varies fastest, then the
// expert part, then the copy (Megatron-LM's folding, arXiv:2504.14960). Where experts are cut less than the other
// layers, the ranks of a tensor-parallel group, which all have the same tokens, each route a slice of them.
struct ExpertPlace {
  std::int64_t tensor_index = 0;  // index in expert_tensor_parallel ranks
  std::int64_t part = 0;          // index in expert_parallel ranks
  std::int64_t copy = 0;
  std::int64_t slice = 0, slices = 1;  // slice of the tokens of a micro-batch, and number of slices
};
ExpertPlace expert_place(const RankProgram& rank_program, const RankEntry& entry);

// How routers are expected to choose where a token goes once to each node (ExpertCopies). experts 0: a token goes
// once to each expert, and routing is not used.
struct ExpertRouting {
  std::int64_t experts = 0, per_token = 0;
  std::int64_t groups = 1, groups_per_token = 1;  // the figures of Experts
  double skew = 0;                                // Train::expert_skew
  std::uint64_t seed = 1;
  bool operator==(const ExpertRouting&) const = default;
};

struct Program {
  std::string strategy_hash;
  // The shape of the job, so that a World needs only the Program and the Transformer.
  std::int64_t sequence = 0, global_batch = 0;
  Format precision = Format::bf16;
  Format gradients = Format::fp32;
  Optimizer optimizer = Optimizer::adamw;
  bool master_weights = true;  // Train::master_weights
  OptimizerRule optimizer_rule() const { return {optimizer, precision, master_weights}; }
  std::int64_t layers = 0;
  int p2p_buffers = 2;
  ExpertRouting routing;
  IdTable<RankProgramId, RankProgram> rank_programs;
  IdTable<GroupId, Group> groups;
  IdTable<Rank, RankEntry> ranks;
  bool operator==(const Program&) const = default;

  std::int32_t rank_count() const { return static_cast<std::int32_t>(ranks.size()); }
  const RankProgram& program_of(Rank rank) const { return rank_programs[ranks[rank].rank_program]; }
  const Instruction& at(Rank rank, StreamId stream, int index) const {
    return program_of(rank).streams[stream].instructions[motley::at(index)];
  }
};

// The slot of the peer at the other end of a transfer through this slot; none: there is no such slot.
std::optional<PeerSlot> other_end(const Program& program, Rank rank, PeerSlot slot);

std::string print(const Program& program);
Program parse_program(const std::string& text, const std::string& file_name = "program");
std::string program_hash(const Program& program);  // 16 hex digits, over the text of print()

// Names an instruction in messages and tables: "stage 3 rank 25 compute[17] backward micro-batch 4".
std::string describe(const Program& program, Rank rank, StreamId stream, int index);

}  // namespace motley
