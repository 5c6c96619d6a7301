// motley train: really trains a scenario on host ranks, and prints the loss of every step and the speed. It
// runs the same Program that `motley simulate` imagines. Each rank is a process that a launcher has started; without
// a launcher the command starts the ranks itself. Read next: hw/world/train.hpp, hw/world/real_world.hpp.
#include "hw/world/train.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "hw/launch/rendezvous.hpp"
#include "models/base/data_files.hpp"
#include "models/base/json_text.hpp"
#include "models/base/output_file.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"
#include "models/check/inventory.hpp"
#include "models/trace/trace_forms.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/group_algorithms.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/place_flags.hpp"
#include "tools/commands/progress.hpp"
#include "tools/commands/routing_text.hpp"
#include "tools/commands/runs.hpp"
#include "tools/commands/scenario_flags.hpp"

namespace motley {
namespace {

struct TrainArguments {
  ScenarioFlags source;
  std::int64_t steps = 0;  // 0: as many as the scenario says
  std::string kernels = "fast";
  std::string trace;
  bool trace_kernels = false;
  std::int64_t trace_step = -1;      // -1: the last
  std::string record_contributions;  // empty: not given
  PlaceFlags place;
  std::string rdma;  // empty: not given
  double silence_limit_s = kSilenceLimit_s;
  bool any_hosts = false, check = false, json = false;
  std::string out;
  std::string memory;  // empty: not given
};

struct Trained {
  const Prepared& prepared;
  const TrainResult& result;
  std::int64_t peak_bytes() const {
    return *std::max_element(result.peak_bytes.begin(), result.peak_bytes.end());
  }
};

std::string to_json(const Trained& trained) {
  nlohmann::ordered_json whole = {{"schema", "motley.train/1"},
                                  {"scenario", trained.prepared.scenario.name},
                                  {"strategy_hash", trained.prepared.program.strategy_hash},
                                  {"program_hash", program_hash(trained.prepared.program)},
                                  {"ranks", trained.prepared.program.rank_count()},
                                  {"steps", trained.result.losses.size()},
                                  {"loss", trained.result.losses},
                                  {"step_s", trained.result.step_s},
                                  {"tokens_per_s", trained.result.tokens_per_s},
                                  {"peak_bytes", trained.result.peak_bytes.items()}};
  if (trained.result.clock_uncertainty_s > 0)
    whole["clock_uncertainty_s"] = trained.result.clock_uncertainty_s;
  if (!trained.result.extra_losses.empty()) whole["extra_loss"] = trained.result.extra_losses;
  if (trained.result.routing) whole["routing"] = to_json(*trained.result.routing);
  if (!trained.result.trace.kernels.empty()) whole["recording_s"] = trained.result.recording_s;
  return json_text(whole);
}

std::string recording_text(const TrainResult& result) {
  if (result.trace.kernels.empty()) return "";
  const double traced_s = step_s(result.trace);
  return fmt::format("\nrecording {} kernels took {} of the traced step's {} ({:.3f} %)\n",
                     result.trace.kernels.size(), format_seconds(result.recording_s),
                     format_seconds(traced_s), 100 * result.recording_s / traced_s);
}

// The text of the result grows while the run goes on, so that a reader of a pipe sees each loss when it is there.
std::string text_head(const Prepared& prepared, std::int64_t steps) {
  const int ranks = prepared.program.rank_count();
  return fmt::format(
      "{}: {} step{} on {} host rank{}\n\n{:>6}  {}\n", prepared.scenario.name, steps, steps == 1 ? "" : "s",
      ranks, ranks == 1 ? "" : "s", "step",
      prepared.scenario.job.transformer.trained_extra() > 0 ? "  loss   of further tokens" : "loss");
}

std::string text_row(std::int64_t step, double loss, std::optional<double> extra) {
  return fmt::format("{:>6}  {:.4f}{}\n", step, loss, extra ? fmt::format("  {:.4f}", *extra) : "");
}

std::string text_tail(const Trained& trained) {
  const Program& program = trained.prepared.program;
  std::string text = recording_text(trained.result);
  text += fmt::format("\n{:.0f} tokens/s, most memory of a rank {}\n", trained.result.tokens_per_s,
                      format_bytes(static_cast<double>(trained.peak_bytes())));
  if (trained.result.clock_uncertainty_s > 0)
    text += fmt::format("several hosts: times of their clocks were compared to within {}\n",
                        format_seconds(trained.result.clock_uncertainty_s));
  if (trained.result.routing) text += describe(*trained.result.routing) + "\n";
  return text + fmt::format("strategy {}, program {}\n", program.strategy_hash, program_hash(program));
}

// What rank 0 tells while the ranks train: on stdout each loss as it comes, or everything at the end, where the result
// is JSON or goes to a file.
class Telling {
 public:
  Telling(const TrainArguments& options, const Prepared& prepared, std::int64_t steps, bool tells)
      : options_(options), steps_(steps), progress_("step", steps), tells_(tells) {
    text_ = text_head(prepared, steps);
  }
  void step(std::int64_t step, double loss, std::optional<double> extra) {
    text_ += text_row(step, loss, extra);
    if (streams()) {
      progress_.hide();
      flush();
    }
    progress_.show(step + 1, fmt::format("loss {:.4f}", loss));
  }
  Exit end(const Trained& trained) {
    progress_.hide();
    const auto done = static_cast<std::int64_t>(trained.result.losses.size());
    text_ += text_tail(trained);
    if (options_.json) text_ = to_json(trained);
    write_result(text_, options_.out);
    if (done == steps_) return Exit::ok;
    spdlog::error("interrupted after {} of {} steps", done, steps_);
    return Exit::interrupted;
  }

 private:
  bool streams() const { return tells_ && !options_.json && options_.out.empty(); }
  void flush() {
    write_result(text_, "");
    text_.clear();
  }

  const TrainArguments& options_;
  const std::int64_t steps_;
  Progress progress_;
  const bool tells_;
  std::string text_;  // what is not written yet
};

// Of a list with commas.
std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) names.push_back(word);
  return names;
}

std::int64_t steps_of(const TrainArguments& options, const Job& job) {
  return options.steps > 0 ? options.steps : job.train.steps;
}

TrainOptions train_options(const TrainArguments& options, const Job& job, Telling& telling) {
  TrainOptions chosen;
  chosen.steps = steps_of(options, job);
  chosen.library = options.kernels == "reference" ? KernelLibrary::reference : KernelLibrary::fast;
  // The last step is traced, if none is named, because the first ones warm up.
  if (!options.trace.empty())
    chosen.trace_step = options.trace_step >= 0 ? options.trace_step : chosen.steps - 1;
  chosen.traces_kernels = options.trace_kernels;
  chosen.record_contributions = options.record_contributions;
  chosen.uses_rdma = options.rdma != "none";
  if (!options.rdma.empty() && chosen.uses_rdma)
    chosen.rdma_devices = options.rdma == "all" ? std::vector<std::string>() : names_in(options.rdma);
  chosen.silence_s = options.silence_limit_s;
  chosen.rendezvous_timeout_s = start_limit_s(options.silence_limit_s);
  chosen.on_note = [](const std::string& what) { spdlog::warn("{}", what); };
  chosen.on_overdue = [](const std::string& why) {
    spdlog::error("{}", why);
    _exit(static_cast<int>(Exit::failed));
  };
  chosen.on_step = [&telling](std::int64_t step, double loss, std::optional<double> extra) {
    telling.step(step, loss, extra);
  };
  chosen.is_interrupted = was_interrupted;
  return chosen;
}

void check_trace_step(const TrainArguments& options, const Job& job) {
  const std::int64_t steps = steps_of(options, job);
  if (options.trace_step >= steps)
    throw Refusal(Exit::usage, "bad-trace-step", {},
                  fmt::format("--trace-step {}: there are {} steps", options.trace_step, steps),
                  "steps count from 0");
}

// Ranks on several hosts are to be where the scenario has them. All on one host are a rehearsal of any cluster.
void require_nodes(const Prepared& prepared, const Inventory& inventory) {
  if (!is_on_several_hosts(inventory)) return;
  require_inventory(prepared.program, prepared.scenario.job.cluster, inventory,
                    prepared.scenario.cluster_location,
                    "start as many ranks on each host as its node has, change the cluster, or train on other "
                    "hosts than it says by --any-hosts");
}

// Looks at what the ranks of this host need. One process does so for all of them: the one that starts them, or rank 0.
// If ranks may be on other hosts, each does so for itself.
void announce_held_here(const Prepared& prepared, const std::optional<Place>& place, double allowed) {
  const bool is_own = is_own_rank();
  if (place && place->rendezvous.host != "127.0.0.1")
    announce_training(prepared, {place->rank}, allowed);
  else if (!is_own && (!place || place->rank == kLeader))
    announce_training(prepared, all_ranks(prepared.program), allowed);
}

Exit run(const TrainArguments& options) {
  const Prepared prepared = prepare(options.source.load());
  const Job& job = prepared.scenario.job;
  check_trace_step(options, job);
  require_trace_form(options.trace, protobuf_version());
  const Text text = Text::load(job.train.text.empty() ? default_text_path() : job.train.text);
  text.suits(job.transformer, job.train);
  if (options.check) {
    announce_training(prepared, all_ranks(prepared.program), allowed_memory(options.memory));
    return Exit::ok;
  }
  const std::optional<Place> place = place_of_process(options.place);
  announce_held_here(prepared, place, allowed_memory(options.memory));
  if (!place && prepared.program.rank_count() > 1) {
    refuse_irregular_file(prepared.scenario.path);  // every rank reads it
    return run_own_ranks(prepared.program.rank_count());
  }

  const bool leads = !place || place->rank == kLeader;
  if (leads) open_outputs({options.trace, options.record_contributions, options.out});
  Telling telling(options, prepared, steps_of(options, job), leads);
  TrainOptions chosen = train_options(options, job, telling);
  chosen.algorithms = algorithms_as_simulated(prepared);
  chosen.on_met = [&](const Inventory& inventory) {
    if (!options.any_hosts) require_nodes(prepared, inventory);
    note_interrupts();  // until now there is nothing to keep
  };
  const TrainResult result = train_rank(job, prepared.program, text, place.value_or(Place{}), chosen);
  if (!leads) return Exit::ok;
  if (!options.trace.empty() && !result.trace.events.empty())
    write_trace(result.trace, prepared.program, options.trace);
  return telling.end({.prepared = prepared, .result = result});
}

}  // namespace

void add_train(const Command& program) {
  const auto options = std::make_shared<TrainArguments>();
  const Command command =
      program.subcommand("train", "Really train a scenario on host ranks of this machine");
  add_scenario(command, options->source);
  add_max_input(command);
  command.option("--steps", options->steps, "training steps, instead of the scenario's")
      .between(1, 1'000'000'000);
  command.option("--kernels", options->kernels, "reference: plain loops; fast: libraries where there are")
      .one_of({"reference", "fast"});
  command.option("--trace", options->trace, std::string(kTraceHelp) + "; it has one step");
  command.option("--trace-step", options->trace_step, "which step to trace, from 0; default: the last")
      .between(0, 1'000'000'000);
  command.flag("--trace-kernels", options->trace_kernels, "trace the kernels inside the computes, too");
  command.option(
      "--record-contributions", options->record_contributions,
      "write what every rank receives in the first step, bit for bit, for motley simulate --recording");
  add_place_flags(command, options->place);
  command.option("--rdma", options->rdma,
                 "the RDMA devices for large messages between hosts: all, none, or names as mlx5_0,mlx5_1; "
                 "default: those that MOTLEY_NIC names, or all");
  add_silence_limit(command, options->silence_limit_s);
  command.flag("--any-hosts", options->any_hosts,
               "let ranks run on several hosts that are not the nodes of the scenario's cluster");
  add_memory_limit(command, options->memory, "all ranks of this host");
  command.flag("--check", options->check, "say what the ranks need if they all run on this host; start none");
  command.flag("--json", options->json, "print JSON (schema motley.train/1)");
  command.option("--out", options->out, "write the result to this file instead of stdout");
  command.example(
      "motley train scenarios/quickstart-train.yaml --steps 20\n"
      "  motley train scenarios/quickstart-train.yaml --trace run.json --trace-kernels\n"
      "  motley launch --hosts a:1,b:1 --rendezvous-host 10.0.0.1 -- motley train TWO-NODES.yaml");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
