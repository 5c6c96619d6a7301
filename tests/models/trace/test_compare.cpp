// compare(): a trace equals itself, every planted difference is found, and traces of unlike Programs are not compared.
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/trace/compare.hpp"
#include "models/trace/timeline.hpp"
#include "tests/refusals/pages.hpp"
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

// What comparing them is refused with, but for hashes: a Program that is printed otherwise has another.
std::string told_of(const Program& program, const Trace& a, const Trace& b) {
  const std::string told = tests::refusal_on_page([&] { compare(program, a, b); });
  return std::regex_replace(told, std::regex("\\b[0-9a-f]{16}\\b"), "0123456789abcdef");
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

// The last events of a trace, too, and those of each of the two.
TEST_CASE("an event that one of two traces lacks is a difference, wherever it stands") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  const auto count = static_cast<std::int64_t>(trace.events.size());
  for (const std::size_t place : {std::size_t{0}, trace.events.size() / 2, trace.events.size() - 1}) {
    Trace shorter = trace;
    shorter.world = "real";
    shorter.events.erase(shorter.events.begin() + static_cast<std::ptrdiff_t>(place));
    for (const bool is_first : {false, true}) {
      const Comparison comparison =
          is_first ? compare(program, shorter, trace) : compare(program, trace, shorter);
      CHECK(comparison.difference_count == 1);
      CHECK(comparison.compared == count - 1);
      REQUIRE(comparison.differences.size() == 1);
      CHECK(comparison.differences[0].what == "missing");
      CHECK(comparison.differences[0].a == (is_first ? 0 : 1));
      CHECK(comparison.differences[0].b == (is_first ? 1 : 0));
      CHECK((is_first ? comparison.a : comparison.b).world == "real");
      CHECK((is_first ? comparison.b : comparison.a).world == trace.world);
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

TEST_CASE("kernels are compared by op, by stage and by shape; one that is missing is a difference") {
  const Program program = compile(tiny_job({1, 2, 1}));
  Trace a = timed_trace(program);
  for (const TraceEvent& event : a.events) {
    const auto* compute = program.at(event.step.rank, event.step.stream, event.step.index).as<Compute>();
    if (compute == nullptr) continue;
    const double each_s = (event.end_s - event.begin_s) / (compute->last_kernel - compute->first_kernel + 1);
    double begin_s = event.begin_s;  // a gap as long as a kernel is left
    for (std::int32_t i = compute->first_kernel; i < compute->last_kernel; ++i, begin_s += each_s)
      a.kernels.push_back({event.step, i, begin_s, begin_s + each_s, 0, 0});
  }
  const auto comparison_of = [&](const Trace& b) { return compare(program, a, b); };
  const Comparison same = comparison_of(a);
  REQUIRE(same.equal_structure());
  REQUIRE(same.kernel_deviations.empty());
  REQUIRE(same.stages.size() == 2);
  double kernels_s = 0, by_stage_s = 0, gaps_s = 0, computes_s = 0, waiting_s = 0, expected_waiting_s = 0;
  for (const KernelTotal& total : same.kernels) kernels_s += total.a_s;
  for (const StageTotal& total : same.stages) {
    by_stage_s += total.a.kernels_s;
    gaps_s += total.a.between_kernels_s;
    waiting_s += total.b.waiting_s;
  }
  for (const TraceEvent& event : a.events) {
    if (event.step.stream != kComputeStream) continue;
    expected_waiting_s += event.begin_s - event.free_s;
    if (program.at(event.step.rank, event.step.stream, event.step.index).op() == Op::compute)
      computes_s += event.end_s - event.begin_s;
  }
  CHECK(kernels_s == Approx(by_stage_s).epsilon(1e-12));
  CHECK(kernels_s + gaps_s == Approx(computes_s).epsilon(1e-12));
  CHECK(gaps_s > 0.01 * computes_s);
  CHECK(waiting_s == Approx(expected_waiting_s).epsilon(1e-12));

  // The embedding of every micro-batch takes 1 ms longer in B.
  Trace slower = a;
  std::int64_t embeddings = 0;
  for (KernelEvent& event : slower.kernels)
    if (find_kernel(program, event.step, event.kernel)->op == KernelOp::embed) {
      event.end_s += 1e-3;
      ++embeddings;
    }
  const Comparison apart = comparison_of(slower);
  REQUIRE(apart.equal_structure());
  REQUIRE(apart.kernel_deviations.size() == 1);
  CHECK_THAT(apart.kernel_deviations[0].kernel, Catch::StartsWith("embed"));
  CHECK(apart.kernel_deviations[0].count == embeddings);
  CHECK(apart.kernel_deviations[0].b_s - apart.kernel_deviations[0].a_s ==
        Approx(1e-3 * static_cast<double>(embeddings)));

  Trace fewer = a;
  fewer.kernels.erase(fewer.kernels.begin() + 5);
  REQUIRE(comparison_of(fewer).difference_count == 1);
  CHECK(comparison_of(fewer).differences[0].what == "missing");
  CHECK(comparison_of(fewer).differences[0].a == 1);
  Trace none = a;
  none.kernels.clear();
  CHECK(comparison_of(none).equal_structure());
  CHECK(comparison_of(none).kernels.empty());
  Trace edited = a;
  edited.kernels.back().kernel = 1000;
  CHECK(told_of(program, a, edited) ==
        tests::expected_refusal("different-programs: a kernel that the Program does not have"));
}

TEST_CASE("a timeline draws both traces on one axis, and refuses what has none") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  Trace late = trace;  // the origin of a trace's clock does not matter
  for (TraceEvent& event : late.events)
    for (double* instant_s : {&event.free_s, &event.begin_s, &event.matched_s, &event.end_s}) *instant_s += 7;
  const std::string svg = timeline_svg(program, trace, late, {.title = "A < B"});
  CHECK_THAT(svg, Catch::StartsWith("<svg ") && Catch::EndsWith("</svg>\n"));
  CHECK_THAT(svg, Catch::Contains("A &lt; B") && Catch::Contains("stage 0 A sim") &&
                      Catch::Contains("stage 1 A sim") && !Catch::Contains("A < B"));
  std::map<std::string, int> bars;
  std::istringstream lines(svg);
  for (std::string line; std::getline(lines, line);)
    if (line.find("<title>stage") != std::string::npos) ++bars[line.substr(0, line.find(" y="))];
  for (const auto& [place, count] : bars) CHECK(count % 2 == 0);  // once for each trace, at the same place
  CHECK(bars.size() > 5);
  Trace other = trace;
  other.program_hash = "0123456789abcdef";
  CHECK(tests::refusal_on_page([&] { timeline_svg(program, trace, other); }) ==
        tests::expected_refusal("different-programs: two traces on one time axis"));
  Trace empty = trace;
  empty.events.clear();
  CHECK(tests::refusal_on_page([&] { timeline_svg(program, trace, empty); }) ==
        tests::expected_refusal("different-programs: two traces without a rank in common"));
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
  const std::string text = to_text(comparison), header = "\nlargest deviations:\n";
  REQUIRE(text.find(header) != std::string::npos);
  REQUIRE(text.find(comparison.deviations[0].where, text.find(header)) != std::string::npos);
}

TEST_CASE("waiting for the other side is not work: a late peer changes no duration") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const Trace trace = timed_trace(program);
  Trace late = trace;
  TraceEvent& event = late.events[first_of(program, late, Op::recv)];
  event.begin_s = event.free_s = -1;
  const Comparison comparison = compare(program, trace, late);
  REQUIRE(comparison.deviations.empty());
  REQUIRE(to_text(comparison).find("largest deviations") == std::string::npos);
  REQUIRE(comparison.b.iteration_s == Approx(comparison.a.iteration_s + 1));
}

TEST_CASE("traces of different strategies, or of another scenario, are refused") {
  const Job job = tiny_job({1, 2, 1});
  Job other = job;
  other.strategy.schedule = Schedule::gpipe;
  const Program program = compile(job), other_program = compile(other);
  const Trace trace = timed_trace(program), other_trace = timed_trace(other_program);
  REQUIRE(told_of(program, trace, other_trace) ==
          tests::expected_refusal("different-programs: traces of two strategies"));
  REQUIRE(told_of(other_program, trace, trace) ==
          tests::expected_refusal("different-programs: traces of another scenario"));
  Trace edited = trace;
  edited.events.back().step.index = 1'000'000;
  REQUIRE(told_of(program, trace, edited) ==
          tests::expected_refusal("different-programs: an event that the Program does not have"));
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
