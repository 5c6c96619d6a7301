// The shape of a published row's model: the shipped model that it resembles, with the sizes that the row prints.
#include <fmt/format.h>

#include <algorithm>

#include "models/published/printed_row.hpp"
#include "models/transformer/transformer_text.hpp"

namespace motley {

PrintedRow::PrintedRow(const PublishedRules& all_rules, const PublishedRun& one,
                       const std::vector<PublishedRun>& all)
    : rules(all_rules), run(one), table(all), cells(one.row), recipe(all_rules.recipe(one)) {
  if (const SetRule* const known = all_rules.set(one.set)) set = *known;
  if (!recipe) return;
  if (recipe->recompute) set.recompute = recipe->recompute;
  if (recipe->expert_weights) set.expert_weights = *recipe->expert_weights;
  if (recipe->expert_room > 0) set.expert_room = recipe->expert_room;
}

const ModelRule& PrintedRow::model() const {
  const ModelRule* const rule = rules.model(cells.text("model_name"));
  if (!rule) pass_over(fmt::format("no shape is known of `{}`", cells.text("model_name")));
  return *rule;
}

std::int64_t PrintedRow::sequence() const {
  return cells.text("seq_len").empty() && set.sequence > 0 ? set.sequence : cells.count("seq_len");
}

Transformer printed_transformer(const PrintedRow& row) {
  const ModelRule& model = row.model();
  if (!model.unlike.empty()) pass_over(model.unlike);
  const PrintedCells& cells = row.cells;
  Transformer t = model.shape();
  t.name = cells.text("model_name");
  if (row.set.tied) t.tied_embeddings = *row.set.tied;
  if (row.set.vocabulary > 0) t.vocabulary = row.set.vocabulary;
  t.vocabulary = cells.count_or("vocab", t.vocabulary);
  const bool any_gpt = t.family == Family::gpt2 && model.like == "gpt3-175b";
  if (any_gpt)
    for (const char* column : {"hidden", "layers", "heads"}) cells.count(column);
  const std::int64_t hidden = t.hidden, heads = t.heads;
  t.hidden = cells.count_or("hidden", t.hidden);
  t.layers = cells.count_or("layers", t.layers);
  t.heads = cells.count_or("heads", t.heads);
  t.kv_heads = any_gpt ? t.heads : cells.count_or("kv_heads", t.kv_heads);
  std::int64_t& inner = t.experts.count > 0 ? t.experts.ffn : t.ffn;  // tables print an expert's inner width
  inner = cells.count_or("ffn_hidden", any_gpt ? 4 * t.hidden : inner);
  if (!model.gated)
    inner = inner * 2 / 3;  // two matrices replace a gated part's three: equal weights and FLOPs
  if ((t.hidden != hidden || t.heads != heads) && !t.latent.used()) t.head_dim = t.hidden / t.heads;
  t.max_positions = std::max(t.max_positions, row.sequence());
  const auto dense =
      static_cast<std::int64_t>(cells.noted("dense_layers=", {0, static_cast<double>(kLayers.most)})
                                    .value_or(static_cast<double>(t.layers)));
  std::erase_if(t.experts.dense_layers, [&](std::int64_t layer) { return layer >= dense; });
  std::erase_if(t.full_attention, [&](std::int64_t layer) { return layer >= t.layers; });
  try {
    refuse_impossible(t, cells.where("model_name"));
  } catch (const Refusal& refusal) {
    pass_over(refusal.message());
  }
  return t;
}

}  // namespace motley
