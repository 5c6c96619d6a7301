// Refusals of hw/ that no single command triggers; their messages stand in tests/refusals.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "hw/launch.hpp"
#include "hw/memory.hpp"
#include "hw/rendezvous.hpp"
#include "hw/train.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "models/refusal.hpp"
#include "tests/models/tiny_job.hpp"

using namespace motley;

namespace {

// What `act` is refused with, as expected.txt holds it.
template <typename Act>
std::string said(Act act) {
  try {
    act();
  } catch (const Refusal& refusal) {
    return std::string(refusal.what()) + "\nexit " + std::to_string(static_cast<int>(refusal.exit_code())) +
           "\n";
  }
  return "was not refused";
}

std::string expected(const std::string& kind) {
  std::ifstream file(std::string(MOTLEY_SOURCE_DIR) + "/tests/refusals/" + kind + "/expected.txt");
  return {std::istreambuf_iterator<char>(file), {}};
}

void place_with(const std::map<std::string, std::string>& variables) {
  place_from([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// Rank 1 comes to rank 0 with this binary and Program.
void meet(const std::string& binary, const std::string& of_program) {
  Socket door = listen_on({"127.0.0.1", 0});
  RendezvousOptions lead{0, 2, {"127.0.0.1", door.local_port()}, -1, 30, "b0", "p0"};
  const RendezvousOptions other{1, 2, lead.at, -1, 30, binary, of_program};
  lead.listener = door.release();
  std::thread follows([&] { said([&] { Rendezvous{other}; }); });
  const std::string mine = said([&] { Rendezvous{lead}; });
  follows.join();
  CHECK(mine == expected(binary == "b0" ? "program-differs" : "binary-differs"));
}

}  // namespace

TEST_CASE("a rendezvous without a port is refused with its message") {
  CHECK(said([] { parse_address("10.0.0.1"); }) == expected("bad-rendezvous"));
}

TEST_CASE("a host rank refuses tensors that are not fp32 with its message") {
  ProgramClass of_class;
  of_class.tensors.emplace_back();
  of_class.tensors[0].name = "layers.0.qkv.weight";
  of_class.tensors[0].format = Format::bf16;
  CHECK(said([&] { Memory{of_class}; }) == expected("host-precision"));
}

TEST_CASE("a host rank refuses matmuls of narrow operands with its message") {
  ProgramClass of_class;
  of_class.blocks.emplace_back();
  of_class.blocks[0].kernels.emplace_back();
  of_class.blocks[0].kernels[0].format = Format::fp8;
  CHECK(said([&] { Memory{of_class}; }) == expected("host-precision-matmuls"));
}

TEST_CASE("a launch of no ranks or of no command is refused with its message") {
  CHECK(said([] { launch({.rank_count = 0, .command = {"true"}}); }) == expected("bad-rank-count"));
  CHECK(said([] { launch({.rank_count = 2, .command = {}}); }) == expected("cannot-run"));
}

TEST_CASE("ranks that the environment does not tell are refused with their messages") {
  CHECK(said([] { place_with({{"RANK", "x"}, {"WORLD_SIZE", "2"}}); }) == expected("bad-rank"));
  CHECK(said([] {
          place_with({{"MOTLEY_RANK", "0"}, {"MOTLEY_RANK_COUNT", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
        }) == expected("rank-conflict"));
}

TEST_CASE("more or fewer ranks than the strategy has are refused with their message") {
  const Job job = tests::tiny_job({1, 2, 1});
  const Program program = compile(job);
  const Text text(std::string(1000, 'a'));
  CHECK(said([&] { train_rank(job, program, text, {0, 3, {}, -1}, {}); }) == expected("rank-count"));
}

TEST_CASE("text that cannot be trained on is refused with its message") {
  Job job = tests::tiny_job({1, 1, 1});
  CHECK(said([&] { Text("Let me not ").suits(job.transformer, job.train); }) == expected("short-text"));
  CHECK(said([] { Text::load("no-such-file"); }) == expected("unreadable-text"));
  job.transformer.vocabulary = 255;
  CHECK(said([&] { Text("Let me not ").suits(job.transformer, job.train); }) == expected("text-vocabulary"));
}

TEST_CASE("ranks of another binary or Program are refused with their messages") {
  meet("b1", "p0");
  meet("b0", "p1");
}
