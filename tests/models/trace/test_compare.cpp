// compare(): a trace equals itself, every planted difference is found, and traces of unlike Programs are not compared.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/trace/compare.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/timed_trace.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;
using nlohmann::json;

namespace {

std::size_t first_of(const Program& program, const Trace& trace, Op op) {
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Step& step = trace.events[i].step;
    if (program.at(step.rank, step.stream, step.index).op() == op) return i;
  }
  throw std::logic_error("no such op");
}

std::string refusal_kind(const Program& program, const Trace& a, const Trace& b) {
  try {
    compare(program, a, b);
  } catch (const Refusal& refusal) {
    REQUIRE(refusal.exit_code() == Exit::mismatch);
    return refusal.kind();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a trace is equal to itself, for every small strategy") {
  for (const Job& job : every_small_job(Family::gpt2)) {
    const Program program = compile(job);
    const Trace trace = timed_trace(program);
    const Comparison comparison = compare(program, trace, trace);
    REQUIRE(comparison.equal_structure());
    REQUIRE(comparison.compared == static_cast<std::int64_t>(trace.events.size()));
    REQUIRE(comparison.deviations.empty());
    REQUIRE_FALSE(comparison.totals.empty());
    for (const OpTotal& total : comparison.totals) {
      REQUIRE(total.a_s > 0);
      REQUIRE(total.a_s == total.b_s);
    }
  }
}

TEST_CASE("each planted difference of what was done is found and named") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  struct Planted {
    std::string what;
    Op op;
    void (*plant)(TraceEvent&);
  };
  for (const Planted& planted : {Planted{"bytes", Op::send, [](TraceEvent& e) { e.bytes += 1; }},
                                 {"flops", Op::compute, [](TraceEvent& e) { e.flops *= 2; }},
                                 {"allocated", Op::recv, [](TraceEvent& e) { e.allocated -= 1; }},
                                 {"freed", Op::send, [](TraceEvent& e) { e.freed = 0; }},
                                 {"peak", Op::compute, [](TraceEvent& e) { e.peak += e.peak / 40; }}}) {
    Trace changed = trace;
    TraceEvent& event = changed.events[first_of(program, changed, planted.op)];
    planted.plant(event);
    const Comparison comparison = compare(program, trace, changed);
    CAPTURE(planted.what);
    REQUIRE_FALSE(comparison.equal_structure());
    REQUIRE(comparison.difference_count == 1);
    REQUIRE(comparison.differences[0].what == planted.what);
    REQUIRE(comparison.differences[0].step == event.step);
  }
}

TEST_CASE("ranks that divide experts are held to the same FLOPs together, not each") {
  Job job = tiny_job({1, 1, 2}, tiny_variant("mixtral"));
  job.strategy.templates[0].stages[0].expert_parallel = 2;
  const Program program = compile(job);
  const Trace trace = timed_trace(program);
  const std::size_t first = first_of(program, trace, Op::compute);
  Trace routed = trace;
  routed.events[first].flops += 1000;
  REQUIRE_FALSE(compare(program, trace, routed).equal_structure());
  for (TraceEvent& event : routed.events)
    if (event.step.rank == 1_rank && event.step.stream == trace.events[first].step.stream &&
        event.step.index == trace.events[first].step.index)
      event.flops -= 1000;
  REQUIRE(compare(program, trace, routed).equal_structure());
}

TEST_CASE("a peak that differs by a hundredth is within tolerance") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  Trace changed = trace;
  TraceEvent& event = changed.events[first_of(program, changed, Op::compute)];
  event.peak += event.peak / 100;
  REQUIRE(compare(program, trace, changed).equal_structure());
}

TEST_CASE("an instruction that one world left out is found, a rank that one trace leaves out is only said") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  Trace shorter = trace;
  const Step gone = shorter.events[5].step;
  shorter.events.erase(shorter.events.begin() + 5);
  const Comparison comparison = compare(program, trace, shorter);
  REQUIRE(comparison.difference_count == 1);
  REQUIRE(comparison.differences[0].what == "missing");
  REQUIRE(comparison.differences[0].step == gone);
  REQUIRE(compare(program, shorter, trace).difference_count == 1);

  Trace folded = trace;
  folded.events.erase(std::remove_if(folded.events.begin(), folded.events.end(),
                                     [](const TraceEvent& e) { return e.step.rank == 1_rank; }),
                      folded.events.end());
  const Comparison fewer = compare(program, trace, folded);
  REQUIRE(fewer.equal_structure());
  REQUIRE(fewer.a.own_ranks == std::vector<Rank>{1_rank});
  REQUIRE(fewer.compared == static_cast<std::int64_t>(folded.events.size()));
}

TEST_CASE("totals and deviations name where time went: the slowed instruction comes first") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  Trace slower = trace;
  TraceEvent& event = slower.events[first_of(program, slower, Op::recv)];
  event.end_s += 0.25;
  slower.events[first_of(program, slower, Op::compute)].end_s += 0.125;
  const Comparison comparison = compare(program, trace, slower);
  REQUIRE(comparison.deviations.size() == 2);
  REQUIRE(comparison.deviations[0].step == event.step);
  REQUIRE(comparison.deviations[0].b_s - comparison.deviations[0].a_s == Approx(0.25));
  REQUIRE(comparison.deviations[0].where ==
          describe(program, event.step.rank, event.step.stream, event.step.index));
  double more_s = 0;
  std::int64_t count = 0;
  for (const OpTotal& total : comparison.totals) {
    more_s += total.b_s - total.a_s;
    count += total.count;
  }
  REQUIRE(more_s == Approx(0.375));
  REQUIRE(count == comparison.compared);
}

TEST_CASE("waiting for the other side is not work: a late peer changes no duration") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  Trace late = trace;
  TraceEvent& event = late.events[first_of(program, late, Op::recv)];
  event.begin_s = event.free_s = -1;
  const Comparison comparison = compare(program, trace, late);
  REQUIRE(comparison.deviations.empty());
  REQUIRE(comparison.b.iteration_s == Approx(comparison.a.iteration_s + 1));
}

TEST_CASE("traces of different strategies, or of another scenario, are refused") {
  const Job job = tiny_job({1, 2, 1});
  Job other = job;
  other.strategy.schedule = Schedule::gpipe;
  const Program program = compile(job), other_program = compile(other);
  const Trace trace = timed_trace(program), other_trace = timed_trace(other_program);
  REQUIRE(refusal_kind(program, trace, other_trace) == "different-programs");
  REQUIRE(refusal_kind(other_program, trace, trace) == "different-programs");
  Trace edited = trace;
  edited.events.back().step.index = 1'000'000;
  REQUIRE(refusal_kind(program, trace, edited) == "different-programs");
}

TEST_CASE("of two fidelities of one strategy only the iterations are compared") {
  Job job = tiny_job({2, 1, 1});
  const Program whole = compile(job);
  job.fidelity.tensor_parallel = CollectiveLevel::fluid;
  const Program separate = compile(job);
  const Comparison comparison = compare(whole, timed_trace(whole), timed_trace(separate));
  REQUIRE_FALSE(comparison.same_program);
  REQUIRE_FALSE(comparison.equal_structure());
  REQUIRE(comparison.a.iteration_s > 0);
  REQUIRE(comparison.b.iteration_s > comparison.a.iteration_s);
  REQUIRE(comparison.totals.empty());
  REQUIRE(to_text(comparison).find("only the iterations are compared") != std::string::npos);
}

TEST_CASE("a comparison prints the strategy and parses as JSON") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  Trace changed = trace;
  changed.events[3].bytes += 8;
  changed.events[3].end_s += 1;
  const Comparison comparison = compare(program, trace, changed);
  const json parsed = json::parse(to_json(comparison));
  REQUIRE(parsed["schema"] == "motley.compare/1");
  REQUIRE(parsed["strategy_hash"] == program.strategy_hash);
  REQUIRE(parsed["equal_structure"] == false);
  REQUIRE(parsed["differences"][0]["what"] == "bytes");
  REQUIRE(parsed["deviations"][0]["index"] == changed.events[3].step.index);
  const std::string text = to_text(comparison);
  REQUIRE(text.find(program.strategy_hash) != std::string::npos);
  REQUIRE(text.find("1 difference in") != std::string::npos);
}
