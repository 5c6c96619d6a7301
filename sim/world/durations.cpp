#include "sim/world/durations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "models/base/index.hpp"
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
  if (asked().empty()) return;
  MOTLEY_CHECK(options.tape != nullptr || options.executor != nullptr);
  real_of_.resize(program.ranks.size());
  for (const Rank rank : asked()) real_of_[rank] = rank;
  asked_.insert(asked().begin(), asked().end());
  if (!for_class() || job.fidelity.fold.value_or(false)) return;
  if (options.tape != nullptr)
    throw Refusal(Exit::usage, "wrong-tape", {},
                  "on the tape a measured rank stands for its class, and here every rank is simulated",
                  "replay it with --fold");
  throw Refusal(Exit::usage, "unfolded-class", {},
                "a real rank is to stand for its class, and every rank is to be simulated",
                "fold the ranks (--fold, or `fidelity: {fold: true}`), or let it stand for itself");
}

const std::vector<Rank>& Durations::asked() const {
  return options_.tape != nullptr ? options_.tape->measured_ranks : options_.real_ranks;
}

bool Durations::for_class() const {
  return options_.tape != nullptr ? options_.tape->measured_for_class : options_.real_for_class;
}

void Durations::use_classes(const Partition<Rank>& classes) {
  if (!for_class() || real_of_.empty()) return;
  IdTable<Rank, std::optional<Rank>> real_of(program_.ranks.size());  // of the ranks that run
  for (const Rank rank : measured_ranks()) {
    std::optional<Rank>& real = real_of[classes.stand_in(rank)];
    if (real)
      throw Refusal(
          Exit::usage, "alike-real-ranks", {},
          fmt::format("real ranks {} and {} are alike, and one stands for their class", *real, rank),
          "leave one of them out, or let each stand for itself (`stand_for: rank`)");
    real = rank;
  }
  real_of_ = std::move(real_of);
}

Step Durations::real_step(Step step) const {
  step.rank = real_of_[step.rank].value();
  return step;
}

// Whether only real ranks take part in the transfer or collective of a real rank's step, or in its copy.
bool Durations::is_among_real(const Step& real) const {
  const Instruction& instruction = program_.at(real.rank, real.stream, real.index);
  const RankEntry& entry = program_.ranks[real.rank];
  if (const PeerMessage* message = instruction.message())
    return asked_.contains(entry.peers[message->slot].value());
  const auto* collective = instruction.as<Collective>();
  if (collective == nullptr || !entry.groups[collective->slot]) return true;  // it is a rank's own
  const auto& members = program_.groups[*entry.groups[collective->slot]].ranks;
  return std::all_of(members.begin(), members.end(), [&](Rank member) { return asked_.contains(member); });
}

// Whether these are the steps of all real members of one collective. Where ranks are folded, they may be of several.
bool Durations::are_all_real_members(const std::vector<Step>& real) const {
  const Step& first = real.front();
  const auto* collective = program_.at(first.rank, first.stream, first.index).as<Collective>();
  if (collective == nullptr) return false;
  std::set<Rank> members, here;
  for (const Rank member : program_.groups[program_.ranks[first.rank].groups[collective->slot].value()].ranks)
    if (asked_.contains(member)) members.insert(member);
  for (const Step& step : real) here.insert(step.rank);
  return members == here;
}

bool Durations::is_timed(const Step& step) const {
  if (options_.null || !measured_transfers() || !is_measured(step.rank)) return false;
  const Op op = program_.at(step.rank, step.stream, step.index).op();
  return (op == Op::send || op == Op::recv || op == Op::collective) && is_among_real(real_step(step));
}

std::optional<double> Durations::communicate(const std::vector<Step>& met) {
  const bool timed = is_timed(met.front());
  if (timed && options_.tape != nullptr) return recorded_transfer_s(met.front());
  if (!executes()) return std::nullopt;
  std::vector<Step> real;
  for (const Step& step : met)
    if (is_measured(step.rank) && communicated_.insert(real_step(step)).second)
      real.push_back(real_step(step));
  if (real.empty())
    return timed ? std::optional(moved_.at(*std::min_element(met.begin(), met.end()))) : std::nullopt;
  if (!is_among_real(real.front())) {
    if (are_all_real_members(real))
      execute_transfer(real, false);
    else
      for (const Step& step : real) execute_transfer({step}, false);
    return std::nullopt;
  }
  const std::optional<double> seconds = execute_transfer(real, true);
  if (!timed) return std::nullopt;
  MOTLEY_CHECK(seconds.has_value() && *seconds >= 0);
  const Step& first = *std::min_element(met.begin(), met.end());
  return moved_[first] = bounded(first, whole_nanoseconds(*seconds));
}

std::optional<double> Durations::execute_transfer(const std::vector<Step>& real, bool complete) {
  const std::optional<double> seconds = options_.executor->communicate(real, complete);
  for (const Step& step : real)
    if (const PathSet paths = options_.executor->paths(step); !paths.empty()) paths_[step] = paths;
  return seconds;
}

PathSet Durations::paths(const Step& step) const {
  if (!is_measured(step.rank)) return {};
  if (options_.tape != nullptr) return recorded(step).paths;
  const auto moved = paths_.find(real_step(step));
  return moved == paths_.end() ? PathSet() : moved->second;
}

// Returns the price of the collectives inside a compute. `spans`: its kernels, which are made to hold them; null: none.
double Durations::add_collectives(const Step& step, const Instruction& instruction,
                                  std::vector<KernelSpan>* spans) {
  const auto* compute = instruction.as<Compute>();
  if (compute == nullptr) return 0;
  const auto& kernels = program_.program_of(step.rank).blocks[compute->block].kernels;
  const auto first = kernels.begin() + compute->first_kernel, last = kernels.begin() + compute->last_kernel;
  if (std::none_of(first, last, [](const Kernel& kernel) { return is_collective(kernel.op); })) return 0;
  double added_s = 0;
  auto span = spans == nullptr ? std::vector<KernelSpan>::iterator() : spans->begin();
  for (const KernelSpan& priced : costs_.kernels(step.rank, instruction)) {
    const double begins_later_s = added_s;
    if (is_collective(kernels[at(priced.kernel)].op)) added_s += priced.end_s - priced.begin_s;
    if (spans == nullptr) continue;
    for (; span != spans->end() && span->kernel <= priced.kernel; ++span) {
      span->begin_s += begins_later_s;
      span->end_s += added_s;
    }
  }
  return added_s;
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

double Durations::recorded_transfer_s(const Step& step) const {
  const TraceEvent& event = recorded(step);
  return whole_nanoseconds(event.end_s - event.matched_s);
}

double Durations::seconds(const Step& step, const Instruction& instruction) {
  if (options_.null) return 0;
  return bounded(step, unbounded_s(step, instruction));
}

double Durations::bounded(const Step& step, double seconds) const {
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
    const double seconds = options_.executor->execute(real_step(step), instruction);
    std::vector<KernelSpan> spans = options_.executor->kernels();
    const bool records = options_.records_kernels && instruction.op() == Op::compute;
    known->second =
        whole_nanoseconds(seconds + add_collectives(step, instruction, records ? &spans : nullptr));
    if (records) executed_kernels_.emplace(step, std::move(spans));
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
  std::vector<Rank> ranks = asked();
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace motley
