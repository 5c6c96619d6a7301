// The path is found once; a rank then needs only its own events.
#include "models/report/attribution.hpp"

#include <algorithm>
#include <array>

#include "models/base/index.hpp"

namespace motley {
namespace {

constexpr std::array<double Breakdown::*, kPurposes> kFields = {
    &Breakdown::compute_s,          &Breakdown::recompute_s,       &Breakdown::bubble_s,
    &Breakdown::waiting_s,          &Breakdown::tensor_parallel_s, &Breakdown::expert_parallel_s,
    &Breakdown::context_parallel_s, &Breakdown::pipeline_s,        &Breakdown::data_parallel_s,
    &Breakdown::offload_s,          &Breakdown::optimizer_s};
static_assert(sizeof(Breakdown) == kPurposes * sizeof(double), "every field is the field of a purpose");

GroupKind kind_of(const Program& program, Rank rank, const Collective& collective) {
  return program.groups[program.ranks[rank].groups[collective.slot].value()].kind;
}

Purpose purpose_of_group(GroupKind kind) {
  switch (kind) {
    case GroupKind::tensor:
    case GroupKind::tensor_gradient:
      return Purpose::tensor_parallel;
    case GroupKind::expert:
      return Purpose::expert_parallel;
    case GroupKind::context:
      return Purpose::context_parallel;
    case GroupKind::activation_gather:
    case GroupKind::gradient_gather:
      return Purpose::pipeline;
    case GroupKind::embedding:
    case GroupKind::data:
    case GroupKind::gather:
      return Purpose::data_parallel;
  }
  return Purpose::data_parallel;
}

// Whether a late member is slower than others. The ends of a pipeline, which share an embedding, and the ranks that
// share what crosses a boundary arrive when the pipeline lets them.
bool is_of_equals(GroupKind kind) { return kind != GroupKind::embedding && !gathers_at_boundary(kind); }

bool has_one_stage(const Program& program, std::int32_t pipeline) {
  return std::none_of(
      program.rank_programs.begin(), program.rank_programs.end(),
      [pipeline](const RankProgram& each) { return each.pipeline == pipeline && each.stage > 0; });
}

// A time that counts only where the rank does not work: its wait for the last member of a group, or a message.
struct IdleSpan {
  StepSpan span;
  Rank last;
};

// Calls add(span, seconds) with the seconds of each span that no earlier span and no work covers.
template <class Add>
void for_idle(std::vector<IdleSpan> spans, const std::vector<StepSpan>& work, const Add& add) {
  std::sort(spans.begin(), spans.end(),
            [](const IdleSpan& a, const IdleSpan& b) { return a.span.begin_s < b.span.begin_s; });
  auto first = work.begin();
  double reached_s = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    StepSpan span = spans[i].span;
    if (i > 0) span.begin_s = std::max(span.begin_s, reached_s);
    if (span.seconds() <= 0) continue;
    reached_s = span.end_s;
    double idle_s = span.seconds();
    while (first != work.end() && first->end_s <= span.begin_s) ++first;
    for (auto each = first; each != work.end() && each->begin_s < span.end_s; ++each)
      idle_s -= span.overlap_s(*each);
    if (idle_s > 0) add(spans[i], idle_s);
  }
}

}  // namespace

double& Breakdown::operator[](Purpose purpose) { return this->*kFields[at(static_cast<int>(purpose))]; }
double Breakdown::operator[](Purpose purpose) const { return this->*kFields[at(static_cast<int>(purpose))]; }

double Breakdown::sum_s() const {
  double sum_s = 0;
  for (const auto field : kFields) sum_s += this->*field;
  return sum_s;
}

Purpose purpose_of(const Program& program, Rank rank, const Instruction& instruction) {
  switch (instruction.op()) {
    case Op::compute:
      return Purpose::compute;
    case Op::optimizer:
      return moved_tensors(instruction).empty() ? Purpose::optimizer : Purpose::offload;
    case Op::copy:
      return Purpose::offload;
    case Op::send:
    case Op::recv:
      return Purpose::pipeline;
    case Op::collective: {
      const auto& collective = std::get<Collective>(instruction.body);
      if (collective.kind == CollectiveKind::all_to_all) return Purpose::expert_parallel;
      return purpose_of_group(kind_of(program, rank, collective));
    }
  }
  return Purpose::compute;
}

Attribution::Attribution(const Program& program, CostTable& costs, const Trace& trace)
    : program_(program),
      costs_(costs),
      trace_(trace),
      iteration_s_(step_s(trace)),
      path_(find_critical_path(program, trace)) {
  std::map<Rank, double> works_s;
  for (const CriticalLink& link : path_.links) {
    const auto& [rank, stream, index] = link.step;
    const Instruction& instruction = program.at(rank, stream, index);
    const Purpose purpose = purpose_of(program, rank, instruction);
    const double seconds = link.end_s - link.begin_s;
    const bool works = is_work(link.step, purpose);
    add(rank, instruction, purpose, seconds, works ? work_ : wires_);
    if (works) works_s[rank] += seconds;
  }
  const auto busiest = std::max_element(works_s.begin(), works_s.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  if (busiest != works_s.end()) busiest_ = busiest->first;
}

// Transfers, gradients and parameters are no work of a stage, also where its compute stream carries them.
bool Attribution::is_work(const Step& step, Purpose purpose) const {
  return step.stream == kComputeStream && purpose != Purpose::pipeline && purpose != Purpose::data_parallel &&
         purpose != Purpose::offload;
}

// Assumes: a compute that took longer or shorter than its price did so evenly over its kernels.
void Attribution::add(Rank rank, const Instruction& instruction, Purpose purpose, double seconds,
                      Breakdown& row) {
  if (purpose == Purpose::compute) {
    const ComputeTime& priced = costs_.price(rank, instruction);
    const double scale = priced.seconds() > 0 ? seconds / priced.seconds() : 0;
    row.recompute_s += priced.recompute_s * scale;
    row.tensor_parallel_s += priced.tensor_parallel_s * scale;
    seconds -= (priced.recompute_s + priced.tensor_parallel_s) * scale;
  }
  row[purpose] += seconds;
}

Breakdown Attribution::of_path() const {
  Breakdown sum = work_;
  for (int i = 0; i < kPurposes; ++i) sum[static_cast<Purpose>(i)] += wires_[static_cast<Purpose>(i)];
  return sum;
}

std::map<Rank, RankBreakdown> Attribution::by_rank() {
  std::map<Rank, RankBreakdown> rows;
  const TraceEvent* const end = trace_.events.data() + trace_.events.size();
  for (const TraceEvent* begin = trace_.events.data(); begin != end;) {
    const Rank rank = begin->step.rank;
    const TraceEvent* last =
        std::find_if(begin, end, [rank](const TraceEvent& event) { return event.step.rank != rank; });
    rows.emplace(rank, of_rank({rank, begin, last}));
    begin = last;
  }
  return rows;
}

RankBreakdown Attribution::of_rank(const Events& events) {
  RankBreakdown row;
  std::vector<StepSpan> work;
  for (const TraceEvent* event = events.begin; event != events.end; ++event) {
    if (event->step.stream != kComputeStream) continue;
    const Instruction& instruction = program_.at(events.rank, event->step.stream, event->step.index);
    const Purpose purpose = purpose_of(program_, events.rank, instruction);
    if (!is_work(event->step, purpose)) continue;
    add(events.rank, instruction, purpose, event->end_s - event->matched_s, row);
    work.push_back({event->matched_s, event->end_s});
  }
  row.communicating_s =
      row.tensor_parallel_s + row.expert_parallel_s + row.context_parallel_s + on_wire_s(events, work);
  const double idle_s = iteration_s_ - row.sum_s(), wires_s = wires_.sum_s();
  const double more_s = std::max(0.0, idle_s - wires_s);  // how much longer the path works
  if (has_one_stage(program_, program_.program_of(events.rank).pipeline)) row.waiting_s = more_s;
  add_waiting(events, work, more_s, row);
  row.bubble_s = more_s - row.waiting_s;
  if (wires_s > 0)
    for (int i = 0; i < kPurposes; ++i)
      row[static_cast<Purpose>(i)] += wires_[static_cast<Purpose>(i)] * ((idle_s - more_s) / wires_s);
  return row;
}

// Waiting takes at most `most_s`, or as long as the row already says; the rest of it is the wait for another rank.
void Attribution::add_waiting(const Events& events, const std::vector<StepSpan>& work, double most_s,
                              RankBreakdown& row) const {
  if (most_s <= 0) return;
  double sum_s = 0;
  for (const auto& [rank, seconds] : waits_of(events, work)) {
    sum_s += seconds;
    if (seconds > row.for_slower_s * (1 + 1e-9)) {
      row.slower = rank;
      row.for_slower_s = seconds;
    }
  }
  if (row.waiting_s == 0) row.waiting_s = std::min(sum_s, most_s);
  if (!row.slower && row.waiting_s > 0 && busiest_ != events.rank) {
    row.slower = busiest_;
    row.for_slower_s = row.waiting_s;
  }
  row.for_slower_s = std::min(row.for_slower_s, row.waiting_s);
}

// The seconds in which the rank did not work and a member of one of its groups was late, by the member that came last.
std::map<Rank, double> Attribution::waits_of(const Events& events, const std::vector<StepSpan>& work) const {
  std::vector<IdleSpan> waits;
  for (const TraceEvent* event = events.begin; event != events.end; ++event) {
    if (event->waited != Waited::peer || !event->waited_rank) continue;
    const auto* collective = program_.at(events.rank, event->step.stream, event->step.index).as<Collective>();
    if (collective != nullptr && is_of_equals(kind_of(program_, events.rank, *collective)))
      waits.push_back({{event->begin_s, event->matched_s}, *event->waited_rank});
  }
  std::map<Rank, double> seconds;
  for_idle(waits, work, [&](const IdleSpan& wait, double idle_s) { seconds[wait.last] += idle_s; });
  return seconds;
}

double Attribution::on_wire_s(const Events& events, const std::vector<StepSpan>& work) const {
  std::vector<IdleSpan> wires;
  for (const TraceEvent* event = events.begin; event != events.end; ++event) {
    const Op op = program_.at(events.rank, event->step.stream, event->step.index).op();
    if (op == Op::collective || op == Op::send || op == Op::recv)
      wires.push_back({{event->matched_s, event->end_s}, events.rank});
  }
  double sum_s = 0;
  for_idle(wires, work, [&](const IdleSpan&, double idle_s) { sum_s += idle_s; });
  return sum_s;
}

}  // namespace motley
