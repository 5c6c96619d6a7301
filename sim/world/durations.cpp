#include "sim/world/durations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

// An instruction that takes longer than 31 years is a mistake; the sum of a million such is still exact to a second.
constexpr double kLongest_s = 1e9;

// Rounds to whole nanoseconds, the unit of clocks. The difference of two instants of a trace, rounded in this way, is
// again exactly the duration that was put in; a difference of doubles alone is not.
double whole_nanoseconds(double seconds) { return std::round(seconds * 1e9) / 1e9; }

}  // namespace

Durations::Durations(const Job& job, const Program& program, const SimOptions& options)
    : program_(program), options_(options), costs_(program, job.cluster) {
  if (options.tape != nullptr) check_tape();
  const std::vector<Rank>& ranks =
      options.tape != nullptr ? options.tape->measured_ranks : options.real_ranks;
  if (ranks.empty()) return;
  MOTLEY_CHECK(options.tape != nullptr || options.executor != nullptr);
  measured_.resize(program.ranks.size());
  for (Rank rank : ranks) measured_.get(rank) = true;
}

void Durations::check_tape() const {
  const std::string hash = program_hash(program_);
  if (options_.tape->program_hash != hash)
    throw Refusal(Exit::usage, "wrong-tape", {},
                  fmt::format("the tape was recorded of program {}, this is program {}",
                              options_.tape->program_hash, hash),
                  "record it again, or replay it with the scenario it was recorded with");
  for (Rank rank : options_.tape->measured_ranks)
    if (!program_.ranks.has(rank))
      throw Refusal(
          Exit::usage, "wrong-tape", {},
          fmt::format("the tape has rank {} measured, the program has {} ranks", rank, program_.rank_count()),
          "record it again");
}

const TraceEvent& Durations::recorded(const Step& step) const {
  const auto key = [](const Step& each) { return std::make_tuple(each.rank, each.stream, each.index); };
  const auto& events = options_.tape->events;
  const auto recorded = std::lower_bound(
      events.begin(), events.end(), step,
      [&](const TraceEvent& event, const Step& each) { return key(event.step) < key(each); });
  if (recorded == events.end() || recorded->step != step)
    throw Refusal(Exit::usage, "wrong-tape", {},
                  fmt::format("the tape lacks {}", describe(program_, step.rank, step.stream, step.index)),
                  "record it again, with every event of the measured ranks");
  return *recorded;
}

double Durations::recorded_s(const Step& step) const {
  const TraceEvent& event = recorded(step);
  return whole_nanoseconds(event.end_s - event.begin_s);
}

double Durations::seconds(const Step& step, const Instruction& instruction) {
  if (options_.null) return 0;
  const double seconds = unbounded_s(step, instruction);
  if (!(seconds <= kLongest_s))
    throw Refusal(
        Exit::infeasible, "too-slow", {},
        fmt::format("{} takes {} s", describe(program_, step.rank, step.stream, step.index), seconds),
        "are the chip's figures in the right units?");
  return seconds;
}

double Durations::unbounded_s(const Step& step, const Instruction& instruction) {
  if (!is_measured(step.rank)) return costs_.price(step.rank, instruction).seconds();
  if (options_.tape != nullptr) return recorded_s(step);
  const auto [known, is_new] = executed_.try_emplace(step);
  if (is_new) {
    known->second = whole_nanoseconds(options_.executor->execute(step, instruction));
    if (options_.records_kernels && instruction.op() == Op::compute)
      executed_kernels_.emplace(step, options_.executor->kernels());
  }
  return known->second;
}

std::vector<KernelSpan> Durations::recorded_kernels(const Step& step) const {
  const auto& kernels = options_.tape->kernels;
  const KernelEvent first{.step = step};
  std::vector<KernelSpan> spans;
  const double begin_s = recorded(step).begin_s;
  for (auto each = std::lower_bound(kernels.begin(), kernels.end(), first, is_earlier);
       each != kernels.end() && each->step == step; ++each) {
    if (find_kernel(program_, step, each->kernel) == nullptr)
      throw Refusal(Exit::usage, "wrong-tape", {},
                    fmt::format("the tape has kernel {} of {}, the program does not", each->kernel,
                                describe(program_, step.rank, step.stream, step.index)),
                    "record it again");
    spans.push_back({each->kernel, whole_nanoseconds(each->begin_s - begin_s),
                     whole_nanoseconds(each->end_s - begin_s), each->flops});
  }
  return spans;
}

std::vector<KernelSpan> Durations::kernels(const Step& step, const Instruction& instruction) {
  if (!is_measured(step.rank)) return costs_.kernels(step.rank, instruction);
  if (options_.tape != nullptr) return recorded_kernels(step);
  std::vector<KernelSpan> spans = executed_kernels_.at(step);
  for (KernelSpan& span : spans)
    for (double* const instant_s : {&span.begin_s, &span.end_s}) *instant_s = whole_nanoseconds(*instant_s);
  return spans;
}

std::vector<Rank> Durations::measured_ranks() const {
  std::vector<Rank> ranks;
  for (Rank rank : program_.ranks.ids())
    if (is_measured(rank)) ranks.push_back(rank);
  return ranks;
}

}  // namespace motley
