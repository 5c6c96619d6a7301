#include "models/scenario/schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/json_text.hpp"
#include "models/base/read_watcher.hpp"
#include "models/base/text_file.hpp"
#include "models/cluster/cluster.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/setting.hpp"
#include "models/scenario/software.hpp"

namespace motley {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kNumber = "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?";

// What is written in all places of one kind: every `tensor_parallel` of every stage, say.
struct Place {
  std::vector<ValueForm> forms;
  std::set<std::string> words;  // scalars that no reader of values took: `none`, `usual`
  bool is_map = false, is_list = false;
  bool has_any_key = false;  // keys are names that the file makes up
  std::set<std::string> known;
  std::optional<std::set<std::string>> needed;  // in every map
  std::map<std::string, std::unique_ptr<Place>> keys;
  std::unique_ptr<Place> item;  // of a list, or the value of any key
  std::string says;             // the comment of an example
  std::string named_in;         // folder of files whose names may stand here

  Place& key(const std::string& name) {
    std::unique_ptr<Place>& place = keys[name];
    if (place == nullptr) place = std::make_unique<Place>();
    return *place;
  }
  Place& items() {
    if (item == nullptr) item = std::make_unique<Place>();
    return *item;
  }
};

// Maps of one kind stand in many places (the site of a cluster, and of a group), and one sample teaches all. A figure
// with its source is the exception: its value has another unit in each place.
bool is_teacher(const Place& place) { return place.is_map && !place.has_any_key && place.known.size() > 2; }

using Teachers = std::map<std::set<std::string>, std::vector<const Place*>>;

void collect_teachers(const Place& place, Teachers& teachers) {
  if (is_teacher(place)) teachers[place.known].push_back(&place);
  for (const auto& [key, value] : place.keys) collect_teachers(*value, teachers);
  if (place.item) collect_teachers(*place.item, teachers);
}

// The place from which the form of a key without a sample is known; nullptr: no sample has it. Where several keys of
// the map hold maps of one kind (the kernels of a chip), so does this one.
const Place* taught(const Place& map, const std::string& key, const Teachers& teachers) {
  const auto is_list = [](const auto& entry) { return entry.second->is_list; };
  if (!map.keys.empty() && std::all_of(map.keys.begin(), map.keys.end(), is_list))
    return map.keys.begin()->second.get();
  for (const auto& [known, alike] : teachers)
    if (std::includes(known.begin(), known.end(), map.known.begin(), map.known.end()))
      for (const Place* const other : alike)
        if (const auto value = other->keys.find(key); value != other->keys.end()) return value->second.get();
  std::map<std::set<std::string>, int> kinds;
  for (const auto& [sibling, value] : map.keys)
    if (is_teacher(*value) && ++kinds[value->known] == 3) return value.get();
  return nullptr;
}

// Where a node stands in its file.
std::string id_of(const Location& where) {
  return fmt::format("{}:{}:{}", where.file, where.line, where.column);
}

// The comments of a text by line, with those of the lines below that hold nothing else.
std::map<int, std::string> comments_of(const std::string& text) {
  std::map<int, std::string> comments;
  std::istringstream lines(text);
  std::string line;
  int number = 0, last = 0;
  while (std::getline(lines, line)) {
    ++number;
    const std::size_t mark = line.find(" # ");
    if (mark == std::string::npos) continue;
    const bool goes_on = line.find_first_not_of(' ') == mark + 1;
    if (!goes_on) last = number;
    std::string& comment = comments[last];
    if (!comment.empty()) comment += ' ';
    comment.append(line, mark + 3);
  }
  return comments;
}

// The kind of a file by its folder and keys; nothing: another kind.
std::optional<FileKind> kind_of(const std::string& file, const Yaml& root) {
  if (folder_of(file).ends_with("platforms/software")) return FileKind::software;
  if (!root->is_map()) return std::nullopt;
  if (root->find("model") && root->find("train")) return FileKind::scenario;
  if (root->find("groups")) return FileKind::cluster;
  if (root->find("peak")) return FileKind::chip;
  return std::nullopt;
}

class Watcher : public ReadWatcher {
 public:
  void file_parsed(const std::string& file, const Yaml& root) override {
    if (roots_.try_emplace(file, root).second) new_files_.push_back(file);
  }
  void map_read(const Location& map, const std::vector<std::string>& known) override {
    maps_[id_of(map)].known.insert(known.begin(), known.end());
  }
  void key_needed(const Location& map, std::string_view key) override {
    maps_[id_of(map)].needed.insert(std::string(key));
  }
  void value_read(const Location& value, const ValueForm& form) override {
    std::vector<ValueForm>& forms = values_[id_of(value)];
    if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
  }

  // Reads. What could not be read to its end teaches nothing: whoever uses it is told why.
  template <class Read>
  void learn(Read read) {
    new_files_.clear();
    try {
      read();
    } catch (const Refusal&) {
      for (const std::string& file : new_files_) roots_.erase(file);
    }
  }

  // What was seen, by kind of file; the model of a scenario beside them.
  struct Seen {
    std::map<FileKind, Place> kinds;
    Place model;
  };
  Seen seen(const std::map<std::string, std::string>& commented_texts) const {
    Seen seen;
    for (const auto& [file, root] : roots_) {
      const auto kind = kind_of(file, root);
      if (!kind) continue;
      const auto text = commented_texts.find(file);
      const std::map<int, std::string> comments =
          text == commented_texts.end() ? std::map<int, std::string>{} : comments_of(text->second);
      merge(root, seen.kinds[*kind], {seen, comments, ""});
    }
    return seen;
  }

 private:
  struct ReadMap {
    std::set<std::string> known, needed;
  };
  struct Walk {
    Seen& seen;
    const std::map<int, std::string>& comments;
    std::string path;  // from the file's root: "/groups/[]/chip"
  };

  void merge(const Yaml& node, Place& place, const Walk& walk) const {
    switch (node->kind) {
      case YamlNode::Kind::null:
        return;
      case YamlNode::Kind::map:
        return merge_map(*node, place, walk);
      case YamlNode::Kind::sequence:
        place.is_list = true;
        for (const Yaml& item : node->items)
          merge(item, place.items(), {walk.seen, walk.comments, walk.path + "/[]"});
        return;
      case YamlNode::Kind::scalar:
        break;
    }
    const auto forms = values_.find(id_of(node->where));
    if (forms == values_.end()) {
      place.words.insert(node->text);
      return;
    }
    for (const ValueForm& form : forms->second)
      if (std::find(place.forms.begin(), place.forms.end(), form) == place.forms.end())
        place.forms.push_back(form);
  }

  void merge_map(const YamlNode& node, Place& place, const Walk& walk) const {
    place.is_map = true;
    const auto read = maps_.find(id_of(node.where));
    if (read == maps_.end()) {
      place.has_any_key = true;
      for (const YamlEntry& entry : node.entries)
        merge(entry.value, place.items(), {walk.seen, walk.comments, walk.path + "/*"});
      return;
    }
    const ReadMap& map = read->second;
    place.known.insert(map.known.begin(), map.known.end());
    if (!place.needed) place.needed = map.needed;
    std::erase_if(*place.needed, [&](const std::string& key) { return !map.needed.contains(key); });
    for (const YamlEntry& entry : node.entries) {
      const bool is_on = !map.known.contains(entry.key) && map.known.contains("on");
      const std::string key = is_on ? "on" : entry.key;
      const Walk inner{walk.seen, walk.comments, walk.path + "/" + key};
      Place& value = place.key(key);
      if (const auto comment = walk.comments.find(entry.where.line);
          comment != walk.comments.end() && value.says.empty())
        value.says = comment->second;
      merge(entry.value, elsewhere(*entry.value, inner, value), inner);
    }
  }

  // The place of a value that is written as a file of its own would be: a cluster in a scenario, say.
  Place& elsewhere(const YamlNode& value, const Walk& walk, Place& place) const {
    if (walk.path == "/model") place.named_in = "scenarios/models";
    if (walk.path == "/cluster") place.named_in = "platforms";
    if (walk.path.ends_with("/groups/[]/chip")) place.named_in = "platforms/chips";
    if (walk.path == "/software") place.named_in = "platforms/software";
    if (!value.is_map()) return place;
    if (walk.path == "/model") return walk.seen.model;
    if (walk.path == "/cluster") return walk.seen.kinds[FileKind::cluster];
    if (walk.path.ends_with("/groups/[]/chip")) return walk.seen.kinds[FileKind::chip];
    return place;
  }

  std::map<std::string, Yaml> roots_;
  std::vector<std::string> new_files_;
  std::map<std::string, ReadMap> maps_;
  std::map<std::string, std::vector<ValueForm>> values_;
};

// Watches while it lives.
class Watching {
 public:
  explicit Watching(ReadWatcher& watcher) { watch_reads(&watcher); }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
  ~Watching() { watch_reads(nullptr); }
};

std::vector<std::string> files_in(const std::string& folder, const std::string& extension) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == extension) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

// The YAML examples of a page, each padded so that its lines have the numbers that they have in the page.
std::vector<std::string> examples_of(const std::string& page) {
  std::vector<std::string> examples;
  std::istringstream lines(page);
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) {
      inside = line == "```yaml";
      if (inside) examples.emplace_back(static_cast<std::size_t>(number), '\n');
    } else if (inside) {
      examples.back() += line + "\n";
    }
  }
  return examples;
}

// Values of keys that every file and example leaves out, or writes as null.
constexpr std::array kFurther = {
    "train.documents=[2048, 2048]",
    "train.documents=2",
    "train.extra_prediction_weight=0.3",
    "train.lora={rank: 16, alpha: 32, on: [qkv]}",
    "site={pue: 1.2, electricity: 0.1 USD/kWh, carbon: 380 g/kWh, node_power: 2 kW}",
    "cluster.groups.0.site={pue: 1.2}",
    "slow={node: 1, factor: 0.9}",
    "slow=[{node: 1, factor: 0.9}]",
    "variation=usual",
    "variation=none",
    "variation={chips: {sd: 0.02}}",
    "layers=gpt-neo-2.7b",
    "name=any",
    "measured=41 s",
    "transport=sockets",
    "strategy.recompute_layers=4",
    "strategy.data_parallel=auto",
    "strategy={tensor_parallel: [1, 2], pp: 2}",
    "strategy={tp: [1, 2], pp: 2}",
    "strategy.overlap={steps: true}",
    "strategy.virtual_stages=2",
    "world={kind: mixed, real_ranks: [0], contribution: recorded, recording: file}",
    "strategy={templates: [{micro_batches: 128, cp: 1, stages: [{layers: 0-31, tp: 1, "
    "ep: 1, etp: 1, "
    "offload: {optimizer: 1, activations: 0}, recompute: full, recompute_layers: 4, replicas: 1, on: all, "
    "resharding: naive}]}]}",
    "strategy={templates: [{micro_batches: 128, cp: 1, stages: [{layers: 0-31, ep: 1, etp: 1}]}]}",
    "strategy={templates: [{micro_batches: 128, context_parallel: 1, stages: [{layers: 0-31, tp: 1, "
    "expert_parallel: 1, "
    "expert_tensor_parallel: 1}]}]}",
    "plan={policy: optimal, objective: time, time_limit: 10 s, evaluations: 400, ablate: [uniform-layers], "
    "tokens: 2T, "
    "deadline: 30 d, budget: 500000 USD, target: megatron-lm, pins: {groups: [a], tp: 8, pp: 4, dp: 2, "
    "micro_batch: 2, "
    "most_stages: 8, forbidden_links: [[a, c]]}}",
    "plan={ablate: uniform-layers, pins: {tp: {a: 8}, pp: 4}}",
    "plan={pins: {tensor_parallel: 8, pipeline_parallel: 4, data_parallel: 2}}",
    "model={name: m, family: llama, vocabulary: 256, hidden: 64, layers: 4, heads: 4, ffn: 192, "
    "max_positions: 4096, "
    "latent: {q_rank: 16, kv_rank: 16, rope_dim: 8, value_dim: 16}, extra_predictions: 1, "
    "extra_prediction_weight: 0.3}",
    "model={name: m, family: llama, vocabulary: 256, hidden: 64, layers: 4, heads: 4, ffn: 192, "
    "max_positions: 4096, "
    "lora: {rank: 4, alpha: 8, on: [qkv]}}",
    "model={name: m, family: llama, vocabulary: 256, hidden: 64, layers: 4, heads: 4, ffn: 192, "
    "max_positions: 4096, "
    "qk_norm: true, qk_norm_form: all_heads, norms: both, activation: gelu, sliding_window: 64, "
    "full_attention: [3], "
    "full_attention_rope: false, windowed_rope_theta: 1000, rope_dim: 8, attention_sinks: true, score_width: "
    "8, "
    "attention_softcap: 50, logit_softcap: 30, embedding_scale: 8, attention_chunk: 0, "
    "experts: {count: 8, per_token: 2, ffn: 64, bias: true, router_bias: true, weighted_inputs: true}}",
    "model={name: m, family: llama, vocabulary: 256, hidden: 64, layers: 4, heads: 4, ffn: 192, "
    "max_positions: 4096, "
    "experts: {count: 8, per_token: 2, ffn: 64, groups: 2, groups_per_token: 1, normalise: true, scale: 2.5, "
    "scores: sigmoid, shared_ffn: 64, shared_gate: false, dense_layers: [0], balancing_bias: true}}"};

// Reads the scenario `quickstart` with one value changed. What it means need not be possible.
void read_further(const std::string& setting) {
  std::vector<std::string> settings = {setting};
  if (setting.starts_with("plan")) settings.insert(settings.begin(), "strategy=");
  if (setting.starts_with("layers"))
    settings.insert(settings.begin(),
                    {"model=gpt-neo-2.7b", "cluster.groups.0.chip=a100-40gb-sxm",
                     "train={global_batch: 8, sequence: 2048, precision: fp32}", "strategy={dp: 8}"});
  const std::string path = find_shipped_scenario("quickstart");
  const std::string name = fmt::format("{}/{}", folder_of(path), setting.substr(0, setting.find('=')));
  const Yaml root = parse_yaml(print_yaml(read_scenario_file(path, settings)),
                               fmt::format("{} {:016x}", name, std::hash<std::string>{}(setting)));
  read_scenario(root, path, ScenarioUse::plan);
}

Watcher::Seen seen_in_all_files() {
  Watcher watcher;
  const Watching watching(watcher);
  const std::string data = data_folder();
  std::map<std::string, std::string> texts;
  for (const char* const folder : {"scenarios", "platforms"}) {
    const std::string page = fmt::format("{}/{}/README.md", data, folder);
    if (!is_text_source(page)) continue;
    int count = 0;
    for (const std::string& example : examples_of(read_text_file(page))) {
      // Names in locations differ, folders do not: paths in an example are relative to the page.
      const std::string name = fmt::format("{}/{}/README.md example {}", data, folder, ++count);
      texts[name] = example;
      watcher.learn([&] {
        const Yaml root = parse_yaml(example, name);
        switch (kind_of(name, root).value_or(FileKind::software)) {
          case FileKind::scenario:
            read_scenario(root, name, ScenarioUse::plan);
            break;
          case FileKind::cluster:
            read_cluster(root, "example", data + "/platforms");
            break;
          case FileKind::chip:
            read_chip(root, "example");
            break;
          case FileKind::software:
            break;
        }
      });
    }
  }
  for (const std::string& file : files_in(data + "/scenarios", ".yaml"))
    watcher.learn([&] { read_scenario(read_yaml(file), file, ScenarioUse::plan); });
  for (const std::string& file : files_in(data + "/platforms", ".yaml"))
    watcher.learn([&] { load_cluster(file); });
  for (const std::string& file : files_in(data + "/platforms/chips", ".yaml"))
    watcher.learn([&] { load_chip(file); });
  for (const std::string& file : files_in(data + "/platforms/software", ".yaml"))
    watcher.learn([&] {
      Cluster used = load_cluster("mixed-fleet");
      use_software(stem_of(file), used);
      const Yaml software = read_yaml(file);
      neutral_figures(software);
      if (const YamlEntry* const on = software->find("on"))
        for (const YamlEntry& entry : on->value->entries) {
          Chip chip = load_chip(entry.key);
          replace_figures(entry.value, chip);
        }
    });
  for (const char* const setting : kFurther) watcher.learn([&] { read_further(setting); });
  return watcher.seen(texts);
}

Json form_schema(const ValueForm& form) {
  switch (form.kind) {
    case ValueForm::Kind::integer: {
      Json json = {{"type", "integer"}, {"minimum", form.range.least}};
      if (form.range.most != IntegerRange{}.most) json["maximum"] = form.range.most;
      return json;
    }
    case ValueForm::Kind::number: {
      Json json = {{"type", "number"}};
      if (form.bounds.sign != Sign::any)
        json[form.bounds.sign == Sign::positive ? "exclusiveMinimum" : "minimum"] = 0;
      if (std::isfinite(form.bounds.least)) json["minimum"] = form.bounds.least;
      if (std::isfinite(form.bounds.most)) json["maximum"] = form.bounds.most;
      return json;
    }
    case ValueForm::Kind::quantity: {
      std::string units;
      bool has_plain = false;
      for (const std::string_view unit : unit_names(form.dimension)) {
        if (unit.empty()) has_plain = true;
        if (!unit.empty()) units += (units.empty() ? "" : "|") + std::string(unit);
      }
      const Json text = {{"type", "string"},
                         {"pattern", fmt::format("^ *{} *({}){} *$", kNumber, units, has_plain ? "?" : "")}};
      return has_plain ? Json{{"anyOf", {text, {{"type", "number"}}}}} : text;
    }
    case ValueForm::Kind::truth:
      return {{"type", "boolean"}};
    case ValueForm::Kind::text:
      return {{"type", {"string", "number", "boolean"}}};
    case ValueForm::Kind::word:
      return {{"enum", form.words}};
  }
  return {};
}

// Integers of one place may have unlike bounds, as a rank has: the widest ones hold.
std::vector<ValueForm> joined(const std::vector<ValueForm>& forms) {
  std::vector<ValueForm> list;
  for (const ValueForm& form : forms) {
    const auto same = std::find_if(list.begin(), list.end(), [&](const ValueForm& other) {
      return other.kind == form.kind && form.kind == ValueForm::Kind::integer;
    });
    if (same == list.end()) {
      list.push_back(form);
      continue;
    }
    same->range.least = std::min(same->range.least, form.range.least);
    same->range.most = std::max(same->range.most, form.range.most);
  }
  return list;
}

// A word that a reader takes by itself, as YAML reads it: `true` and numbers are no strings.
Json word_json(const std::string& word) {
  if (word == "true" || word == "false") return word == "true";
  const Json parsed = Json::parse(word, nullptr, false);
  return parsed.is_number() ? parsed : Json(word);
}

std::vector<std::string> shipped_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const char* const extension : {".yaml", ".json"})
    for (const std::string& file : files_in(data_folder() + "/" + folder, extension))
      names.push_back(stem_of(file));
  return names;
}

// The definition of what may also be a file of its own; empty: none is.
std::string definition_at(const std::string& path) {
  if (path == "scenario/model") return "model";
  if (path == "scenario/cluster") return "cluster";
  if (path.ends_with("cluster/groups/[]/chip")) return "chip";
  return {};
}

class Writer {
 public:
  explicit Writer(const Watcher::Seen& seen) {
    for (const auto& [kind, place] : seen.kinds) collect_teachers(place, teachers_);
    collect_teachers(seen.model, teachers_);
  }

  Json map_schema(const Place& place, const std::string& path) const {
    Json json = {{"type", "object"}};
    if (place.has_any_key) {
      json["additionalProperties"] = place.item ? schema(*place.item, path + "/*") : Json(true);
      return json;
    }
    json["additionalProperties"] = false;
    Json properties = Json::object();
    for (const std::string& key : place.known) {
      const auto sample = place.keys.find(key);
      const Place* const value =
          sample != place.keys.end() ? sample->second.get() : taught(place, key, teachers_);
      properties[key] =
          value == nullptr || depth_of(path) > kDeepest ? Json(true) : schema(*value, path + "/" + key);
      if (key == "on")  // YAML 1.1 reads a plain `on` as true
        for (const char* const spelling : {"where", "true"})
          if (!place.known.contains(spelling)) properties[spelling] = properties[key];
    }
    json["properties"] = std::move(properties);
    if (place.needed && !place.needed->empty()) json["required"] = *place.needed;
    return json;
  }

  // A model is written in Motley's keys or as a Hugging Face config.json, whose keys are not all read.
  Json model_schema(const Place& model) const {
    Json forms = Json::array();
    forms.push_back(map_schema(model, "model"));
    forms.push_back({{"type", "object"}, {"required", {"model_type"}}, {"additionalProperties", true}});
    return {{"anyOf", std::move(forms)}};
  }

 private:
  static constexpr std::ptrdiff_t kDeepest = 12;  // deeper than any file
  static std::ptrdiff_t depth_of(const std::string& path) {
    return std::count(path.begin(), path.end(), '/');
  }

  Json schema(const Place& place, const std::string& path) const {
    Json any = Json::array();
    if (!place.named_in.empty()) any.push_back({{"enum", shipped_names(place.named_in)}});
    for (const ValueForm& form : joined(place.forms)) any.push_back(form_schema(form));
    if (!place.words.empty()) {
      Json words = Json::array();
      for (const std::string& word : place.words) words.push_back(word_json(word));
      any.push_back({{"enum", std::move(words)}});
    }
    if (const std::string definition = definition_at(path); !definition.empty())
      any.push_back({{"$ref", "#/definitions/" + definition}});
    else if (place.is_map)
      any.push_back(map_schema(place, path));
    if (place.is_list) {
      Json list = {{"type", "array"}};
      if (place.item) list["items"] = schema(*place.item, path + "/[]");
      any.push_back(std::move(list));
    }
    if (any.empty()) return true;
    any.push_back({{"type", "null"}});
    Json json = {{"anyOf", std::move(any)}};
    if (!place.says.empty()) json["description"] = place.says;
    return json;
  }

  Teachers teachers_;
};

}  // namespace

std::string schema_of(FileKind kind) {
  Watcher::Seen seen = seen_in_all_files();
  Json json = {{"$schema", "http://json-schema.org/draft-07/schema#"},
               {"title", fmt::format("A {} of Motley", name_of(kind))}};
  const Writer writer(seen);
  const Json map = writer.map_schema(seen.kinds[kind], std::string(name_of(kind)));
  json.update(map);
  Json definitions = Json::object();
  if (kind == FileKind::scenario) {
    definitions["model"] = writer.model_schema(seen.model);
    definitions["cluster"] = writer.map_schema(seen.kinds[FileKind::cluster], "cluster");
  }
  if (kind == FileKind::scenario || kind == FileKind::cluster)
    definitions["chip"] = writer.map_schema(seen.kinds[FileKind::chip], "chip");
  if (!definitions.empty()) json["definitions"] = std::move(definitions);
  return json_text(json);
}

}  // namespace motley
