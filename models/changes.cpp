// Each change edits a copy of the job; whether it stands is not asked here. Stages of all templates change together.
#include "models/changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "models/refusal.hpp"

namespace motley {
namespace {

// Stages whose waiting is so far apart, as a share of the step, may want other layers.
constexpr double kUneven = 0.01;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

const char* name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
    case Recompute::alternate:
      return "alternate";
  }
  return "?";
}

class Lister {
 public:
  Lister(const Job& job, const Report& report) : job_(job), report_(report) {}

  std::vector<Change> list() {
    add_recompute();
    add_flags();
    add_micro_batch();
    add_schedules();
    add_expert_overlap();
    add_layers();
    add_degrees();
    return std::move(changes_);
  }

 private:
  const Strategy& strategy() const { return job_.strategy; }
  template <class Make>
  void add(std::string what, Make make) {
    changes_.push_back({std::move(what), make});
  }
  template <class Holds>
  bool any_template(const Holds& holds) const {
    return std::any_of(strategy().templates.begin(), strategy().templates.end(), holds);
  }
  bool has_pipelines() const {
    return any_template([](const PipelineTemplate& each) { return each.stages.size() > 1; });
  }
  bool has_copies() const {
    return strategy().templates.size() > 1 ||
           any_template([](const PipelineTemplate& each) { return each.copies() > 1; });
  }
  template <class Holds>
  bool any_stage(const Holds& holds) const {
    return any_template([&](const PipelineTemplate& each) {
      return std::any_of(each.stages.begin(), each.stages.end(), holds);
    });
  }

  // Of all stages, also those that say their own.
  void add_recompute() {
    for (const Recompute each : {Recompute::none, Recompute::selective, Recompute::full}) {
      const bool is_so = !any_stage([&](const Stage& stage) {
        return stage.recompute.value_or(strategy().recompute) != each || stage.recompute_layers.has_value();
      });
      if (is_so) continue;
      add(fmt::format("recompute: {}", name_of(each)), [each](Job& job) {
        job.strategy.recompute = each;
        for (PipelineTemplate& pipeline : job.strategy.templates)
          for (Stage& stage : pipeline.stages) {
            stage.recompute.reset();
            stage.recompute_layers.reset();
          }
      });
    }
  }

  void add_flags() {
    if (has_copies() && !strategy().overlap_gradients)
      add("overlap: {gradients: true}", [](Job& job) { job.strategy.overlap_gradients = true; });
    if (has_copies() && (strategy().zero == 1 || strategy().zero == 2) && !strategy().overlap_parameters)
      add("overlap: {parameters: true}", [](Job& job) { job.strategy.overlap_parameters = true; });
    if (has_pipelines() && !strategy().overlap_p2p)
      add("overlap: {p2p: true}", [](Job& job) { job.strategy.overlap_p2p = true; });
    if (!strategy().sequence_parallel &&
        any_stage([](const Stage& stage) { return stage.tensor_parallel > 1; }))
      add("sequence_parallel: true", [](Job& job) { job.strategy.sequence_parallel = true; });
    constexpr int kMost = 3;
    for (int zero = 0; has_copies() && zero <= kMost; ++zero)
      if (std::abs(zero - strategy().zero) == 1)
        add(fmt::format("zero: {}", zero), [zero](Job& job) { job.strategy.zero = zero; });
    const auto gathers = [](const Stage& stage) { return stage.resharding == Resharding::gather; };
    const auto is_cut = [](const Stage& stage) { return stage.tensor_parallel > 1; };
    if (has_pipelines() && any_stage(is_cut))
      for (const Resharding each : {Resharding::gather, Resharding::direct})
        if ((each == Resharding::gather) != any_stage(gathers))
          add(each == Resharding::gather ? "resharding: gather" : "resharding: direct", [each](Job& job) {
            for (PipelineTemplate& pipeline : job.strategy.templates)
              for (std::size_t i = 1; i < pipeline.stages.size(); ++i) pipeline.stages[i].resharding = each;
          });
  }

  // Twice or half of every micro-batch, half or twice as many of them.
  void add_micro_batch() {
    const auto is_even = [](std::int64_t value) { return value % 2 == 0; };
    const bool fewer = !any_template([&](const auto& each) { return !is_even(each.micro_batches); });
    const bool smaller = !any_template([&](const auto& each) {
      return !is_even(each.micro_batch > 0 ? each.micro_batch : job_.train.micro_batch);
    });
    const std::int64_t own = strategy().templates[0].micro_batch;
    const std::int64_t now = own > 0 ? own : job_.train.micro_batch;
    const auto change = [](Job& job, bool twice) {
      const auto scaled = [twice](std::int64_t value) { return twice ? value * 2 : value / 2; };
      for (PipelineTemplate& pipeline : job.strategy.templates) {
        pipeline.micro_batches = twice ? pipeline.micro_batches / 2 : pipeline.micro_batches * 2;
        if (pipeline.micro_batch > 0) pipeline.micro_batch = scaled(pipeline.micro_batch);
      }
      job.train.micro_batch = std::max<std::int64_t>(1, scaled(job.train.micro_batch));
    };
    if (fewer) add(fmt::format("micro_batch: {}", now * 2), [change](Job& job) { change(job, true); });
    if (smaller) add(fmt::format("micro_batch: {}", now / 2), [change](Job& job) { change(job, false); });
  }

  // Where the schedule cannot have it, in one that can.
  void add_expert_overlap() {
    const bool divided = any_stage([](const Stage& stage) { return stage.expert_parallel > 1; });
    if (!divided || strategy().overlap_experts || strategy().schedule == Schedule::custom) return;
    const bool suits = strategy().schedule == Schedule::interleaved ||
                       strategy().schedule == Schedule::dualpipe_v || !has_pipelines();
    if (suits) return add("overlap: {experts: true}", [](Job& job) { job.strategy.overlap_experts = true; });
    if (strategy().templates.size() > 1 || !layers_are_even()) return;
    for (const Schedule each : {Schedule::interleaved, Schedule::dualpipe_v})
      add(fmt::format("schedule: {}, overlap: {{experts: true}}", motley::name_of(each)), [each](Job& job) {
        use_schedule(job.transformer, job.strategy, each, standard_chunks(each));
        job.strategy.overlap_experts = true;
      });
  }

  // Those that leave each stage its layers, and chunks of half a stage.
  void add_schedules() {
    if (!has_pipelines() || strategy().schedule == Schedule::custom) return;
    const bool one_chunk = !any_stage([](const Stage& stage) { return !stage.more.empty(); });
    for (const Schedule each : {Schedule::one_f_one_b, Schedule::zb_h1, Schedule::zb_h2}) {
      if (!one_chunk || each == strategy().schedule) continue;
      add(fmt::format("schedule: {}", motley::name_of(each)),
          [each](Job& job) { job.strategy.schedule = each; });
    }
    if (!one_chunk || strategy().templates.size() > 1 || !layers_are_even()) return;
    for (const Schedule each : {Schedule::interleaved, Schedule::zb_v})
      add(fmt::format("schedule: {}", motley::name_of(each)),
          [each](Job& job) { use_schedule(job.transformer, job.strategy, each, standard_chunks(each)); });
  }
  bool layers_are_even() const {
    const std::vector<Stage>& stages = strategy().templates[0].stages;
    const auto count = [](const Stage& stage) { return stage.last_layer - stage.first_layer; };
    return std::all_of(stages.begin(), stages.end(),
                       [&](const Stage& each) { return std::abs(count(each) - count(stages[0])) <= 1; });
  }

  // A layer less for the stage that waits least, one more for the one that waits most; those between pass it on.
  void add_layers() {
    if (strategy().templates.size() > 1 || !has_pipelines()) return;
    if (any_stage([](const Stage& stage) { return !stage.more.empty(); })) return;
    const auto& rows = report_.breakdown;
    if (rows.size() != strategy().templates[0].stages.size()) return;
    const auto waits_less = [](const StageBreakdown& a, const StageBreakdown& b) {
      return a.bubble_s < b.bubble_s;
    };
    const auto from = std::min_element(rows.begin(), rows.end(), waits_less) - rows.begin();
    const auto to = std::max_element(rows.begin(), rows.end(), waits_less) - rows.begin();
    if (rows[at(to)].bubble_s - rows[at(from)].bubble_s < kUneven * report_.iteration_s) return;
    for (const std::int64_t moved : {1, 2}) {
      std::vector<Stage> stages = strategy().templates[0].stages;
      if (stages[at(from)].last_layer - stages[at(from)].first_layer <= moved) continue;
      for (auto i = from; i < to; ++i) stages[at(i)].last_layer = stages[at(i + 1)].first_layer -= moved;
      for (auto i = from; i > to; --i) stages[at(i)].first_layer = stages[at(i - 1)].last_layer += moved;
      std::vector<std::int64_t> counts;
      for (const Stage& stage : stages) counts.push_back(stage.last_layer - stage.first_layer);
      add(fmt::format("layers: [{}]", fmt::join(counts, ", ")),
          [stages](Job& job) { job.strategy.templates[0].stages = stages; });
    }
  }

  bool is_one_short_template() const {
    return strategy().templates.size() == 1 && !any_stage([this](const Stage& stage) {
             return !stage.on.empty() || !stage.more.empty() || stage.replicas > 0 ||
                    stage.expert_parallel > 1 || stage.tensor_parallel != strategy().tp();
           }) &&
           layers_are_even();
  }

  // Half of one degree, twice another.
  void add_degrees() {
    if (!is_one_short_template()) return;
    struct Degrees {
      std::int64_t tp, pp, dp;
    };
    const std::int64_t tp = strategy().tp(), pp = strategy().pp(), dp = strategy().dp();
    std::vector<Degrees> others;
    if (tp % 2 == 0) others.insert(others.end(), {{tp / 2, pp, dp * 2}, {tp / 2, pp * 2, dp}});
    if (pp % 2 == 0) others.insert(others.end(), {{tp, pp / 2, dp * 2}, {tp * 2, pp / 2, dp}});
    if (dp % 2 == 0) others.insert(others.end(), {{tp * 2, pp, dp / 2}, {tp, pp * 2, dp / 2}});
    for (const Degrees& each : others)
      add(fmt::format("tp: {}, pp: {}, dp: {}", each.tp, each.pp, each.dp), [each](Job& job) {
        const PipelineTemplate old = job.strategy.templates[0];
        job.strategy.templates =
            expand(job.transformer, job.train, each.tp, each.pp, each.dp, job.strategy.cp()).templates;
        for (std::size_t i = 1; i < job.strategy.templates[0].stages.size(); ++i)
          job.strategy.templates[0].stages[i].resharding = old.stages.back().resharding;
      });
  }

  const Job& job_;
  const Report& report_;
  std::vector<Change> changes_;
};

}  // namespace

std::vector<Change> changes(const Job& job, const Report& report) { return Lister(job, report).list(); }

}  // namespace motley
