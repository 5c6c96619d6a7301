// What platforms/published/unprinted.yaml says of published runs: read here, used by models/published_run.cpp.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "models/published_run.hpp"
#include "models/units.hpp"
#include "models/yaml_reader.hpp"

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

// A size of a model that is not that of the model it is like.
struct Size {
  const char* key;
  std::int64_t& (*of)(Transformer&);
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

std::vector<Yaml> fits_without_some_runs() {
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
  return printed_recompute(to_choice(node, {"full", "selective", "none", "alternate"}), node->where);
}

}  // namespace

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string bare_name(const std::string& text) {
  std::string kept;
  for (const char c : lower(text))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) kept += c;
  return kept;
}

Transformer PublishedRules::Likeness::shape() const {
  Transformer t = load_transformer(like);
  for (const Size& size : kSizes)
    if (const auto found = sizes.find(size.key); found != sizes.end()) size.of(t) = found->second;
  if (tied) t.tied_embeddings = *tied;
  return t;
}

PublishedRules::Likeness PublishedRules::read_likeness(const Yaml& item) {
  std::vector<std::string> keys = {"names", "like", "unlike", "tied", "gated", "layers"};
  for (const Size& size : kSizes) keys.emplace_back(size.key);
  const Fields of(item, "a model", keys);
  Likeness made;
  made.prefixes = to_texts(of.need("names"));
  if (const Yaml value = of.find("unlike"))
    made.unlike = to_text(value);
  else
    made.like = to_text(of.need("like"));
  for (const Size& size : kSizes)
    if (const Yaml value = of.find(size.key)) made.sizes[size.key] = to_integer(value, kPositive);
  if (const Yaml value = of.find("tied")) made.tied = to_bool(value);
  if (const Yaml value = of.find("layers")) made.layers = to_text(value);
  if (const Yaml value = of.find("gated")) made.gated = to_bool(value);
  return made;
}

PublishedRules::Set PublishedRules::read_set(const Yaml& node) {
  const Fields of(node, "a set", {"vocabulary",
                                  "recompute",
                                  "sequence_parallel",
                                  "zero",
                                  "overlap",
                                  "nics",
                                  "software",
                                  "gradients",
                                  "memory",
                                  "expert_room",
                                  "sequence",
                                  "selective",
                                  "kept",
                                  "kept_cut",
                                  "virtual_stages",
                                  "scatter_gather",
                                  "overlap_parameters",
                                  "precision",
                                  "micro_batch",
                                  "runs_on"});
  Set made;
  if (const Yaml value = of.find("vocabulary")) made.vocabulary = to_integer(value, kPositive);
  if (const Yaml value = of.find("recompute")) made.recompute = to_printed_recompute(value);
  if (const Yaml value = of.find("selective"))
    made.selective = printed_recompute(to_choice(value, {"selective", "alternate"}), value->where);
  if (const Yaml value = of.find("sequence_parallel")) made.sequence_parallel = to_bool(value);
  if (const Yaml value = of.find("zero")) made.zero = static_cast<int>(to_integer(value, {0, 3}));
  if (const Yaml value = of.find("overlap")) made.overlap = to_bool(value);
  if (const Yaml value = of.find("runs_on")) made.runs_on = to_bool(value);
  if (const Yaml value = of.find("overlap_parameters")) made.overlap_parameters = to_bool(value);
  if (const Yaml value = of.find("scatter_gather")) made.scatter_gather = to_bool(value);
  if (const Yaml value = of.find("virtual_stages")) made.virtual_stages = to_integer(value, kPositive);
  if (const Yaml value = of.find("precision"))
    made.precision = parse_format(to_choice(value, {"fp32", "tf32"}));
  if (const Yaml value = of.find("software")) made.software = to_text(value);
  if (const Yaml value = of.find("nics"))
    made.nics = to_quantity(value, Dimension::bytes_per_second, Sign::positive);
  if (const Yaml value = of.find("gradients"))
    made.gradients = to_choice(value, {"fp32", "bf16"}) == "bf16" ? Format::bf16 : Format::fp32;
  if (const Yaml value = of.find("kept")) made.kept = to_names(value);
  if (const Yaml value = of.find("kept_cut")) made.kept_cut = to_names(value);
  if (const Yaml value = of.find("memory")) made.counted = to_counted(value);
  if (const Yaml value = of.find("expert_room")) made.expert_room = to_number(value, Sign::positive);
  if (const Yaml value = of.find("sequence")) made.sequence = to_integer(value, kPositive);
  if (const Yaml value = of.find("micro_batch")) made.micro_batch = to_integer(value, kPositive);
  return made;
}

PublishedRules::Recipe PublishedRules::read_recipe(const Yaml& item) {
  static const std::vector<std::string> degrees = {"tp", "pp", "vpp", "ep", "micro_batch"};
  std::vector<std::string> keys = {"from",          "to",      "names",     "accelerators", "precisions",
                                   "expert_copies", "overlap", "recompute", "attention"};
  keys.insert(keys.end(), degrees.begin(), degrees.end());
  const Fields of(item, "a recipe", keys);
  Recipe made;
  const auto texts = [&](const char* key) {
    const Yaml value = of.find(key);
    return value ? to_texts(value) : std::vector<std::string>{};
  };
  made.first = to_text(of.need("from"));
  made.last = to_text(of.need("to"));
  made.names = texts("names");
  made.precisions = texts("precisions");
  for (std::string& name : texts("accelerators")) made.accelerators.insert(std::move(name));
  for (const std::string& key : degrees)
    if (const Yaml value = of.find(key)) made.degrees[key] = to_integer(value, kPositive);
  if (const Yaml value = of.find("expert_copies"))
    made.expert_copies =
        to_choice(value, {"expert", "node"}) == "node" ? ExpertCopies::node : ExpertCopies::expert;
  if (const Yaml value = of.find("overlap")) {
    const Fields overlap(value, "`overlap`", {"experts"});
    made.overlap_experts = to_bool(overlap.need("experts"));
  }
  if (const Yaml value = of.find("recompute")) made.recompute = to_printed_recompute(value);
  if (const Yaml value = of.find("attention"))
    made.unfused_attention = to_choice(value, {"fused", "unfused"}) == "unfused";
  return made;
}

bool PublishedRules::Recipe::of(const PublishedRun& run) const {
  const auto begins = [](const std::string& text, const std::vector<std::string>& with) {
    return with.empty() || std::any_of(with.begin(), with.end(),
                                       [&](const std::string& each) { return text.starts_with(each); });
  };
  const bool listed = run.id.size() == first.size() && first <= run.id && run.id <= last;
  const bool same = std::all_of(degrees.begin(), degrees.end(), [&](const auto& degree) {
    return run.row[degree.first] == std::to_string(degree.second);
  });
  return listed && same && (accelerators.empty() || accelerators.contains(run.row["accelerator"])) &&
         begins(bare_name(run.row["model_name"]), names) && begins(run.row["precision"], precisions);
}

const PublishedRules::Recipe* PublishedRules::recipe_of(const PublishedRun& run) const {
  const auto found =
      std::find_if(recipes_.begin(), recipes_.end(), [&](const Recipe& each) { return each.of(run); });
  return found == recipes_.end() ? nullptr : &*found;
}

PublishedRules::PublishedRules() {
  const Fields file(read_yaml(data_folder() + "/platforms/published/unprinted.yaml"), "the rules",
                    {"accelerators", "models", "sets", "recipes"});
  for (const YamlEntry& entry : file.need("accelerators")->entries) {
    const Fields of(entry.value, "an accelerator", {"chip", "cluster", "domain"});
    Accelerator& made = accelerators_[entry.key];
    made.chip = to_text(of.need("chip"));
    made.cluster = to_text(of.need("cluster"));
    if (const Yaml value = of.find("domain")) made.domain = static_cast<int>(to_integer(value, {1, 1 << 16}));
  }
  for (const Yaml& item : to_sequence(file.need("models"))) models_.push_back(read_likeness(item));
  for (const YamlEntry& entry : file.need("sets")->entries) sets_[entry.key] = read_set(entry.value);
  if (const Yaml recipes = file.find("recipes"))
    for (const Yaml& item : to_sequence(recipes)) recipes_.push_back(read_recipe(item));
  for (const Yaml& fit : fits_without_some_runs()) left_out_.push_back(read_left_out(fit));
}

void PublishedRules::use(const TrialFigures& trial) {
  trial_ = trial.software;
  left_out_.clear();
  for (const Yaml& fit : trial.left_out) left_out_.push_back(read_left_out(fit));
}

void PublishedRules::forget_software() {
  for (auto& [name, set] : sets_) set.software.clear();
}

std::optional<std::string> PublishedRules::chip_of(const std::string& accelerator) const {
  const auto found = accelerators_.find(accelerator);
  return found == accelerators_.end() ? std::nullopt : std::optional(found->second.chip);
}

std::optional<std::string> PublishedRules::software_of(const std::string& set) const {
  const auto found = sets_.find(set);
  return found == sets_.end() || found->second.software.empty() ? std::nullopt
                                                                : std::optional(found->second.software);
}

PublishedRules::LeftOut PublishedRules::read_left_out(const Yaml& fit) {
  const Fields file(fit, "a fit without some runs", {"set", "runs", "software"});
  LeftOut made;
  if (const Yaml value = file.find("set")) made.set = to_text(value);
  if (const Yaml value = file.find("runs"))
    for (std::string& id : to_texts(value)) made.runs.insert(std::move(id));
  for (const YamlEntry& entry : file.need("software")->entries) made.software[entry.key] = entry.value;
  return made;
}

}  // namespace motley
