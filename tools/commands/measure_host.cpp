#include "tools/commands/measure_host.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "hw/calibration/sentinel.hpp"
#include "hw/calibration/time_program.hpp"
#include "hw/rank/executor.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/base/text_file.hpp"
#include "models/calibration/kernel_fit.hpp"
#include "models/calibration/stillness.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/rated_kernels.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/progress.hpp"

namespace motley {
namespace {

constexpr std::size_t kMostTableBytes = std::size_t{256} << 20;

// A file that grows by whole blocks: one that does not fit is taken back.
class GrowingFile {
 public:
  // Cuts the file after `kept` bytes; a new file begins with `head`.
  GrowingFile(const std::string& path, std::size_t kept, const std::string& head) : path_(path) {
    if (path.empty()) return;
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(kept)) != 0) fail();
    end_ = static_cast<off_t>(kept);
    if (kept == 0) append(head);
  }
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  void append(const std::string& block) {
    if (descriptor_ < 0) return;
    std::size_t written = 0;
    while (written < block.size()) {
      const ssize_t count = pwrite(descriptor_, block.data() + written, block.size() - written,
                                   end_ + static_cast<off_t>(written));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int error = count == 0 ? ENOSPC : errno;
        if (ftruncate(descriptor_, end_) != 0) errno = error;
        errno = error;
        fail();
      }
      written += static_cast<std::size_t>(count);
    }
    if (fdatasync(descriptor_) != 0 && errno != EINVAL) fail();
    end_ += static_cast<off_t>(block.size());
  }

 private:
  std::string path_;
  int descriptor_ = -1;  // -1: nothing is kept
  off_t end_ = 0;
  [[noreturn]] void fail() const {
    throw RunFailure(
        fmt::format("cannot write {}: {}; what was measured before is kept", path_, std::strerror(errno)));
  }
};

// A program of which one rank is timed.
struct Timed {
  std::string name;  // begins with what makes it unique
  const Job* job = nullptr;
  const Program* program = nullptr;
  Rank rank;
};

class HostMeasurement {
 public:
  HostMeasurement(const Chip& chip, const MeasureOptions& options, HostSamples& result)
      : chip_(chip), options_(options), result_(result), begin_s_(monotonic_s()) {
    result_.host = host_facts();
    origin_ = {machine_name(result_.host), describe(options.library), options.busy_ranks};
    read_table();
    file_ =
        std::make_unique<GrowingFile>(options.samples_path, result_.table.complete_bytes, samples_csv_head());
  }

  void run() {
    Progress progress("calibrate", std::max<std::int64_t>(1, static_cast<std::int64_t>(options_.seconds)));
    for (const Prepared* scenario : options_.scenarios) measure_scenario(*scenario, progress);
    for (std::int64_t round = 0; has_time(); ++round) {
      const std::string begin = fmt::format("{:04}", round);
      if (is_known(begin)) continue;
      const Probe probe = choose(round);
      const Program program = compile(probe.job);
      const std::string name = fmt::format("{} {}", begin, probe.name);
      // Alone first: a run that goes on after a kill knows a round by what is measured last.
      const std::string alone = name + std::string(kAlone);
      const bool wants_alone =
          options_.busy_ranks > 1 && options_.alone_every > 0 && round % options_.alone_every == 0;
      if (wants_alone && !result_.table.probes.contains(alone))
        measure({alone, &probe.job, &program, Rank(0)}, progress);
      measure({name, &probe.job, &program, Rank(0)}, progress);
    }
    result_.noise = stillness_.noise();
    refuse_nothing_measured();
  }

 private:
  // A chip without measured kernels is no calibration.
  void refuse_nothing_measured() const {
    if (was_interrupted() || result_.disturbed == 0 || !result_.table.samples.kernels.empty()) return;
    refuse_all_disturbed(result_.disturbed, options_.busy_ranks, result_.last_disturbance);
  }

  void read_table() {
    const std::string& path = options_.samples_path;
    result_.table.origin = origin_;
    if (path.empty() || !std::filesystem::exists(path) || std::filesystem::file_size(path) == 0) return;
    refuse_irregular_file(path);
    SamplesTable known = parse_samples_csv(read_text_file(path, {}, kMostTableBytes), path);
    if (!known.probes.empty() && !(known.origin == origin_))
      throw Refusal(Exit::usage, "two-origins", {.file = path, .line = 2, .column = 1},
                    fmt::format("these samples are of `{}, {}, {} ranks`; here are `{}, {}, {} ranks`",
                                known.origin.machine, known.origin.library, known.origin.ranks,
                                origin_.machine, origin_.library, origin_.ranks),
                    "a calibration is of one machine, one kernel library and one number of busy ranks: name "
                    "another file");
    known.origin = origin_;
    result_.kept_before = static_cast<std::int64_t>(known.probes.size());
    result_.table = std::move(known);
  }

  bool has_time() const { return !was_interrupted() && monotonic_s() - begin_s_ < options_.seconds; }

  bool is_known(const std::string& begin) const {
    const auto& probes = result_.table.probes;
    return std::any_of(probes.lower_bound(begin), probes.end(), [&](const std::string& each) {
      return each.starts_with(begin + " ") && !each.ends_with(kAlone);
    });
  }

  // Every rank program once: ranks that share one do the same work. A rank that is alone computes as many rows of
  // experts as it would send, which is the even share, whatever skew the scenario expects.
  void measure_scenario(const Prepared& prepared, Progress& progress) {
    Job job = prepared.scenario.job;
    const bool skewed = job.train.expert_skew != 0;
    job.train.expert_skew = 0;
    const Program program = skewed ? compile(job) : prepared.program;
    std::set<RankProgramId> done;
    for (const Rank rank : IdRange<Rank>(program.ranks.size())) {
      if (!done.insert(program.ranks[rank].rank_program).second) continue;
      const std::string name = fmt::format("{} {}", program_hash_of(prepared), program.program_of(rank).name);
      if (!result_.table.probes.contains(name)) measure({name, &job, &program, rank}, progress);
    }
  }
  static std::string program_hash_of(const Prepared& prepared) { return prepared.program.strategy_hash; }

  // The first probes are drawn blindly; each later one is, of several drawn, the one whose kernels are known least.
  Probe choose(std::int64_t round) {
    constexpr std::int64_t kBlind = 12, kDrawn = 4, kRefit = 6;
    if (round >= kBlind && (round % kRefit == 0 || errors_.empty()))
      for (const OpFit& fit : fit_kernels(result_.table.samples).ops)
        errors_[fit.kernel] = fit.held_out_mean.value_or(1);
    std::optional<Probe> best;
    double most = -1;
    for (std::int64_t i = 0; i < (round < kBlind ? 1 : kDrawn); ++i) {
      std::mt19937_64 random(options_.seed * 1'000'003 + static_cast<std::uint64_t>(round * kDrawn + i));
      Probe probe = draw_probe(options_.range, chip_, random);
      const double unsure = round < kBlind ? 0 : unsureness(probe);
      if (unsure <= most) continue;
      most = unsure;
      best = std::move(probe);
    }
    return std::move(*best);
  }

  // The mean error that the fit has on the kinds of kernels of a probe; a kind that was never measured counts as 1.
  double unsureness(const Probe& probe) const {
    const Program program = compile(probe.job);
    double sum = 0, count = 0;
    std::set<std::pair<RatedKernel, MeasuredShape>> seen;
    const RankProgram& rank_program = program.program_of(Rank(0));
    for (const Block& block : rank_program.blocks)
      for (const Kernel& kernel : block.kernels) {
        if (is_collective(kernel.op)) continue;
        const RatedKernel rated = rated_kernel(rank_program, kernel);
        if (!seen.emplace(rated, shape_of(kernel)).second) continue;
        const auto error = errors_.find(rated);
        sum += error == errors_.end() ? 1 : error->second;
        count += 1;
      }
    return sum / std::max(1.0, count);
  }

  // Measures until the machine kept still, at most a few times.
  void measure(const Timed& timed, Progress& progress) {
    constexpr int kTries = 3, kMostInARow = 12;
    int& in_a_row = timed.name.ends_with(kAlone) ? alone_in_a_row_ : in_a_row_;
    for (int i = 0; i < kTries && !was_interrupted(); ++i) {
      progress.show(static_cast<std::int64_t>(monotonic_s() - begin_s_), timed.name);
      const std::string disturbance = try_once(timed);
      if (disturbance.empty()) {
        in_a_row = 0;
        return;
      }
      note(disturbance);
      if (++in_a_row >= kMostInARow) refuse_disturbed(timed.name, kMostInARow - 1, disturbance);
    }
  }

  void note(const std::string& disturbance) {
    ++result_.disturbed;
    result_.last_disturbance = disturbance;
  }

  std::string try_once(const Timed& timed) {
    TimeOptions time_options;
    const bool is_alone = timed.name.ends_with(kAlone);
    time_options.busy_ranks = is_alone ? 1 : options_.busy_ranks;
    Surroundings seen;
    seen.before_s = sentinel_.time();
    const TakenTime taken = taken_time();
    const double begin_s = monotonic_s();
    const TimedProgram result = time_program(
        *timed.program, timed.rank,
        [&] {
          return std::make_unique<HostExecutor>(
              *timed.program, timed.job->transformer, timed.job->train, timed.rank,
              ExecutorOptions{.library = options_.library, .learns = false});
        },
        time_options);
    seen.seconds = monotonic_s() - begin_s;
    const TakenTime now = taken_time();
    seen.taken_s = now.stolen_s - taken.stolen_s + now.throttled_s - taken.throttled_s;
    seen.share_on_processor = result.share_on_processor;
    seen.after_s = sentinel_.time();
    const std::string disturbance = stillness_.judge(seen);
    if (!disturbance.empty() && !options_.keeps_disturbed) return disturbance;
    if (!disturbance.empty()) note(disturbance);
    file_->append(samples_csv_rows(origin_, timed.name, result.samples));
    result_.table.probes.insert(timed.name);
    add_samples(result.samples, is_alone ? result_.table.alone : result_.table.samples);
    ++result_.probes;
    return "";
  }

  const Chip& chip_;
  const MeasureOptions& options_;
  HostSamples& result_;
  const double begin_s_;
  SamplesOrigin origin_;
  std::unique_ptr<GrowingFile> file_;
  Sentinel sentinel_;
  Stillness stillness_;
  std::map<RatedKernel, double> errors_;
  // Measurements that were disturbed one after the other. A rank alone may have a processor that nobody disturbs.
  int in_a_row_ = 0, alone_in_a_row_ = 0;
};

}  // namespace

HostSamples measure_host(const Chip& chip, const MeasureOptions& options) {
  HostSamples result;
  HostMeasurement(chip, options, result).run();
  return result;
}

}  // namespace motley
