// What the search of pipelines proposes first, against every pipeline of small clusters: both by the closed form that
// judges one pipeline. Exhaustion shares that closed form and the prices of stages with the search, and nothing else.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "models/plan/closed_form.hpp"
#include "models/plan/pipeline_search.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr double kClose = 1e-12;

constexpr unsigned kFleets = kSanitized ? 3 : 16;
constexpr int kParts = kSanitized ? 10 : 125;  // of each fleet: one case each

// Four groups of up to eight chips, whose memory holds the model, a part of it, or nothing; up to eight layers, of one
// kind or of two.
Job fleet_of(unsigned seed) {
  Dice dice(seed);
  const auto variant = dice.one_of<std::string>(
      {"", "", "", "llama", "qwen2", "mistral", "mistral", "mixtral", "qwen2-moe", "deepseek-v3"});
  Job job = tiny_job({1, 1, 1}, variant.empty() ? tiny_transformer(Family::gpt2) : tiny_variant(variant));
  Transformer& transformer = job.transformer;
  transformer.layers = dice.one_of({1, 2, 3, 4, 5, 6, 7, 8, 8});
  for (std::vector<std::int64_t>* list : {&transformer.full_attention, &transformer.experts.dense_layers})
    std::erase_if(*list, [&](std::int64_t layer) { return layer >= transformer.layers; });
  transformer.vocabulary = dice.one_of({64, 256, 1024});
  if (dice.once_in(8)) transformer.max_positions = job.train.sequence = 1024;  // so long that it may be cut
  const NodeGroup node = job.cluster.groups[0];
  job.cluster.groups.clear();
  for (int i = 1; i <= 4; ++i) {
    NodeGroup& group = job.cluster.groups.emplace_back(node);
    group.name = "group" + std::to_string(i);
    group.chips_per_node = dice.one_of({1, 1, 1, 2, 2, 2, 3, 4, 8});
    group.nodes = 8 / group.chips_per_node;
    group.inside = {FabricKind::loopback, dice.one_of({1e8, 1e9}), 0};
    for (auto& [format, peak] : group.chip.peak_flops) peak.value *= dice.one_of({0.3, 0.7, 1.0, 2.0});
    group.chip.software.pass_overhead = {dice.one_of({0.0, 1e-5}), "assumed"};
    group.chip.memory_bytes.value = dice.one_of({1e5, 2e5, 4e5, 8e5, 4e9});
    group.nics = {{NicKind::ethernet, 1, 1e9, 1e-6}};
  }
  for (std::size_t i = 0; i < job.cluster.groups.size(); ++i)
    for (std::size_t j = i + 1; j < job.cluster.groups.size(); ++j)
      job.cluster.links.push_back({job.cluster.groups[i].name, job.cluster.groups[j].name});
  build_topology(job.cluster);
  return job;
}

// A part of the fleet: some of its groups, with fewer nodes and slower NICs, for a batch of their own. Stages cost what
// they cost in the fleet, so that they need not be priced again.
Job part_of(const Job& fleet, Dice& dice) {
  Job job = fleet;
  job.train.global_batch = dice.one_of({1, 2, 2, 3, 4, 4});
  for (NodeGroup& group : job.cluster.groups) {
    group.nodes = dice.once_in(2) ? 0 : std::min(group.nodes, dice.one_of({1, 1, 2, 3, 8}));
    group.nics[0].bandwidth = dice.one_of({1e7, 1e8, 1e9, 1e10});
  }
  return job;
}

std::int64_t chips_in(const NodeGroup& group) { return std::int64_t{group.nodes} * group.chips_per_node; }

// Every pipeline under one schedule: groups in any order, each once and cut in one way, any number of stages on each,
// any layers in each stage, of which all recompute, none, or any number of the first ones of each chunk. A beginning
// is not continued if it and its other layers, each on the fastest chips, already take as long as the limit: no closed
// form falls as stages are added or as one takes longer.
class Exhaustion {
 public:
  Exhaustion(const Job& job, StagePricer& pricer, Schedule schedule)
      : job_(job), pricer_(pricer), closed_form_(job, pricer), used_(job.cluster.groups.size(), false) {
    pipeline_.schedule = schedule;
  }

  // The fastest pipeline, if it takes less than `limit_s` by more than rounding; else one without stages.
  PlannedPipeline below(double limit_s) {
    best_.stages.clear();
    best_.estimate_s = limit_s;
    const std::int64_t batch = job_.train.global_batch, experts = job_.transformer.experts.count;
    for (std::int64_t b = 1; b <= batch; ++b)
      for (std::int64_t d = 1; b * d <= batch; ++d)
        for (std::int64_t c = 1; c == 1 || job_.train.sequence / c >= 512; c *= 2)
          for (std::int64_t e = 1; e == 1 || (experts > 0 && experts % e == 0); e *= 2)
            if (batch % (b * d) == 0 && (b <= 8 || b * job_.train.sequence <= 65536)) use(b, d, c, e);
    return best_;
  }

 private:
  void use(std::int64_t micro_batch, std::int64_t replicas, std::int64_t context, std::int64_t experts) {
    pipeline_.micro_batch = micro_batch;
    pipeline_.replicas = replicas;
    pipeline_.micro_batches = job_.train.global_batch / micro_batch / replicas;
    pipeline_.context_parallel = context;
    pipeline_.expert_parallel = experts;
    note_rest();
    for (stages_ = 1; stages_ <= job_.transformer.layers; ++stages_)
      for (pipeline_.chunks = 1; pipeline_.chunks * stages_ <= job_.transformer.layers; ++pipeline_.chunks)
        if ((pipeline_.schedule == Schedule::interleaved) == (pipeline_.chunks > 1)) {
          choices_.clear();
          extend(0, 0, 0, {});
        }
    pipeline_.chunks = 1;
  }

  // What the layers from each one on take at least.
  void note_rest() {
    const auto layers = static_cast<std::size_t>(job_.transformer.layers);
    std::vector<double> least_s(layers, kNone);
    for (std::size_t group = 0; group < used_.size(); ++group)
      for (std::int64_t cut = 1; cut <= 8; cut *= 2)
        for (const Recompute& recompute : pricer_.recomputes()) {
          const StageWay way{static_cast<int>(group), cut, recompute, pipeline_.context_parallel,
                             pipeline_.expert_parallel};
          if (!is_possible(way)) continue;
          const StageSeconds* const seconds = pricer_.seconds(way, pipeline_.micro_batch);
          for (std::size_t i = 0; seconds != nullptr && i < layers; ++i)
            least_s[i] =
                std::min(least_s[i], counted_s(seconds->layers[i + 1]) - counted_s(seconds->layers[i]));
        }
    rest_s_.assign(layers + 1, 0);
    for (std::size_t i = layers; i-- > 0;) rest_s_[i] = rest_s_[i + 1] + least_s[i];
  }

  double counted_s(const PassSeconds& pass) const {
    return pipeline_.schedule == Schedule::zb_h1 ? pass.passed_on_s() : pass.seconds();
  }

  // Whether a stage of that way has its chips.
  bool is_possible(const StageWay& way) const {
    const NodeGroup& group = job_.cluster.groups[static_cast<std::size_t>(way.group)];
    const std::int64_t chips = way.tensor_parallel * pipeline_.replicas * pipeline_.context_parallel;
    return group.chips_per_node % way.tensor_parallel == 0 && chips % pipeline_.expert_parallel == 0 &&
           chips <= chips_in(group);
  }

  std::int64_t placed() const { return static_cast<std::int64_t>(pipeline_.stages.size()); }

  // What the stages of a beginning take: all; the longest; under zb_h1, the longest less what it may fill.
  struct Begun {
    double all_s = 0, longest_s = 0, own_s = 0;
  };

  void extend(std::int64_t cut, std::int64_t chips_used, std::int64_t layers, const Begun& begun) {
    if (placed() == stages_) {
      if (layers == job_.transformer.layers) take();
      return;
    }
    if (placed() > 0) add_stage(pipeline_.stages.back().way.group, cut, chips_used, layers, begun);
    for (std::size_t next = 0; next < used_.size(); ++next) {
      if (used_[next]) continue;
      used_[next] = true;
      for (std::int64_t next_cut = 1; next_cut <= 8; next_cut *= 2)
        add_stage(static_cast<int>(next), next_cut, 0, layers, begun);
      used_[next] = false;
    }
  }

  void add_stage(int group, std::int64_t cut, std::int64_t chips_used, std::int64_t layers,
                 const Begun& begun) {
    chips_used += cut * pipeline_.replicas * pipeline_.context_parallel;
    if (chips_used > chips_in(job_.cluster.groups[static_cast<std::size_t>(group)])) return;
    if (!is_possible({group, cut, Recompute::none, pipeline_.context_parallel, pipeline_.expert_parallel}))
      return;
    const std::int64_t behind = stages_ - placed() - 1, last = job_.transformer.layers - behind;
    for (std::int64_t end = behind == 0 ? last : layers + 1; end <= last; ++end)
      for (const Choice& choice : choices({group, cut, behind, layers, end})) {
        const Begun more = with_stage(begun, choice.pass);
        if (least_s(more, end) >= best_.estimate_s * (1 - kClose)) continue;
        pipeline_.stages.push_back(choice.stage);
        if (least_with_transfers_s(more.all_s, end) < best_.estimate_s * (1 - kClose))
          extend(cut, chips_used, end, more);
        pipeline_.stages.pop_back();
      }
  }

  // What a stage with layers [first, last) may recompute: nothing, or in each way all layers or any number of the first
  // ones of each chunk. A choice is left out that does not fit, or that is no faster than another: what a stage
  // recomputes is nothing to the others but its seconds.
  struct Choice {
    PlannedStage stage;
    PassSeconds pass;
  };
  struct Site {
    int group = 0;
    std::int64_t cut = 1, behind = 0, first = 0, last = 0;
    auto operator<=>(const Site&) const = default;
  };
  const std::vector<Choice>& choices(const Site& site) {
    const auto [entry, is_new] = choices_.try_emplace(site);
    std::vector<Choice>& list = entry->second;
    if (!is_new) return list;
    for (const Recompute& recompute : pricer_.recomputes()) {
      PlannedStage stage{
          {site.group, site.cut, recompute, pipeline_.context_parallel, pipeline_.expert_parallel},
          site.last - site.first};
      add_choice(list, site, stage);
      stage.recompute_layers = 1;
      for (; recompute != Recompute::none && *stage.recompute_layers * pipeline_.chunks < stage.layers;
           ++*stage.recompute_layers)
        add_choice(list, site, stage);
    }
    return list;
  }
  void add_choice(std::vector<Choice>& list, const Site& site, const PlannedStage& stage) const {
    const std::optional<PartialStage> price = closed_form_.stage_at(pipeline_, stage, stages_, site.behind);
    if (!price) return;
    StagePosition position = position_of(pipeline_, stages_, site.behind);
    position.is_first = site.first == 0;
    position.is_last = site.behind == 0;
    const std::int64_t recomputed = recomputed_layers(pipeline_, stage);
    if (!price->bytes.fits(stage.layers, recomputed, position)) return;
    const PassSeconds pass = price->of_layers(site.first, site.last, recomputed);
    const auto is_no_faster = [](const PassSeconds& one, const PassSeconds& other) {
      return one.seconds() >= other.seconds() && one.passed_on_s() >= other.passed_on_s();
    };
    if (std::any_of(list.begin(), list.end(),
                    [&](const Choice& other) { return is_no_faster(pass, other.pass); }))
      return;
    std::erase_if(list, [&](const Choice& other) { return is_no_faster(other.pass, pass); });
    list.push_back({stage, pass});
  }

  Begun with_stage(const Begun& begun, const PassSeconds& pass) const {
    const auto m = static_cast<double>(pipeline_.micro_batches);
    const double put_off = std::min(m, static_cast<double>(stages_ - 1));
    return {begun.all_s + counted_s(pass), std::max(begun.longest_s, pass.seconds()),
            std::max(begun.own_s, m * pass.seconds() - pass.passed_on_s() - put_off * pass.weights_s)};
  }

  // What a pipeline takes at least that begins so, with the first `layers` layers.
  double least_s(const Begun& begun, std::int64_t layers) const {
    const auto m = static_cast<double>(pipeline_.micro_batches);
    const double all_s = begun.all_s + rest_s_[static_cast<std::size_t>(layers)];
    if (pipeline_.schedule == Schedule::zb_h1)
      return std::max({m * begun.longest_s, all_s, begun.own_s + all_s});
    return m * begun.longest_s + (all_s - begun.longest_s) / pipeline_.chunks;
  }

  // The same by the way of a micro-batch through all stages and back, for which the first stage waits, and by
  // gradients.
  double least_with_transfers_s(double all_s, std::int64_t layers) const {
    double sum_s = all_s + rest_s_[static_cast<std::size_t>(layers)], reduced_s = 0;
    for (const double each : closed_form_.estimator().transfer_seconds(pipeline_))
      sum_s += 2 * pipeline_.chunks * each;
    for (const PlannedStage& stage : pipeline_.stages)
      reduced_s = std::max(reduced_s, closed_form_.gradients_s(pipeline_, stage.way, stage.layers));
    const auto m = static_cast<double>(pipeline_.micro_batches);
    return reduced_s + m * sum_s / in_flight_before(pipeline_, stages_, stages_ - 1);
  }

  void take() {
    const std::optional<double> step_s = closed_form_.step_s(pipeline_);
    if (!step_s || *step_s >= best_.estimate_s * (1 - kClose)) return;
    best_ = pipeline_;
    best_.estimate_s = *step_s;
  }

  const Job& job_;
  StagePricer& pricer_;
  ClosedForm closed_form_;
  PlannedPipeline pipeline_, best_;
  std::int64_t stages_ = 0;
  std::vector<bool> used_;
  std::vector<double> rest_s_;
  std::map<Site, std::vector<Choice>> choices_;
};

// Whether the pipeline is one of the job's: whole layers, and groups that have the chips, each in one run of stages
// that are cut alike.
bool stands_on(const Job& job, const PlannedPipeline& pipeline) {
  std::vector<std::int64_t> chips(job.cluster.groups.size(), 0);
  std::set<int> ended;
  std::int64_t layers = 0;
  const StageWay* last = nullptr;
  for (const PlannedStage& stage : pipeline.stages) {
    if (last != nullptr && last->group != stage.way.group) ended.insert(last->group);
    if (last != nullptr && last->group == stage.way.group &&
        last->tensor_parallel != stage.way.tensor_parallel)
      return false;
    last = &stage.way;
    const auto group = static_cast<std::size_t>(stage.way.group);
    chips[group] += pipeline.replicas * pipeline.context_parallel * stage.way.tensor_parallel;
    layers += stage.layers;
    if (stage.recompute_layers && (stage.way.recompute == Recompute::none || *stage.recompute_layers < 1 ||
                                   *stage.recompute_layers * pipeline.chunks >= stage.layers))
      return false;
    if (stage.layers < 1 || ended.contains(stage.way.group) ||
        chips[group] > chips_in(job.cluster.groups[group]))
      return false;
  }
  return layers == job.transformer.layers &&
         pipeline.micro_batch * pipeline.replicas * pipeline.micro_batches == job.train.global_batch;
}

// Whether some stage recomputes a part of its layers.
bool recomputes_part(const PlannedPipeline& pipeline) {
  return std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [](const PlannedStage& stage) { return stage.recompute_layers.has_value(); });
}

// The first proposal under that schedule; one without stages if there is none.
PlannedPipeline first_of(const PipelineSearch& search, Schedule schedule) {
  for (const PlannedPipeline& pipeline : search.best)
    if (pipeline.schedule == schedule) return pipeline;
  PlannedPipeline none;
  none.estimate_s = kNone;
  return none;
}

}  // namespace

TEST_CASE("the first proposal of each schedule has the least estimate of all pipelines", "[plan][slow]") {
  constexpr std::array kSchedules = {Schedule::one_f_one_b, Schedule::zb_h1, Schedule::interleaved};
  std::map<Schedule, int> proposed;
  int infeasible = 0, partial = 0;
  for (unsigned fleet = 1; fleet <= kFleets; ++fleet) {
    const Job whole = fleet_of(fleet);
    StagePricer pricer(whole);
    Dice dice(fleet);
    for (int part = 1; part <= kParts; ++part) {
      CAPTURE(fleet, part);
      const Job job = part_of(whole, dice);
      const ClosedForm closed_form(job, pricer);
      const PipelineSearch search = search_pipelines(job, pricer, 6, [] { return true; });
      REQUIRE(search.is_exact);
      const double plain_s = first_of(search, Schedule::one_f_one_b).estimate_s;
      infeasible += plain_s == kNone ? 1 : 0;
      for (const Schedule schedule : kSchedules) {
        CAPTURE(name_of(schedule));
        const PlannedPipeline first = first_of(search, schedule);
        // Pipelines under other schedules are proposed if they are estimated to be faster than all under 1F1B.
        const PlannedPipeline faster =
            Exhaustion(job, pricer, schedule).below(std::min(first.estimate_s, plain_s));
        CAPTURE(first.estimate_s, faster.estimate_s);
        CHECK(faster.stages.empty());
        if (first.stages.empty()) continue;
        ++proposed[schedule];
        partial += recomputes_part(first) ? 1 : 0;
        CHECK(stands_on(job, first));
        CHECK(closed_form.step_s(first).value_or(0) == Approx(first.estimate_s).epsilon(kClose));
      }
    }
  }
  if (kSanitized) return;
  CHECK(infeasible > 400);
  CHECK(partial > 50);
  CHECK(proposed[Schedule::one_f_one_b] > 1000);
  CHECK(proposed[Schedule::zb_h1] > 600);
  CHECK(proposed[Schedule::interleaved] > 150);
}
