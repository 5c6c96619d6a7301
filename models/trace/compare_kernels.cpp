// What two traces say about the kernels inside computes. Read next: models/trace/compare.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/base/index.hpp"
#include "models/trace/compare.hpp"

namespace motley {
namespace {

double seconds_of(const KernelEvent& event) { return event.end_s - event.begin_s; }

template <class T>
bool deviates_more(const T& x, const T& y) {
  return std::abs(x.b_s - x.a_s) > std::abs(y.b_s - y.a_s);
}

class KernelPairs {
 public:
  KernelPairs(const Program& program, const CompareOptions& options, Comparison& result)
      : program_(program), options_(options), result_(result) {}

  void run(const Trace& a, const Trace& b) {
    auto left = a.kernels.begin(), right = b.kernels.begin();
    while (left != a.kernels.end() || right != b.kernels.end()) {
      const bool in_a = left != a.kernels.end() && (right == b.kernels.end() || !is_earlier(*right, *left));
      const bool in_b = right != b.kernels.end() && (left == a.kernels.end() || !is_earlier(*left, *right));
      if (in_a && in_b)
        pair(*left, *right);
      else if (is_in_both(in_a ? left->step.rank : right->step.rank))
        miss(in_a ? *left : *right, in_a);
      left += in_a ? 1 : 0;
      right += in_b ? 1 : 0;
    }
    for (const auto& [op, total] : by_op_) result_.kernels.push_back(total);
    std::stable_sort(result_.kernels.begin(), result_.kernels.end(),
                     [](const KernelTotal& x, const KernelTotal& y) {
                       return std::max(x.a_s, x.b_s) > std::max(y.a_s, y.b_s);
                     });
    keep_largest();
  }

 private:
  bool is_in_both(Rank rank) const {
    for (const ComparedSide* side : {&result_.a, &result_.b})
      if (std::binary_search(side->own_ranks.begin(), side->own_ranks.end(), rank)) return false;
    return true;
  }

  void pair(const KernelEvent& a, const KernelEvent& b) {
    const Kernel& kernel = *find_kernel(program_, a.step, a.kernel);
    KernelTotal& total = by_op_[kernel.op];
    total.op = kernel.op;
    ++total.count;
    total.a_s += seconds_of(a);
    total.b_s += seconds_of(b);
    KernelDeviation& alike = alike_[describe_kernel(kernel, program_.precision)];
    ++alike.count;
    alike.a_s += seconds_of(a);
    alike.b_s += seconds_of(b);
  }

  void miss(const KernelEvent& event, bool in_a) {
    ++result_.difference_count;
    if (result_.differences.size() >= options_.differences) return;
    const Step& step = event.step;
    const Kernel& kernel = *find_kernel(program_, step, event.kernel);
    result_.differences.push_back({step,
                                   fmt::format("{} of {}", describe_kernel(kernel, program_.precision),
                                               describe(program_, step.rank, step.stream, step.index)),
                                   "missing", in_a ? 1.0 : 0.0, in_a ? 0.0 : 1.0});
  }

  void keep_largest() {
    for (const auto& [text, alike] : alike_) {
      if (alike.a_s == alike.b_s) continue;
      result_.kernel_deviations.push_back(alike);
      result_.kernel_deviations.back().kernel = text;
    }
    auto& all = result_.kernel_deviations;
    std::stable_sort(all.begin(), all.end(), deviates_more<KernelDeviation>);
    if (all.size() > options_.deviations) all.resize(options_.deviations);
  }

  const Program& program_;
  const CompareOptions& options_;
  Comparison& result_;
  std::map<KernelOp, KernelTotal> by_op_;
  std::map<std::string, KernelDeviation> alike_;  // by describe_kernel()
};

// Adds what the compute streams of one trace do, on ranks that both traces have.
void add_stage_times(const Program& program, const Trace& trace, const std::vector<Rank>& own_ranks,
                     StageTime StageTotal::*side, std::map<int, StageTotal>& stages) {
  const auto time_of = [&](Rank rank) -> StageTime& {
    const int stage = program.ranks[rank].stage;
    StageTotal& total = stages[stage];
    total.stage = stage;
    return total.*side;
  };
  const auto is_own = [&](Rank rank) { return std::binary_search(own_ranks.begin(), own_ranks.end(), rank); };
  for (const TraceEvent& event : trace.events) {
    if (event.step.stream != kComputeStream || is_own(event.step.rank)) continue;
    StageTime& time = time_of(event.step.rank);
    time.waiting_s += event.begin_s - event.free_s;
    const Step& step = event.step;
    if (program.at(step.rank, step.stream, step.index).op() == Op::compute)
      time.between_kernels_s += event.end_s - event.begin_s;
  }
  for (const KernelEvent& event : trace.kernels) {
    if (event.step.stream != kComputeStream || is_own(event.step.rank)) continue;
    StageTime& time = time_of(event.step.rank);
    time.kernels_s += seconds_of(event);
    time.between_kernels_s -= seconds_of(event);
  }
}

}  // namespace

std::string describe_kernel(const Kernel& kernel, Format precision) {
  const std::string format(name_of(kernel.format.value_or(precision)));
  if (kernel.n == 0 && kernel.k == 0)
    return fmt::format("{} of {} bytes {}", name_of(kernel.op), kernel.bytes, format);
  const std::string groups = kernel.groups > 0 ? fmt::format("{} x ", kernel.groups) : "";
  return fmt::format("{} {}{} x {} x {} {}", name_of(kernel.op), groups, kernel.m, kernel.n, kernel.k,
                     format);
}

void compare_kernels(const Program& program, const Trace& a, const Trace& b, const CompareOptions& options,
                     Comparison& comparison) {
  if (a.kernels.empty() || b.kernels.empty()) return;
  KernelPairs(program, options, comparison).run(a, b);
  std::map<int, StageTotal> stages;
  add_stage_times(program, a, comparison.a.own_ranks, &StageTotal::a, stages);
  add_stage_times(program, b, comparison.b.own_ranks, &StageTotal::b, stages);
  for (const auto& [stage, total] : stages) comparison.stages.push_back(total);
}

}  // namespace motley
