// Each run is a task of the pool, and each of its simulations is a child process of that task. This process keeps the
// outcome of a run but not what was read or compiled for it, so a table of a thousand runs takes no more memory than
// its largest run.
#include "tools/commands/predict_runs.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <tuple>

#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/predicted_order.hpp"
#include "models/report/published_metrics.hpp"
#include "models/trace/trace.hpp"
#include "sim/workers/child.hpp"
#include "tools/commands/progress.hpp"

namespace motley {

template <>
inline constexpr bool kSentAsBytes<Prediction> = true;

template <class T>
requires std::is_same_v<std::remove_const_t<T>, RunOutcome>
auto fields_of(T& outcome) {
  auto& [id, set, accelerator, model, chips, measured_s, predicted, unseen, measured_bytes, predicted_bytes,
         experts, fits, passed_over] = outcome;
  return std::tie(id, set, accelerator, model, chips, measured_s, predicted, unseen, measured_bytes,
                  predicted_bytes, experts, fits, passed_over);
}

namespace {

// Reads the run's measurements. None: the run is passed over; the outcome says why.
std::optional<Measured> read(const ChosenRuns& chosen, const PublishedRun& run, RunOutcome& outcome) {
  outcome.id = run.id;
  outcome.set = run.set;
  outcome.accelerator = run.row["accelerator"];
  outcome.model = run.row["model_name"];
  auto measured = chosen.rules.read(run, chosen.table);
  if (const auto* const passed = std::get_if<PassedOver>(&measured)) {
    outcome.passed_over = passed->reason;
    return std::nullopt;
  }
  outcome.experts = std::get<Measured>(measured).experts;
  return std::get<Measured>(std::move(measured));
}

// Assumes: an allocator that runs out of memory first reclaims what it lost to fragmentation, as PyTorch's does.
void predict_memory(const Measured& measured, const Program& program, RunOutcome& outcome) {
  if (!measured.recompute_known) return;
  const Job& job = measured.scenario.job;
  double fullest = 0;
  for (const StageMemory& stage : memory_by_stage(program, job.cluster, job.train.fragmentation)) {
    if (stage.capacity > 0 && stage.peak - stage.fragmentation > stage.capacity) outcome.fits = false;
    fullest = std::max(fullest, static_cast<double>(peak_of(stage, measured.counted)));
  }
  outcome.predicted_bytes = fullest;
}

struct Simulated {
  const Program& program;
  std::string name;  // the name of the run in messages
};

Prediction predict_step(const Simulated& run, const Job& job, const Interval& interval) {
  const double seconds = simulated_step_s(job, run.program, "the simulation of " + run.name);
  return {seconds, interval.low * seconds, interval.high * seconds};
}

void predict(const Measured& measured, const Program* compiled, const PredictOptions& options,
             RunOutcome& outcome) {
  const Job& job = measured.scenario.job;
  outcome.chips = job.cluster.chip_count();
  outcome.measured_s = measured.step_s;
  outcome.measured_bytes = measured.peak_bytes;
  try {
    std::optional<Program> own;
    const Program& program = compiled != nullptr ? *compiled : own.emplace(compile(job));
    if (options.memory) predict_memory(measured, program, outcome);
    const Simulated run{program, outcome.id};
    outcome.predicted = predict_step(run, job, measured.scenario.interval);
    if (!options.unseen || !measured.unseen) return;
    Job elsewhere = job;
    elsewhere.cluster = *measured.unseen;
    outcome.unseen = predict_step(run, elsewhere, measured.unseen_interval);
  } catch (const Refusal& refusal) {
    outcome.passed_over = refusal.message();
    std::replace(outcome.passed_over.begin(), outcome.passed_over.end(), '\n', ' ');
  }
}

// Reads the runs and returns their outcomes without predictions.
std::vector<RunOutcome> read_all(const ChosenRuns& chosen, PoolOptions pool) {
  Progress progress("reading", static_cast<std::int64_t>(chosen.runs.size()));
  pool.progress = [&](std::size_t, std::size_t ended) { progress.show(static_cast<std::int64_t>(ended)); };
  return map_in_pool(
      chosen.runs.size(),
      [&](std::size_t i) {
        RunOutcome outcome;
        read(chosen, *chosen.runs[i], outcome);
        return outcome;
      },
      pool);
}

}  // namespace

std::vector<RunOutcome> predict_runs(const ChosenRuns& chosen, const PredictOptions& options) {
  PoolOptions pool;
  pool.name = [&](std::size_t i) { return chosen.runs[i]->id; };
  std::vector<RunOutcome> outcomes = read_all(chosen, pool);
  std::vector<std::size_t> readable;
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].passed_over.empty()) readable.push_back(i);

  Progress progress("predicting", static_cast<std::int64_t>(readable.size()));
  pool.name = [&](std::size_t task) { return chosen.runs[readable[task]]->id; };
  pool.progress = [&](std::size_t, std::size_t ended) { progress.show(static_cast<std::int64_t>(ended)); };
  std::vector<RunOutcome> predicted = map_in_pool(
      readable.size(),
      [&](std::size_t task) {
        const std::size_t i = readable[task];
        RunOutcome outcome;
        const std::optional<Measured> measured = read(chosen, *chosen.runs[i], outcome);
        const Program* const compiled = options.compiled == nullptr ? nullptr : options.compiled->at(i).get();
        if (measured) predict(*measured, compiled, options, outcome);
        return outcome;
      },
      pool);
  for (std::size_t task = 0; task < readable.size(); ++task)
    outcomes[readable[task]] = std::move(predicted[task]);
  return outcomes;
}

CompiledRuns compile_runs(const ChosenRuns& chosen) {
  CompiledRuns programs(chosen.runs.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < programs.size(); i = next++) {
      try {
        RunOutcome ignored;
        const std::optional<Measured> measured = read(chosen, *chosen.runs[i], ignored);
        if (!measured || depends_on_times(measured->scenario.job.strategy.schedule)) continue;
        programs[i] = std::make_shared<const Program>(compile(measured->scenario.job));
      } catch (const Refusal&) {  // predict_runs() will report the reason
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return programs;
}

}  // namespace motley
