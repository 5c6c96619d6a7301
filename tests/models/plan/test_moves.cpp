// The list of moves: a move does what a user would get who types its name into the scenario, and nothing else; what
// `motley explain` tries and what remedies propose are on the list.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "models/base/refusal.hpp"
#include "models/base/yaml_reader.hpp"
#include "models/compile/compile.hpp"
#include "models/explain/key_differences.hpp"
#include "models/plan/changes.hpp"
#include "models/plan/moves.hpp"
#include "models/plan/remedies.hpp"
#include "models/plan/replica_edits.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

using Keys = std::map<std::string, std::string>;

// The values of keys that are not printed where they have these values.
const Keys kNotPrinted = {{"put_off", "count"},
                          {"reduce_gradients", "each"},
                          {"reshard_after_forward", "true"},
                          {"expert_weights", "combine"}};

// The keys in a name: {"overlap.gradients": "true"} for "overlap: {gradients: true}". A list keeps its text.
Keys keys_of(const std::string& name) {
  Keys keys;
  const Yaml typed = parse_yaml("{" + name + "}", "name");
  for (const YamlEntry& entry : typed->entries) {
    if (entry.value->is_scalar()) keys[entry.key] = entry.value->text;
    for (const YamlEntry& inner : entry.value->entries) keys[entry.key + "." + inner.key] = inner.value->text;
    std::string items;
    for (const Yaml& item : entry.value->items) items += (items.empty() ? "[" : ", ") + item->text;
    if (!items.empty()) keys[entry.key] = items + "]";
  }
  return keys;
}

// The part of a printed job that moves can change.
std::string printed(const Job& job) {
  return print(job.strategy) + "train: {micro_batch: " + std::to_string(job.train.micro_batch) + "}\n";
}

bool ends_with_key(const std::string& path, const std::string& key) {
  return path == key || (path.size() > key.size() && path.ends_with("." + key));
}

// What a list in a name, "[1, 2]", says of the stage of a key, "templates.0.stages.1.replicas".
std::string said_of_stage(const std::string& list, const std::string& path) {
  const std::size_t begin = path.find(".stages.");
  if (begin == std::string::npos || !list.starts_with("[")) return "";
  const std::vector<Yaml> items = parse_yaml(list, "list")->items;
  const std::size_t stage = std::stoul(path.substr(begin + std::string(".stages.").size()));
  return stage < items.size() ? items[stage]->text : "";  // there may be fewer stages than before
}

// Whether the name explains a difference: it says the new value, or the key must follow what the name says. A stage's
// own option gives way to the strategy's, and counts of layers and micro-batches follow what divides them.
bool is_said(const KeyDifference& difference, const Keys& keys) {
  const auto& [path, before, now] = difference;
  const auto says = [&, &path = path](const std::string& key) {
    return keys.contains(key) && ends_with_key(path, key);
  };
  const bool of_stage = path.find(".stages.") != std::string::npos;
  for (const auto& [key, value] : keys)
    if (says(key) && (now == value || (of_stage && now == said_of_stage(value, path)))) return true;
  if (says("recompute") && of_stage) return now.empty();
  if (ends_with_key(path, "recompute_layers") && keys.contains("recompute")) return now.empty();
  if (path.find("offload") != std::string::npos && of_stage)
    return now.empty() && (keys.contains("offload.optimizer") || keys.contains("offload.activations"));
  for (const auto& [option, standard] : kNotPrinted)
    if (says(option) && now.empty()) return keys.at(option) == standard;
  if (path == "offload.activations" && keys.contains("offload.optimizer")) return now == "0";
  if (ends_with_key(path,
                    "stages.0.resharding"))  // a schedule may put a stage before a chunk of the first one
    return keys.contains("schedule") || keys.contains("virtual_stages") || keys.contains("pipeline_parallel");
  if (says("sequence_parallel")) return now.empty() && keys.at("sequence_parallel") == "false";
  if (path == "zero" && keys.contains("zero")) return now.empty() && keys.at("zero") == "0";
  for (const std::string degree : {"context_parallel", "expert_parallel", "expert_tensor_parallel"})
    if (says(degree) && now.empty())  // the default is not printed
      return keys.at(degree) == "1" || degree == "expert_tensor_parallel";
  if (ends_with_key(path, "micro_batches"))
    return keys.contains("micro_batch") || keys.contains("data_parallel");
  if (ends_with_key(path, "replicas") && !of_stage && keys.contains("data_parallel"))
    return now == keys.at("data_parallel");
  if (of_stage && keys.contains("pipeline_parallel")) return true;
  if (ends_with_key(path, "layers"))
    return keys.contains("layers") || keys.contains("schedule") || keys.contains("virtual_stages");
  return false;
}

// A number of each stage, in the form of a list in a name.
template <class Number>
std::string of_stages(const Strategy& strategy, const Number& number) {
  std::string text;
  for (const Stage& stage : strategy.templates[0].stages)
    text += (text.empty() ? "[" : ", ") + std::to_string(number(stage));
  return text + "]";
}

// How many layers each stage holds, in the form of the key `layers`.
std::string layer_counts(const Strategy& strategy) {
  return of_stages(strategy, [](const Stage& stage) { return stage.last_layer - stage.first_layer; });
}

// Whether the job has the values that the name says.
bool is_as_said(const Keys& keys, const Job& job) {
  std::map<std::string, std::string> values;
  for (const KeyDifference& each : key_differences("{}", printed(job))) values[each.key] = each.b;
  const auto value = [&](const std::string& key) {
    if (key == "replicas") return of_stages(job.strategy, [](const Stage& stage) { return stage.replicas; });
    if (key == "tensor_parallel" && keys.at(key).starts_with("["))
      return of_stages(job.strategy, [](const Stage& stage) { return stage.tensor_parallel; });
    if (key == "sequence_parallel" && values[key].empty()) return std::string("false");
    if (key == "tensor_parallel") return std::to_string(job.strategy.tp());
    if (key == "pipeline_parallel") return std::to_string(job.strategy.pp());
    if (key == "data_parallel") return std::to_string(job.strategy.dp());
    if (key == "context_parallel") return std::to_string(job.strategy.cp());
    if (key == "virtual_stages") return std::to_string(chunk_count(job.strategy));
    const Stage& first = job.strategy.templates[0].stages[0];
    if (key == "expert_parallel") return std::to_string(first.expert_parallel);
    if (key == "expert_tensor_parallel") return std::to_string(first.expert_cut());
    if (key == "micro_batch") return values["train.micro_batch"];
    if (key == "layers") return layer_counts(job.strategy);
    if (key == "zero" && values["zero"].empty()) return std::string("0");
    if (kNotPrinted.contains(key) && values[key].empty()) return kNotPrinted.at(key);
    return values[key];
  };
  for (const auto& [key, typed] : keys) {
    if (key != "recompute_layers" && key != "resharding" && key != "on" && value(key) != typed) return false;
    for (const PipelineTemplate& pipeline : job.strategy.templates)
      for (const Stage& stage : pipeline.stages) {
        if (key == "recompute_layers" && std::to_string(stage.recompute_layers.value_or(0)) != typed)
          return false;
        const bool gathers = stage.resharding == Resharding::gather;
        const auto index = static_cast<int>(&stage - pipeline.stages.data());
        if (key == "resharding" && has_stage_before(pipeline, index) && gathers != (typed == "gather"))
          return false;
      }
  }
  return true;
}

void check_says_what_it_does(const Job& job, const Move& move) {
  CAPTURE(move.what);
  const std::optional<Job> neighbour = apply(move, job);
  if (!neighbour) {
    try {
      moved(job, move);
      FAIL("the move is legal after all");
    } catch (const Refusal& refusal) {
      CHECK(refusal.exit_code() == Exit::infeasible);
    }
    return;
  }
  const Keys keys = keys_of(move.what);
  CHECK(is_as_said(keys, *neighbour));
  const auto differences = key_differences(printed(job), printed(*neighbour));
  CHECK_FALSE(differences.empty());
  for (const KeyDifference& each : differences) {
    CAPTURE(each.key, each.a, each.b);
    CHECK(is_said(each, keys));
  }
  CHECK(neighbour->cluster == job.cluster);
  CHECK(neighbour->transformer == job.transformer);
  Train train = neighbour->train;
  train.micro_batch = job.train.micro_batch;
  CHECK(train == job.train);
}

void check_all_differ(const Job& job, const std::vector<Move>& list) {
  std::map<std::string, std::string> names = {{printed(job), "the job itself"}};
  std::set<std::string> known;
  for (const Move& move : list) {
    CAPTURE(move.what);
    CHECK(known.insert(move.what).second);
    const std::optional<Job> neighbour = apply(move, job);
    if (!neighbour) continue;
    const auto [same, is_new] = names.emplace(printed(*neighbour), move.what);
    CAPTURE(same->second);
    CHECK(is_new);
  }
}

std::set<std::string> names_of(const std::vector<Move>& list) {
  std::set<std::string> names;
  for (const Move& move : list) names.insert(move.what);
  return names;
}

// A report in which stages wait for different times.
Report uneven_report(const Job& job, Dice& dice) {
  Report report;
  report.iteration_s = 1;
  report.breakdown.resize(job.strategy.templates[0].stages.size());
  for (StageBreakdown& row : report.breakdown) row.bubble_s = dice.one_of({0.1, 0.2, 0.3});
  return report;
}

// A strategy in the short form: its keys, and the keys of `train` that it divides.
struct ShortForm {
  Keys strategy, train;

  static std::string flow(const Keys& keys) {
    std::string text;
    std::map<std::string, std::string> maps;
    for (const auto& [key, value] : keys) {
      const std::size_t dot = key.find('.');
      if (dot == std::string::npos)
        text += (text.empty() ? "" : ", ") + key + ": " + value;
      else
        maps[key.substr(0, dot)] += key.substr(dot + 1) + ": " + value + ", ";
    }
    for (const auto& [key, inner] : maps) text += (text.empty() ? "" : ", ") + key + ": {" + inner + "}";
    return "{" + text + "}";
  }

  // The short form after a user typed a name into it: `offload` and `recompute` are replaced whole, the rest key by
  // key.
  ShortForm with(const Keys& keys) const {
    ShortForm form = *this;
    const auto erase = [&](const std::string& what) {
      std::erase_if(form.strategy, [&](const auto& each) { return each.first.starts_with(what); });
    };
    if (keys.contains("recompute")) erase("recompute_layers");
    if (keys.contains("schedule")) erase("virtual_stages");
    if (keys.contains("offload.optimizer")) erase("offload");
    for (const auto& [key, value] : keys) (key == "micro_batch" ? form.train : form.strategy)[key] = value;
    return form;
  }

  Job read(const Job& base) const {
    Job job = base;
    job.train.micro_batch = std::stoll(train.at("micro_batch"));
    job.strategy = read_strategy(parse_yaml(flow(strategy), "typed"), job.transformer, job.train);
    return job;
  }
};

ShortForm any_short_form(Dice& dice) {
  ShortForm form;
  form.train["micro_batch"] = dice.one_of({"1", "2", "3", "4"});
  form.strategy["tensor_parallel"] = dice.one_of({"1", "2", "4"});
  form.strategy["pipeline_parallel"] = dice.one_of({"1", "2", "4"});
  form.strategy["data_parallel"] = dice.one_of({"1", "2", "3", "4"});
  form.strategy["schedule"] = dice.one_of({"1f1b", "gpipe", "zb-h1", "interleaved"});
  if (form.strategy["schedule"] == "interleaved" && dice.once_in(2)) form.strategy["virtual_stages"] = "2";
  form.strategy["recompute"] = dice.one_of({"none", "selective", "full"});
  if (form.strategy["recompute"] != "none" && dice.once_in(3)) form.strategy["recompute_layers"] = "1";
  form.strategy["zero"] = dice.one_of({"0", "1", "2", "3"});
  if (dice.once_in(4)) form.strategy["context_parallel"] = "2";
  if (dice.once_in(3)) form.strategy["expert_parallel"] = "2";
  if (dice.once_in(3)) form.strategy["offload.optimizer"] = "1";
  if (dice.once_in(3) && form.strategy["pipeline_parallel"] != "1")
    form.strategy["resharding"] = dice.one_of({"direct", "gather"});
  if (dice.once_in(3)) form.strategy["sequence_parallel"] = "true";
  if (dice.once_in(3)) form.strategy["overlap.gradients"] = "true";
  if (dice.once_in(3)) form.strategy["overlap.p2p"] = "false";
  return form;
}

Job base_of_short_forms(Dice& dice) {
  Job job = tiny_job({1, 1, 1}, tiny_variant(dice.one_of({"mixtral", "llama"})));
  job.transformer.layers = 8;
  job.transformer.kv_heads = 4;
  job.cluster = with_hosts(tiny_cluster(64));
  job.train.global_batch = 48;
  return job;
}

}  // namespace

TEST_CASE("a move from any job does what its name says and nothing else, and no two do the same") {
  std::set<MoveKind> kinds;
  for (unsigned seed = 300; seed < 400; ++seed) {
    const Job job = any_job(seed);
    INFO("seed " << seed << "\n" << print(job.strategy));
    const std::vector<Move> list = moves(job);
    for (const Move& move : list) {
      check_says_what_it_does(job, move);
      kinds.insert(move.kind);
    }
    check_all_differ(job, list);
  }
  CHECK(kinds.size() == kMoveKinds);
}

TEST_CASE("a job after a move compiles or is refused", "[slow]") {
  int compiled = 0, refused = 0;
  for (unsigned seed = 400; seed < 440; ++seed) {
    const Job job = any_job(seed);
    for (const Move& move : moves(job)) {
      const std::optional<Job> neighbour = apply(move, job);
      if (!neighbour) continue;
      INFO("seed " << seed << ": " << move.what << "\n" << print(neighbour->strategy));
      try {
        compile(*neighbour);
        ++compiled;
      } catch (const Refusal& refusal) {
        CHECK(refusal.exit_code() == Exit::infeasible);
        ++refused;
      }
    }
  }
  CHECK(compiled > 300);
  CHECK(refused > 20);
}

TEST_CASE(
    "a name typed into the short form reads as the job after the move, and is refused where that is not "
    "legal") {
  Dice dice(11);
  int read = 0, refused = 0;
  std::set<MoveKind> kinds;
  for (int round = 0; round < 300; ++round) {
    const Job base = base_of_short_forms(dice);
    const ShortForm form = any_short_form(dice);
    std::optional<Job> job;
    try {
      job = form.read(base);
      validate(job->transformer, job->train, job->strategy);
    } catch (const Refusal&) {
      continue;
    }
    for (const Move& move : moves(*job)) {
      if (move.kind == MoveKind::layers) continue;  // in this form the schedule decides them
      INFO(ShortForm::flow(form.strategy) << " and `" << move.what << "`");
      const std::optional<Job> neighbour = apply(move, *job);
      std::optional<Job> typed;
      try {
        typed = form.with(keys_of(move.what)).read(base);
        validate(typed->transformer, typed->train, typed->strategy);
      } catch (const Refusal&) {
        typed = std::nullopt;
      }
      CHECK(neighbour.has_value() == typed.has_value());
      if (!neighbour || !typed) {
        ++refused;
        continue;
      }
      CHECK(printed(*neighbour) == printed(*typed));
      kinds.insert(move.kind);
      ++read;
    }
  }
  CHECK(read > 3000);
  CHECK(refused > 100);
  CHECK(kinds.size() == kMoveKinds - 1);
}

TEST_CASE("what explain tries and what is proposed against too little memory are moves of the list") {
  int changed = 0, proposed = 0;
  std::size_t against = 0;
  for (unsigned seed = 500; seed < 530; ++seed) {
    Job job = any_job(seed);
    Dice dice(seed);
    const std::vector<Move> list = moves(job);
    const std::set<std::string> names = names_of(list);
    std::set<std::string> rows;
    Report report = uneven_report(job, dice);
    for (const Change& change : changes(job, report)) {
      CAPTURE(seed, change.what);
      CHECK(names.contains(change.move.what));
      CHECK(rows.insert(change.what).second);
      if (change.move.kind != MoveKind::degrees) CHECK(change.what == change.move.what);
      if (const auto neighbour = apply(change.move, job))
        for (const auto& [key, degree] :
             std::map<std::string, std::int64_t>{{"tp", neighbour->strategy.tp()},
                                                 {"pp", neighbour->strategy.pp()},
                                                 {"dp", neighbour->strategy.dp()},
                                                 {"cp", neighbour->strategy.cp()}})
          if (keys_of(change.what).contains(key))
            CHECK(keys_of(change.what).at(key) == std::to_string(degree));
      ++changed;
    }
    for (int i = 0; i < kPurposes; ++i) {
      report.all_chips = {};
      report.all_chips[static_cast<Purpose>(i)] = report.iteration_s;
      std::set<std::string> tried;
      for (const Change& change : changes_against_loss(job, report, 3)) {
        CHECK(rows.contains(change.what));
        CHECK(tried.insert(change.what).second);
      }
      CHECK(tried.size() <= 3);
      against += tried.size();
    }
    for (NodeGroup& group : job.cluster.groups) group.chip.memory_bytes.value = 1;
    build_topology(job.cluster);
    for (const Remedy& remedy : remedies(job)) {
      std::string name = remedy.change;
      const std::size_t join = name.find(" and ");
      if (join != std::string::npos) name.replace(join, 5, ", ");
      CAPTURE(seed, remedy.change);
      CHECK(names.contains(name));
      ++proposed;
    }
  }
  CHECK(changed > 200);
  CHECK(against > 200);
  CHECK(proposed > 60);
}

TEST_CASE("other degrees are offered only where nothing else is lost") {
  const Job job = tiny_job({2, 2, 2});
  CHECK(is_laid_out_by_degrees(job.strategy));
  const auto with = [&](const auto& change) {
    Strategy strategy = job.strategy;
    change(strategy.templates[0].stages[1]);
    return is_laid_out_by_degrees(strategy);
  };
  CHECK_FALSE(with([](Stage& stage) { stage.on = {"all"}; }));
  CHECK_FALSE(with([](Stage& stage) { stage.more = {{3, 4}}; }));
  CHECK_FALSE(with([](Stage& stage) { stage.replicas = 4; }));
  CHECK_FALSE(with([](Stage& stage) { stage.tensor_parallel = 1; }));
  CHECK_FALSE(with([](Stage& stage) { stage.expert_parallel = 2; }));
  CHECK_FALSE(with([](Stage& stage) { stage.recompute = Recompute::full; }));
  CHECK_FALSE(with([](Stage& stage) { stage.last_layer += 2; }));
  CHECK(with([](Stage& stage) { stage.resharding = Resharding::gather; }));
  Strategy two = job.strategy;
  two.templates.push_back(two.templates[0]);
  CHECK_FALSE(is_laid_out_by_degrees(two));
  CHECK(moves(job, MoveKind::degrees).size() == 6);
  Job named = job;
  for (Stage& stage : named.strategy.templates[0].stages) stage.on = {"all"};
  CHECK(moves(named, MoveKind::degrees).empty());
}

TEST_CASE("some stages are replicated more often: two as one, cut less, or on idle chips") {
  Job job = tiny_job({2, 4, 1});
  const auto names = [&] { return names_of(moves(job, MoveKind::replicas)); };
  CHECK(names() == std::set<std::string>{
                       "pipeline_parallel: 3, layers: [2, 1, 1], replicas: [2, 1, 1]",
                       "pipeline_parallel: 3, layers: [1, 1, 2], replicas: [1, 1, 2]",
                       "tensor_parallel: [1, 2, 2, 2], replicas: [2, 1, 1, 1]",
                       "tensor_parallel: [2, 2, 2, 1], replicas: [1, 1, 1, 2]",
                   });
  job.strategy.sequence_parallel = true;
  job.cluster = tiny_cluster(10);
  CHECK(names().contains("replicas: [2, 1, 1, 1], sequence_parallel: false"));
  job.train.micro_batch = 1;  // a sequence is not divided over replicas
  job.strategy.templates[0].micro_batches *= 2;
  CHECK(names().contains("micro_batch: 2, replicas: [2, 1, 1, 1], sequence_parallel: false"));
  const std::optional<Job> twice = apply(moves(job, MoveKind::replicas).front(), job);
  REQUIRE(twice);
  CHECK_FALSE(twice->strategy.sequence_parallel);
}

TEST_CASE("no stage is cut over more chips than a node of its groups has, so that it needs fewer replicas") {
  Job job = tiny_job({2, 2, 2});
  NodeGroup& group = job.cluster.groups[0];
  group.nodes = 4;
  group.chips_per_node = 2;
  group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
  build_topology(job.cluster);
  for (const std::vector<std::string>& on : {std::vector<std::string>{}, {"all"}}) {
    for (Stage& stage : job.strategy.templates[0].stages) stage.on = on;
    const std::vector<std::vector<Edit>> list = replica_edits(job);
    CHECK_FALSE(list.empty());
    for (const std::vector<Edit>& edits : list)
      for (const Edit& edit : edits)
        if (const auto* const stages = std::get_if<SetStages>(&edit))
          for (const std::int64_t degree : stages->tensor_parallel) CHECK(degree <= 2);
  }
}

TEST_CASE("a first stage of several chunks reshards as the others do, once a stage is before one of them") {
  Job job = tiny_job({2, 2, 1});
  use_resharding(job.strategy.templates[0], Resharding::gather);
  const Job interleaved = moved(job, {MoveKind::schedule, {SetSchedule{Schedule::interleaved}}, ""});
  for (const Stage& stage : interleaved.strategy.templates[0].stages)
    CHECK(stage.resharding == Resharding::gather);
  const Job plain = moved(interleaved, {MoveKind::schedule, {SetSchedule{Schedule::one_f_one_b}}, ""});
  CHECK(plain.strategy == job.strategy);
}

TEST_CASE("what stages say alike goes along to other degrees") {
  Job job = tiny_job({2, 2, 2});
  for (Stage& stage : job.strategy.templates[0].stages) stage.recompute = Recompute::full;
  job.strategy.templates[0].stages[1].resharding = Resharding::gather;
  const Job more = moved(job, {MoveKind::degrees, {SetDegrees{2, 4, 1}}, ""});
  const std::vector<Stage>& stages = more.strategy.templates[0].stages;
  REQUIRE(stages.size() == 4);
  for (const Stage& stage : stages) CHECK(stage.recompute == Recompute::full);
  CHECK_FALSE(stages[0].resharding.has_value());
  for (std::size_t i = 1; i < 4; ++i) CHECK(stages[i].resharding == Resharding::gather);
}
