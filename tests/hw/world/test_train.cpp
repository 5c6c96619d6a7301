// Real training on one and on several ranks of this host: the loss falls, the work done is the work that the Program
// predicts, and ranks that do not belong together are refused.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <thread>

#include "hw/launch/rendezvous.hpp"
#include "hw/transport/wire.hpp"
#include "hw/world/train.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/tiny_job.hpp"
#include "tests/support/tiny_text.hpp"

using namespace motley;

namespace {

std::string refused(const std::function<void()>& act) {
  try {
    act();
  } catch (const Refusal& refusal) {
    return refusal.kind() + ": " + refusal.what();
  }
  return "";
}

}  // namespace

TEST_CASE("one rank learns a small text") {
  for (Family family : {Family::gpt2, Family::llama}) {
    Job job = tests::tiny_job({1, 1, 1}, family);
    const auto result = train_in_process(job, compile(job), tests::tiny_text(), {.steps = 25});
    REQUIRE(result.losses.size() == 25);
    REQUIRE(result.losses.front() == Approx(std::log(256.0)).margin(0.1));
    REQUIRE(result.losses.back() < 4.5);
    REQUIRE(result.tokens_per_s > 0);
  }
}

TEST_CASE("the fast kernels train as the reference kernels do") {
  Job job = tests::tiny_job({1, 1, 1});
  const Program program = compile(job);
  const auto reference =
      train_in_process(job, program, tests::tiny_text(), {.steps = 10, .library = KernelLibrary::reference});
  const auto fast = train_in_process(job, program, tests::tiny_text(), {.steps = 10});
  REQUIRE(reference.losses.size() == 10);
  REQUIRE(fast.losses.size() == 10);
  for (std::size_t i = 0; i < 10; ++i) REQUIRE(fast.losses[i] == Approx(reference.losses[i]).margin(1e-5));
}

TEST_CASE(
    "forwards and backwards side by side, with exchanges on a thread of their own, train as one after the "
    "other",
    "[slow]") {
  int tried = 0;
  for (Job& job : tests::every_overlapped_expert_job(tests::tiny_variant("mixtral"))) {
    if (tests::kSanitized && tried++ % 2 == 1) continue;
    const auto beside = train_in_process(job, compile(job), tests::tiny_text(), {.steps = 3});
    job.strategy.overlap_experts = false;
    const auto in_turn = train_in_process(job, compile(job), tests::tiny_text(), {.steps = 3});
    CAPTURE(print(job.strategy));
    REQUIRE(beside.losses.size() == 3);
    REQUIRE(in_turn.losses.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) REQUIRE(beside.losses[i] == Approx(in_turn.losses[i]).margin(1e-6));
  }
}

TEST_CASE(
    "a real trace has every instruction once, with the flops, bytes and allocations the Program foretold") {
  Job job = tests::tiny_job({2, 2, 1});
  job.fidelity.tensor_parallel = CollectiveLevel::fluid;
  const Program program = compile(job);
  const auto result = train_in_process(job, program, tests::tiny_text(), {.steps = 2, .trace_step = 1});
  std::size_t next = 0;
  for (Rank rank : program.ranks.ids()) {
    const auto& streams = program.program_of(rank).streams;
    for (StreamId stream : streams.ids()) {
      double free_s = 0;
      for (std::size_t index = 0; index < streams[stream].instructions.size(); ++index) {
        const Instruction& foretold = streams[stream].instructions[index];
        const TraceEvent& event = result.trace.events.at(next++);
        INFO(describe(program, rank, stream, static_cast<int>(index)));
        REQUIRE(event.step == Step{rank, stream, static_cast<std::int32_t>(index)});
        REQUIRE(event.flops == foretold.flops);
        REQUIRE(event.bytes == payload_bytes(foretold));
        REQUIRE(event.allocated == foretold.allocated);
        REQUIRE(event.freed == foretold.freed);
        REQUIRE(event.peak == foretold.peak);
        REQUIRE(event.free_s >= free_s);
        REQUIRE(event.begin_s >= event.free_s);
        REQUIRE(event.matched_s >= event.begin_s);
        REQUIRE(event.end_s >= event.matched_s);
        free_s = event.end_s;
      }
    }
  }
  REQUIRE(next == result.trace.events.size());
  REQUIRE(result.peak_bytes.size() == 4);
  for (std::int64_t peak : result.peak_bytes) REQUIRE(peak > program.rank_programs.front().static_bytes / 2);
}

TEST_CASE("a rank that fails ends the others, and its own message is the one that is told") {
  Job job = tests::tiny_job({1, 2, 1});
  const Program program = compile(job);
  TrainOptions options{.steps = 3};
  options.on_start = [](Rank rank, RankWork&) {
    if (rank == 1_rank) throw RunFailure("rank 1 broke");
  };
  REQUIRE_THROWS_WITH(train_in_process(job, program, tests::tiny_text(), options), "rank 1 broke");
}

TEST_CASE(
    "ranks with another binary, another Program, another count or a taken rank are refused on every side") {
  const auto meet = [](int rank, int rank_count, const char* binary, const char* of_program) {
    Socket door = listen_on({"127.0.0.1", 0});
    RendezvousOptions lead{0_rank, 2, {"127.0.0.1", door.local_port()}, -1, 30, "b0", "p0"};
    const RendezvousOptions other{Rank(rank), rank_count, lead.at, -1, 30, binary, of_program};
    lead.listener = door.release();
    std::string theirs;
    std::thread follows([&] { theirs = refused([&] { Rendezvous{other}; }); });
    const std::string mine = refused([&] { Rendezvous{lead}; });
    follows.join();
    REQUIRE(mine == theirs);
    return mine;
  };
  REQUIRE(meet(1, 2, "b0", "p0").empty());
  REQUIRE_THAT(meet(1, 2, "b1", "p0"),
               Catch::StartsWith("binary-differs: rank 1 has binary b1, rank 0 has b0"));
  REQUIRE_THAT(meet(1, 2, "b0", "p1"),
               Catch::StartsWith("program-differs: rank 1 has Program p1, rank 0 has p0"));
  REQUIRE_THAT(meet(1, 3, "b0", "p0"), Catch::StartsWith("rank-conflict: rank 1 has a rank count of 3"));
  REQUIRE_THAT(meet(2, 2, "b0", "p0"), Catch::StartsWith("rank-conflict: rank 2 of 2 came twice or is none"));
}

TEST_CASE("a stranger at the rendezvous is left alone, and who is missing is named") {
  Socket door = listen_on({"127.0.0.1", 0});
  const Address at{"127.0.0.1", door.local_port()};
  const Socket stranger = connect_to(at, 10);
  stranger.write_all(std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n", 18)), 10);
  REQUIRE_THROWS_WITH((Rendezvous({0_rank, 3, at, door.release(), 0.3, "b", "p"})),
                      Catch::Contains("rank 1, 2 did not come"));
}

TEST_CASE("strangers at the rendezvous, and one of the job who says nothing, keep no rank waiting") {
  Socket door = listen_on({"127.0.0.1", 0});
  const Address at{"127.0.0.1", door.local_port()};
  const JobToken token("secret");
  std::vector<Socket> strangers;
  for (int i = 0; i < 30; ++i) strangers.push_back(connect_to(at, 10));  // they stay, and say nothing
  for (int i = 0; i < 30; ++i) connect_to(at, 10);                       // they look who listens, and go
  const Socket slow = connect_to(at, 10), endless = connect_to(at, 10);
  std::string notes;
  RendezvousOptions lead{0_rank, 3, at, door.release(), 60, "b", "p", token};
  lead.on_note = [&](const std::string& what) { notes += what + "\n"; };
  std::atomic<bool> met = false;
  std::string refusal;
  std::thread trickles([&] {  // a byte now and then, for as long as the ranks have not met
    try {
      for (; !met; std::this_thread::sleep_for(std::chrono::milliseconds(100)))
        endless.write_all(std::as_bytes(std::span("m", 1)), 10);
    } catch (const SocketFailure&) {  // turned away, as it says nothing that a rank would
    }
  });
  std::thread others([&] {
    slow.write_all(std::as_bytes(std::span("m", 1)), 10);
    try {
      dial(at, JobToken("guessed"), {ConnectionPurpose::rendezvous, 1_rank, 0_rank, 0}, 10);
    } catch (const SocketFailure& failure) {
      refusal = failure.what();
    }
    const Socket silent = dial(at, token, {ConnectionPurpose::rendezvous, 1_rank, 0_rank, 0}, 10);
    std::vector<std::thread> ranks;
    for (const Rank rank : {1_rank, 2_rank})
      ranks.emplace_back([&, rank] {
        const Rendezvous meeting({rank, 3, at, -1, 60, "b", "p", token});
        met = meeting.places().size() == 3;
      });
    for (std::thread& each : ranks) each.join();
  });
  // Each of them would be given five seconds: the ranks do not wait for one after the other.
  const Rendezvous meeting(lead);
  others.join();
  trickles.join();
  CHECK(met);
  CHECK_THAT(refusal, Catch::Contains("does not have the token"));
  CHECK_THAT(notes, Catch::Contains("it does not have the token of the job"));
}

TEST_CASE("who plays rank 0, has the token and says nonsense is found out") {
  const JobToken token("secret");
  for (const std::string& answer_text :
       {std::string("no JSON"), std::string(R"({"places": []})"), std::string(R"({"refused": {"kind": 7}})"),
        std::string(R"({"places": [["a", 1, ""], ["a", -5, ""]]})")}) {
    Socket listener = listen_on({"127.0.0.1", 0});
    const Address at{"127.0.0.1", listener.local_port()};
    std::string told;
    std::thread follows([&] {
      try {
        RendezvousOptions options{1_rank, 2, at, -1, 30, "b", "p", token};
        options.silence_s = 30;
        const Rendezvous meeting(options);
      } catch (const RunFailure& failure) {
        told = failure.what();
      } catch (const std::exception& bug) {
        told = std::string("internal: ") + bug.what();
      }
    });
    Door door(std::move(listener), token, nullptr);
    std::vector<Door::Guest> guests;
    while (guests.empty()) guests = door.admit();
    WireWriter answer;
    answer.add(std::uint8_t{0});
    answer.add(static_cast<std::uint32_t>(answer_text.size()));
    answer.add(std::as_bytes(std::span(answer_text)));
    guests[0].socket.write_all(answer.bytes(), 10);
    follows.join();
    CHECK_THAT(told, Catch::Contains("says nothing that rank 0 would"));
  }
}

TEST_CASE("a number that is too large for a rank is not taken for another rank") {
  Socket door = listen_on({"127.0.0.1", 0});
  const Address at{"127.0.0.1", door.local_port()};
  std::thread other([&] {
    const Socket socket = dial(at, JobToken(), {ConnectionPurpose::rendezvous, 1_rank, 0_rank, 0}, 10);
    // 2^32 + 1: its lowest 32 bits name rank 1.
    const std::string hello =
        R"({"protocol": 3, "rank": 4294967297, "rank_count": 2, "binary": "b", "program": "p", "port": 1,)"
        R"( "memory": ""})";
    WireWriter message;
    message.add(static_cast<std::uint32_t>(hello.size()));
    message.add(std::as_bytes(std::span(hello)));
    socket.write_all(message.bytes(), 10);
    std::byte answer{};
    try {
      socket.read_all(std::span(&answer, 1), 10);
    } catch (const SocketFailure&) {
    }
  });
  const std::string told = refused([&] { Rendezvous({0_rank, 2, at, door.release(), 30, "b", "p"}); });
  other.join();
  REQUIRE_THAT(told, Catch::Contains("rank 4294967297 of 2 came twice or is none"));
}

TEST_CASE(
    "an interrupt ends all ranks after the same step, with the losses until then and a traced last step") {
  Job job = tests::tiny_job({1, 2, 2});
  const Program program = compile(job);
  const auto whole = train_in_process(job, program, tests::tiny_text(), {.steps = 8});
  for (const Rank one : program.ranks.ids()) {
    for (const bool traces : {false, true}) {
      std::atomic<int> asked = 0;
      TrainOptions options{.steps = 1000, .trace_step = traces ? 999 : -1};
      thread_local Rank mine{0};
      options.on_start = [](Rank rank, RankWork&) { mine = rank; };
      // Only one of the ranks is interrupted, after its third step.
      thread_local int ended = 0;
      options.is_interrupted = [&] {
        ++asked;
        return mine == one && ++ended == 3;
      };
      const auto result = train_in_process(job, program, tests::tiny_text(), options);
      REQUIRE(result.losses.size() == (traces ? 5U : 4U));
      CHECK(asked == static_cast<int>(result.losses.size()) * program.rank_count());
      for (std::size_t i = 0; i < result.losses.size(); ++i)
        CHECK(result.losses[i] == Approx(whole.losses[i]).margin(1e-6));
      CHECK(result.trace.events.empty() != traces);
      CHECK(result.step_s.size() == result.losses.size());
    }
  }
}

TEST_CASE("text that cannot be trained on is refused") {
  Job job = tests::tiny_job({1, 1, 1});
  const Program program = compile(job);
  REQUIRE_THAT(refused([&] { train_in_process(job, program, Text("too short"), {}); }),
               Catch::StartsWith("short-text"));
  REQUIRE_THAT(refused([&] { Text::load("no-such-file"); }),
               Catch::StartsWith("unreadable-text: no-such-file"));
  job.transformer.vocabulary = 100;
  REQUIRE_THAT(refused([&] { train_in_process(job, program, tests::tiny_text(), {}); }),
               Catch::StartsWith("text-vocabulary"));
}
