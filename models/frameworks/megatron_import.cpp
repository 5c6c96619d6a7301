#include "models/frameworks/megatron_import.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/index.hpp"
#include "models/frameworks/launch_line.hpp"
#include "models/frameworks/layer_layout.hpp"
#include "models/frameworks/megatron_flags.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/strategy/strategy_fields.hpp"

namespace motley {
namespace {

[[noreturn]] void refuse_unknown_flag(const std::string& name, const Location& where) {
  std::vector<std::string> known;
  for (const auto& [flag, values] : megatron_flags()) known.push_back("--" + flag);
  std::string hint = suggest("--" + name, known);
  if (!hint.starts_with("did you mean")) hint = "`pretrain_gpt.py --help` of Megatron-LM lists its arguments";
  throw Refusal(Exit::usage, "unknown-flag", where,
                fmt::format("Megatron-LM 0.20.0 has no --{}", shortened(name)), hint);
}

void refuse_number_of_values(const std::string& name, FlagValues values, const WrittenSetting& setting) {
  if (values == FlagValues::none && !setting.values.empty())
    throw Refusal(
        Exit::usage, "stray-word", setting.values[0].where,
        fmt::format("`{}` follows --{}, which takes no value", shortened(setting.values[0].text), name));
  if (values == FlagValues::one && setting.values.size() > 1)
    throw Refusal(
        Exit::usage, "stray-word", setting.values[1].where,
        fmt::format("`{}` follows --{}, which takes one value", shortened(setting.values[1].text), name));
  if (values != FlagValues::none && setting.values.empty())
    throw Refusal(Exit::usage, "wrong-number-of-values", setting.where,
                  fmt::format("--{} has no value", name));
}

// The caller's own arguments, which a script passes on.
bool is_passed_on(const ShellWord& word) { return word.unknown == "$@" || word.unknown == "$*"; }

// The arguments, each with the words up to the next one. What was given before under the same name no longer counts.
WrittenSettings read_arguments(const LaunchLine& line, std::vector<IgnoredSetting>& ignored) {
  WrittenSettings settings(line.where);
  const auto& words = line.arguments;
  for (std::size_t i = 0; i < words.size();) {
    const ShellWord& word = words[i++];
    if (!word.text.starts_with("--") || word.text.size() == 2) {
      if (word.unknown.empty())
        throw Refusal(Exit::usage, "stray-word", word.where,
                      fmt::format("`{}` stands where an argument (--name) is wanted", shortened(word.text)));
      ignored.push_back({word.text, word.where, "the text does not define it"});
      continue;
    }
    const std::size_t equals = word.text.find('=');
    const std::string name = word.text.substr(2, equals == std::string::npos ? equals : equals - 2);
    WrittenSetting setting{word.where, {}};
    if (equals != std::string::npos)
      setting.values.push_back({word.text.substr(equals + 1), word.where, word.unknown});
    else
      while (i < words.size() && !words[i].text.starts_with("--") && !is_passed_on(words[i])) {
        setting.values.push_back({words[i].text, words[i].where, words[i].unknown});
        ++i;
      }
    const auto flag = megatron_flags().find(name);
    if (flag == megatron_flags().end()) refuse_unknown_flag(name, word.where);
    refuse_number_of_values(name, flag->second, setting);
    if (settings.has(name))
      ignored.push_back({"--" + name, settings.where(name), "it is given again later, which counts"});
    settings.add(name, std::move(setting));
  }
  return settings;
}

struct Degrees {
  std::int64_t tp = 1, pp = 1, cp = 1, ep = 1, etp = 0, dp = 1;
};

Degrees read_degrees(WrittenSettings& settings, const StartedRanks& started, const ImportOptions& options,
                     std::vector<std::string>& notes) {
  Degrees d;
  d.tp = settings.integer("tensor-model-parallel-size", kDegree, 1);
  d.pp = settings.integer("pipeline-model-parallel-size", kDegree, 1);
  d.cp = settings.integer("context-parallel-size", kDegree, 1);
  d.ep = settings.integer("expert-model-parallel-size", kDegree, 1);
  d.etp = settings.integer("expert-tensor-parallel-size", kDegree, d.tp);
  if (d.etp == d.tp) d.etp = 0;
  if (d.tp > kDegree.most / d.pp || d.tp * d.pp > kDegree.most / d.cp)
    throw Refusal(Exit::infeasible, "too-many-ranks", settings.where("pipeline-model-parallel-size"),
                  "the degrees take more than a million ranks");
  const std::int64_t ranks = started.ranks.value_or(options.chips), model = d.tp * d.pp * d.cp;
  if (!started.ranks)
    notes.push_back(fmt::format(
        "the text does not say how many ranks start: they are the {} chips of the cluster", options.chips));
  if (ranks % model != 0)
    throw Refusal(
        Exit::infeasible, "impossible-degrees", started.where,
        fmt::format("{} ranks are not a multiple of tensor {} x pipeline {} x context {} = {}", ranks, d.tp,
                    d.pp, d.cp, model),
        started.ranks ? "" : "--ranks says how many ranks start, or a launcher in the text, as torchrun");
  d.dp = ranks / model;
  return d;
}

// Layers of each virtual stage where the first and the last stage may have their own numbers.
std::vector<std::int64_t> uneven_layers(WrittenSettings& settings, std::int64_t layers, std::int64_t stages,
                                        std::int64_t chunks) {
  const IntegerRange count{1, layers};
  const auto first = settings.integer("decoder-first-pipeline-num-layers", count);
  const auto last = settings.integer("decoder-last-pipeline-num-layers", count);
  const bool embedding = settings.flag("account-for-embedding-in-pipeline-split");
  const bool loss = settings.flag("account-for-loss-in-pipeline-split");
  std::int64_t rest = layers - first.value_or(0) - last.value_or(0) + (embedding ? 1 : 0) + (loss ? 1 : 0);
  const std::int64_t others = stages - (first ? 1 : 0) - (last ? 1 : 0);
  const auto refuse = [&](const char* about, const std::string& what,
                          RefusalSite site = RefusalSite::here()) {
    throw Refusal(Exit::infeasible, "impossible-stages", settings.where(about), what,
                  "--pipeline-model-parallel-layout says the layers of each stage", site);
  };
  const char* const about = first  ? "decoder-first-pipeline-num-layers"
                            : last ? "decoder-last-pipeline-num-layers"
                                   : "pipeline-model-parallel-size";
  if (others < 0 || rest < 0 || (others == 0 ? rest != 0 : rest % others != 0))
    refuse(about, fmt::format("{} layers cannot be divided evenly over {} pipeline stages", rest,
                              std::max<std::int64_t>(others, 0)));
  std::vector<std::int64_t> by_stage(at(stages), others > 0 ? rest / others : 0);
  if (first) by_stage.front() = *first;
  if (last) by_stage.back() = *last;
  std::vector<std::int64_t> counts(at(stages * chunks));
  for (std::int64_t i = 0; i < stages; ++i) {
    if (by_stage[at(i)] % chunks != 0)
      refuse("num-virtual-stages-per-pipeline-rank",
             fmt::format("stage {} has {} layers, which {} virtual stages do not divide", i, by_stage[at(i)],
                         chunks));
    for (std::int64_t c = 0; c < chunks; ++c) counts[at(c * stages + i)] = by_stage[at(i)] / chunks;
  }
  if (embedding) --counts.front();
  if (loss) --counts.back();
  for (std::size_t v = 0; v < counts.size(); ++v)
    if (counts[v] < 0 || (counts[v] == 0 && v != 0 && v + 1 != counts.size()))
      refuse(about, fmt::format("virtual stage {} has no layer", v));
  return counts;
}

std::vector<std::int64_t> read_layers(WrittenSettings& settings, const Transformer& t, std::int64_t stages) {
  if (const auto layout = settings.text("pipeline-model-parallel-layout"))
    return parse_layout(*layout, settings.where("pipeline-model-parallel-layout"), stages, t.layers,
                        t.trained_extra())
        .layers;
  std::int64_t chunks = settings.integer("num-virtual-stages-per-pipeline-rank", {1, 1024}, 1);
  if (const auto each = settings.integer("num-layers-per-virtual-pipeline-stage", {1, t.layers})) {
    const std::int64_t ends = (settings.flag("account-for-embedding-in-pipeline-split") ? 1 : 0) +
                              (settings.flag("account-for-loss-in-pipeline-split") ? 1 : 0);
    if ((t.layers + ends) % stages != 0 || (t.layers + ends) / stages % *each != 0)
      throw Refusal(Exit::infeasible, "impossible-stages",
                    settings.where("num-layers-per-virtual-pipeline-stage"),
                    fmt::format("{} layers do not make equal virtual stages of {} layers on {} stages",
                                t.layers + ends, *each, stages));
    chunks = (t.layers + ends) / stages / *each;
  }
  return uneven_layers(settings, t.layers, stages, chunks);
}

std::vector<Stage> lay_out(const std::vector<std::int64_t>& layers, const Degrees& d) {
  std::vector<Stage> stages(at(d.pp));
  std::int64_t next = 0;
  for (std::size_t v = 0; v < layers.size(); ++v) {
    Stage& stage = stages[v % stages.size()];
    const Layers chunk{next, next + layers[v]};
    next = chunk.last;
    if (v >= stages.size()) {
      stage.more.push_back(chunk);
      continue;
    }
    stage.first_layer = chunk.first;
    stage.last_layer = chunk.last;
    stage.tensor_parallel = d.tp;
    stage.expert_parallel = d.ep;
    stage.expert_tensor_parallel = d.etp;
  }
  return stages;
}

}  // namespace

void read_megatron_job(WrittenSettings& settings, const StartedRanks& started, const ImportOptions& options,
                       Imported& imported) {
  refuse_megatron_clashes(settings);
  Transformer& t = imported.transformer = read_megatron_model(settings, options.name);
  Train& train = imported.train = read_megatron_train(settings);
  const Degrees d = read_degrees(settings, started, options, imported.notes);
  PipelineTemplate pipeline;
  const std::vector<std::int64_t> layers = read_layers(settings, t, d.pp);
  pipeline.stages = lay_out(layers, d);
  pipeline.replicas = d.dp;
  pipeline.context_parallel = d.cp;
  if (train.global_batch == 0) {
    train.global_batch = train.micro_batch * d.dp;
    imported.notes.push_back(fmt::format("{} is not given: {}, one micro-batch of each replica",
                                         settings.as_written("global-batch-size"), train.global_batch));
  }
  if (train.global_batch % (train.micro_batch * d.dp) != 0)
    throw Refusal(Exit::infeasible, "impossible-batch", settings.where("global-batch-size"),
                  fmt::format("{} sequences are not a multiple of micro-batch {} x {} replicas",
                              train.global_batch, train.micro_batch, d.dp));
  pipeline.micro_batches = train.global_batch / (train.micro_batch * d.dp);
  const bool interleaved = layers.size() > at(d.pp);
  if (interleaved && d.pp == 1)
    throw Refusal(Exit::infeasible, "impossible-schedule", settings.where("pipeline-model-parallel-layout"),
                  "virtual stages need a pipeline of two stages or more",
                  "a larger " + settings.as_written("pipeline-model-parallel-size"));
  imported.strategy = read_megatron_options(settings, train, {d.pp > 1, interleaved, d.tp, d.dp, d.cp});
  read_megatron_recompute(settings, imported.strategy, pipeline.stages);
  imported.strategy.templates = {std::move(pipeline)};
  list_ignored(settings, imported.ignored);
  if (const auto complaint = find_complaint(t, train, imported.strategy))
    throw Refusal(Exit::infeasible, complaint->kind, started.where, complaint->message, complaint->hint,
                  complaint->site);
}

Imported import_megatron(const std::string& text, const std::string& file, const ImportOptions& options) {
  const LaunchLine line = read_launch_line(text, file);
  Imported imported;
  imported.name = options.name;
  imported.cluster = options.cluster;
  for (const ShellWord& word : line.launcher)
    if (word.text.starts_with("-"))
      imported.ignored.push_back({word.text, word.where, "it only starts processes"});
  WrittenSettings settings = read_arguments(line, imported.ignored);
  read_megatron_job(settings, {line.ranks, line.ranks ? line.ranks_where : line.where}, options, imported);
  return imported;
}

}  // namespace motley
