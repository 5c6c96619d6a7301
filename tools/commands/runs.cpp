#include "tools/commands/runs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "hw/calibration/host_facts.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/rank/recording.hpp"
#include "hw/world/real_ranks.hpp"
#include "models/base/data_files.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/base/text_file.hpp"
#include "sim/workers/child.hpp"
#include "tools/commands/answer.hpp"
#include "tools/commands/group_algorithms.hpp"
#include "tools/commands/memory_limit.hpp"
#include "tools/commands/own_fabric.hpp"
#include "tools/commands/routing_text.hpp"

namespace motley {
namespace {

void need_option(bool given, WorldKind kind, const char* option, const char* hint) {
  if (!given)
    throw Refusal(Exit::usage, "missing-option", {},
                  fmt::format("--world {} needs {}", name_of(kind), option), hint);
}

// What real ranks train on, if all ranks are real or were when the others were recorded; nothing: their data are made
// up like all else.
std::optional<Text> text_of_real(const Prepared& prepared, const std::vector<Rank>& real_ranks,
                                 const std::optional<Recording>& recording) {
  const std::set<Rank> real(real_ranks.begin(), real_ranks.end());
  const bool all_real = real.size() == prepared.program.ranks.size();
  if (recording ? recording->origin().text_hash == 0 : !all_real) return std::nullopt;
  const Job& job = prepared.scenario.job;
  Text text = Text::load(job.train.text.empty() ? default_text_path() : job.train.text);
  text.suits(job.transformer, job.train);
  return text;
}

// The real ranks of a mixed world, what they train on, and the recordings that they read and write. In every process of
// a launch there is one, and in the first of them it asks the others.
class MixedRun {
 public:
  MixedRun(const Prepared& prepared, const SimulatedWorld& world)
      : prepared_(prepared), choice_(world.choice) {
    const Program& program = prepared.program;
    need_option(!choice_.real_ranks.empty(), choice_.kind, "real ranks",
                "--real-rank 0, or `real_ranks` in the scenario");
    if (choice_.contribution == Contribution::recorded) recording_.emplace(choice_.recording);
    text_ = text_of_real(prepared, choice_.real_ranks, recording_);
    const Text* const text = text_ ? &*text_ : nullptr;
    RecordingOrigin origin = origin_of(prepared.scenario.job, program, text);
    if (recording_) recording_->check_suits(origin, program, choice_.real_ranks);
    origin.contribution = recording_ ? recording_->origin().contribution : choice_.contribution;
    origin.inside_computes = recording_ && recording_->origin().inside_computes;
    if (!world.record_contributions.empty() && is_first(world))
      recorder_.emplace(world.record_contributions, origin, choice_.real_ranks);
    const KernelLibrary library = world.reference_kernels ? KernelLibrary::reference : KernelLibrary::fast;
    options_ = {.executor = {.library = library,
                             .repeats = {choice_.warm_up, choice_.repeats},
                             .contribution = origin.contribution,
                             .text = text,
                             .communicates = true},
                .silence_s = world.silence_s,
                .place = world.place,
                .rendezvous_timeout_s = start_limit_s(world.silence_s),
                .machine = machine_kind(host_facts()),
                .recording = recording_ ? &*recording_ : nullptr,
                .recorder = recorder_ ? &*recorder_ : nullptr,
                .algorithms = algorithms_as_simulated(prepared)};
  }
  // What the first process of a launch does, or a process alone.
  RealRanks& start() {
    return ranks_.emplace(prepared_.scenario.job, prepared_.program, choice_.real_ranks, options_);
  }
  // What the others do.
  void serve() const {
    serve_real_rank(prepared_.scenario.job, prepared_.program, choice_.real_ranks, options_);
  }
  void close_recording() {
    if (recorder_) recorder_->close();
  }

 private:
  static bool is_first(const SimulatedWorld& world) { return !world.place || world.place->rank == kLeader; }

  const Prepared& prepared_;
  const WorldChoice& choice_;
  std::optional<Recording> recording_;
  std::optional<Text> text_;
  std::optional<RecordingWriter> recorder_;
  RealRanksOptions options_;
  std::optional<RealRanks> ranks_;
};

}  // namespace

void serve_world(const Prepared& prepared, const SimulatedWorld& world) { MixedRun(prepared, world).serve(); }

namespace {

Trace simulate_prepared(const Prepared& prepared, const SimulatedWorld& world, const SimOptions& options) {
  try {
    return simulate(prepared.scenario.job, prepared.program, options);
  } catch (const Refusal& refusal) {
    if (refusal.kind() == "wrong-tape") throw located(refusal, {.file = world.tape});
    if (refusal.kind() == "wrong-recording") throw located(refusal, {.file = world.choice.recording});
    for (const char* const kind : {"too-little-memory", "unfolded-class", "alike-real-ranks"})
      if (refusal.kind() == kind) throw;
    throw located(refusal, prepared.scenario.cluster_location);
  }
}

// The processes of real ranks, and the connections to them, are those of this process alone.
Trace simulate_mixed(const Prepared& prepared, const SimulatedWorld& world, SimOptions options) {
  MixedRun mixed(prepared, world);
  RealRanks& ranks = mixed.start();
  options.executor = &ranks;
  options.real_ranks = world.choice.real_ranks;
  options.real_for_class = world.choice.stand_for == StandFor::alike;
  options.measured_transfers = world.choice.transfers == TransferTimes::measured;
  if (options.measured_transfers) {
    std::map<Rank, RankHost> hosts;
    for (const Rank rank : options.real_ranks) hosts[rank] = ranks.host(rank);
    require_own_fabric(prepared, hosts);
  }
  Trace trace = simulate_prepared(prepared, world, options);
  mixed.close_recording();
  return trace;
}

}  // namespace

Trace simulate_world(const Prepared& prepared, const SimulatedWorld& world, bool in_child) {
  SimOptions options;
  options.announce = world.announce;
  options.null = world.choice.kind == WorldKind::null;
  options.records_kernels = world.records_kernels;
  options.kernel_ranks = world.kernel_ranks;
  options.most_kernels = world.most_kernels;
  if (world.choice.kind == WorldKind::replay) {
    need_option(world.recorded.has_value(), world.choice.kind, "a tape",
                "--tape TAPE, which --world mixed --record TAPE wrote");
    options.tape = &*world.recorded;
  }
  const auto act = [&] {
    return world.choice.kind == WorldKind::mixed ? simulate_mixed(prepared, world, options)
                                                 : simulate_prepared(prepared, world, options);
  };
  return in_child ? run_in_child(act) : act();
}

namespace {

// Runs `motley train` on as many ranks as the program has; each rank is a process.
void launch_training(const Prepared& prepared, int steps, const std::string& memory,
                     const std::vector<std::string>& further) {
  announce_training(prepared, all_ranks(prepared.program), allowed_memory(memory));
  const std::string& path = prepared.scenario.path;
  refuse_irregular_file(path);  // every rank reads it
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                      "train",
                                      path,
                                      "--max-input",
                                      std::to_string(most_text_bytes()) + " B",
                                      "--steps",
                                      std::to_string(steps)};
  for (const std::string& setting : prepared.scenario.settings)
    command.insert(command.end(), {"--set", setting});
  command.insert(command.end(), further.begin(), further.end());
  run_ranks_of(command, prepared.program.rank_count());
}

}  // namespace

Trace train_world(const Prepared& prepared, int steps, const std::string& memory) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("trace.json");
  launch_training(prepared, steps, memory,
                  {"--trace", trace, "--trace-kernels", "--out", folder.file("result.txt")});
  return read_trace(trace);
}

TrainedSteps train_steps(const Prepared& prepared, int steps, bool reference_kernels) {
  const TemporaryFolder folder;
  const std::string result = folder.file("result.json");
  launch_training(prepared, steps, "",
                  {"--json", "--out", result, "--kernels", reference_kernels ? "reference" : "fast"});
  const auto json = nlohmann::ordered_json::parse(read_text_file(result));
  TrainedSteps trained{json.at("step_s").get<std::vector<double>>(), std::nullopt};
  if (json.contains("routing")) trained.routing = routing_from(json.at("routing"));
  return trained;
}

}  // namespace motley
