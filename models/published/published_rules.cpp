#include "models/published/published_rules.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>

#include "models/base/data_files.hpp"
#include "models/base/units.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/published/printed_cells.hpp"
#include "models/published/published_run.hpp"

namespace motley {
namespace {

std::vector<std::string> to_texts(const Yaml& node) {
  std::vector<std::string> texts;
  for (const Yaml& item : to_sequence(node)) texts.push_back(to_text(item));
  return texts;
}

std::map<std::string, std::string> to_names(const Yaml& node) {
  std::map<std::string, std::string> names;
  for (const YamlEntry& each : node->entries) names[each.key] = to_text(each.value);
  return names;
}

Counted to_counted(const Yaml& node) {
  const std::string name = to_choice(node, {"device", "reserved", "allocated"});
  return name == "device" ? Counted::device : name == "reserved" ? Counted::reserved : Counted::allocated;
}

// A size in which a model may differ from the shipped model that it resembles.
struct Size {
  const char* key;
  std::int64_t& (*member)(Transformer&);
};
constexpr std::array<Size, 10> kSizes = {
    {{"vocabulary", [](Transformer& t) -> std::int64_t& { return t.vocabulary; }},
     {"hidden", [](Transformer& t) -> std::int64_t& { return t.hidden; }},
     {"depth", [](Transformer& t) -> std::int64_t& { return t.layers; }},
     {"heads", [](Transformer& t) -> std::int64_t& { return t.heads; }},
     {"kv_heads", [](Transformer& t) -> std::int64_t& { return t.kv_heads; }},
     {"head_dim", [](Transformer& t) -> std::int64_t& { return t.head_dim; }},
     {"ffn", [](Transformer& t) -> std::int64_t& { return t.ffn; }},
     {"experts", [](Transformer& t) -> std::int64_t& { return t.experts.count; }},
     {"per_token", [](Transformer& t) -> std::int64_t& { return t.experts.per_token; }},
     {"expert_ffn", [](Transformer& t) -> std::int64_t& { return t.experts.ffn; }}}};

std::vector<Yaml> files_of_left_out() {
  const std::filesystem::path folder = data_folder() + "/platforms/published/left_out";
  if (!std::filesystem::is_directory(folder)) return {};
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<Yaml> fits;
  for (const std::string& path : paths) fits.push_back(read_yaml(path));
  return fits;
}

Recompute to_printed_recompute(const Yaml& node) {
  return printed_recompute(to_choice(node, {"full", "selective", "none", "alternate"})).value();
}

AcceleratorRule read_accelerator(const Yaml& node) {
  const Fields fields(node, "an accelerator", {"chip", "cluster", "domain"});
  AcceleratorRule rule;
  rule.chip = to_text(fields.need("chip"));
  rule.cluster = to_text(fields.need("cluster"));
  if (const Yaml value = fields.find("domain"))
    rule.domain = static_cast<int>(to_integer(value, {1, 1 << 16}));
  return rule;
}

ModelRule read_model(const Yaml& item) {
  std::vector<std::string> keys = {"names", "like", "unlike", "tied", "gated", "layers"};
  for (const Size& size : kSizes) keys.emplace_back(size.key);
  const Fields fields(item, "a model", keys);
  ModelRule model;
  model.prefixes = to_texts(fields.need("names"));
  if (const Yaml value = fields.find("unlike"))
    model.unlike = to_text(value);
  else
    model.like = to_text(fields.need("like"));
  for (const Size& size : kSizes)
    if (const Yaml value = fields.find(size.key)) model.sizes[size.key] = to_integer(value, kPositive);
  if (const Yaml value = fields.find("tied")) model.tied = to_bool(value);
  if (const Yaml value = fields.find("layers")) model.layers = to_text(value);
  if (const Yaml value = fields.find("gated")) model.gated = to_bool(value);
  return model;
}

SetRule read_set(const Yaml& node) {
  const Fields fields(
      node, "a set",
      {"vocabulary",     "recompute",      "sequence_parallel",  "zero",      "reduce_gradients",
       "overlap",        "nics",           "software",           "gradients", "memory",
       "expert_room",    "sequence",       "selective",          "kept",      "kept_cut",
       "virtual_stages", "scatter_gather", "overlap_parameters", "precision", "micro_batch",
       "tied",           "composed",       "expert_weights"});
  SetRule set;
  if (const Yaml value = fields.find("vocabulary")) set.vocabulary = to_integer(value, kPositive);
  if (const Yaml value = fields.find("recompute")) set.recompute = to_printed_recompute(value);
  if (const Yaml value = fields.find("selective"))
    set.selective = printed_recompute(to_choice(value, {"selective", "alternate"})).value();
  if (const Yaml value = fields.find("sequence_parallel")) set.sequence_parallel = to_bool(value);
  if (const Yaml value = fields.find("zero")) set.zero = static_cast<int>(to_integer(value, {0, 3}));
  if (const Yaml value = fields.find("reduce_gradients"))
    set.reduce_gradients = to_choice<ReduceGradients>(value);
  if (const Yaml value = fields.find("overlap")) set.overlap = to_bool(value);
  if (const Yaml value = fields.find("tied")) set.tied = to_bool(value);
  if (const Yaml value = fields.find("composed")) set.composed = to_bool(value);
  if (const Yaml value = fields.find("overlap_parameters")) set.overlap_parameters = to_bool(value);
  if (const Yaml value = fields.find("scatter_gather")) set.scatter_gather = to_bool(value);
  if (const Yaml value = fields.find("virtual_stages")) set.virtual_stages = to_integer(value, kPositive);
  if (const Yaml value = fields.find("precision"))
    set.precision = parse_format(to_choice(value, {"fp32", "tf32"}));
  if (const Yaml value = fields.find("software")) set.software = to_text(value);
  if (const Yaml value = fields.find("nics"))
    set.nics = to_quantity(value, Dimension::bytes_per_second, Sign::positive);
  if (const Yaml value = fields.find("gradients"))
    set.gradients = to_choice(value, {"fp32", "bf16"}) == "bf16" ? Format::bf16 : Format::fp32;
  if (const Yaml value = fields.find("kept")) set.kept = to_names(value);
  if (const Yaml value = fields.find("kept_cut")) set.kept_cut = to_names(value);
  if (const Yaml value = fields.find("memory")) set.counted = to_counted(value);
  if (const Yaml value = fields.find("expert_room")) set.expert_room = to_number(value, Sign::positive);
  if (const Yaml value = fields.find("expert_weights")) set.expert_weights = to_choice<ExpertWeights>(value);
  if (const Yaml value = fields.find("sequence")) set.sequence = to_integer(value, kPositive);
  if (const Yaml value = fields.find("micro_batch")) set.micro_batch = to_integer(value, kPositive);
  return set;
}

RecipeRule read_recipe(const Yaml& item) {
  static const std::vector<std::string> degrees = {"tp", "pp", "vpp", "ep", "micro_batch"};
  std::vector<std::string> keys = {"set",        "releases",         "names",           "accelerators",
                                   "precisions", "unlike",           "overlap",         "expert_copies",
                                   "recompute",  "recompute_layers", "attention",       "expert_weights",
                                   "kept",       "expert_room",      "offloaded_layers"};
  keys.insert(keys.end(), degrees.begin(), degrees.end());
  const Fields fields(item, "a recipe", keys);
  RecipeRule recipe;
  const auto texts = [&](const char* key) {
    const Yaml value = fields.find(key);
    return value ? to_texts(value) : std::vector<std::string>{};
  };
  recipe.set = to_text(fields.need("set"));
  for (std::string& release : to_texts(fields.need("releases"))) recipe.releases.insert(std::move(release));
  recipe.names = texts("names");
  recipe.precisions = texts("precisions");
  for (std::string& name : texts("accelerators")) recipe.accelerators.insert(std::move(name));
  for (const std::string& key : degrees)
    if (const Yaml value = fields.find(key)) recipe.degrees[key] = to_integer(value, kPositive);
  if (const Yaml value = fields.find("expert_copies"))
    recipe.expert_copies =
        to_choice(value, {"expert", "node"}) == "node" ? ExpertCopies::node : ExpertCopies::expert;
  if (const Yaml value = fields.find("overlap")) {
    const Fields overlap(value, "`overlap`", {"experts"});
    recipe.overlap_experts = to_bool(overlap.need("experts"));
  }
  if (const Yaml value = fields.find("unlike")) recipe.unlike = to_text(value);
  if (const Yaml value = fields.find("recompute")) recipe.recompute = to_recompute(value);
  if (const Yaml value = fields.find("recompute_layers"))
    recipe.recompute_layers = to_integer(value, kPositive);
  if (const Yaml value = fields.find("offloaded_layers"))
    recipe.offloaded_layers = to_integer(value, kPositive);
  if (const Yaml value = fields.find("expert_weights"))
    recipe.expert_weights = to_choice<ExpertWeights>(value);
  if (const Yaml value = fields.find("expert_room")) recipe.expert_room = to_number(value, Sign::positive);
  if (const Yaml value = fields.find("kept")) recipe.kept = to_text(value);
  if (const Yaml value = fields.find("attention"))
    recipe.unfused_attention = to_choice(value, {"fused", "unfused"}) == "unfused";
  return recipe;
}

FitWithoutRuns read_fit(const Yaml& fit) {
  const Fields file(fit, "a fit without some runs", {"set", "runs", "software"});
  FitWithoutRuns without;
  if (const Yaml value = file.find("set")) without.set = to_text(value);
  if (const Yaml value = file.find("runs"))
    for (std::string& id : to_texts(value)) without.runs.insert(std::move(id));
  for (const YamlEntry& entry : file.need("software")->entries) without.software[entry.key] = entry.value;
  return without;
}

}  // namespace

Transformer ModelRule::shape() const {
  Transformer t = load_transformer(like);
  for (const Size& size : kSizes)
    if (const auto written = sizes.find(size.key); written != sizes.end()) size.member(t) = written->second;
  if (tied) t.tied_embeddings = *tied;
  return t;
}

std::optional<std::string> release_of(const PublishedRun& run) {
  static const std::regex noted("\\brelease=([0-9.]+)"), tagged("@v([0-9.]+)");
  std::smatch match;
  const std::string notes = run.row["notes"], source = run.row["source"];
  if (std::regex_search(notes, match, noted) || std::regex_search(source, match, tagged))
    return match[1].str();
  return std::nullopt;
}

bool RecipeRule::covers(const PublishedRun& run) const {
  const auto begins = [](const std::string& text, const std::vector<std::string>& with) {
    return with.empty() || std::any_of(with.begin(), with.end(),
                                       [&](const std::string& each) { return text.starts_with(each); });
  };
  const auto release = release_of(run);
  const bool listed = run.set == set && (!release || releases.contains(*release));
  const bool same = std::all_of(degrees.begin(), degrees.end(), [&](const auto& degree) {
    return run.row[degree.first] == std::to_string(degree.second);
  });
  return listed && same && (accelerators.empty() || accelerators.contains(run.row["accelerator"])) &&
         begins(bare_name(run.row["model_name"]), names) && begins(run.row["precision"], precisions);
}

PublishedRules::PublishedRules() {
  const Fields file(read_yaml(data_folder() + "/platforms/published/unprinted.yaml"), "the rules",
                    {"accelerators", "models", "sets", "recipes"});
  for (const YamlEntry& entry : file.need("accelerators")->entries)
    accelerators_[entry.key] = read_accelerator(entry.value);
  for (const Yaml& item : to_sequence(file.need("models"))) models_.push_back(read_model(item));
  for (const YamlEntry& entry : file.need("sets")->entries) sets_[entry.key] = read_set(entry.value);
  if (const Yaml recipes = file.find("recipes"))
    for (const Yaml& item : to_sequence(recipes)) recipes_.push_back(read_recipe(item));
  for (const Yaml& fit : files_of_left_out()) fits_.push_back(read_fit(fit));
}

void PublishedRules::use(const TrialFigures& trial) {
  trial_ = trial.software;
  fits_.clear();
  for (const Yaml& fit : trial.left_out) fits_.push_back(read_fit(fit));
}

std::optional<std::string> PublishedRules::chip_of(const std::string& accelerator) const {
  const AcceleratorRule* const rule = this->accelerator(accelerator);
  return rule ? std::optional(rule->chip) : std::nullopt;
}

std::optional<std::string> PublishedRules::software_of(const std::string& set) const {
  const SetRule* const rule = this->set(set);
  return rule && !rule->software.empty() ? std::optional(rule->software) : std::nullopt;
}

const AcceleratorRule* PublishedRules::accelerator(const std::string& name) const {
  const auto entry = accelerators_.find(name);
  return entry == accelerators_.end() ? nullptr : &entry->second;
}

const ModelRule* PublishedRules::model(const std::string& name) const {
  const std::string bare = bare_name(name);
  for (const ModelRule& model : models_)
    for (const std::string& prefix : model.prefixes)
      if (bare.starts_with(prefix)) return &model;
  return nullptr;
}

const RecipeRule* PublishedRules::recipe(const PublishedRun& run) const {
  const auto first = std::find_if(recipes_.begin(), recipes_.end(),
                                  [&](const RecipeRule& recipe) { return recipe.covers(run); });
  return first == recipes_.end() ? nullptr : &*first;
}

const FitWithoutRuns* PublishedRules::fit_without_run(const std::string& id) const {
  const auto first = std::find_if(fits_.begin(), fits_.end(),
                                  [&](const FitWithoutRuns& fit) { return fit.runs.contains(id); });
  return first == fits_.end() ? nullptr : &*first;
}

Yaml PublishedRules::figures_without_set(const std::string& set, const std::string& software) const {
  for (const FitWithoutRuns& fit : fits_)
    if (fit.set == set)
      if (const auto figures = fit.software.find(software); figures != fit.software.end())
        return figures->second;
  return nullptr;
}

Yaml PublishedRules::trial_figures(const std::string& software) const {
  const auto figures = trial_.find(software);
  return figures == trial_.end() ? nullptr : figures->second;
}

const SetRule* PublishedRules::set(const std::string& name) const {
  const auto entry = sets_.find(name);
  return entry == sets_.end() ? nullptr : &entry->second;
}

}  // namespace motley
