// What the seconds of a prediction rest on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/report/coverage.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// A trace in which every compute and optimizer step of each rank takes what it is priced, one after the other.
Trace priced_trace(const Program& program, const Cluster& cluster) {
  CostTable costs(program, cluster);
  Trace trace;
  for (const Rank rank : program.ranks.ids()) {
    double now_s = 0;
    const auto& instructions = program.program_of(rank).streams[kComputeStream].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (instructions[i].op() != Op::compute && instructions[i].op() != Op::optimizer) continue;
      TraceEvent event;
      event.step = {rank, kComputeStream, static_cast<std::int32_t>(i)};
      event.free_s = event.begin_s = event.matched_s = now_s;
      now_s += costs.price(rank, instructions[i]).seconds();
      event.end_s = now_s;
      trace.events.push_back(event);
    }
  }
  return trace;
}

double sum_of(const Trace& trace) {
  double sum = 0;
  for (const TraceEvent& event : trace.events) sum += event.end_s - event.begin_s;
  return sum;
}

// Speeds of every kind of kernel, and as measured shapes those of the program where `kind` says so.
template <class Kind>
void measure(const Program& program, Cluster& cluster, Kind kind) {
  KernelRates rates;
  rates.optimizer = KernelRate{.bytes_per_s = 1e9};
  for (const RankProgram& rank_program : program.rank_programs)
    for (const Block& block : rank_program.blocks)
      for (const Kernel& kernel : block.kernels) {
        if (is_collective(kernel.op)) continue;
        const RatedKernel rated = rated_kernel(rank_program, kernel);
        if (kind(rated) == Known::assumed) continue;
        rates.rates[rated] = {.bytes_per_s = 1e9, .error = 0.1};
        MeasuredShape shape = shape_of(kernel);
        shape.seconds = 1e-5;
        auto& shapes = rates.shapes[rated];
        const auto add = [&](const MeasuredShape& more) {
          if (std::none_of(shapes.begin(), shapes.end(), [&](auto& each) { return each.is_like(more); }))
            shapes.push_back(more);
        };
        if (kind(rated) == Known::measured) add(shape);
        if (kind(rated) == Known::interpolated) {  // a smaller and a larger one of everything
          MeasuredShape smaller = shape, larger = shape;
          smaller.flops /= 2, smaller.bytes /= 2;
          larger.flops *= 2, larger.bytes *= 2;
          add(smaller), add(larger);
        }
        std::sort(shapes.begin(), shapes.end());
      }
  for (NodeGroup& group : cluster.groups) group.chip.software.kernels = rates;
  build_topology(cluster);
}

// The kind of the refusal; empty: there is none.
std::string strict_refusal(const Program& program, const Cluster& cluster, std::string* message = nullptr) {
  try {
    require_measured(coverage_of(program, cluster, priced_trace(program, cluster)), cluster, "job.yaml");
  } catch (const Refusal& refusal) {
    if (message != nullptr) *message = refusal.what();
    return refusal.kind();
  }
  return "";
}

}  // namespace

TEST_CASE("a coverage counts every busy second once, and measured shapes as measured", "[calibration]") {
  for (const Family family : {Family::gpt2, Family::llama}) {
    Job job = tiny_job({1, 2, 1}, family);
    const Program program = compile(job);
    const Coverage nothing = coverage_of(program, job.cluster, priced_trace(program, job.cluster));
    CHECK(nothing.share(Known::assumed) == Approx(1));
    CHECK_FALSE(has_measured_kernels(job.cluster));
    measure(program, job.cluster, [](const RatedKernel& rated) {
      return rated.op == KernelOp::attention ? Known::assumed : Known::measured;
    });
    CHECK(has_measured_kernels(job.cluster));
    const Trace trace = priced_trace(program, job.cluster);
    const Coverage coverage = coverage_of(program, job.cluster, trace);
    CHECK(coverage.seconds() == Approx(sum_of(trace)).epsilon(1e-9));
    double missing_s = 0;
    bool names_attention = false;
    for (const MissingShape& each : coverage.missing) {
      CHECK(each.known != Known::measured);
      missing_s += each.seconds;
      names_attention = names_attention || each.kernel.op == KernelOp::attention;
    }
    CHECK(names_attention);
    // Only the optimizer's step has no shapes.
    double optimizer_s = 0;
    for (const TraceEvent& event : trace.events)
      if (program.at(event.step.rank, event.step.stream, event.step.index).op() == Op::optimizer)
        optimizer_s += event.end_s - event.begin_s;
    CHECK(coverage.kernel_s[static_cast<std::size_t>(Known::measured)] + missing_s + optimizer_s ==
          Approx(coverage.seconds()).epsilon(1e-9));
  }
}

TEST_CASE("what is known less never makes an interval narrower", "[calibration]") {
  Job job = tiny_job({1, 1, 1});
  const Program program = compile(job);
  const auto width = [&](Known known, double noise) {
    Job measured = job;
    measure(program, measured.cluster, [&](const RatedKernel&) { return known; });
    return measured_half_width(
        coverage_of(program, measured.cluster, priced_trace(program, measured.cluster)), noise);
  };
  const double measured = width(Known::measured, 0.01), extrapolated = width(Known::extrapolated, 0.01),
               assumed = width(Known::assumed, 0.01);
  CHECK(measured > 0);
  CHECK(measured < extrapolated);
  CHECK(extrapolated < assumed);
  CHECK(width(Known::measured, 0.05) > measured);
  // Neither does a chip whose kernels differ more between jobs, whatever is known of them.
  double last = 0;
  for (const double between_jobs : {0.0, 0.001, 0.02, 0.3}) {
    const auto wide = [&](Known known) {
      Job measured_job = job;
      measure(program, measured_job.cluster, [&](const RatedKernel&) { return known; });
      for (NodeGroup& group : measured_job.cluster.groups)
        group.chip.software.kernels.between_jobs = between_jobs;
      return measured_half_width(
          coverage_of(program, measured_job.cluster, priced_trace(program, measured_job.cluster)), 0.01);
    };
    CHECK(wide(Known::measured) > last);
    CHECK(wide(Known::measured) <= wide(Known::interpolated));
    CHECK(wide(Known::interpolated) <= wide(Known::extrapolated));
    last = wide(Known::measured);
  }
  Coverage coverage;
  coverage.kernel_s[0] = 1;
  const double alone = measured_half_width(coverage, 0.01);
  coverage.message_s = 0.5;
  CHECK(measured_half_width(coverage, 0.01) > alone);
}

TEST_CASE("a strict prediction is refused if and only if a kernel is extrapolated or assumed",
          "[calibration]") {
  int refused = 0;
  for (unsigned seed = 0; seed < (kSanitized ? 12U : 60U); ++seed) {
    Job job = any_job(seed);
    INFO(written_out(job));
    const Program program = compile(job);
    CHECK(strict_refusal(program, job.cluster) == "not-calibrated");
    Dice dice(seed);
    std::map<RatedKernel, Known> drawn;
    const bool all_near = dice.once_in(2);
    bool is_outside = false;
    std::string message;
    measure(program, job.cluster, [&](const RatedKernel& rated) {
      const auto [known, is_new] =
          drawn.try_emplace(rated, dice.one_of({Known::measured, Known::interpolated}));
      if (is_new && !all_near && dice.once_in(8))
        known->second = dice.one_of({Known::extrapolated, Known::assumed});
      is_outside = is_outside || known->second > Known::interpolated;
      return known->second;
    });
    if (job.cluster.groups.front().chip.software.kernels.rates.empty()) continue;
    CHECK(strict_refusal(program, job.cluster, &message) == (is_outside ? "outside-measured" : ""));
    refused += is_outside;
    if (is_outside) {  // it names a kernel that is outside
      const bool names_one = std::any_of(drawn.begin(), drawn.end(), [&](const auto& each) {
        return each.second > Known::interpolated &&
               message.find("most of it on " + name_of(each.first) + " on ") != std::string::npos;
      });
      CHECK(names_one);
      CHECK(message.find("motley calibrate") != std::string::npos);
      continue;
    }
    for (NodeGroup& group : job.cluster.groups) group.chip.software.kernels.optimizer.reset();
    CHECK(strict_refusal(program, job.cluster, &message) == "outside-measured");
    CHECK(message.find("the optimizer's step on ") != std::string::npos);
  }
  CHECK(refused > 2);
}
