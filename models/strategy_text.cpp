// The explicit text form of a Strategy (YAML that reads back equal) and the hash that names it.
#include <fmt/format.h>

#include "models/strategy.hpp"
#include "models/units.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace motley {
namespace {

std::string_view name_of(Schedule schedule) { return schedule == Schedule::gpipe ? "gpipe" : "1f1b"; }
std::string_view name_of(Recompute recompute) { return recompute == Recompute::full ? "full" : "none"; }

// What a loss depends on, beside the strategy: everything of the transformer but its name and source.
std::string print_shape(const Transformer& t) {
  return fmt::format("{} V={} C={} L={} H={} kv={} hd={} ffn={} pos={} tied={} eps={} theta={}\n",
                     static_cast<int>(t.family), t.vocabulary, t.hidden, t.layers, t.heads, t.kv_heads,
                     t.head_dim, t.ffn, t.max_positions, t.tied_embeddings, format_exact(t.norm_epsilon),
                     format_exact(t.rope_theta));
}
std::string print_training(const Train& train) {
  return fmt::format("batch={} micro={} T={} {} {}\n", train.global_batch, train.micro_batch, train.sequence,
                     motley::name_of(train.precision), motley::name_of(train.gradients));
}

}  // namespace

std::string print(const Strategy& strategy) {
  std::string text = fmt::format(
      "schedule: {}\nrecompute: {}\np2p_buffers: {}\noverlap: {{p2p: {}, gradients: {}, bucket_bytes: {} "
      "B}}\ntemplates:\n",
      name_of(strategy.schedule), name_of(strategy.recompute), strategy.p2p_buffers, strategy.overlap_p2p,
      strategy.overlap_gradients, strategy.bucket_bytes);
  for (const PipelineTemplate& pipeline : strategy.templates) {
    text += fmt::format("  - replicas: {}\n    micro_batches: {}\n    stages:\n", pipeline.replicas,
                        pipeline.micro_batches);
    for (const Stage& stage : pipeline.stages)
      text += fmt::format("      - {{layers: {}-{}, tensor_parallel: {}}}\n", stage.first_layer,
                          stage.last_layer - 1, stage.tensor_parallel);
  }
  return text;
}

std::string strategy_hash(const Transformer& transformer, const Train& train, const Strategy& strategy) {
  const std::string text = print_shape(transformer) + print_training(train) + print(strategy);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace motley
