// Refusals of hw/ that no single command triggers. Their messages are in tests/refusals.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "hw/launch/hello.hpp"
#include "hw/launch/launch.hpp"
#include "hw/launch/rendezvous.hpp"
#include "hw/launch/user_secret.hpp"
#include "hw/rank/memory.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "hw/world/train.hpp"
#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/compile/compile.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"

using namespace motley;
using tests::expected_refusal;
using tests::refusal_on_page;

namespace {

void place_with(const std::map<std::string, std::string>& variables) {
  place_from([&](const char* name) {
    const auto variable = variables.find(name);
    return variable == variables.end() ? nullptr : variable->second.c_str();
  });
}

// Rank 1 connects to rank 0 with another binary or Program, or trains otherwise.
void meet(const std::string& binary, const std::string& program, const std::string& learning_rate,
          const std::string& title) {
  Socket door = listen_on({"127.0.0.1", 0});
  RendezvousOptions lead{0_rank, 2, {"127.0.0.1", door.local_port()}, -1, 30, "b0", "p0"};
  RendezvousOptions other{1_rank, 2, lead.at, -1, 30, binary, program};
  lead.alike = {{"learning_rate", "0.001"}, {"seed", "1"}};
  other.alike = {{"learning_rate", learning_rate}, {"seed", learning_rate == "0.001" ? "1" : "2"}};
  lead.listener = door.release();
  std::thread follows([&] { refusal_on_page([&] { Rendezvous{other}; }); });
  const std::string refusal = refusal_on_page([&] { Rendezvous{lead}; });
  follows.join();
  CHECK(refusal == expected_refusal(title));
}

// What rank 0 tells all ranks of a hello of rank 1 in which a field has another value.
std::string told_of_hello(const char* field, int value) {
  RendezvousOptions lead{0_rank, 2, {"127.0.0.1", 1}, -1, 30, "b0", "p0"}, other = lead;
  other.rank = 1_rank;
  nlohmann::json hello = nlohmann::json::parse(write_hello(other, 4000, "memory"));
  hello[field] = value;
  const nlohmann::json why = nlohmann::json::parse(read_hello(hello.dump(), lead).value().refused);
  return tests::as_on_page(
      Refusal(Exit::infeasible, why["kind"], {}, why["message"], why["hint"], RefusalSite{}));
}

}  // namespace

TEST_CASE("a rendezvous without a port is refused with its message") {
  CHECK(refusal_on_page([] { parse_address("10.0.0.1"); }) ==
        expected_refusal("bad-rendezvous: an address without a port"));
}

TEST_CASE("a host rank refuses tensors that are not fp32 with its message") {
  RankProgram rank_program;
  rank_program.tensors.add();
  rank_program.tensors.front().name = "layers.0.qkv.weight";
  rank_program.tensors.front().format = Format::bf16;
  CHECK(refusal_on_page([&] { Memory{rank_program}; }) ==
        expected_refusal("host-precision: a bf16 tensor on a host rank"));
}

TEST_CASE("a host rank refuses what only the simulation does with its messages") {
  const auto refused = [](TensorRole role, const char* name, std::vector<std::int64_t> shape,
                          std::int64_t bytes) {
    RankProgram rank_program;
    for (const char* each : {name, "layers.0.qkv.weight"}) {
      Tensor& tensor = rank_program.tensors[rank_program.tensors.add()];
      tensor.name = each;
      tensor.role = each == name ? role : TensorRole::parameter;
      tensor.shape = each == name ? shape : std::vector<std::int64_t>{96, 32};
      tensor.bytes = each == name ? bytes : 4 * 96 * 32;
    }
    return refusal_on_page([&] { Memory{rank_program}; });
  };
  CHECK(refused(TensorRole::optimizer, "layers.0.fc1.weight.optimizer", {1, 8, 4}, 128) ==
        expected_refusal("host-optimizer: an optimizer that host ranks do not step with"));
  CHECK(refused(TensorRole::optimizer, "layers.0.fc1.weight.optimizer", {2, 8, 4}, 64) ==
        expected_refusal("host-optimizer: an optimizer that host ranks do not step with"));
  CHECK(refused(TensorRole::parameter, "layers.0.fc1.weight", {8, 4}, 21) ==
        expected_refusal("host-precision: a frozen weight in NF4 on a host rank"));
  CHECK(refused(TensorRole::parameter, "layers.0.qkv.b.weight", {64, 4}, 4 * 64 * 4) ==
        expected_refusal("host-adapters: adapters of a part of a fused layer on a host rank"));
}

TEST_CASE("a host rank refuses matmuls of narrow operands with its message") {
  RankProgram rank_program;
  rank_program.blocks.add();
  rank_program.blocks.front().kernels.emplace_back();
  rank_program.blocks.front().kernels[0].format = Format::fp8;
  CHECK(refusal_on_page([&] { Memory{rank_program}; }) ==
        expected_refusal("host-precision: fp8 matmuls on a host rank"));
}

TEST_CASE("a host rank refuses a model that is simulated only with its message") {
  Transformer transformer;
  transformer.name = "gpt-oss-20b";
  transformer.attention_sinks = true;
  CHECK(refusal_on_page([&] { refuse_simulated_only(transformer); }) ==
        expected_refusal("simulated-only: attention sinks on real ranks"));
}

TEST_CASE("a launch of no ranks or of no command is refused with its message") {
  CHECK(refusal_on_page([] { launch({.rank_count = 0, .command = {"true"}}); }) ==
        expected_refusal("bad-rank-count: no ranks at all"));
  CHECK(refusal_on_page([] { launch({.rank_count = 2, .command = {}}); }) ==
        expected_refusal("cannot-run: no command to start"));
}

TEST_CASE("ranks that the environment does not tell are refused with their messages") {
  CHECK(refusal_on_page([] {
          place_with({{"RANK", "x"}, {"WORLD_SIZE", "2"}});
        }) == expected_refusal("bad-rank: a letter for a rank"));
  CHECK(refusal_on_page([] {
          place_with({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
        }) == expected_refusal("bad-rank: a rank that is none of two"));
  CHECK(refusal_on_page([] {
          place_with({{"MOTLEY_RANK", "0"}, {"MOTLEY_RANK_COUNT", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
        }) == expected_refusal("rank-conflict: two variables that disagree"));
  const std::map<std::string, std::string> far = {
      {"MOTLEY_RANK", "0"}, {"MOTLEY_RANK_COUNT", "2"}, {"MOTLEY_RENDEZVOUS", "10.0.0.1:29500"}};
  CHECK(refusal_on_page([&] { place_with(far); }) ==
        expected_refusal("no-job-token: ranks of two hosts without a token"));
  CHECK(refusal_on_page([&] {
          auto variables = far;
          variables["MOTLEY_JOB_TOKEN_FILE"] = "/dev/null";
          place_with(variables);
        }) == expected_refusal("no-job-token: an empty file"));
  CHECK(refusal_on_page([] { secret_of_user("/nowhere"); }) ==
        expected_refusal("no-job-token: a folder that is not there"));
  CHECK(refusal_on_page([] {
          place_with({{"MOTLEY_RANK", "0"}, {"MOTLEY_RANK_COUNT", "2"}});
        }) == expected_refusal("bad-rendezvous: ranks that do not know where they meet"));
}

TEST_CASE("a file that keeps no secret of this user is refused with its message") {
  const TemporaryFolder folder;
  const std::string name = "motley-secret-" + std::to_string(geteuid());
  const auto refused = [&](mode_t mode, const std::string& text) {
    const std::string path = folder.write(name, text);
    REQUIRE(chmod(path.c_str(), mode) == 0);
    std::string told = refusal_on_page([&] { secret_of_user(folder.path()); });
    for (const auto& [from, to] :
         {std::pair{folder.path(), std::string("/run")}, {name, "motley-secret-1000"}})
      for (std::size_t at = 0; (at = told.find(from)) != std::string::npos;)
        told.replace(at, from.size(), to);
    return told;
  };
  CHECK(refused(0644, std::string(32, 'a')) ==
        expected_refusal("no-job-token: a secret that others can read"));
  CHECK(refused(0600, "short") == expected_refusal("no-job-token: a secret that is cut off"));
}

TEST_CASE("more or fewer ranks than the strategy has are refused with their message") {
  const Job job = tests::tiny_job({1, 2, 1});
  const Program program = compile(job);
  const Text text(std::string(1000, 'a'));
  CHECK(refusal_on_page([&] {
          train_rank(job, program, text, {0_rank, 3, {}, -1}, {});
        }) == expected_refusal("rank-count: more ranks than the strategy has"));
}

TEST_CASE("text that cannot be trained on is refused with its message") {
  Job job = tests::tiny_job({1, 1, 1});
  CHECK(refusal_on_page([&] { Text("Let me not ").suits(job.transformer, job.train); }) ==
        expected_refusal("short-text: a text shorter than a sequence"));
  CHECK(refusal_on_page([] { Text::load("no-such-file"); }) ==
        expected_refusal("unreadable-text: a file that is not there"));
  job.transformer.vocabulary = 255;
  CHECK(refusal_on_page([&] { Text("Let me not ").suits(job.transformer, job.train); }) ==
        expected_refusal("text-vocabulary: fewer words than bytes"));
}

TEST_CASE("ranks of another binary or Program, or that train otherwise, are refused with their messages") {
  meet("b1", "p0", "0.001", "binary-differs: two builds");
  meet("b0", "p1", "0.001", "program-differs: two Programs");
  meet("b0", "p0", "0.002", "run-differs: another learning rate and another seed");
  CHECK(told_of_hello("protocol", 99) == expected_refusal("binary-differs: another protocol"));
  CHECK(told_of_hello("rank_count", 3) == expected_refusal("rank-conflict: another count of ranks"));
}

TEST_CASE("a rank that is not one of the job's is refused with its message, on rank 0, too") {
  Socket door = listen_on({"127.0.0.1", 0});
  RendezvousOptions lead{0_rank, 2, {"127.0.0.1", door.local_port()}, -1, 30, "b0", "p0"};
  const RendezvousOptions other{5_rank, 2, lead.at, -1, 30, "b0", "p0"};
  lead.listener = door.release();
  std::string told;
  std::thread follows([&] { told = refusal_on_page([&] { Rendezvous{other}; }); });
  const std::string refusal = refusal_on_page([&] { Rendezvous{lead}; });
  follows.join();
  CHECK(refusal == expected_refusal("rank-conflict: a rank past the last"));
  CHECK(told == refusal);
}
