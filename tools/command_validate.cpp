// motley validate: predicts training runs that others measured and published, and says how wrong that is. Runs are
// simulated in as many processes as there are processors. Read next: models/published_run.hpp, models/validation.hpp.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "models/check.hpp"
#include "models/published_metrics.hpp"
#include "models/published_run.hpp"
#include "models/validation.hpp"
#include "sim/world.hpp"
#include "tools/command.hpp"
#include "tools/progress.hpp"
#include "tools/validate_claims.hpp"
#include "tools/validate_collectives.hpp"

namespace motley {
namespace {

struct Options {
  std::vector<std::string> what;
  bool rows = false, json = false, no_memory = false, collectives = false, claims = false;
  std::string show, out;
};

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

void predict(const Measured& measured, bool with_memory, RunOutcome& outcome) {
  const Job& job = measured.scenario.job;
  outcome.chips = job.cluster.chip_count();
  outcome.measured_s = measured.step_s;
  outcome.measured_bytes = measured.peak_bytes;
  try {
    const Program program = compile(job);
    if (with_memory) predict_memory(measured, program, outcome);
    outcome.predicted = predict(job, program, measured.scenario.interval, measured.runs_on);
    if (!measured.unseen) return;
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
  Worker(const std::vector<std::optional<Measured>>& runs, std::vector<RunOutcome>& outcomes,
         std::size_t first, std::size_t step, bool with_memory) {
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
    for (std::size_t i = first; i < runs.size(); i += step) {
      if (!runs[i]) continue;
      predict(*runs[i], with_memory, outcomes[i]);
      const RunOutcome& found = outcomes[i];
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
  bool take(const std::vector<std::optional<Measured>>& runs, std::vector<RunOutcome>& outcomes) {
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
    RunOutcome& found = outcomes.at(i);
    found.chips = chips;
    found.measured_s = measured;
    found.predicted = predicted;
    if (unseen.seconds >= 0) found.unseen = unseen;
    if (bytes >= 0) found.predicted_bytes = bytes;
    found.measured_bytes = runs.at(i)->peak_bytes;
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

void predict_all(const std::vector<std::optional<Measured>>& runs, bool with_memory,
                 std::vector<RunOutcome>& outcomes) {
  const std::size_t count = std::max(1U, std::thread::hardware_concurrency());
  Progress progress("predicting", static_cast<std::int64_t>(runs.size()));
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < count; ++i)
    workers.push_back(std::make_unique<Worker>(runs, outcomes, i, count, with_memory));
  std::int64_t done = 0;
  for (bool more = true; more;) {
    more = false;
    for (const auto& worker : workers)
      if (worker->take(runs, outcomes)) {
        more = true;
        progress.show(++done);
      }
  }
  for (const auto& worker : workers) worker->finish();
}

// Files of runs, and sets to take of them; no file: the runs that ship.
std::vector<PublishedRun> chosen_runs(const std::vector<std::string>& what) {
  std::vector<PublishedRun> runs;
  std::vector<std::string> sets;
  for (const std::string& each : what) {
    if (!each.ends_with(".csv")) {
      sets.push_back(each);
      continue;
    }
    for (PublishedRun& run : read_published_runs(each)) runs.push_back(std::move(run));
  }
  if (sets.size() == what.size())
    runs = read_published_runs(data_folder() + "/tests/validation/published_runs.csv");
  if (sets.empty()) return runs;
  std::vector<std::string> known;
  for (const PublishedRun& run : runs)
    if (std::find(known.begin(), known.end(), run.set) == known.end()) known.push_back(run.set);
  for (const std::string& set : sets)
    if (std::find(known.begin(), known.end(), set) == known.end())
      throw Refusal(Exit::usage, "unknown-set", {}, "no run of a set `" + set + "`", suggest(set, known));
  std::erase_if(runs, [&](const PublishedRun& run) {
    return std::find(sets.begin(), sets.end(), run.set) == sets.end();
  });
  return runs;
}

std::string scenario_text(const Measured& run) {
  const Job& job = run.scenario.job;
  return print(job.transformer) + "---\n" + print(job.cluster) + "---\n" + print(job.strategy);
}

Exit run(const Options& options) {
  if (options.claims) {
    write_result(validate_claims(options.json), options.out);
    return Exit::ok;
  }
  if (options.collectives) {
    write_result(validate_collectives(options.what, options.rows, options.json), options.out);
    return Exit::ok;
  }
  const std::vector<PublishedRun> all = chosen_runs(options.what);
  const PublishedRules rules;
  std::vector<std::optional<Measured>> runs;
  std::vector<RunOutcome> outcomes;
  for (const PublishedRun& each : all) {
    if (!options.show.empty() && each.id != options.show) continue;
    outcomes.push_back(outcome_of(each));
    auto read = rules.read(each, all);
    runs.emplace_back();
    if (const auto* const measured = std::get_if<Measured>(&read))
      outcomes.back().experts = measured->experts;
    if (auto* const passed = std::get_if<PassedOver>(&read))
      outcomes.back().passed_over = passed->reason;
    else
      runs.back() = std::get<Measured>(std::move(read));
  }
  if (!options.show.empty() && runs.size() == 1 && runs[0]) {
    write_result(scenario_text(*runs[0]), options.out);
    return Exit::ok;
  }
  predict_all(runs, !options.no_memory, outcomes);
  write_result(options.json ? to_json(outcomes) : to_text(outcomes, options.rows), options.out);
  return Exit::ok;
}

}  // namespace

void add_validate(CLI::App& program, Chosen& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "validate", "Predict training runs that others measured, and say how wrong that is");
  CLI::Option* const what = command->add_option(
      "what", options->what, "tables of runs (.csv), and sets to take of them; default: the runs that ship");
  command->add_flag("--rows", options->rows, "print every run, not the summary alone");
  command->add_option("--show", options->show, "print what is made of this run, instead of predicting it");
  CLI::Option* const collectives = command->add_flag("--collectives", options->collectives,
                                                     "collectives that others timed, instead of runs");
  command->add_flag("--claims", options->claims, "what papers claim of whole systems, instead of runs")
      ->excludes(what)
      ->excludes(collectives);
  command->add_flag("--no-memory", options->no_memory, "times alone: sooner");
  command->add_flag("--json", options->json, "print JSON (schema motley.validate/1)");
  command->add_option("--out", options->out, "write the result to this file instead of stdout");
  command->footer(footer("motley validate sc21 --rows"));
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace motley
