#include "models/trace/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

double work_s(const TraceEvent& event) { return event.end_s - event.matched_s; }

std::set<Rank> ranks_of(const Trace& trace) {
  std::set<Rank> ranks;
  for (const TraceEvent& event : trace.events) ranks.insert(ranks.end(), event.step.rank);
  return ranks;
}

ComparedSide side_of(const Trace& trace, const std::set<Rank>& own, const std::set<Rank>& others) {
  ComparedSide side;
  side.world = trace.world;
  side.strategy_hash = trace.strategy_hash;
  side.program_hash = trace.program_hash;
  side.events = static_cast<std::int64_t>(trace.events.size());
  std::set_difference(own.begin(), own.end(), others.begin(), others.end(),
                      std::back_inserter(side.own_ranks));
  if (trace.events.empty()) return side;
  // Of one of many steps: from its first compute on, as receives are posted, and their streams free, before it begins.
  StepSpan span = span_of(trace);
  if (trace.period_s > 0) {
    span.begin_s = span.end_s;
    for (const TraceEvent& event : trace.events)
      if (event.step.stream == kComputeStream) span.begin_s = std::min(span.begin_s, event.begin_s);
  }
  side.iteration_s = span.seconds();
  return side;
}

void check_comparable(const Program& program, const Trace& a, const Trace& b) {
  if (a.strategy_hash != b.strategy_hash)
    throw Refusal(
        Exit::mismatch, "different-programs", {},
        fmt::format("the traces are of different strategies: {} and {}", a.strategy_hash, b.strategy_hash),
        "compare two worlds of one strategy");
  const std::string hash = program_hash(program);
  if (a.program_hash != hash && b.program_hash != hash)
    throw Refusal(Exit::mismatch, "different-programs", {},
                  fmt::format("the scenario compiles to program {}, the traces are of {} and {}", hash,
                              a.program_hash, b.program_hash),
                  "is it the scenario the traces were made from, unchanged since?");
}

// Compares both traces in one pass; both are sorted by rank, stream, index.
class TracePairs {
 public:
  TracePairs(const Program& program, const CompareOptions& options, Comparison& result)
      : program_(program), options_(options), result_(result) {}

  void run(const Trace& a, const Trace& b, const std::set<Rank>& common) {
    auto left = a.events.begin(), right = b.events.begin();
    while (left != a.events.end() || right != b.events.end()) {
      const bool take_left = right == b.events.end() || (left != a.events.end() && left->step <= right->step);
      const bool take_right =
          left == a.events.end() || (right != b.events.end() && right->step <= left->step);
      const Step step = take_left ? left->step : right->step;
      if (common.count(step.rank) > 0) {
        if (take_left && take_right)
          pair(*left, *right);
        else
          differ(step, "missing", take_left ? 1 : 0, take_right ? 1 : 0);
      }
      if (take_left) ++left;
      if (take_right) ++right;
    }
    compare_routed();
    for (const auto& [key, total] : totals_) result_.totals.push_back(total);
    keep_largest();
  }

 private:
  void differ(const Step& step, const char* what, double a, double b) {
    ++result_.difference_count;
    if (result_.differences.size() < options_.differences)
      result_.differences.push_back(
          {step, describe(program_, step.rank, step.stream, step.index), what, a, b});
  }

  void expect_equal(const Step& step, const char* what, double a, double b) {
    if (a != b) differ(step, what, a, b);
  }

  // Routing decides which of the ranks that divide experts computes what, and Worlds need not agree on it. So the
  // FLOPs of these ranks are compared as a sum, if all of them are in both traces.
  struct Routed {
    Step first;
    std::size_t ranks = 0;
    double a = 0, b = 0;
  };
  void note_routed(const TraceEvent& a, const TraceEvent& b) {
    const GroupId group = program_.ranks[a.step.rank].groups.get(kExpertGroup).value();
    Routed& routed = routed_[{group, a.step.stream, a.step.index}];
    if (routed.ranks++ == 0) routed.first = a.step;
    routed.a += a.flops;
    routed.b += b.flops;
  }
  void compare_routed() {
    constexpr double kSummed = 1e-12;  // sums may be taken in another order
    for (const auto& [where, routed] : routed_)
      if (routed.ranks == program_.groups[std::get<0>(where)].ranks.size() &&
          std::abs(routed.a - routed.b) > kSummed * std::max(routed.a, routed.b))
        differ(routed.first, "flops", routed.a, routed.b);
  }

  void pair(const TraceEvent& a, const TraceEvent& b) {
    ++result_.compared;
    const Step& step = a.step;
    expect_equal(step, "bytes", static_cast<double>(a.bytes), static_cast<double>(b.bytes));
    const auto& groups = program_.ranks[step.rank].groups;
    if (program_.program_of(step.rank).expert_parallel > 1 && groups.has(kExpertGroup) &&
        groups[kExpertGroup])
      note_routed(a, b);
    else
      expect_equal(step, "flops", a.flops, b.flops);
    expect_equal(step, "allocated", static_cast<double>(a.allocated), static_cast<double>(b.allocated));
    expect_equal(step, "freed", static_cast<double>(a.freed), static_cast<double>(b.freed));
    const auto peak_a = static_cast<double>(a.peak), peak_b = static_cast<double>(b.peak);
    if (std::abs(peak_a - peak_b) > options_.peak_tolerance * std::max(peak_a, peak_b))
      differ(step, "peak", peak_a, peak_b);

    const int stage = program_.ranks[step.rank].stage;
    const StreamKind stream = program_.program_of(step.rank).streams[step.stream].kind;
    const Op op = program_.at(step.rank, step.stream, step.index).op();
    OpTotal& total = totals_[{stage, stream, op}];
    total.stage = stage;
    total.stream = stream;
    total.op = op;
    ++total.count;
    total.a_s += work_s(a);
    total.b_s += work_s(b);
    deviations_.push_back({step, "", work_s(a), work_s(b)});
  }

  void keep_largest() {
    const auto larger = [](const Deviation& x, const Deviation& y) {
      const double x_s = std::abs(x.b_s - x.a_s), y_s = std::abs(y.b_s - y.a_s);
      return x_s != y_s ? x_s > y_s : x.step < y.step;
    };
    const auto kept = static_cast<std::ptrdiff_t>(std::min(options_.deviations, deviations_.size()));
    std::partial_sort(deviations_.begin(), deviations_.begin() + kept, deviations_.end(), larger);
    for (auto each = deviations_.begin(); each != deviations_.begin() + kept && each->a_s != each->b_s;
         ++each) {
      each->where = describe(program_, each->step.rank, each->step.stream, each->step.index);
      result_.deviations.push_back(*each);
    }
  }

  const Program& program_;
  const CompareOptions& options_;
  Comparison& result_;
  std::map<std::tuple<int, StreamKind, Op>, OpTotal> totals_;
  std::vector<Deviation> deviations_;
  std::map<std::tuple<GroupId, StreamId, int>, Routed> routed_;  // by group, stream, index
};

}  // namespace

void check_is_of(const Program& program, const Trace& trace) {
  for (const TraceEvent& event : trace.events) {
    const Step& step = event.step;
    const bool known = program.ranks.has(step.rank) && step.index >= 0 &&
                       program.program_of(step.rank).streams.has(step.stream) &&
                       static_cast<std::size_t>(step.index) <
                           program.program_of(step.rank).streams[step.stream].instructions.size();
    if (!known)
      throw Refusal(
          Exit::mismatch, "different-programs", {},
          fmt::format(
              "a trace has an event of rank {} stream {} instruction {}, which its program {} does not have",
              step.rank, step.stream, step.index, trace.program_hash),
          "was the trace edited?");
  }
  for (const KernelEvent& event : trace.kernels)
    if (find_kernel(program, event.step, event.kernel) == nullptr)
      throw Refusal(
          Exit::mismatch, "different-programs", {},
          fmt::format("a trace has an event of kernel {} of rank {} stream {} instruction {}, which its "
                      "program {} does not have",
                      event.kernel, event.step.rank, event.step.stream, event.step.index, trace.program_hash),
          "was the trace edited?");
}

Comparison compare(const Program& program, const Trace& a, const Trace& b, const CompareOptions& options) {
  check_comparable(program, a, b);
  const std::set<Rank> ranks_a = ranks_of(a), ranks_b = ranks_of(b);
  std::set<Rank> common;
  std::set_intersection(ranks_a.begin(), ranks_a.end(), ranks_b.begin(), ranks_b.end(),
                        std::inserter(common, common.end()));
  Comparison result;
  result.a = side_of(a, ranks_a, ranks_b);
  result.b = side_of(b, ranks_b, ranks_a);
  result.same_program = a.program_hash == b.program_hash;
  result.ranks = static_cast<std::int64_t>(common.size());
  if (!result.same_program) return result;
  check_is_of(program, a);
  check_is_of(program, b);
  TracePairs(program, options, result).run(a, b, common);
  compare_kernels(program, a, b, options, result);
  return result;
}

}  // namespace motley
