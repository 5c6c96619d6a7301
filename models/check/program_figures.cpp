#include "models/check/program_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/base/size.hpp"

namespace motley {
namespace {

// As in models/strategy/strategy_fields.hpp and models/transformer/train_fields.hpp: products of three fit an int64.
constexpr std::int64_t kMostDegree = std::int64_t{1} << 20, kMostTokens = std::int64_t{1} << 22;

[[noreturn]] void refuse_figure(const std::string& owner, const char* what, double value) {
  throw Refusal(Exit::usage, "broken-program", {}, fmt::format("{} has {} {}", owner, what, value),
                "a Program that compile() made never does this: was its text edited?");
}

// Looks at the figures of one part of a Program, which it names in messages.
class Figures {
 public:
  explicit Figures(std::string owner) : owner_(std::move(owner)) {}

  void expect(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) const {
    if (value < least || value > most) refuse_figure(owner_, what, static_cast<double>(value));
  }
  void degree(const char* what, std::int64_t value) const { expect(what, value, 1, kMostDegree); }
  void index(const char* what, std::int64_t value) const { expect(what, value, 0, kMostDegree); }
  void size(const char* what, std::int64_t value) const { expect(what, value, 0, kMostSize); }
  void amount(const char* what, double value) const {
    if (!(value >= 0)) refuse_figure(owner_, what, value);
  }
  // Elements of half a byte are up to twice as many as bytes.
  std::int64_t product(const char* what, std::initializer_list<std::int64_t> factors) const {
    std::int64_t product = 1;
    for (const std::int64_t factor : factors)
      if (factor < 0 || __builtin_mul_overflow(product, factor, &product) || product > 4 * kMostSize)
        refuse_figure(owner_, what, static_cast<double>(factor));
    return product;
  }
  void chunk(ChunkId chunk, const RankProgram& rank_program) const {
    expect("chunk", chunk.value(), 0, std::max<std::int64_t>(std::ssize(rank_program.chunks.items()), 1) - 1);
  }
  void add(const char* what, std::int64_t bytes, std::int64_t& sum) const {
    size(what, bytes);
    sum += bytes;  // at most 2 * kMostSize
    size(what, sum);
  }

 private:
  std::string owner_;
};

void check_job(const Program& program) {
  const Figures figures("the job");
  figures.expect("ranks:", program.rank_count(), 1, std::numeric_limits<std::int32_t>::max());
  figures.expect("sequence", program.sequence, 1, kMostTokens);
  figures.expect("global_batch", program.global_batch, 0, kMostDegree);
  figures.index("layers", program.layers);
  figures.expect("p2p_buffers", program.p2p_buffers, 0, kMostDegree);
  const ExpertRouting& routing = program.routing;
  if (routing.experts == 0) return;
  figures.degree("experts", routing.experts);
  figures.expect("per_token", routing.per_token, 1, routing.experts);
  figures.expect("groups", routing.groups, 1, routing.experts);
  figures.expect("groups_per_token", routing.groups_per_token, 1, routing.groups);
  figures.amount("skew", routing.skew);
}

void check_degrees(const RankProgram& rank_program) {
  const Figures figures(rank_program.name);
  figures.index("pipeline", rank_program.pipeline);
  figures.index("stage", rank_program.stage);
  figures.degree("tensor_parallel", rank_program.tensor_parallel);
  figures.degree("expert_parallel", rank_program.expert_parallel);
  figures.degree("expert_tensor_parallel", rank_program.expert_tensor_parallel);
  figures.degree("context_parallel", rank_program.context_parallel);
  figures.degree("micro_batch", rank_program.micro_batch);
  figures.degree("micro_batches", rank_program.micro_batches);
  figures.size("sequence_stride", rank_program.sequence_stride);
  figures.size("static bytes", rank_program.static_bytes);
  for (const Chunk& chunk : rank_program.chunks) {
    figures.index("a chunk with virtual_stage", chunk.virtual_stage);
    figures.index("a chunk with first layer", chunk.first_layer);
    figures.expect("a chunk with last layer", chunk.last_layer, chunk.first_layer, kMostDegree);
  }
}

void check_tensors(const RankProgram& rank_program) {
  std::int64_t held = 0;
  for (const Tensor& tensor : rank_program.tensors) {
    const Figures figures(fmt::format("{}: tensor `{}`", rank_program.name, tensor.name));
    figures.add("bytes", tensor.bytes, held);
    figures.expect("axes:", std::ssize(tensor.shape), 1, 8);
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape)
      elements = figures.product("an extent of", {elements, extent});
    figures.index("parameter", tensor.parameter.value_or(0));
    figures.chunk(tensor.chunk, rank_program);
  }
}

// What is kept of some kernels' operands is another number of bytes on some chips (models/check/memory_kept.hpp).
void check_operands(const Figures& figures, const Kernel& kernel) {
  const auto least = [&](std::int64_t operands, std::int64_t results) {
    figures.expect("operands:", std::ssize(kernel.in), operands, kMostDegree);
    figures.expect("results:", std::ssize(kernel.out), results, kMostDegree);
  };
  if (kernel.op == KernelOp::attention && !is_share_of_attention(kernel)) least(1, 2);
  if (kernel.op == KernelOp::loss_backward || kernel.op == KernelOp::place_rows) least(1, 1);
  if (kernel.op == KernelOp::matmul || kernel.op == KernelOp::add_residual) least(1, 1);
}

void check_blocks(const RankProgram& rank_program) {
  for (const Block& block : rank_program.blocks) {
    const Figures figures(fmt::format("{}: a kernel of `{}`", rank_program.name, block.name));
    figures.chunk(block.chunk, rank_program);
    for (const Kernel& kernel : block.kernels) {
      figures.expect("layer", kernel.layer, -1, kMostDegree);
      figures.product("a size of m x n", {kernel.m, kernel.n});
      figures.product("a size of n x k", {kernel.n, kernel.k});
      figures.size("groups", kernel.groups);
      figures.size("busiest", kernel.busiest);
      figures.size("ahead", kernel.ahead);
      figures.expect("bytes", kernel.bytes, 0, 64 * kMostSize);
      check_operands(figures, kernel);
      figures.amount("factor", kernel.factor);
      figures.amount("flops", kernel.flops);
    }
  }
}

void check_message(const Figures& figures, const PeerMessage& message) {
  figures.degree("parts", message.parts);
  figures.degree("rows", message.rows);
  figures.expect("part", message.part, 0, message.parts - 1);
  figures.index("part_stride", message.part_stride);
  figures.size("bytes", message.bytes);
  figures.product("bytes in parts and rows of", {message.bytes, message.parts, message.rows});
}

void check_instructions(const RankProgram& rank_program) {
  std::int64_t allocated = 0, freed = 0;
  for (const Stream& stream : rank_program.streams) {
    const Figures figures(fmt::format("{}: an instruction of {}", rank_program.name, name_of(stream.kind)));
    figures.chunk(stream.chunk, rank_program);
    for (const Instruction& instruction : stream.instructions) {
      figures.add("allocated", instruction.allocated, allocated);
      figures.add("freed", instruction.freed, freed);
      figures.size("peak", instruction.peak);
      figures.amount("flops", instruction.flops);
      figures.size("bytes", payload_bytes(instruction));
      if (const PeerMessage* const message = instruction.message()) check_message(figures, *message);
      const auto* const collective = instruction.as<Collective>();
      if (collective == nullptr) continue;
      figures.expect("expected bytes", collective->expected, 0, collective->bytes);
      figures.amount("scale", collective->scale);
    }
  }
}

void check_entries(const Program& program) {
  for (const Rank rank : program.ranks.ids()) {
    const RankEntry& entry = program.ranks[rank];
    const Figures figures(fmt::format("rank {}", rank));
    figures.index("stage", entry.stage);
    figures.index("replica", entry.replica);
    figures.expect("chip", entry.chip, 0, kMostDegree);
    figures.index("tensor", entry.tensor_index);
    figures.index("context", entry.context_index);
    figures.size("sequence", entry.first_sequence);
  }
}

}  // namespace

void check_figures(const Program& program) {
  check_job(program);
  for (const RankProgram& rank_program : program.rank_programs) {
    check_degrees(rank_program);
    check_tensors(rank_program);
    check_blocks(rank_program);
    check_instructions(rank_program);
  }
  check_entries(program);
}

}  // namespace motley
