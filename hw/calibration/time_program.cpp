#include "hw/calibration/time_program.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/rated_kernels.hpp"

namespace motley {
namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// One rank that computes its steps over and over.
class TimedRank {
 public:
  TimedRank(const Program& program, Rank rank, Executor& executor)
      : program_(program), rank_(rank), rank_program_(program.program_of(rank)), executor_(executor) {}

  // `samples`: where to add what was timed; null: nowhere.
  void run_step(Samples* samples) {
    const auto& instructions = rank_program_.streams[kComputeStream].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const Instruction& instruction = instructions[i];
      if (instruction.op() != Op::compute && instruction.op() != Op::optimizer) continue;
      const double seconds =
          executor_.execute({rank_, kComputeStream, static_cast<std::int32_t>(i)}, instruction);
      if (samples == nullptr) continue;
      if (const auto* compute = instruction.as<Compute>())
        add_kernels(*compute, *samples);
      else if (instruction.as<OptimizerStep>()->tensors.empty() && seconds > 0)
        samples->optimizer.push_back({optimizer_step_bytes(program_, rank_program_), seconds});
    }
  }

 private:
  void add_kernels(const Compute& compute, Samples& samples) const {
    for (const KernelSpan& span : executor_.kernels()) {
      const Kernel& kernel = rank_program_.blocks[compute.block].kernels[at(span.kernel)];
      const double seconds = span.end_s - span.begin_s;
      if (is_collective(kernel.op) || is_share_of_attention(kernel) || !(seconds > 0)) continue;
      KernelSample sample;
      sample.kernel = rated_kernel(rank_program_, kernel);
      sample.format = kernel.format.value_or(program_.precision);
      sample.shape = shape_of(kernel);
      sample.times = {seconds};
      samples.kernels.push_back(std::move(sample));
    }
  }

  const Program& program_;
  const Rank rank_;
  const RankProgram& rank_program_;
  Executor& executor_;
};

// Processes that compute what the timed rank computes, until they are destroyed.
class BusyRanks {
 public:
  BusyRanks(std::int64_t count, const Program& program, Rank rank, const MakeExecutor& make) {
    for (std::int64_t i = 0; i < count; ++i) {
      const pid_t parent = getpid();
      const pid_t process = fork();
      if (process < 0) {
        stop();
        throw RunFailure(std::string("cannot start a busy rank: ") + std::strerror(errno));
      }
      if (process == 0) compute_for_ever(parent, program, rank, make);
      begins_.push_back(seconds_of(CLOCK_MONOTONIC));
      processes_.push_back(process);
    }
  }
  BusyRanks(const BusyRanks&) = delete;
  BusyRanks& operator=(const BusyRanks&) = delete;
  ~BusyRanks() { stop(); }

  // Ends them. Returns the least share of its time that one was on a processor.
  double stop() {
    double least = 1;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      const double passed_s = seconds_of(CLOCK_MONOTONIC) - begins_[i];
      kill(processes_[i], SIGKILL);
      rusage used{};
      while (wait4(processes_[i], nullptr, 0, &used) < 0 && errno == EINTR) {
      }
      least = std::min(least, (seconds_of(used.ru_utime) + seconds_of(used.ru_stime)) / passed_s);
    }
    processes_.clear();
    return least;
  }

 private:
  [[noreturn]] static void compute_for_ever(pid_t parent, const Program& program, Rank rank,
                                            const MakeExecutor& make) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    try {
      const std::unique_ptr<Executor> executor = make();
      TimedRank timed(program, rank, *executor);
      for (;;) timed.run_step(nullptr);
    } catch (...) {  // the timed rank meets the same fault, and says so
      _exit(1);
    }
  }

  std::vector<pid_t> processes_;
  std::vector<double> begins_;
};

}  // namespace

TimedProgram time_program(const Program& program, Rank rank, const MakeExecutor& make,
                          const TimeOptions& options) {
  BusyRanks others(options.busy_ranks - 1, program, rank, make);
  const std::unique_ptr<Executor> executor = make();
  TimedRank timed(program, rank, *executor);
  timed.run_step(nullptr);
  TimedProgram result;
  Samples steps;
  const double begin_s = seconds_of(CLOCK_MONOTONIC), begin_cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  double passed_s = 0;
  for (std::int64_t step = 0;
       step < options.least_steps || (passed_s < options.seconds && step < options.most_steps); ++step) {
    timed.run_step(&steps);
    passed_s = seconds_of(CLOCK_MONOTONIC) - begin_s;
  }
  result.seconds = passed_s;
  if (passed_s > 0)
    result.share_on_processor = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu_s) / passed_s;
  result.share_on_processor = std::min(result.share_on_processor, others.stop());
  add_samples(steps, result.samples);
  make_one_job(result.samples);  // of several steps
  return result;
}

}  // namespace motley
