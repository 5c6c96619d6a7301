// What viewers show of a Trace: over random jobs, slices of a track are disjoint or nested as importers read them, none
// is lost, and each instant is near its second.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>

#include "models/base/gzip.hpp"
#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/compile/compile.hpp"
#include "models/trace/trace_file.hpp"
#include "models/trace/trace_forms.hpp"
#include "models/trace/trace_view.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/timed_trace.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// An importer that multiplies microseconds in double precision and cuts off the fraction.
std::int64_t truncating(std::int64_t ns) {
  return static_cast<std::int64_t>(std::stod(fmt::format("{}.{:03}", ns / 1000, ns % 1000)) * 1000.0);
}

// An instant of a view is at most so far from its second; an importer that truncates reads one less of a duration.
constexpr double kApart_s = 6.5e-9;

// Times that no rounding leaves alone: of nanoseconds and of seconds, zero too, and kernels that fill their computes.
Trace drawn_trace(const Program& program, std::mt19937& random) {
  std::exponential_distribution<double> length(1.0);
  const double scale_s = std::pow(10.0, -9.0 + static_cast<double>(random() % 90) / 10);
  Trace trace = TimedRun(program, [&](const Step& step, const Instruction& instruction) {
                  // Both sides of a match take as long.
                  if (instruction.message() != nullptr || instruction.op() == Op::collective)
                    return scale_s * (1 + static_cast<double>(payload_bytes(instruction)) / 3e4);
                  return step.index % 7 == 3 ? 0.0 : scale_s * length(random);
                }).run();
  for (const TraceEvent& event : trace.events) {
    const auto* compute = program.at(event.step.rank, event.step.stream, event.step.index).as<Compute>();
    if (compute == nullptr) continue;
    double begin_s = event.begin_s;
    for (std::int32_t i = compute->first_kernel; i < compute->last_kernel; ++i) {
      const bool is_last = i + 1 == compute->last_kernel;
      const double end_s = is_last ? event.end_s : begin_s + (event.end_s - begin_s) * (random() % 4) / 4;
      trace.kernels.push_back({event.step, i, begin_s, end_s, 0, 0});
      begin_s = end_s;
    }
  }
  return trace;
}

// As an importer reads it, by what it makes of a begin and of a duration.
template <class Read>
void check_nesting(const TraceView& view, Read read) {
  std::int64_t free_ns = 0, kernel_free_ns = 0;
  const ViewSlice* earlier = nullptr;
  const ViewSlice* compute = nullptr;
  for (const ViewSlice& slice : view.slices) {
    const auto begin = [&](const ViewSlice& each) { return read(each.begin_ns); };
    const auto end = [&](const ViewSlice& each) {
      return read(each.begin_ns) + read(each.end_ns - each.begin_ns);
    };
    if (earlier == nullptr || earlier->step().rank != slice.step().rank ||
        earlier->step().stream != slice.step().stream)
      free_ns = 0;
    earlier = &slice;
    REQUIRE(read(slice.begin_ns) == slice.begin_ns);
    if (slice.kernel == nullptr) {
      REQUIRE(begin(slice) >= free_ns);
      free_ns = end(slice);
      compute = &slice;
      kernel_free_ns = begin(slice);
    } else {
      REQUIRE(compute->step() == slice.step());
      REQUIRE(begin(slice) >= kernel_free_ns);
      kernel_free_ns = end(slice);
      REQUIRE(kernel_free_ns <= end(*compute));
    }
  }
}

}  // namespace

TEST_CASE("an importer that truncates reads every instant of a view exactly") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 50'000; ++i) {
    const auto ns = static_cast<std::int64_t>(random() >> (13 + random() % 40));  // up to 2^51
    const std::int64_t after = exact_at_or_after(ns), before = exact_at_or_before(ns);
    REQUIRE(truncating(after) == after);
    REQUIRE(truncating(before) == before);
    REQUIRE(after >= ns);
    REQUIRE(before <= ns);
    REQUIRE(after - before <= 12);
    REQUIRE(exact_at_or_after(ns + 1) >= after);
    REQUIRE(is_read_exactly(ns) == (truncating(ns) == ns));
  }
  REQUIRE(truncating(16'384'013) != 16'384'013);
}

TEST_CASE("slices are disjoint or nested however they are read, none is lost, and each is near its seconds",
          "[slow]") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Program program = compile(any_job(seed));
    const Trace trace = drawn_trace(program, random);
    const TraceView view = view_of(trace, program, {});
    REQUIRE(view.slices.size() == trace.events.size() + trace.kernels.size());
    check_nesting(view, [](std::int64_t ns) { return ns; });
    check_nesting(view, truncating);
    auto event = trace.events.begin();
    auto kernel = trace.kernels.begin();
    for (const ViewSlice& slice : view.slices) {
      if (slice.kernel == nullptr) REQUIRE(slice.event == &*event++);
      if (slice.kernel != nullptr) REQUIRE(slice.kernel == &*kernel++);
      const double begin_s = slice.kernel != nullptr ? slice.kernel->begin_s : slice.event->begin_s;
      const double end_s = slice.kernel != nullptr ? slice.kernel->end_s : slice.event->end_s;
      REQUIRE(std::abs(static_cast<double>(slice.begin_ns) * 1e-9 - begin_s) <= kApart_s);
      REQUIRE(std::abs(static_cast<double>(slice.end_ns) * 1e-9 - end_s) <= kApart_s + 1e-9);
    }
    for (const ViewFlow& flow : view.flows) {
      const ViewSlice& send = view.slices[flow.send];
      const ViewSlice& recv = view.slices[flow.recv];
      REQUIRE((send.begin_ns <= flow.leaves_ns && flow.leaves_ns <= send.end_ns));
      REQUIRE((recv.begin_ns <= flow.arrives_ns && flow.arrives_ns <= recv.end_ns));
      REQUIRE(truncating(flow.leaves_ns) == flow.leaves_ns);
      REQUIRE(truncating(flow.arrives_ns) == flow.arrives_ns);
      REQUIRE(flow.leaves_ns <= flow.arrives_ns);
    }
  }
}

TEST_CASE("a trace that begins before 0 is shifted as a whole, because viewers drop such times") {
  const Program program = compile(any_job(3));
  std::mt19937 random(3);
  Trace trace = drawn_trace(program, random);
  const TraceView before = view_of(trace, program, {});
  constexpr double kShift_s = 0.25;
  for (TraceEvent& event : trace.events)
    for (double* const each : {&event.free_s, &event.begin_s, &event.matched_s, &event.end_s})
      *each -= kShift_s;
  for (KernelEvent& event : trace.kernels)
    for (double* const each : {&event.begin_s, &event.end_s}) *each -= kShift_s;
  const TraceView after = view_of(trace, program, {});
  REQUIRE(after.slices.size() == before.slices.size());
  for (std::size_t i = 0; i < after.slices.size(); ++i) {
    REQUIRE(after.slices[i].begin_ns >= 0);
    REQUIRE(std::abs(after.slices[i].begin_ns - before.slices[i].begin_ns) <= 13);
  }
}

TEST_CASE("a trace is read again whatever form its file has, but for Perfetto's") {
  const Program program = compile(any_job(5));
  std::mt19937 random(5);
  const Trace trace = drawn_trace(program, random);
  const TemporaryFolder folder;
  for (const char* const name : {"t.json", "t.json.gz", "t.other"}) {
    write_trace(trace, program, folder.file(name));
    REQUIRE(read_trace(folder.file(name)) == trace);
    REQUIRE(program_hash(read_program_of_trace(folder.file(name))) == program_hash(program));
  }
  REQUIRE(is_gzip(folder.read("t.json.gz")));
  REQUIRE(*gunzip(folder.read("t.json.gz"), "", 1 << 30) == folder.read("t.json"));
  REQUIRE(!gunzip(folder.read("t.json"), "", 1 << 30));
  REQUIRE(tests::refusal_on_page([&] { gunzip(folder.read("t.json.gz"), "t.json.gz", 1000); }) ==
          tests::expected_refusal("file-too-large: a compressed file that holds more than it seems to"));
  for (const char* const name : {"t.pftrace", "t.perfetto-trace", "t.pftrace.gz"}) {
    REQUIRE(form_of_trace(name) == TraceForm::perfetto);
    REQUIRE_THROWS_AS(read_trace(folder.write(name, "x")), Refusal);
    REQUIRE_THROWS_AS(read_program_of_trace(folder.file(name)), Refusal);
  }
  for (const char* const name : {"pftrace", "t.pftrace.json", "t.json", "t.gz", "-"})
    REQUIRE(form_of_trace(name) == TraceForm::chrome);
}

TEST_CASE("a compressed trace cut short or with bytes changed is refused or read, never anything else") {
  const Program program = compile(any_job(7));
  std::mt19937 random(7);
  const TemporaryFolder folder;
  const std::string path = folder.file("t.json.gz");
  write_trace(drawn_trace(program, random), program, path);
  const std::string whole = folder.read("t.json.gz");
  int refused = 0;
  for (int i = 0; i < 50; ++i) {
    std::string bytes = whole;
    if (i % 2 == 0)
      bytes.resize(random() % whole.size());
    else
      bytes[random() % whole.size()] ^= static_cast<char>(1 + random() % 255);
    folder.write("t.json.gz", bytes);
    try {
      read_trace(path);
      read_program_of_trace(path);
    } catch (const Refusal& refusal) {
      REQUIRE(refusal.kind() == "bad-trace");
      ++refused;
    }
  }
  REQUIRE(refused > 45);
}

TEST_CASE("without protobuf Perfetto's form is refused before anything runs") {
  REQUIRE_NOTHROW(require_trace_form("run.json", ""));
  REQUIRE_NOTHROW(require_trace_form("run.pftrace", "3.21.12"));
  try {
    require_trace_form("run.pftrace", "");
    FAIL("accepted");
  } catch (const Refusal& refusal) {
    const std::string expected =
        expected_refusal("missing-part: Perfetto's form where the build has no protobuf");
    REQUIRE(as_on_page(refusal) == expected);
  }
}
