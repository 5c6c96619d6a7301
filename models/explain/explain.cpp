// Lists what is tried with a job, has it simulated and sorts the results. Differences of two jobs are found in their
// texts, line by line: parts that print alike are equal. Read next: models/explain/experiments.cpp,
// models/explain/explain_text.cpp.
#include "models/explain/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "models/program/collective.hpp"
#include "models/scenario/scenario.hpp"
#include "models/trace/critical_path.hpp"
#include "models/transformer/train_text.hpp"

namespace motley {
namespace {

// The seconds of the path that the lever would save if only the path mattered.
std::optional<double> on_path_s(const std::vector<PathPart>& path, const Lever& lever, double factor) {
  if (lever.keys.empty()) return std::nullopt;
  double sum_s = 0;
  for (const PathPart& part : path)
    if (std::any_of(part.keys.begin(), part.keys.end(), [&](const std::string& key) {
          return std::find(lever.keys.begin(), lever.keys.end(), key) != lever.keys.end();
        }))
      sum_s += part.seconds;
  return sum_s * (1 - 1 / factor);
}

void sort_by_step(std::vector<LeverGain>& gains) {
  std::stable_sort(gains.begin(), gains.end(),
                   [](const LeverGain& a, const LeverGain& b) { return a.step_s < b.step_s; });
}

void sort_by_step(std::vector<ChangeGain>& gains) {
  std::stable_sort(gains.begin(), gains.end(), [](const ChangeGain& a, const ChangeGain& b) {
    return std::make_tuple(!a.trial.stands(), a.trial.step_s) <
           std::make_tuple(!b.trial.stands(), b.trial.step_s);
  });
}

// What is tried with one job: each lever, each set of levers, all levers together, and each change.
struct Tried {
  std::vector<Lever> levers, sets, all;  // `all`: none or one
  std::vector<Change> changes;
};

Tried list_tried(const Job& job, const Program& program, const Report& report,
                 const ExplainOptions& options) {
  Tried tried;
  if (options.levers) {
    tried.levers = levers(job, program);
    tried.sets = combined(tried.levers);
    if (!tried.levers.empty()) tried.all = {all_together(tried.levers)};
  }
  if (options.changes) tried.changes = changes(job, report);
  return tried;
}

std::vector<Experiment> experiments_of(const Job& job, const Tried& tried, double factor) {
  std::vector<Experiment> list;
  for (const std::vector<Lever>* some : {&tried.levers, &tried.sets, &tried.all})
    for (const Lever& lever : *some)
      list.push_back({fmt::format("{}, {}", lever.what, lever.where),
                      [&job, &lever, factor] { return improved(job, lever, factor); }, true});
  for (const Change& change : tried.changes)
    list.push_back({change.what, [&job, &change] { return moved(job, change.move); }, false});
  return list;
}

void add_gains(const Tried& tried, const std::vector<Trial>& trials, Explained& explained) {
  auto trial = trials.begin();
  const auto gain = [&](const Lever& lever) {
    return LeverGain{lever, (trial++)->step_s, on_path_s(explained.path, lever, explained.factor)};
  };
  for (const Lever& lever : tried.levers) explained.levers.push_back(gain(lever));
  for (const Lever& lever : tried.sets) explained.sets.push_back(gain(lever));
  for (const Lever& lever : tried.all) explained.all = gain(lever);
  for (const Change& change : tried.changes) explained.changes.push_back({change.what, *trial++});
  sort_by_step(explained.levers);
  sort_by_step(explained.sets);
  sort_by_step(explained.changes);
}

// Prints the fidelity without `fold`, which changes how long a simulation takes but not its result.
std::string print_unfolded(Fidelity fidelity) {
  fidelity.fold.reset();
  return print(fidelity);
}

// The parts of a job that can be exchanged.
struct Part {
  const char* name;
  std::string (*text)(const Job&);
  void (*take)(Job& job, const Job& from);
};
const std::vector<Part>& exchangeable() {
  static const std::vector<Part> parts = {
      {"model", [](const Job& job) { return print(job.transformer); },
       [](Job& job, const Job& from) { job.transformer = from.transformer; }},
      {"cluster", [](const Job& job) { return print(job.cluster); },
       [](Job& job, const Job& from) { job.cluster = from.cluster; }},
      {"train", [](const Job& job) { return print(job.train); },
       [](Job& job, const Job& from) { job.train = from.train; }},
      {"strategy", [](const Job& job) { return print(job.strategy); },
       [](Job& job, const Job& from) { job.strategy = from.strategy; }},
      {"fidelity", [](const Job& job) { return print_unfolded(job.fidelity); },
       [](Job& job, const Job& from) {
         const std::optional<bool> fold = job.fidelity.fold;
         job.fidelity = from.fidelity;
         job.fidelity.fold = fold;
       }},
  };
  return parts;
}

bool on_chips(Spent spent) { return spent <= Spent::launch || spent == Spent::optimizer; }

std::set<std::string> chips_on(const std::vector<PathPart>& path) {
  std::set<std::string> chips;
  for (const PathPart& part : path)
    if (on_chips(part.spent)) chips.insert(part.on);
  return chips;
}

std::vector<PathDifference> differences(const std::vector<PathPart>& a, const std::vector<PathPart>& b) {
  const bool same_chips = chips_on(a) == chips_on(b);
  std::map<std::tuple<Spent, bool, std::string>, PathDifference> rows;
  const auto add = [&](const std::vector<PathPart>& path, double PathDifference::*seconds) {
    for (const PathPart& part : path) {
      const std::string on = same_chips || !on_chips(part.spent) ? part.on : "";
      PathDifference& row = rows[{part.spent, part.recompute, on}];
      row.spent = part.spent;
      row.recompute = part.recompute;
      row.on = on;
      row.*seconds += part.seconds;
    }
  };
  add(a, &PathDifference::a_s);
  add(b, &PathDifference::b_s);
  std::vector<PathDifference> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  std::stable_sort(list.begin(), list.end(), [](const PathDifference& x, const PathDifference& y) {
    return std::abs(x.b_s - x.a_s) > std::abs(y.b_s - y.a_s);
  });
  return list;
}

// Returns a job with these parts of another job.
Job with_parts(const Job& job, const Job& other, const std::vector<const Part*>& parts) {
  Job mixed = job;
  for (const Part* part : parts) part->take(mixed, other);
  return mixed;
}

// Two jobs, and for each row of their differences the parts of a job that the row names.
struct Exchange {
  const Job &a, &b;
  std::vector<std::vector<const Part*>> parts;
};

// Fills in both trials of every row.
void try_both_ways(const Exchange& exchange, std::span<PartDifference> rows, Experiments& experiments) {
  std::vector<Experiment> list;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [a, b, parts] = exchange;
    const auto give = [&some = parts[i]](const Job& job, const Job& other) {
      return [&job, &other, &some] { return with_parts(job, other, some); };
    };
    list.push_back({"A with B's " + rows[i].part, give(a, b), false});
    list.push_back({"B with A's " + rows[i].part, give(b, a), false});
  }
  const std::vector<Trial> trials = experiments.run(list);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].a_with_b = trials[2 * i];
    rows[i].b_with_a = trials[2 * i + 1];
  }
}

// Exchanges each part by itself in both directions. If a part is not legal alone, it is also exchanged together with
// each other part: a strategy may need the batch that it divides.
void exchange_parts(const Job& a, const Job& b, const std::vector<const Part*>& unlike,
                    const Simulation& simulation, const ExplainOptions& options, Why& result) {
  const std::size_t pairs = unlike.size() > 2 ? unlike.size() * (unlike.size() - 1) / 2 : 0;
  Experiments experiments(simulation, options.run_trials, options.progress, 2 * (unlike.size() + pairs));
  Exchange alone{a, b, {}};
  for (const Part* part : unlike) alone.parts.push_back({part});
  try_both_ways(alone, result.parts, experiments);
  if (pairs == 0) return;
  const auto stands = [&](std::size_t i) {
    return result.parts[i].a_with_b.stands() && result.parts[i].b_with_a.stands();
  };
  Exchange together{a, b, {}};
  std::vector<PartDifference> rows;
  for (std::size_t i = 0; i < unlike.size(); ++i)
    for (std::size_t j = i + 1; j < unlike.size(); ++j) {
      if (stands(i) && stands(j)) continue;
      together.parts.push_back({unlike[i], unlike[j]});
      rows.push_back({fmt::format("{} and {}", unlike[i]->name, unlike[j]->name), {}, {}, {}});
    }
  try_both_ways(together, rows, experiments);
  result.parts.insert(result.parts.end(), rows.begin(), rows.end());
}

}  // namespace

double stages_wait_share(const Explained& explained) { return share_of(explained.report, Purpose::bubble); }

Explained explain(const Job& job, const Program& program, const Trace& trace, std::vector<StageMemory> memory,
                  const Simulation& simulation, const ExplainOptions& options) {
  Explained explained;
  explained.factor = options.factor;
  explained.report = make_report(job, program, trace, std::move(memory));
  explained.path_links = explained.report.critical_path.links;
  explained.path = path_parts(job, program, trace);
  std::stable_sort(explained.path.begin(), explained.path.end(),
                   [](const PathPart& a, const PathPart& b) { return a.seconds > b.seconds; });
  const Tried tried = list_tried(job, program, explained.report, options);
  const std::vector<Experiment> list = experiments_of(job, tried, options.factor);
  Experiments experiments(simulation, options.run_trials, options.progress, list.size());
  add_gains(tried, experiments.run(list), explained);
  return explained;
}

Why why(const Side& a, const Side& b, const Simulation& simulation, const ExplainOptions& options) {
  Why result;
  result.a = a.explained;
  result.b = b.explained;
  const auto tokens = [](const Job& job) {
    return static_cast<double>(job.train.global_batch) * static_cast<double>(job.train.sequence);
  };
  result.a_tokens = tokens(a.job);
  result.b_tokens = tokens(b.job);
  result.path = differences(a.explained.path, b.explained.path);
  std::vector<const Part*> unlike;
  for (const Part& part : exchangeable()) {
    std::vector<KeyDifference> keys = key_differences(part.text(a.job), part.text(b.job));
    if (keys.empty()) continue;
    unlike.push_back(&part);
    result.parts.push_back({part.name, std::move(keys), {}, {}});
  }
  if (unlike.size() == 1) {
    result.parts[0].a_with_b.step_s = b.explained.report.iteration_s;
    result.parts[0].b_with_a.step_s = a.explained.report.iteration_s;
  }
  if (unlike.size() > 1) exchange_parts(a.job, b.job, unlike, simulation, options, result);
  return result;
}

}  // namespace motley
