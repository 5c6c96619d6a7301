// The fields of Train, listed once: keys of `train:`, how each is written, and on which of them the Program depends.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "models/base/field_forms.hpp"
#include "models/transformer/train.hpp"
#include "models/transformer/train_text.hpp"

namespace motley {

inline constexpr IntegerRange kBatch{1, 1 << 20}, kTokens{1, 1 << 22};
inline constexpr std::array kKeptFormats = {Format::fp32, Format::tf32, Format::bf16, Format::fp16};
inline constexpr std::array kNarrowFormats = {Format::fp8, Format::mxfp8, Format::nvfp4};

// Each of these readers refuses a value out of its bounds.
double to_expert_room(const Yaml& node);           // 1 or more
double to_share_of_activations(const Yaml& node);  // 0 to 1
double to_decay(const Yaml& node);                 // 0 to less than 1

// Lengths of documents: one length for as many documents as the sequence holds, or a list of all lengths.
// find_batch_complaint() checks that they fill the sequence.
struct Documents {
  std::string text(const Train& train) const { return Several<Integer>{}.text(train.documents); }
  void read(const Yaml& node, Train& train) const;
};

// A path, searched in `folder` unless it is absolute.
struct TextPath {
  std::string_view folder;
  std::string text(const std::string& path) const { return quote(path); }
  void read(const Yaml& node, std::string& path) const;
};

struct TrainFields {
  using Struct = Train;
  std::string_view folder = ".";

  // Visits the fields on which the Program depends: strategy_hash() covers them.
  constexpr void each_of_program(auto&& visit) const {
    visit(field("global_batch", Integer{kBatch}, &Train::global_batch).needed());
    visit(field("micro_batch", Integer{kBatch}, &Train::micro_batch));
    visit(field("sequence", Integer{kTokens}, &Train::sequence).needed());
    visit(field("precision", Word<Format>{kKeptFormats}, &Train::precision));
    visit(field("gradients", Word<Format>{kKeptFormats}, &Train::gradients));
    visit(field("optimizer", Word<Optimizer>{}, &Train::optimizer).unless_standard());
    visit(field("master_weights", Truth{}, &Train::master_weights).unless_standard());
    visit(field("frozen_weights", Word<FrozenWeights>{}, &Train::frozen_weights).unless_standard());
    visit(field("matmuls", Maybe<Word<Format>>{{kNarrowFormats}}, &Train::matmuls).unless_standard());
    visit(field("kept_operands", Word<KeptOperands>{}, &Train::kept_operands).unless_standard());
    visit(field("kept_inner", Maybe<Word<Format>>{{kNarrowFormats}}, &Train::kept_inner).unless_standard());
    visit(field("expert_dispatch", Maybe<Word<Format>>{{kNarrowFormats}}, &Train::expert_dispatch)
              .unless_standard());
    visit(field("expert_skew", kNotNegative, &Train::expert_skew).unless_standard());
    visit(field("documents", Documents{}, &Train::documents).unless_standard());
    visit(field("expert_room", Number{to_expert_room}, &Train::expert_room).unless_standard());
  }
  constexpr void each(auto&& visit) const {
    each_of_program(visit);
    visit(field("fragmentation", Number{to_share_of_activations}, &Train::fragmentation));
    visit(field("learning_rate", kAboveZero, &Train::learning_rate));
    visit(field("beta1", Number{to_decay}, &Train::beta1));
    visit(field("beta2", Number{to_decay}, &Train::beta2));
    visit(field("epsilon", kAboveZero, &Train::epsilon));
    visit(field("weight_decay", kNotNegative, &Train::weight_decay));
    visit(field("seed", Integer{}, &Train::seed));
    visit(field("steps", Integer{kBatch}, &Train::steps));
    visit(field("text", TextPath{folder}, &Train::text).unless_standard());
    visit(field("tokens", Number{to_tokens}, &Train::tokens).unless_standard());
    visit(field("goodput", Number{to_goodput}, &Train::goodput));
  }
};

}  // namespace motley
