#include "tools/predict_runs.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "models/check.hpp"
#include "models/published_metrics.hpp"
#include "models/schedule_program.hpp"
#include "sim/world.hpp"
#include "tools/progress.hpp"

namespace motley {
namespace {

RunOutcome outcome_of(const PublishedRun& run) {
  RunOutcome made;
  made.id = run.id;
  made.set = run.set;
  made.accelerator = run.row["accelerator"];
  made.model = run.row["model_name"];
  return made;
}

// Assumes: an allocator that runs out gives back what it lost between tensors before it fails, as PyTorch's does.
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

Prediction predict(const Job& job, const Program& program, const Interval& interval, bool runs_on) {
  Prediction made;
  const Trace trace = simulate_in_child(job, program);
  for (const TraceEvent& event : trace.events) made.seconds = std::max(made.seconds, event.end_s);
  if (runs_on) made.seconds = step_to_step_s(program, trace);
  made.low_s = interval.low * made.seconds;
  made.high_s = interval.high * made.seconds;
  return made;
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
    outcome.predicted = predict(job, program, measured.scenario.interval, measured.runs_on);
    if (!options.unseen || !measured.unseen) return;
    Job elsewhere = job;
    elsewhere.cluster = *measured.unseen;
    outcome.unseen = predict(elsewhere, program, measured.unseen_interval, measured.runs_on);
  } catch (const Refusal& refusal) {
    outcome.passed_over = refusal.message();
  }
}

// What a process finds out about the runs first, first + step, ..., as lines over a pipe.
class Worker {
 public:
  Worker(PredictedRuns& runs, std::size_t first, std::size_t step, const PredictOptions& options) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw RunFailure("cannot make a pipe");
    child_ = fork();
    if (child_ < 0) throw RunFailure("cannot start a process");
    if (child_ > 0) {
      close(ends[1]);
      from_ = fdopen(ends[0], "r");
      return;
    }
    close(ends[0]);
    std::FILE* const to = fdopen(ends[1], "w");
    for (std::size_t i = first; i < runs.measured.size(); i += step) {
      if (!runs.measured[i]) continue;
      RunOutcome& found = runs.outcomes[i];
      predict(*runs.measured[i], runs.programs.empty() ? nullptr : runs.programs[i].get(), options, found);
      const Prediction unseen = found.unseen.value_or(Prediction{-1, -1, -1});
      std::fprintf(to, "%zu %lld %a %a %a %a %a %a %a %a %d %s\n", i, static_cast<long long>(found.chips),
                   found.measured_s, found.predicted.seconds, found.predicted.low_s, found.predicted.high_s,
                   unseen.seconds, unseen.low_s, unseen.high_s, found.predicted_bytes.value_or(-1),
                   found.fits ? 1 : 0, one_line(found.passed_over).c_str());
      std::fflush(to);
    }
    std::fclose(to);
    _exit(0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Waits for its next line; false: there are no more.
  bool take(PredictedRuns& runs) {
    std::size_t i = 0;
    long long chips = 0;
    double measured = 0, bytes = 0;
    Prediction predicted, unseen;
    int fits = 0;
    char* line = nullptr;
    std::size_t room = 0;
    const auto length = getline(&line, &room, from_);
    const std::unique_ptr<char, decltype(&std::free)> owned(line, &std::free);
    if (length <= 0) return false;
    int used = 0;
    if (std::sscanf(line, "%zu %lld %la %la %la %la %la %la %la %la %d %n", &i, &chips, &measured,
                    &predicted.seconds, &predicted.low_s, &predicted.high_s, &unseen.seconds, &unseen.low_s,
                    &unseen.high_s, &bytes, &fits, &used) != 11)
      throw RunFailure("a process said what no one understands");
    RunOutcome& found = runs.outcomes.at(i);
    found.chips = chips;
    found.measured_s = measured;
    found.predicted = predicted;
    if (unseen.seconds >= 0) found.unseen = unseen;
    if (bytes >= 0) found.predicted_bytes = bytes;
    found.measured_bytes = runs.measured.at(i)->peak_bytes;
    found.fits = fits == 1;
    found.passed_over = std::string(line + used, static_cast<std::size_t>(length - used));
    while (found.passed_over.ends_with('\n')) found.passed_over.pop_back();
    return true;
  }
  void finish() {
    std::fclose(from_);
    int status = 0;
    if (waitpid(child_, &status, 0) != child_ || status != 0)
      throw RunFailure("a process that simulated runs died");
  }

 private:
  pid_t child_ = -1;
  std::FILE* from_ = nullptr;

  static std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }
};

}  // namespace

PredictedRuns read_runs(const PublishedRules& rules, const std::vector<const PublishedRun*>& chosen,
                        const std::vector<PublishedRun>& all) {
  PredictedRuns made;
  for (const PublishedRun* const each : chosen) {
    RunOutcome& outcome = made.outcomes.emplace_back(outcome_of(*each));
    std::optional<Measured>& measured = made.measured.emplace_back();
    auto read = rules.read(*each, all);
    if (auto* const passed = std::get_if<PassedOver>(&read)) {
      outcome.passed_over = passed->reason;
      continue;
    }
    measured = std::get<Measured>(std::move(read));
    outcome.experts = measured->experts;
  }
  return made;
}

std::vector<std::shared_ptr<const Program>> compile_all(const PredictedRuns& runs) {
  std::vector<std::shared_ptr<const Program>> programs(runs.measured.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < programs.size(); i = next++) {
      if (!runs.measured[i] || depends_on_times(runs.measured[i]->scenario.job.strategy.schedule)) continue;
      try {
        programs[i] = std::make_shared<const Program>(compile(runs.measured[i]->scenario.job));
      } catch (const Refusal&) {  // whoever predicts the run says why
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return programs;
}

void predict_all(const PredictOptions& options, PredictedRuns& runs) {
  const std::size_t count = std::max(1U, std::thread::hardware_concurrency());
  Progress progress("predicting", static_cast<std::int64_t>(runs.measured.size()));
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < count; ++i)
    workers.push_back(std::make_unique<Worker>(runs, i, count, options));
  std::int64_t done = 0;
  for (bool more = true; more;) {
    more = false;
    for (const auto& worker : workers)
      if (worker->take(runs)) {
        more = true;
        progress.show(++done);
      }
  }
  for (const auto& worker : workers) worker->finish();
}

}  // namespace motley
