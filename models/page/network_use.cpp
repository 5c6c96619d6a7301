#include "models/page/network_use.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "models/base/index.hpp"
#include "models/cost/busy_ranks.hpp"
#include "models/cost/compute_cost.hpp"
#include "models/explain/wires.hpp"
#include "models/report/attribution.hpp"

namespace motley {
namespace {

std::string word_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::tensor_parallel:
      return "tensor parallel";
    case Purpose::expert_parallel:
      return "expert parallel";
    case Purpose::context_parallel:
      return "context parallel";
    case Purpose::pipeline:
      return "pipeline";
    case Purpose::data_parallel:
      return "data parallel";
    default:
      return "other";
  }
}

// Seconds that at least one of the spans covers.
double covered_s(std::vector<StepSpan> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const StepSpan& a, const StepSpan& b) { return a.begin_s < b.begin_s; });
  double covered = 0, end_s = 0;
  bool is_first = true;
  for (const StepSpan& span : spans) {
    const double begin_s = is_first ? span.begin_s : std::max(span.begin_s, end_s);
    if (span.end_s > begin_s) covered += span.end_s - begin_s;
    end_s = is_first ? span.end_s : std::max(end_s, span.end_s);
    is_first = false;
  }
  return covered;
}

class NetworkCounter {
 public:
  NetworkCounter(const Job& job, const Program& program, const Trace& trace)
      : busy_(as_busy_as(program, job.cluster)),
        program_(program),
        trace_(trace),
        costs_(program, job.cluster),
        wires_(program, busy_ ? *busy_ : job.cluster) {
    for (const StandIn& stand_in : trace.stand_ins) stand_ins_[stand_in.rank] = stand_in.count;
  }

  std::vector<NetworkUse> count() {
    for (const TraceEvent& event : trace_.events) {
      if (!rank_ || *rank_ != event.step.rank) end_rank();
      rank_ = event.step.rank;
      add(event);
    }
    end_rank();
    std::vector<NetworkUse> uses;
    for (auto& [key, use] : uses_) {
      if (use.ranks > 0) use.busy_s /= static_cast<double>(use.ranks);
      uses.push_back(use);
    }
    std::stable_sort(uses.begin(), uses.end(),
                     [](const NetworkUse& a, const NetworkUse& b) { return a.busy_s > b.busy_s; });
    return uses;
  }

 private:
  using Key = std::tuple<std::string, std::string, std::string, bool>;

  std::int64_t stands_for(Rank rank) const {
    const auto known = stand_ins_.find(rank);
    return known == stand_ins_.end() ? 1 : known->second;
  }

  void add(const TraceEvent& event) {
    const Rank rank = event.step.rank;
    const Instruction& instruction = program_.at(rank, event.step.stream, event.step.index);
    switch (instruction.op()) {
      case Op::compute:
        return add_kernels(event, instruction);
      case Op::send:
      case Op::recv:
        return add(wires_.of_transfer(rank, instruction), Purpose::pipeline, false,
                   {event.matched_s, event.end_s}, instruction.op() == Op::send ? 1 : 0,
                   static_cast<double>(expected_bytes(instruction)));
      case Op::collective: {
        const auto group = program_.ranks[rank].groups[instruction.as<Collective>()->slot];
        if (!group) return;
        return add(wires_.of_group(*group), purpose_of(program_, rank, instruction), false,
                   {event.matched_s, event.end_s}, 1, static_cast<double>(expected_bytes(instruction)));
      }
      default:
        return;
    }
  }

  // Assumes: a compute that took longer or shorter than its price did so evenly over its kernels.
  void add_kernels(const TraceEvent& event, const Instruction& instruction) {
    const Rank rank = event.step.rank;
    const RankEntry& entry = program_.ranks[rank];
    if (!entry.groups.has(kTensorGroup) || !entry.groups[kTensorGroup]) return;
    const auto& kernels = program_.program_of(rank).blocks[instruction.as<Compute>()->block].kernels;
    const std::vector<KernelSpan>& spans = costs_.kernels(rank, instruction);
    if (spans.empty() || spans.back().end_s <= 0) return;
    const double stretch = (event.end_s - event.begin_s) / spans.back().end_s;
    for (const KernelSpan& span : spans) {
      const Kernel& kernel = kernels[at(span.kernel)];
      if (!is_collective(kernel.op) || !priced_in_computes(kernel)) continue;
      add(wires_.of_group(*entry.groups[kTensorGroup]), Purpose::tensor_parallel, true,
          {event.begin_s + span.begin_s * stretch, event.begin_s + span.end_s * stretch}, 1,
          static_cast<double>(kernel.bytes));
    }
  }

  void add(const Wire& wire, Purpose purpose, bool inside, const StepSpan& span, double count, double bytes) {
    const Key key{word_of(purpose), wire.on, wire.group, inside};
    const auto [known, is_new] = uses_.try_emplace(key);
    NetworkUse& use = known->second;
    if (is_new) use = {std::get<0>(key), wire.on, wire.group, wire.rate, 0, 0, 0, 0, inside};
    const auto ranks = static_cast<double>(stands_for(*rank_));
    use.rate = std::min(use.rate, wire.rate);
    use.count += count * ranks;
    use.bytes += count * bytes * ranks;
    spans_[key].push_back(span);
  }

  void end_rank() {
    if (!rank_) return;
    const std::int64_t ranks = stands_for(*rank_);
    for (auto& [key, spans] : spans_) {
      NetworkUse& use = uses_[key];
      use.ranks += ranks;
      use.busy_s += covered_s(std::move(spans)) * static_cast<double>(ranks);
    }
    spans_.clear();
  }

  const std::shared_ptr<const Cluster> busy_;  // see as_busy_as()
  const Program& program_;
  const Trace& trace_;
  CostTable costs_;
  Wires wires_;
  std::map<Rank, std::int64_t> stand_ins_;
  std::optional<Rank> rank_;  // whose events are read
  std::map<Key, NetworkUse> uses_;
  std::map<Key, std::vector<StepSpan>> spans_;  // of that rank
};

}  // namespace

std::vector<NetworkUse> network_use(const Job& job, const Program& program, const Trace& trace) {
  return NetworkCounter(job, program, trace).count();
}

}  // namespace motley
