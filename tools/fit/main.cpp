// The program behind tools/fit-published: reads the command line, fits, and prints the result. tools/fit/rounds.hpp has
// the fit, tools/fit/publish.hpp the files that ship. Read next: tools/fit/plan.hpp.
#include <fmt/format.h>
#include <stdlib.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "models/base/data_files.hpp"
#include "models/check/check.hpp"
#include "models/scenario/scenario.hpp"
#include "tools/commands/command.hpp"
#include "tools/fit/publish.hpp"

namespace motley::fit {
namespace {

struct Options {
  std::string table, only, month;
  int rounds = 4;
  bool go_on = false, write = false, json = false;
};

std::string this_month() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1);
}

std::vector<std::string> sets_of(const std::vector<FitRun>& runs) {
  std::vector<std::string> sets;
  for (const FitRun& run : runs) sets.push_back(run.set);
  return sets;
}

// What is printed on stdout, as text or JSON.
struct Told {
  std::vector<ErrorTable> rounds;
  Publication publication;
  std::string folder;  // the folder with the written files; empty: nothing was fitted
};

std::string to_text(const Told& told, bool written) {
  if (told.folder.empty()) return "as it begins:\n" + to_text(told.rounds.at(0));
  const Publication& publication = told.publication;
  return "of the fit:\n" + to_text(told.rounds.back()) + "\nleft out by size:\n" +
         to_text(publication.by_size) + "\nleft out by set:\n" + to_text(publication.by_set) +
         "\nsoftware unnamed:\n" + to_text(publication.unnamed) + "\n" +
         fmt::format("{}", fmt::join(publication.intervals, "")) + (written ? "written: " : "kept: ") +
         told.folder + "\n";
}

std::string to_json(const Told& told, const Figures& figures, const Fit& fit) {
  nlohmann::ordered_json json;
  json["schema"] = "motley.fit/1";
  for (const ErrorTable& each : told.rounds)
    json["rounds"].push_back(nlohmann::ordered_json::parse(to_json(each)));
  if (told.folder.empty()) return json.dump(1) + "\n";
  json["left_out_by_size"] = nlohmann::ordered_json::parse(to_json(told.publication.by_size));
  json["left_out_by_set"] = nlohmann::ordered_json::parse(to_json(told.publication.by_set));
  json["unnamed"] = nlohmann::ordered_json::parse(to_json(told.publication.unnamed));
  json["figures"] = nlohmann::ordered_json::parse(to_json(figures, fit));
  json["folder"] = told.folder;
  return json.dump(1) + "\n";
}

// The software that is fitted, all or one, and its runs.
struct Moving {
  std::set<std::string> software;
  std::vector<FitRun> runs;
  std::vector<const PublishedRun*> rows;
};
Moving moving_of(const Table& table, const Figures& figures, const std::string& only,
                 const std::string& path) {
  Moving moving;
  for (const std::string& each : figures.software())
    if (only.empty() || each == only) moving.software.insert(each);
  if (moving.software.empty())
    throw Refusal(Exit::usage, "bad-csv", {.file = path},
                  fmt::format("no run of `{}` in it takes part", only),
                  fmt::format("there are runs of {}", fmt::join(figures.software(), ", ")));
  for (std::size_t i = 0; i < table.runs.size(); ++i)
    if (moving.software.contains(table.runs[i].software)) {
      moving.runs.push_back(table.runs[i]);
      moving.rows.push_back(table.taking_part[i]);
    }
  return moving;
}

Exit run(const Options& options) {
  const Plan plan = shipped_plan();
  if (!options.only.empty()) static_cast<void>(plan.software_named(options.only));
  if (options.write && options.rounds == 0)
    throw Refusal(Exit::usage, "missing-option", {}, "`--write` with `--rounds 0`",
                  "nothing is fitted in no round");
  const std::string shipped = data_folder();
  const std::string path =
      options.table.empty() ? shipped + "/tests/validation/published_runs.csv" : options.table;
  const Table table = read_table(path, plan);
  const Figures figures(plan, table.runs);
  const Moving moving = moving_of(table, figures, options.only, path);
  const bool from_files = options.go_on || !options.only.empty();

  Told told;
  Fit fit(figures, moving.runs, moving.software, [&](int round, const Eigen::VectorXd& errors) {
    told.rounds.push_back(table_of({errors.begin(), errors.end()}, sets_of(moving.runs)));
    fmt::print(stderr, "round {}: the runs that take part\n{}\n", round, to_text(told.rounds.back()));
  });
  SimulatedRuns simulated(figures, table.rows, moving.rows);
  fit.run(simulated, from_files ? figures.values_in(shipped + "/platforms/software") : figures.prior().mean,
          options.rounds);
  if (options.rounds > 0) {
    const PredictRuns predict = [&](const PublishedRules& rules, const std::vector<const PublishedRun*>& runs,
                                    bool unseen) { return predicted(rules, runs, table.rows, unseen); };
    told.publication = publish(figures, fit, table, predict, shipped, options.month);
    told.folder =
        options.write ? shipped + "/platforms" : new_folder_in(std::filesystem::temp_directory_path());
    if (options.write)
      replace_shipped(told.publication.files, shipped);
    else
      write_files(told.publication.files, told.folder);
  }
  write_result(options.json ? to_json(told, figures, fit) : to_text(told, options.write), {});
  return Exit::ok;
}

Exit run_command_line(int argc, char** argv) {
  set_up("fit-published");
  CommandLine command_line(
      "tools/fit-published",
      "Fits what generations of training software make of chips and networks, platforms/software/, to\n"
      "published runs, by simulating them. platforms/published/fit.yaml says what, from which priors.");
  const Command program = command_line.program();
  Options options;
  options.month = this_month();
  program.option("runs", options.table, "a table of runs (.csv); default: the runs that ship");
  program.option("--rounds", options.rounds, "at most so many; 0: tell where it begins, fit nothing")
      .between(0, 100)
      .shows_default();
  program.flag("--go-on", options.go_on, "begin at platforms/software/, not at the priors");
  program.option("--only", options.only,
                 "fit only this software, to its own runs; all other software keeps its figures");
  program.flag("--write", options.write, "write platforms/software/ and platforms/published/");
  program.option("--month", options.month, "that sources name").shows_default();
  program.flag("--json", options.json, "print JSON (schema motley.fit/1)");
  program.example("tools/fit-published --only torchtitan-2025 --rounds 2");
  program.runs([&options] { return run(options); });
  return motley::run(command_line.read(argc, argv));
}

}  // namespace
}  // namespace motley::fit

int main(int argc, char** argv) {
  try {
    return static_cast<int>(motley::fit::run_command_line(argc, argv));
  } catch (const std::exception& bug) {
    std::fputs(bug.what(), stderr);
    return static_cast<int>(motley::Exit::failed);
  }
}
