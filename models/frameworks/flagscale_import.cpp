// FlagScale's YAML as a scenario: its process meshes become stages, its keys are Megatron-LM's arguments. Facts are of
// the version in framework.cpp: flagscale/train/arguments.py, flagscale/train/hetero/parallel_context.py and its patch
// of Megatron-LM's arguments.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/base/index.hpp"
#include "models/base/units.hpp"
#include "models/frameworks/megatron_flags.hpp"
#include "models/frameworks/megatron_import.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/strategy/strategy_fields.hpp"

namespace motley {
namespace {

// Keys that FlagScale adds to those of Megatron-LM, and that are read here.
constexpr std::array kOwnKeys = {"enable-hetero",
                                 "hetero-process-meshes",
                                 "hetero-pipeline-layer-split",
                                 "hetero-device-types",
                                 "hetero-current-device-type",
                                 "hetero-use-cpu-communication",
                                 "expert-tensor-parallel-size-per-process-mesh",
                                 "use-partial-reduce-for-shared-embedding",
                                 "standalone-embedding-stage",
                                 "recompute-granularity-per-stage-micro-batch",
                                 "recompute-method-per-stage-micro-batch",
                                 "recompute-num-layers-per-stage-micro-batch",
                                 "multiple-of",
                                 "hidden-dim-multiplier",
                                 "tokenizer-path",
                                 "special-tokens-file"};

bool is_known(const std::string& name) {
  return megatron_flags().contains(name) ||
         std::find(kOwnKeys.begin(), kOwnKeys.end(), name) != kOwnKeys.end();
}

// A misspelt key is refused. Another one is of Megatron-LM's other versions, or of what runs beside the training.
void refuse_misspelt(const std::string& key, const Location& where) {
  std::vector<std::string> known;
  for (const auto& [flag, values] : megatron_flags()) known.push_back(flag);
  known.insert(known.end(), kOwnKeys.begin(), kOwnKeys.end());
  for (std::string& name : known) std::replace(name.begin(), name.end(), '-', '_');
  const std::string hint = suggest(key, known);
  if (hint.starts_with("did you mean"))
    throw Refusal(Exit::usage, "unknown-key", where,
                  fmt::format("FlagScale 0.8.0 has no key `{}`", shortened(key)), hint);
}

class KeyReader {
 public:
  KeyReader(const Yaml& root, std::vector<IgnoredSetting>& ignored)
      : settings_(root->where, WrittenSettings::Form::keys), ignored_(ignored) {
    for (const YamlEntry& entry : root->entries) {
      if (entry.key == "train" && entry.value->is_map())
        KeyReader::read_map(*entry.value);
      else if (entry.key == "system" || entry.key == "model" || entry.key == "data")
        read_entry(entry);
      else
        ignored_.push_back({entry.key, entry.where, "it only says how processes start"});
    }
  }
  WrittenSettings& settings() { return settings_; }
  // The rows of a list of lists.
  const std::vector<Yaml>* rows(const std::string& name) const {
    const auto entry = lists_.find(name);
    return entry == lists_.end() ? nullptr : &entry->second->items;
  }

 private:
  void read_map(const YamlNode& map) {
    for (const YamlEntry& entry : map.entries) read_entry(entry);
  }

  void read_entry(const YamlEntry& entry) {
    if (entry.value->is_map()) return read_map(*entry.value);
    std::string name = entry.key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (!is_known(name)) {
      refuse_misspelt(entry.key, entry.where);
      ignored_.push_back({entry.key, entry.where, "no key of FlagScale 0.8.0 that is read"});
      return;
    }
    WrittenSetting setting{entry.where, {}};
    if (entry.value->kind == YamlNode::Kind::sequence) {
      lists_[name] = entry.value;
      for (const Yaml& item : entry.value->items) setting.values.push_back({item->text, item->where, {}});
    } else {
      const std::string& text = entry.value->text;
      if (text.empty() || text == "false" || text == "False") return;  // FlagScale leaves such arguments out
      if (text != "true" && text != "True") setting.values.push_back({text, entry.value->where, {}});
    }
    if (settings_.has(name))
      ignored_.push_back({entry.key, settings_.where(name), "it is given again later, which counts"});
    settings_.add(name, std::move(setting));
  }

  WrittenSettings settings_;
  std::vector<IgnoredSetting>& ignored_;
  std::map<std::string, Yaml> lists_;
};

std::vector<std::int64_t> numbers(WrittenSettings& settings, const std::string& name, IntegerRange range) {
  std::vector<std::int64_t> values;
  for (const WrittenValue& value : settings.all().at(name).values)
    values.push_back(to_integer(scalar_at(value.text, value.where), range));
  settings.words(name);
  return values;
}

[[noreturn]] void refuse_meshes(const WrittenSettings& settings, const std::string& name,
                                const std::string& what, const std::string& hint = {},
                                RefusalSite site = RefusalSite::here()) {
  throw Refusal(Exit::infeasible, "impossible-meshes", settings.where(name), what, hint, site);
}

// The group of the cluster whose chips or whose name is the type of device.
std::vector<std::string> group_of(const std::string& device, const ImportOptions& options,
                                  Imported& imported) {
  if (options.groups.size() < 2) return {};
  for (const auto& [group, chip] : options.groups)
    if (group == device || chip == device) return {group};
  const std::string note = fmt::format(
      "no group of cluster `{}` has devices `{}`: stages take its chips in order", options.cluster, device);
  if (std::find(imported.notes.begin(), imported.notes.end(), note) == imported.notes.end())
    imported.notes.push_back(note);
  return {};
}

void read_layer_split(WrittenSettings& settings, const Transformer& t, std::vector<Stage>& stages) {
  std::vector<std::int64_t> layers;
  if (settings.has("hetero-pipeline-layer-split"))
    layers = numbers(settings, "hetero-pipeline-layer-split", {1, t.layers});
  else
    layers.assign(stages.size(), t.layers / static_cast<std::int64_t>(stages.size()));
  if (layers.size() != stages.size())
    refuse_meshes(settings, "hetero-pipeline-layer-split",
                  fmt::format("`hetero_pipeline_layer_split` has {} stages, the meshes have {}",
                              layers.size(), stages.size()));
  std::int64_t next = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages[i].first_layer = next;
    stages[i].last_layer = next += layers[i];
  }
  if (next != t.layers)
    refuse_meshes(settings,
                  settings.has("hetero-pipeline-layer-split") ? "hetero-pipeline-layer-split" : "num-layers",
                  fmt::format("the stages have {} layers together, the model {}", next, t.layers),
                  "`hetero_pipeline_layer_split` says the layers of each stage");
}

PipelineTemplate read_meshes(WrittenSettings& settings, const ImportOptions& options, Imported& imported) {
  const std::string key = "hetero-process-meshes";
  const std::vector<std::int64_t> sizes = numbers(settings, key, kDegree);
  if (sizes.empty() || sizes.size() % 5 != 0)
    refuse_meshes(
        settings, key,
        fmt::format("`hetero_process_meshes` has {} numbers, which are not meshes of five", sizes.size()),
        "five for each mesh: tensor, context, expert, data, pipeline");
  const std::size_t count = sizes.size() / 5;
  const std::vector<std::string> devices = settings.words("hetero-device-types");
  if (devices.size() != count)
    refuse_meshes(settings, settings.has("hetero-device-types") ? "hetero-device-types" : key,
                  fmt::format("{} meshes have {} types of devices", count, devices.size()),
                  "one for each mesh");
  std::vector<std::int64_t> cuts(count, 0);
  const std::string cut_key = "expert-tensor-parallel-size-per-process-mesh";
  if (settings.has(cut_key)) cuts = numbers(settings, cut_key, kDegree);
  if (cuts.size() != count)
    refuse_meshes(settings, cut_key,
                  fmt::format("{} meshes have {} expert-tensor-parallel sizes", count, cuts.size()));
  PipelineTemplate pipeline;
  pipeline.context_parallel = sizes[1];
  pipeline.replicas = sizes[3];
  for (std::size_t mesh = 0; mesh < count; ++mesh) {
    const std::int64_t* const size = &sizes[5 * mesh];
    if (size[1] != sizes[1])
      refuse_meshes(settings, key,
                    fmt::format("mesh {} cuts sequences in {}, the first in {}", mesh, size[1], sizes[1]),
                    "FlagScale has one context-parallel size");
    if (size[4] > kDegree.most / 64 || pipeline.stages.size() > 4096)
      refuse_meshes(settings, key, "the meshes have more than 4,096 stages");
    for (std::int64_t i = 0; i < std::min<std::int64_t>(size[4], 4096); ++i) {
      Stage& stage = pipeline.stages.emplace_back();
      stage.tensor_parallel = size[0];
      stage.expert_parallel = size[2];
      stage.expert_tensor_parallel = cuts[mesh] == size[0] ? 0 : cuts[mesh];
      stage.replicas = size[3] == pipeline.replicas ? 0 : size[3];
      stage.on = group_of(devices[mesh], options, imported);
    }
  }
  if (const auto stages = settings.integer("pipeline-model-parallel-size", kDegree);
      stages && *stages != static_cast<std::int64_t>(pipeline.stages.size()))
    refuse_meshes(settings, "pipeline-model-parallel-size",
                  fmt::format("`pipeline_model_parallel_size` is {}, the meshes have {} stages", *stages,
                              pipeline.stages.size()));
  for (const char* const name : {"tensor-model-parallel-size", "context-parallel-size",
                                 "expert-model-parallel-size", "expert-tensor-parallel-size"})
    settings.integer(name, kDegree);  // the meshes say it
  settings.text("hetero-current-device-type");
  settings.flag("use-partial-reduce-for-shared-embedding");
  settings.flag("enable-hetero");
  return pipeline;
}

// By stage, one value from rows of [stages, micro-batches, value, ...].
std::vector<std::int64_t> read_rows(const KeyReader& reader, const std::string& name, std::size_t stages,
                                    std::int64_t micro_batches, IntegerRange range) {
  std::vector<std::int64_t> values;
  const std::vector<Yaml>& rows = *reader.rows(name);
  const auto refuse = [&](const Location& where, const std::string& what,
                          RefusalSite site = RefusalSite::here()) {
    throw Refusal(Exit::infeasible, "impossible-meshes", where, what,
                  "rows of [stages, micro-batches, value], which add up to all stages and all micro-batches",
                  site);
  };
  Location where;
  for (const Yaml& row : rows) {
    where = row->where;
    const std::vector<Yaml>& items = to_sequence(row);
    if (items.size() < 3 || items.size() % 2 == 0)
      refuse(where, fmt::format("a row of {} numbers", items.size()));
    std::int64_t counted = 0;
    const std::int64_t value = to_integer(items[2], range);
    for (std::size_t i = 1; i < items.size(); i += 2) {
      counted += to_integer(items[i], kDegree);
      if (to_integer(items[i + 1], range) != value)
        throw Refusal(Exit::infeasible, "foreign-setting", items[i + 1]->where,
                      "micro-batches of one stage recompute unlike parts: in Motley they are alike",
                      "one value for all micro-batches of a stage");
    }
    if (counted != micro_batches)
      refuse(where, fmt::format("a row of {} micro-batches, a step has {}", counted, micro_batches));
    const std::int64_t repeats = to_integer(items[0], {1, static_cast<std::int64_t>(stages)});
    values.insert(values.end(), at(repeats), value);
  }
  if (values.size() != stages)
    refuse(where, fmt::format("rows of {} stages, the pipeline has {}", values.size(), stages));
  return values;
}

void read_recompute_rows(KeyReader& reader, Strategy& strategy, PipelineTemplate& pipeline) {
  WrittenSettings& settings = reader.settings();
  const char *const granularity = "recompute-granularity-per-stage-micro-batch",
                    *const method = "recompute-method-per-stage-micro-batch",
                    *const layers = "recompute-num-layers-per-stage-micro-batch";
  if (reader.rows(granularity) == nullptr && reader.rows(method) == nullptr && reader.rows(layers) == nullptr)
    return read_megatron_recompute(settings, strategy, pipeline.stages);
  for (const char* const name : {granularity, method, layers}) settings.words(name);
  const std::string whole = settings.choice("recompute-granularity", {"selective", "full"});
  if (whole != "full")
    throw Refusal(Exit::infeasible, "impossible-meshes",
                  settings.where(reader.rows(granularity) != nullptr ? granularity : layers),
                  "recomputation by stage stands beside selective recomputation",
                  "`recompute_granularity: full`");
  const bool blocks = settings.choice("recompute-method", {"uniform", "block"}) == "block";
  const std::int64_t usual = settings.integer("recompute-num-layers", kDegree, 1);
  const std::size_t count = pipeline.stages.size();
  const auto by_stage = [&](const char* name, IntegerRange range, std::int64_t otherwise) {
    return reader.rows(name) == nullptr ? std::vector<std::int64_t>(count, otherwise)
                                        : read_rows(reader, name, count, pipeline.micro_batches, range);
  };
  const auto recomputes = by_stage(granularity, {0, 1}, 1),
             by_block = by_stage(method, {0, 1}, blocks ? 1 : 0),
             number = by_stage(layers, {0, kDegree.most}, usual);
  for (std::size_t i = 0; i < count; ++i) {
    Stage& stage = pipeline.stages[i];
    stage.recompute = recomputes[i] == 1 && number[i] > 0 ? Recompute::full : Recompute::none;
    if (*stage.recompute == Recompute::none) continue;
    if (by_block[i] == 1) {
      stage.recompute_layers = number[i];
    } else if (number[i] > 1) {
      throw Refusal(
          Exit::infeasible, "foreign-setting", settings.where(layers),
          fmt::format("stage {} keeps the input of every {} layers: Motley keeps that of each", i, number[i]),
          "1 layer under the uniform method, or the block method");
    }
  }
}

}  // namespace

Imported import_flagscale(const std::string& text, const std::string& file, const ImportOptions& options) {
  const Yaml root = parse_yaml(text, file);
  if (!root->is_map())
    throw Refusal(Exit::usage, "wrong-type", root->where, "FlagScale's configuration is a map",
                  "with `system`, `model` and `data`");
  Imported imported;
  imported.name = options.name;
  imported.cluster = options.cluster;
  KeyReader reader(root, imported.ignored);
  WrittenSettings& settings = reader.settings();
  if (!settings.has("hetero-process-meshes")) {
    settings.flag("enable-hetero");
    read_megatron_job(settings, {std::nullopt, root->where}, options, imported);
    return imported;
  }
  refuse_megatron_clashes(settings);
  Transformer& t = imported.transformer = read_megatron_model(settings, options.name);
  Train& train = imported.train = read_megatron_train(settings);
  PipelineTemplate pipeline = read_meshes(settings, options, imported);
  read_layer_split(settings, t, pipeline.stages);
  const std::int64_t sequences = pipeline.replicas * train.micro_batch;
  if (train.global_batch == 0) train.global_batch = sequences;
  if (train.global_batch % sequences != 0)
    throw Refusal(
        Exit::infeasible, "impossible-batch", settings.where("global-batch-size"),
        fmt::format("{} sequences are not a multiple of micro-batch {} x {} replicas of the first mesh",
                    train.global_batch, train.micro_batch, pipeline.replicas));
  pipeline.micro_batches = train.global_batch / sequences;
  std::int64_t most = 1;
  for (const Stage& stage : pipeline.stages) most = std::max(most, stage.tensor_parallel);
  imported.strategy = read_megatron_options(
      settings, train,
      {pipeline.stages.size() > 1, false, most, pipeline.replicas, pipeline.context_parallel});
  read_recompute_rows(reader, imported.strategy, pipeline);
  imported.strategy.templates = {std::move(pipeline)};
  list_ignored(settings, imported.ignored);
  if (const auto complaint = find_complaint(t, train, imported.strategy))
    throw Refusal(Exit::infeasible, complaint->kind, settings.where("hetero-process-meshes"),
                  complaint->message, complaint->hint, complaint->site);
  return imported;
}

}  // namespace motley
