// The trace file: reading is the exact inverse of writing, viewers can show it, writing twice gives the same bytes, and
// other files are refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/timed_trace.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using namespace motley::tests;
using nlohmann::json;

namespace {

// A file of this test, which the destructor removes.
struct ScratchFile {
  TemporaryFolder folder;
  std::string path = folder.write("trace.json", "");
  std::string read() const { return folder.read("trace.json"); }
  void write(const std::string& text) const { folder.write("trace.json", text); }
};

Job pipeline_job() {
  Job job = tiny_job({2, 2, 1});
  job.fidelity.tensor_parallel = CollectiveLevel::fluid;
  return job;
}

// Every second kernel of each compute, with times that no rounding leaves alone.
std::vector<KernelEvent> kernels_of(const Program& program, const Trace& trace) {
  std::vector<KernelEvent> kernels;
  for (const TraceEvent& event : trace.events) {
    const auto* compute = program.at(event.step.rank, event.step.stream, event.step.index).as<Compute>();
    if (compute == nullptr) continue;
    const double length_s = (event.end_s - event.begin_s) / (compute->last_kernel - compute->first_kernel);
    double begin_s = event.begin_s;
    for (std::int32_t i = compute->first_kernel; i < compute->last_kernel; i += 2) {
      const double end_s = std::min(begin_s + length_s / 3 * 2, event.end_s);
      kernels.push_back({event.step, i, begin_s, end_s, 1e9 / (i + 3), i % 3});
      begin_s = std::min(begin_s + 2 * length_s, event.end_s);
    }
  }
  return kernels;
}

std::int64_t ns(const json& microseconds) { return std::llround(microseconds.get<double>() * 1e3); }

Refusal refusal_of(const std::string& text) {
  const ScratchFile file;
  file.write(text);
  try {
    read_trace(file.path);
  } catch (const Refusal& refusal) {
    REQUIRE(refusal.where().file == file.path);
    return refusal;
  }
  FAIL("accepted: " << text);
  throw std::logic_error("unreachable");
}

}  // namespace

TEST_CASE("a trace written and read is the same trace, for every small strategy", "[slow]") {
  for (Family family : {Family::gpt2, Family::llama})
    for (const Job& job : every_small_job(family)) {
      const Program program = compile(job);
      Trace trace = timed_trace(program);
      trace.measured_ranks = {0_rank};
      trace.measured_for_class = job.strategy.overlap_p2p;
      trace.measured_transfers = !job.strategy.overlap_p2p;
      trace.period_s = 0.1 + 0.7;
      trace.clock_uncertainty_s = 0.1 * 3e-5;
      trace.events[0].free_s = 0.1 + 0.2;
      trace.events[0].begin_s = std::nextafter(0.3, 1);
      trace.events[0].matched_s = 1e-300;
      trace.events[0].waited_rank = 0_rank;
      trace.events[0].paths.add(TransferPath::verbs);
      trace.events[0].paths.add(TransferPath::tcp);
      trace.events[0].end_s = std::max(trace.events[0].end_s, 0.4);
      trace.kernels = kernels_of(program, trace);
      const ScratchFile file;
      write_trace(trace, program, file.path);
      REQUIRE(read_trace(file.path) == trace);
    }
}

TEST_CASE("the same trace is written as the same bytes") {
  const Program program = compile(pipeline_job());
  const ScratchFile first, second;
  write_trace(timed_trace(program), program, first.path);
  write_trace(timed_trace(program), program, second.path);
  REQUIRE(first.read() == second.read());
}

TEST_CASE("slices of a track never overlap and have the names of their ranks and streams") {
  const Program program = compile(pipeline_job());
  const Trace trace = timed_trace(program);
  const ScratchFile file;
  write_trace(trace, program, file.path);
  const json written = json::parse(file.read());
  std::map<std::pair<int, int>, std::int64_t> track_end;
  std::set<std::pair<int, int>> named;
  std::size_t slices = 0;
  for (const json& event : written["traceEvents"]) {
    const std::pair<int, int> track{event["pid"], event.value("tid", -1)};
    if (event["ph"] == "M" && event["name"] == "thread_name") named.insert(track);
    if (event["ph"] != "X") continue;
    ++slices;
    REQUIRE(named.count(track) == 1);
    REQUIRE(ns(event["ts"]) >= track_end[track]);
    track_end[track] = ns(event["ts"]) + ns(event["dur"]);
  }
  REQUIRE(slices == trace.events.size());
}

TEST_CASE("slices of kernels lie inside those of their computes, and say their shape") {
  const Program program = compile(pipeline_job());
  Trace trace = timed_trace(program);
  trace.kernels = kernels_of(program, trace);
  const ScratchFile file;
  write_trace(trace, program, file.path, {1_rank});
  const json written = json::parse(file.read());
  std::map<int, json> computes;  // by the instruction's index
  std::size_t kernels = 0;
  for (const json& event : written["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == "compute") computes[event["args"]["index"]] = event;
  for (const json& event : written["traceEvents"]) {
    if (event["ph"] != "X" || event["cat"] != "kernel") continue;
    const json& args = event["args"];
    const json& compute = computes.at(args["index"]);
    REQUIRE(event["pid"] == 1);
    REQUIRE(event["tid"] == compute["tid"]);
    REQUIRE(ns(event["ts"]) >= ns(compute["ts"]));
    REQUIRE(ns(event["ts"]) + ns(event["dur"]) <= ns(compute["ts"]) + ns(compute["dur"]));
    const Kernel& kernel = *find_kernel(program, {1_rank, kComputeStream, args["index"]}, args["kernel"]);
    REQUIRE(event["name"] == name_of(kernel.op));
    REQUIRE(args["shape"] == json({kernel.m, kernel.n, kernel.k}));
    REQUIRE(args["format"] == "fp32");
    ++kernels;
  }
  REQUIRE(kernels > 10);
  for (const KernelEvent& event : read_trace(file.path).kernels) REQUIRE(event.step.rank == 1_rank);
}

TEST_CASE("every matched pair has one flow that leaves inside the send and arrives inside the recv") {
  const Program program = compile(pipeline_job());
  const Trace trace = timed_trace(program);
  const ScratchFile file;
  write_trace(trace, program, file.path);
  const json written = json::parse(file.read());
  const auto slice_at = [&](const json& flow, const std::string& name) {
    for (const json& event : written["traceEvents"])
      if (event["ph"] == "X" && event["pid"] == flow["pid"] && event["tid"] == flow["tid"] &&
          ns(event["ts"]) <= ns(flow["ts"]) && ns(flow["ts"]) < ns(event["ts"]) + ns(event["dur"]))
        return event["name"].get<std::string>().rfind(name, 0) == 0 ? event["args"] : json();
    return json();
  };
  std::map<std::int64_t, std::pair<json, json>> flows;
  for (const json& event : written["traceEvents"]) {
    if (event["ph"] == "s") flows[event["id"]].first = event;
    if (event["ph"] == "f") flows[event["id"]].second = event;
    if (event["ph"] == "f") REQUIRE(event["bp"] == "e");
  }
  std::size_t sends = 0;
  for (const TraceEvent& event : trace.events)
    sends += program.at(event.step.rank, event.step.stream, event.step.index).op() == Op::send;
  REQUIRE(flows.size() == sends);
  REQUIRE(flows.begin()->first == 1);  // they are counted
  REQUIRE(flows.rbegin()->first == static_cast<std::int64_t>(sends));
  for (const auto& [id, flow] : flows) {
    const json send = slice_at(flow.first, "send"), recv = slice_at(flow.second, "recv");
    REQUIRE(send["bytes"] == recv["bytes"]);
    REQUIRE(send["end_s"] == recv["end_s"]);
    REQUIRE(ns(flow.first["ts"]) <= ns(flow.second["ts"]));
  }
}

TEST_CASE("the memory counter never falls below what a rank holds throughout, and ends there") {
  const Program program = compile(pipeline_job());
  const ScratchFile file;
  write_trace(timed_trace(program), program, file.path);
  std::map<Rank, std::vector<std::int64_t>> counters;
  const json written = json::parse(file.read());
  for (const json& event : written["traceEvents"])
    if (event["ph"] == "C") counters[Rank(event["pid"].get<int>())].push_back(event["args"]["bytes"]);
  REQUIRE(counters.size() == static_cast<std::size_t>(program.rank_count()));
  for (const auto& [rank, values] : counters) {
    const std::int64_t held = program.program_of(rank).static_bytes;
    REQUIRE(values.back() == held);
    REQUIRE(*std::max_element(values.begin(), values.end()) > held);
    REQUIRE(*std::min_element(values.begin(), values.end()) == held);
  }
}

TEST_CASE("only the ranks asked for are written, and no flow leads out of them") {
  const Program program = compile(pipeline_job());
  const ScratchFile file;
  write_trace(timed_trace(program), program, file.path, {1_rank});
  const json written = json::parse(file.read());
  for (const json& event : written["traceEvents"]) {
    REQUIRE(event["pid"] == 1);
    REQUIRE(event["ph"] != "s");
    REQUIRE(event["ph"] != "f");
  }
  for (const TraceEvent& event : read_trace(file.path).events) REQUIRE(event.step.rank == 1_rank);
}

TEST_CASE("a file that is no trace is refused at its line and column") {
  const Refusal broken = refusal_of("{\"motley\":{},\n\"traceEvents\":[{\"ph\" \"X\"}]}");
  REQUIRE(broken.kind() == "bad-trace");
  REQUIRE(broken.where().line == 2);
  REQUIRE(broken.where().column > 15);
  REQUIRE(refusal_of("").kind() == "bad-trace");
  REQUIRE(refusal_of("[]").message() == "a list where the trace's object belongs");
  REQUIRE(refusal_of("{\"traceEvents\":[]}").message() ==
          "no \"motley\" at the top level: not a trace that motley wrote");
  REQUIRE(refusal_of("{\"motley\":{}}").message() == "no \"traceEvents\" at the top level");
  REQUIRE(refusal_of("{\"motley\":{\"schema\":\"motley.trace/9\"}}").message() ==
          "schema `motley.trace/9`, this motley reads motley.trace/1");
  REQUIRE_THROWS_AS(read_trace("/no/such/file"), Refusal);
}

TEST_CASE("an event that says too little or the impossible is refused") {
  const auto event = [](const std::string& rest) {
    return "{\"motley\":{},\"traceEvents\":[\n{\"ph\":\"X\",\"pid\":0,\"tid\":0" + rest + "}]}";
  };
  const std::string times = "\"free_s\":0,\"begin_s\":1,\"matched_s\":1,";
  const std::string whole = ",\"args\":{\"index\":0," + times + "\"end_s\":2}";
  REQUIRE(refusal_of(event("")).message() == "this event lacks args.index");
  REQUIRE(refusal_of(event("")).where().line == 2);
  REQUIRE(refusal_of(event(",\"args\":{\"index\":0," + times + "\"end_s\":0.5}")).message() ==
          "rank 0 stream 0 index 0 ends before it begins");
  REQUIRE(refusal_of(event(",\"args\":{\"index\":\"0\"}")).message() == "`0` where a number belongs");
  REQUIRE(refusal_of(event(",\"args\":{\"index\":0.5}")).message() == "0.5 where a whole number belongs");
  REQUIRE(refusal_of(event(",\"args\":{\"waited_for\":[1,2]}")).message() ==
          "waited_for is [rank, stream, index]");
  REQUIRE(refusal_of(event(",\"args\":{\"waited\":\"long\"}")).message() ==
          "waited `long`: known: step, peer");
  REQUIRE(refusal_of(event(whole + "},{\"ph\":\"X\",\"pid\":0,\"tid\":0" + whole)).message() ==
          "two events of rank 0 stream 0 index 0");
  const std::string kernel = ",\"args\":{\"index\":0,\"kernel\":3,\"begin_s\":1,\"end_s\":2}";
  REQUIRE(refusal_of(event(kernel + "},{\"ph\":\"X\",\"pid\":0,\"tid\":0" + kernel)).message() ==
          "two events of kernel 3 of rank 0 stream 0 index 0");
  REQUIRE(refusal_of(event(",\"args\":{\"index\":0,\"kernel\":3,\"begin_s\":1}")).message() ==
          "this kernel lacks args.end_s");
  REQUIRE(refusal_of(event(",\"args\":{\"index\":0,\"kernel\":3,\"begin_s\":2,\"end_s\":1}")).message() ==
          "kernel 3 of rank 0 stream 0 index 0 ends before it begins");
  REQUIRE(refusal_of(event(",\"pid\":99999999999")).message() == "99999999999 is out of range");
}

TEST_CASE("a trace cut short or with bytes changed is read or refused, never anything else") {
  const Program program = compile(tiny_job({1, 2, 1}));
  const ScratchFile file;
  Trace trace = timed_trace(program);
  trace.kernels = kernels_of(program, trace);
  write_trace(trace, program, file.path);
  const std::string whole = file.read();
  std::minstd_rand random(7);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string text = whole;
    if (i % 2 == 0)
      text.resize(random() % whole.size());
    else
      for (int j = 0; j < 3; ++j) text[random() % whole.size()] = "0123456789-.,:[]{}\"eX"[random() % 21];
    file.write(text);
    try {
      read_trace(file.path);
    } catch (const Refusal& refusal) {
      REQUIRE(refusal.kind() == "bad-trace");
      REQUIRE(refusal.where().line > 0);
      ++refused;
    }
  }
  REQUIRE(refused > 200);
  REQUIRE(
      refusal_of("{\"motley\":{},\"traceEvents\":[{\"pid\":1e999}]}").message().rfind("number overflow", 0) ==
      0);
}
