// motley sweep: simulates one scenario with many values of some of its keys, each combination in a child process, as
// many at once as there are processors. What is done is kept in a file of rows, so that a sweep can go on after it was
// interrupted, and so that its parts can run on many machines. Read next: models/sweep/sweep_table.hpp.
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/data_files.hpp"
#include "models/base/output_file.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"
#include "models/plan/prepare.hpp"
#include "models/report/report.hpp"
#include "models/scenario/setting.hpp"
#include "models/sweep/sweep_axis.hpp"
#include "models/sweep/sweep_plot.hpp"
#include "models/sweep/sweep_rows.hpp"
#include "models/sweep/sweep_table.hpp"
#include "sim/simulate.hpp"
#include "sim/workers/pool.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/expected_speeds.hpp"
#include "tools/commands/likely_step.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/place_flags.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {

template <class T>
requires std::is_same_v<std::remove_const_t<T>, SweepFigures>
auto fields_of(T& figures) {
  auto& [step_s, least_s, most_s, tokens_per_s, mfu, bytes, share, usd, kwh, chips, hash] = figures;
  return std::tie(step_s, least_s, most_s, tokens_per_s, mfu, bytes, share, usd, kwh, chips, hash);
}
template <class T>
requires std::is_same_v<std::remove_const_t<T>, SweepRow>
auto fields_of(T& row) {
  auto& [values, figures, kind, refusal] = row;
  return std::tie(values, figures, kind, refusal);
}

namespace {

struct SweepArguments {
  std::string scenario;
  std::vector<std::string> settings;
  std::vector<std::string> merged;
  std::string rows, shard, plot, out, front, memory;  // empty: not given
  int processes = 0;                                  // 0: one for each processor
  bool csv = false, json = false;
};

// The scenario that is swept.
struct Sweep {
  std::string path;
  Yaml root;
  SweepOrigin origin;
  double memory = 0;  // bytes that one simulation may take

  Scenario scenario(std::size_t number) const {
    return read_scenario(with_settings(root, path, parse_settings(settings_of(origin.axes, number))), path);
  }
};

SweepFigures simulated(const Sweep& sweep, Scenario scenario) {
  scenario.job.fidelity.fold = scenario.job.fidelity.fold.value_or(true);
  Prepared prepared = prepare_plainly(std::move(scenario));
  expect_speeds(prepared, 0);
  SimOptions options;
  options.hashes_program = false;  // a third of the time of a small simulation
  options.announce = [&](const MemoryNeed& need) {
    if (need.bytes > sweep.memory)
      throw Refusal(Exit::infeasible, "too-little-memory", {},
                    fmt::format("this simulation needs {}, and may take {}", format_bytes(need.bytes),
                                format_bytes(sweep.memory)),
                    "`--processes 1` leaves it the memory of all");
  };
  const Job& job = prepared.scenario.job;
  const Trace trace = simulate(job, prepared.program, options);
  Report report = make_report(job, prepared.program, trace, prepared.memory);
  if (rests_on_published_runs(job.cluster)) report.interval = prepared.scenario.interval;
  add_coverage(prepared, trace, report);
  return figures_of(report);
}

SweepRow row_of(const Sweep& sweep, std::size_t number) {
  std::vector<std::string> values = values_of(sweep.origin.axes, number);
  try {
    return {std::move(values), simulated(sweep, sweep.scenario(number)), {}, {}};
  } catch (const Refusal& refusal) {
    note_sites(refusal);
    return refused_row(values_of(sweep.origin.axes, number), refusal);
  } catch (const RunFailure& failure) {
    return {values_of(sweep.origin.axes, number), {}, "run-failed", failure.what()};
  }
}

// What the rows depend on: this program, the scenario, and every file that a value of an axis brings in.
std::string hash_of(const Sweep& sweep) {
  std::string text = fmt::format("{}\n{}", MOTLEY_VERSION, print_yaml(sweep.root));
  const auto add = [&](const std::vector<std::string>& settings) {
    try {
      const Scenario scenario =
          read_scenario(with_settings(sweep.root, sweep.path, parse_settings(settings)), sweep.path);
      text += print(scenario.job.transformer) + print(scenario.job.cluster);
    } catch (const Refusal& refusal) {
      text += refusal.what();
    }
  };
  add({});
  for (const SweepAxis& axis : sweep.origin.axes)
    for (const std::string& value : axis.values) add({axis.key + "=" + value});
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

Sweep read_sweep(const SweepArguments& options) {
  Sweep sweep{.path = find_scenario(options.scenario), .root = {}, .origin = {}};
  for (const std::string& text : options.settings) sweep.origin.axes.push_back(parse_axis(text));
  if (scenario_count(sweep.origin.axes) == 1)
    throw Refusal(Exit::usage, "missing-option", {}, "a sweep needs several values of a key",
                  "as `--set strategy.tensor_parallel=2,4,8`");
  sweep.root = read_yaml(sweep.path);
  const Yaml name =
      sweep.root->is_map() && sweep.root->find("name") ? sweep.root->find("name")->value : nullptr;
  sweep.origin.name = name ? to_text(name) : stem_of(sweep.path);
  for (const SweepAxis& axis : sweep.origin.axes)
    for (const std::string& value : axis.values) parse_setting(axis.key + "=" + value);
  sweep.origin.hash = hash_of(sweep);
  return sweep;
}

// Where a launcher or an array of Slurm jobs says which part this process does.
SweepShard shard_of(const std::string& text) {
  if (text.empty()) return {};
  if (text != "auto") return parse_sweep_shard(text);
  const auto number = [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? std::optional(std::atoll(value)) : std::nullopt;
  };
  const auto task = number("SLURM_ARRAY_TASK_ID"), least = number("SLURM_ARRAY_TASK_MIN"),
             count = number("SLURM_ARRAY_TASK_COUNT");
  if (task && least && count) return parse_sweep_shard(fmt::format("{}/{}", *task - *least, *count));
  const std::optional<Place> place = place_of_process({});
  if (!place)
    throw Refusal(Exit::usage, "bad-shard", {.file = "--shard"},
                  "no launcher says which part this process does",
                  "start it by mpirun, srun or an array of Slurm jobs, or say `--shard 0/4`");
  return {static_cast<std::size_t>(place->rank.value()), static_cast<std::size_t>(place->rank_count)};
}

// The file of rows, to which each row is appended when it is done.
class RowsFile {
 public:
  RowsFile(std::string path, const SweepOrigin& origin) : path_(std::move(path)) {
    if (path_.empty()) return;
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) refuse_error();
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) refuse("another sweep writes it");
    constexpr std::size_t kMostBytes = std::size_t{1} << 30;
    const std::string text = read_text_file(path_, {}, kMostBytes);
    SweepRows before = parse_rows(text, path_);
    if (before.whole_bytes > 0) check_same_sweep(before, origin, path_);
    // What was cut off is written anew.
    if (ftruncate(descriptor_, static_cast<off_t>(before.whole_bytes)) != 0 ||
        lseek(descriptor_, 0, SEEK_END) < 0)
      refuse_error();
    if (before.whole_bytes == 0) write(origin_line(origin));
    done_ = std::move(before.rows);
  }
  RowsFile(const RowsFile&) = delete;
  RowsFile& operator=(const RowsFile&) = delete;
  ~RowsFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  const std::map<std::size_t, SweepRow>& done() const { return done_; }
  void add(std::size_t number, SweepRow row) {
    if (descriptor_ >= 0) write(row_line(number, row));
    done_[number] = std::move(row);
  }

 private:
  [[noreturn]] void refuse(const std::string& why, RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "unwritable-file", {.file = path_}, "cannot be written: " + why,
                  "give another name with --rows", site);
  }
  [[noreturn]] void refuse_error() const { refuse(std::strerror(errno)); }
  void write(const std::string& text) const {
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t count = ::write(descriptor_, text.data() + sent, text.size() - sent);
      if (count < 0 && errno != EINTR)
        throw RunFailure(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
      sent += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
  }

  std::string path_;
  int descriptor_ = -1;
  std::map<std::size_t, SweepRow> done_;
};

// Does the rows of this shard that are not done. False: interrupted.
bool do_rows(const Sweep& sweep, const SweepShard& shard, int processes, RowsFile& file) {
  std::vector<std::size_t> numbers;
  for (std::size_t number = 0; number < scenario_count(sweep.origin.axes); ++number)
    if (shard.has(number) && !file.done().contains(number)) numbers.push_back(number);
  Progress progress("scenario", static_cast<std::int64_t>(numbers.size()));
  std::int64_t ended = 0;
  const auto work = [&](std::size_t task, MessageWriter& out) {
    const SweepRow row = row_of(sweep, numbers[task]);
    write_value(out, pool::Outcome::value);
    write_value(out, row);
  };
  const auto take = [&](std::size_t task, MessageReader& in) {
    SweepRow row;
    read_value(in, row);
    file.add(numbers[task], std::move(row));
    progress.show(++ended);
    if (was_interrupted()) throw Interrupted();
  };
  PoolOptions options;
  options.processes = static_cast<std::size_t>(processes);
  options.name = [&](std::size_t task) { return fmt::format("scenario {}", numbers[task]); };
  note_interrupts();
  try {
    pool::run(numbers.size(), work, take, options);
  } catch (const Interrupted&) {
    return false;
  }
  return true;
}

SweepTable table_of(const Sweep& sweep, const RowsFile& file) {
  SweepTable table{.name = sweep.origin.name, .axes = sweep.origin.axes, .rows = {}};
  for (const auto& [number, row] : file.done()) table.rows.push_back(row);
  table.missing = scenario_count(sweep.origin.axes) - table.rows.size();
  return table;
}

SweepTable merged_table(const std::vector<std::string>& files) {
  std::vector<SweepRows> parts;
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  for (const std::string& file : files) {
    parts.push_back(parse_rows(read_text_file(file, {}, kMostBytes), file));
    if (parts.back().whole_bytes == 0)
      throw Refusal(Exit::usage, "bad-rows", {.file = file}, "nothing is written here",
                    "`motley sweep --rows FILE` writes such a file");
  }
  return join_rows(parts, files);
}

// The measures that --front names.
std::vector<SweepMeasure> measures_of(const std::string& text) {
  std::vector<SweepMeasure> measures;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    measures.push_back(to_choice<SweepMeasure>(node_of("--front", text.substr(begin, end - begin))));
    begin = end + 1;
  }
  return measures;
}

void answer(SweepTable table, const SweepArguments& options) {
  const std::vector<SweepMeasure> measures = measures_of(options.front);
  if (!measures.empty()) find_front(table, measures);
  if (!options.plot.empty()) write_result(plot_of(table, options.plot.ends_with(".html")), options.plot);
  write_result(options.json ? to_json(table) : options.csv ? to_csv(table) : to_text(table), options.out);
}

void refuse_plot_name(const std::string& plot) {
  if (!plot.empty() && !plot.ends_with(".svg") && !plot.ends_with(".html"))
    throw Refusal(Exit::usage, "unknown-value", {.file = "--plot"},
                  fmt::format("`{}` says no form of picture", shortened(plot)), "FILE.svg or FILE.html");
}

Exit run(const SweepArguments& options) {
  refuse_plot_name(options.plot);
  measures_of(options.front);
  if (!options.merged.empty()) {
    answer(merged_table(options.merged), options);
    return Exit::ok;
  }
  if (options.scenario.empty())
    throw Refusal(Exit::usage, "missing-option", {}, "a sweep needs a scenario",
                  "motley sweep quickstart --set strategy.tensor_parallel=2,4,8");
  Sweep sweep = read_sweep(options);
  const SweepShard shard = shard_of(options.shard);
  if (shard.count == 1) open_outputs({options.plot, options.out});  // shards may share them
  const auto processes = options.processes > 0 ? options.processes : static_cast<int>(pool::processors());
  sweep.memory = allowed_memory(options.memory) / processes;
  const std::string part =
      options.rows.empty() || shard.count == 1 ? "" : fmt::format(".{}-of-{}", shard.index, shard.count);
  RowsFile file(options.rows.empty() ? "" : options.rows + part, sweep.origin);
  const bool whole = do_rows(sweep, shard, processes, file);
  if (!whole)
    spdlog::warn("interrupted: {} of {} scenarios are done{}", file.done().size(),
                 scenario_count(sweep.origin.axes),
                 options.rows.empty() ? "; with --rows FILE the next sweep goes on from there"
                                      : "; the same command goes on from there");
  answer(table_of(sweep, file), options);
  return whole ? Exit::ok : Exit::interrupted;
}

}  // namespace

void add_sweep(const Command& program) {
  const auto options = std::make_shared<SweepArguments>();
  const Command command =
      program.subcommand("sweep", "Simulate a scenario with many values of its keys, on all processors");
  const Option scenario = command.option("scenario", options->scenario, kScenarioHelp);
  const Option set =
      command.option("--set", options->settings,
                     "values of a key: strategy.tensor_parallel=2,4,8, or a range: =1..8, =1..2:+0.25, "
                     "=100..800Gb/s:x2; each value of a key goes with each of the others");
  set.repeats();
  add_max_input(command);
  command.option(
      "--rows", options->rows,
      "keep each row in this file when it is done; a sweep that finds rows there goes on from them");
  command.option(
      "--shard", options->shard,
      "do only this part, as 0/4 of four; auto: as mpirun, srun or a Slurm array says; the file of "
      "rows then ends in .0-of-4");
  command
      .option("--merge", options->merged,
              "simulate nothing: print the rows of these files, parts of one sweep")
      .not_with(scenario)
      .not_with(set);
  command.option("--front", options->front,
                 "mark the rows that none beats in all of these: time, price, energy, memory; with commas");
  command.option("--plot", options->plot,
                 "draw the steps into FILE.svg or FILE.html; with --front of two, one over the other");
  command.option("--processes", options->processes, "simulations at once; default: one for each processor")
      .between(1, 4096);
  add_memory_limit(command, options->memory);
  command.flag("--csv", options->csv, "print CSV");
  command.flag("--json", options->json, "print JSON (schema motley.sweep/1)");
  command.option("--out", options->out, "write the result to this file instead of stdout");
  command.example(
      "motley sweep mixed-fleet --set cluster.groups.0.nics.0.bandwidth=100..800Gb/s:x2 --plot nic.svg\n"
      "  motley sweep quickstart --set strategy.tp=2,4,8 --set train.micro_batch=1,2,4 --front time,memory\n"
      "  mpirun motley sweep quickstart --set train.global_batch=128..1024:x2 --rows batch.rows --shard "
      "auto\n"
      "  motley sweep --merge batch.rows.* --csv");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
