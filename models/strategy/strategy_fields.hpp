// The fields of a Strategy and of its parts, listed once: the keys of its explicit form, and how each is written.
// Read next: models/strategy/strategy_text.cpp, which also has the short form.
#pragma once

#include <string>
#include <vector>

#include "models/base/field_forms.hpp"
#include "models/strategy/strategy.hpp"

namespace motley {

inline constexpr IntegerRange kDegree{1, 1 << 20};  // products of three stay within int64

// Reads a share, 0 to 1. Refuses ("impossible-offload") more.
double to_share_in_host(const Yaml& node);
inline constexpr Number kShareInHost{to_share_in_host};

// A schedule's name, or {csv: FILE}, or, when printed, {rows: ["0F0,0B0", ...]}.
struct ScheduleOrder {
  std::string text(const Strategy& strategy) const;
  void read(const Yaml& node, Strategy& strategy) const;
};

// "0-11" or "5": first and last layer, both included. "before 0": no layer, and layer 0 is the next. A list of these
// if a stage holds several chunks.
struct Chunks {
  std::string text(const Stage& stage) const;
  void read(const Yaml& node, Stage& stage) const;
};

// A name, or a list of names.
struct GroupNames {
  std::string text(const std::vector<std::string>& names) const;
  void read(const Yaml& node, std::vector<std::string>& names) const;
};

struct OffloadFields {
  using Struct = Offload;
  constexpr void each(auto&& visit) const {
    visit(field("optimizer", kShareInHost, &Offload::optimizer));
    visit(field("activations", kShareInHost, &Offload::activations));
  }
};
inline constexpr Map<OffloadFields> kOffload{"`offload`"};

struct StageFields {
  using Struct = Stage;
  constexpr void each(auto&& visit) const {
    visit(field("layers", Chunks{}, &Stage::first_layer, &Stage::last_layer, &Stage::more).needed());
    visit(field("tensor_parallel", Integer{kDegree}, &Stage::tensor_parallel).or_short("tp"));
    each_of_experts(visit);
    visit(field("on", GroupNames{}, &Stage::on).unless_standard());
    visit(field("recompute", Maybe<RecomputeForm>{}, &Stage::recompute).unless_standard());
    visit(field("recompute_layers", Maybe<Integer>{{kDegree}}, &Stage::recompute_layers).unless_standard());
    visit(field("resharding", Maybe<Word<Resharding>>{}, &Stage::resharding).unless_standard());
    visit(field("offload", Maybe<Map<OffloadFields>>{kOffload}, &Stage::offload).unless_standard());
    visit(field("replicas", Integer{kDegree}, &Stage::replicas).unless_standard());
  }
  // The short form of a strategy also has these keys; they are for every stage.
  constexpr void each_of_experts(auto&& visit) const {
    visit(
        field("expert_parallel", Integer{kDegree}, &Stage::expert_parallel).or_short("ep").unless_standard());
    visit(field("expert_tensor_parallel", Integer{kDegree}, &Stage::expert_tensor_parallel)
              .or_short("etp")
              .unless_standard());
  }
};

struct PipelineTemplateFields {
  using Struct = PipelineTemplate;
  constexpr void each(auto&& visit) const {
    visit(field("replicas", Integer{kDegree}, &PipelineTemplate::replicas));
    visit(field("micro_batches", Integer{kDegree}, &PipelineTemplate::micro_batches).needed());
    visit(field("micro_batch", Integer{kDegree}, &PipelineTemplate::micro_batch).unless_standard());
    visit(field("context_parallel", Integer{kDegree}, &PipelineTemplate::context_parallel)
              .or_short("cp")
              .unless_standard());
    visit(field("stages", Items<StageFields, Layout::line_an_item>{"a stage"}, &PipelineTemplate::stages)
              .needed());
  }
};

struct OverlapFields {
  using Struct = Strategy;
  constexpr void each(auto&& visit) const {
    visit(field("p2p", Truth{}, &Strategy::overlap_p2p));
    visit(field("gradients", Truth{}, &Strategy::overlap_gradients));
    visit(field("parameters", Truth{}, &Strategy::overlap_parameters).unless_standard());
    visit(field("experts", Truth{}, &Strategy::overlap_experts).unless_standard());
    visit(field("context", Truth{}, &Strategy::overlap_context).unless_standard());
    visit(field("steps", Maybe<Truth>{}, &Strategy::overlap_steps).unless_standard());
    visit(field("bucket_bytes", Bytes{}, &Strategy::bucket_bytes));
  }
};

// Keys beside `templates`, or in the short form beside the degrees.
struct StrategyOptionFields {
  using Struct = Strategy;
  constexpr void each(auto&& visit) const {
    visit(field("schedule", ScheduleOrder{}, &Strategy::schedule, &Strategy::timetable));
    visit(field("put_off", Word<PutOff>{}, &Strategy::put_off).unless_standard());
    visit(field("recompute", RecomputeForm{}, &Strategy::recompute));
    visit(field("p2p_buffers", Integer{{1, 1024}}, &Strategy::p2p_buffers));
    visit(part("overlap", Part<OverlapFields>{"`overlap`"}));
    visit(field("sequence_parallel", Truth{}, &Strategy::sequence_parallel).unless_standard());
    visit(field("expert_weights", Word<ExpertWeights>{}, &Strategy::expert_weights).unless_standard());
    visit(field("zero", Integer{{0, 3}}, &Strategy::zero).unless_standard());
    visit(field("reduce_gradients", Word<ReduceGradients>{}, &Strategy::reduce_gradients).unless_standard());
    visit(field("shard_over", Integer{{2, kDegree.most}}, &Strategy::shard_over).unless_standard());
    visit(field("prefetch", Integer{{0, 64}}, &Strategy::prefetch).unless_standard());
    visit(field("reshard_after_forward", Truth{}, &Strategy::reshard_after_forward).unless_standard());
    visit(field("offload", kOffload, &Strategy::offload).unless_standard());
  }
};

struct StrategyFields {
  using Struct = Strategy;
  constexpr void each(auto&& visit) const {
    StrategyOptionFields{}.each(visit);
    visit(field("templates", Items<PipelineTemplateFields, Layout::line_a_key>{"a template"},
                &Strategy::templates)
              .needed());
  }
};

}  // namespace motley
