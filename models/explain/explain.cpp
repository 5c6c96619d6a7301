// Simulates changed jobs one after the other and sorts what came of them. How two jobs differ is read from their texts,
// line by line: what prints alike is alike. Read next: models/explain_text.cpp.
#include "models/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "models/check.hpp"
#include "models/collective.hpp"
#include "models/critical_path.hpp"
#include "models/refusal.hpp"
#include "models/scenario.hpp"

namespace motley {
namespace {

class Counter {
 public:
  Counter(const ExplainOptions& options, std::size_t total)
      : options_(options), total_(static_cast<std::int64_t>(total)) {}
  void next(const std::string& what) {
    if (options_.progress) options_.progress(done_, total_, what);
    ++done_;
  }

 private:
  const ExplainOptions& options_;
  std::int64_t done_ = 0, total_;
};

// What of the path it could shorten, and by how much.
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

LeverGain gain_of(const Job& job, const Lever& lever, const std::vector<PathPart>& path,
                  const Simulation& simulation, double factor) {
  const Job better = improved(job, lever, factor);
  LeverGain gain;
  gain.lever = lever;
  gain.step_s = duration_s(simulation(better, compile(better)));
  gain.on_path_s = on_path_s(path, lever, factor);
  return gain;
}

void sort_by_step(std::vector<LeverGain>& gains) {
  std::stable_sort(gains.begin(), gains.end(),
                   [](const LeverGain& a, const LeverGain& b) { return a.step_s < b.step_s; });
}

void pull_levers(const Job& job, const Program& program, const Simulation& simulation,
                 const ExplainOptions& options, Counter& counter, Explained& explained) {
  const std::vector<Lever> single = levers(job, program);
  const auto pull = [&](const Lever& lever) {
    counter.next(fmt::format("{}, {}", lever.what, lever.where));
    return gain_of(job, lever, explained.path, simulation, options.factor);
  };
  for (const Lever& lever : single) explained.levers.push_back(pull(lever));
  for (const Lever& lever : combined(single)) explained.sets.push_back(pull(lever));
  if (!single.empty()) explained.all = pull(all_together(single));
  sort_by_step(explained.levers);
  sort_by_step(explained.sets);
}

void make_changes(const Job& job, const std::vector<Change>& list, const Simulation& simulation,
                  Counter& counter, Explained& explained) {
  for (const Change& change : list) {
    counter.next(change.what);
    Job changed = job;
    ChangeGain gain{change.what, {}};
    try {
      change.make(changed);
      gain.trial = try_job(changed, simulation);
    } catch (const Refusal& refusal) {  // degrees that cannot even be written down
      gain.trial.refused = refusal.message();
    }
    explained.changes.push_back(std::move(gain));
  }
  std::stable_sort(explained.changes.begin(), explained.changes.end(),
                   [](const ChangeGain& a, const ChangeGain& b) {
                     return std::make_tuple(!a.trial.stands(), a.trial.step_s) <
                            std::make_tuple(!b.trial.stands(), b.trial.step_s);
                   });
}

std::string print_train(const Train& train) {
  std::string text = fmt::format(
      "global_batch: {}\nsequence: {}\nmicro_batch: {}\nprecision: {}\ngradients: {}\nfragmentation: {}\n",
      train.global_batch, train.sequence, train.micro_batch, name_of(train.precision),
      name_of(train.gradients), train.fragmentation);
  if (!train.documents.empty()) text += fmt::format("documents: [{}]\n", fmt::join(train.documents, ", "));
  if (train.matmuls) text += fmt::format("matmuls: {}\n", name_of(*train.matmuls));
  if (train.expert_skew > 0) text += fmt::format("expert_skew: {}\n", train.expert_skew);
  if (train.expert_room > 0) text += fmt::format("expert_room: {}\n", train.expert_room);
  return text;
}

std::string_view name_of(CollectiveLevel level) {
  switch (level) {
    case CollectiveLevel::formula:
      return "formula";
    case CollectiveLevel::fluid:
      return "fluid";
    case CollectiveLevel::expanded:
      return "expanded";
  }
  return "?";
}

std::string print_fidelity(const Fidelity& fidelity) {
  return fmt::format("data_parallel: {}\ntensor_parallel: {}\nalgorithm: {}\n{}",
                     name_of(fidelity.data_parallel), name_of(fidelity.tensor_parallel),
                     motley::name_of(fidelity.algorithm),
                     fidelity.expert_copies == ExpertCopies::node ? "expert_copies: node\n" : "");
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
      {"train", [](const Job& job) { return print_train(job.train); },
       [](Job& job, const Job& from) { job.train = from.train; }},
      {"strategy", [](const Job& job) { return print(job.strategy); },
       [](Job& job, const Job& from) { job.strategy = from.strategy; }},
      {"fidelity", [](const Job& job) { return print_fidelity(job.fidelity); },
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

// A with what B has of these parts.
Trial exchange(const Job& a, const Job& b, const std::vector<const Part*>& parts,
               const Simulation& simulation) {
  Job job = a;
  for (const Part* part : parts) part->take(job, b);
  return try_job(job, simulation);
}

// Each part by itself, both ways; and two where one of them does not stand alone, as a strategy and the batch that it
// divides may not.
void exchange_parts(const Job& a, const Job& b, const std::vector<const Part*>& unlike,
                    const Simulation& simulation, const ExplainOptions& options, Why& result) {
  const std::size_t pairs = unlike.size() > 2 ? unlike.size() * (unlike.size() - 1) / 2 : 0;
  Counter counter(options, 2 * (unlike.size() + pairs));
  const auto both_ways = [&](const std::vector<const Part*>& parts, PartDifference& part) {
    counter.next("A with B's " + part.part);
    part.a_with_b = exchange(a, b, parts, simulation);
    counter.next("B with A's " + part.part);
    part.b_with_a = exchange(b, a, parts, simulation);
  };
  const auto stands = [&](std::size_t i) {
    return result.parts[i].a_with_b.stands() && result.parts[i].b_with_a.stands();
  };
  for (std::size_t i = 0; i < unlike.size(); ++i) both_ways({unlike[i]}, result.parts[i]);
  for (std::size_t i = 0; pairs > 0 && i < unlike.size(); ++i)
    for (std::size_t j = i + 1; j < unlike.size(); ++j) {
      if (stands(i) && stands(j)) continue;
      result.parts.push_back({fmt::format("{} and {}", unlike[i]->name, unlike[j]->name), {}, {}, {}});
      both_ways({unlike[i], unlike[j]}, result.parts.back());
    }
}

}  // namespace

double stages_wait_share(const Explained& explained) {
  const std::vector<StageBreakdown>& rows = explained.report.breakdown;
  double sum_s = 0;
  for (const StageBreakdown& row : rows) sum_s += row.bubble_s;
  const double whole_s = explained.report.iteration_s * static_cast<double>(rows.size());
  return whole_s > 0 ? sum_s / whole_s : 0;
}

Trial try_job(const Job& job, const Simulation& simulation) {
  Trial trial;
  try {
    validate(job.transformer, job.train, job.strategy);
    const Program program = compile(job);
    check(program, job.cluster, job.train.fragmentation);
    trial.step_s = duration_s(simulation(job, program));
  } catch (const Refusal& refusal) {
    if (refusal.exit_code() != Exit::infeasible && refusal.exit_code() != Exit::usage) throw;
    trial.refused = refusal.message();
  }
  return trial;
}

Explained explain(const Job& job, const Program& program, const Trace& trace, std::vector<StageMemory> memory,
                  const Simulation& simulation, const ExplainOptions& options) {
  Explained explained;
  explained.factor = options.factor;
  explained.report = make_report(job, program, trace, std::move(memory));
  explained.path_links = explained.report.critical_path.links;
  explained.path = path_parts(job, program, trace);
  std::stable_sort(explained.path.begin(), explained.path.end(),
                   [](const PathPart& a, const PathPart& b) { return a.seconds > b.seconds; });
  const std::vector<Change> list = options.changes ? changes(job, explained.report) : std::vector<Change>{};
  const std::vector<Lever> single = options.levers ? levers(job, program) : std::vector<Lever>{};
  Counter counter(options, list.size() + single.size() + combined(single).size() + (single.empty() ? 0 : 1));
  if (options.levers) pull_levers(job, program, simulation, options, counter, explained);
  make_changes(job, list, simulation, counter, explained);
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
