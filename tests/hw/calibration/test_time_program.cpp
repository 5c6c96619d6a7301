// Timing a Program's kernels: an executor that takes known times gives them back, and no process is left behind.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>

#include "hw/calibration/busy_share.hpp"
#include "hw/calibration/host_facts.hpp"
#include "hw/calibration/sentinel.hpp"
#include "hw/calibration/time_program.hpp"
#include "hw/rank/executor.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/cost/rated_kernels.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// A kernel takes a microsecond for each of its bytes, the optimizer a second.
class KnownTimes : public Executor {
 public:
  explicit KnownTimes(const RankProgram& rank_program) : rank_program_(rank_program) {}
  double execute(const Step&, const Instruction& instruction) override {
    spans_.clear();
    const auto* compute = instruction.as<Compute>();
    if (compute == nullptr) return 1;
    double now_s = 0;
    for (int i = compute->first_kernel; i < compute->last_kernel; ++i) {
      const double seconds =
          1e-6 * static_cast<double>(rank_program_.blocks[compute->block].kernels[at(i)].bytes + 1);
      spans_.push_back({i, now_s, now_s + seconds, 0});
      now_s += seconds;
    }
    return now_s;
  }
  std::vector<KernelSpan> kernels() const override { return spans_; }

 private:
  const RankProgram& rank_program_;
  std::vector<KernelSpan> spans_;
};

bool has_children() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

}  // namespace

TEST_CASE("known times come back, each as often as its kernel ran", "[calibration]") {
  const Program program = compile(tiny_job({1, 1, 1}, Family::llama));
  const RankProgram& rank_program = program.program_of(Rank(0));
  TimeOptions options;
  options.busy_ranks = 2;
  options.least_steps = 3;
  options.most_steps = 3;
  const TimedProgram timed = time_program(
      program, Rank(0), [&] { return std::make_unique<KnownTimes>(rank_program); }, options);
  CHECK_FALSE(has_children());
  std::map<std::pair<RatedKernel, MeasuredShape>, std::size_t> wanted;
  for (const Instruction& instruction : rank_program.streams[kComputeStream].instructions)
    if (const auto* compute = instruction.as<Compute>())
      for (int i = compute->first_kernel; i < compute->last_kernel; ++i) {
        const Kernel& kernel = rank_program.blocks[compute->block].kernels[at(i)];
        if (!is_collective(kernel.op)) wanted[{rated_kernel(rank_program, kernel), shape_of(kernel)}] += 3;
      }
  REQUIRE(timed.samples.kernels.size() == wanted.size());
  for (const KernelSample& sample : timed.samples.kernels) {
    MeasuredShape shape = sample.shape;
    shape.seconds = 0;
    CHECK(sample.times.size() == wanted[{sample.kernel, shape}]);
    CHECK(sample.shape.seconds == Approx(1e-6 * (shape.bytes + 1)).epsilon(1e-9));
  }
  CHECK(timed.samples.optimizer.size() == 3);
  CHECK(timed.samples.optimizer[0].bytes == optimizer_step_bytes(program, rank_program));
}

TEST_CASE("host kernels are timed, and an executor's fault is the caller's", "[calibration]") {
  const Job job = tiny_job({2, 1, 1}, Family::gpt2);
  const Program program = compile(job);
  TimeOptions options;
  options.seconds = 0;
  const TimedProgram timed = time_program(
      program, Rank(0),
      [&] { return std::make_unique<HostExecutor>(program, job.transformer, job.train, Rank(0)); }, options);
  CHECK(timed.samples.kernels.size() > 10);
  for (const KernelSample& sample : timed.samples.kernels) CHECK(sample.shape.seconds > 0);
  CHECK(timed.share_on_processor <= 1.01);
  options.busy_ranks = 3;
  CHECK_THROWS_AS(
      time_program(
          program, Rank(0), []() -> std::unique_ptr<Executor> { throw std::runtime_error("no executor"); },
          options),
      std::runtime_error);
  CHECK_FALSE(has_children());
}

TEST_CASE("a sentinel takes time, and a share is one", "[calibration]") {
  Sentinel sentinel;
  CHECK(sentinel.time() > 0);
  const double share = least_share_on_processor(2, 0.01);
  CHECK(share >= 0);
  CHECK(share <= 1);
  CHECK_FALSE(has_children());
}

TEST_CASE("facts of a host are read from its files", "[calibration]") {
  const std::filesystem::path root = std::filesystem::temp_directory_path() / "motley-host-facts";
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root.string() + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  };
  std::filesystem::remove_all(root);
  write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A \"Chip\", fast\ncpu MHz\t\t: 2500.5\n");
  write("/proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n");
  write("/proc/stat", "cpu  10 0 10 1000 0 0 0 250 0 0\ncpu0 1 2 3\n");
  write("/sys/devices/system/cpu/cpu0/cache/index0/level", "2\n");
  write("/sys/devices/system/cpu/cpu0/cache/index0/type", "Unified\n");
  write("/sys/devices/system/cpu/cpu0/cache/index0/size", "1024K\n");
  write("/sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list", "0-3,8\n");
  write("/sys/devices/system/node/node0/x", "");
  write("/sys/devices/system/node/node1/x", "");
  write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/memory.max", "max\n");
  write("/sys/fs/cgroup/cpu.stat", "usage_usec 5\nthrottled_usec 2500000\n");
  write("/sys/class/net/eth0/operstate", "up\n");
  write("/sys/class/net/eth0/speed", "25000\n");
  write("/sys/class/net/eth0/mtu", "9000\n");
  write("/sys/class/net/ib0/operstate", "down\n");
  write("/sys/class/net/ib0/speed", "-1\n");
  const HostFacts facts = host_facts(root.string());
  CHECK(facts.processor == "A \"Chip\", fast");
  CHECK(facts.clock_hz == Approx(2500.5e6));
  CHECK(facts.caches == std::vector<CacheFacts>{{2, "Unified", 1 << 20, 5}});
  CHECK(facts.numa_nodes == 2);
  CHECK(facts.memory_bytes == std::int64_t{8} << 30);
  CHECK(facts.available_bytes == std::int64_t{4} << 30);
  CHECK(facts.most_processors == 1.5);
  CHECK_FALSE(facts.most_memory_bytes.has_value());
  CHECK(facts.nics == std::vector<NicFacts>{{"eth0", true, 25e9, 9000}, {"ib0", false, 0, 0}});
  CHECK(machine_name(facts).starts_with("A Chip fast, "));
  CHECK(to_text(facts).find("25 Gb/s") != std::string::npos);
  CHECK(taken_time(root.string()).throttled_s == Approx(2.5));
  CHECK(taken_time(root.string()).stolen_s > 0);
  std::filesystem::remove_all(root);
  const HostFacts nothing = host_facts(root.string());
  CHECK(nothing.processor.empty());
  CHECK(nothing.numa_nodes == 1);
}
