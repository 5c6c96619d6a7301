// What the ranks of a training must have alike: for each field of `train:`, a rank that has another value is refused on
// both sides, with its name and both values.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "hw/launch/rendezvous.hpp"
#include "hw/world/train.hpp"
#include "hw/world/training_agreement.hpp"
#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/transformer/train_text.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"
#include "tests/support/tiny_text.hpp"

using namespace motley;

namespace {

template <class Act>
std::string refused(const Act& act) {
  try {
    act();
  } catch (const Refusal& refusal) {
    return refusal.kind() + ": " + refusal.message();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return "";
}

// What rank 0 and rank 1 are told where each has these.
std::pair<std::string, std::string> met(const Agreement& mine, const Agreement& theirs) {
  Socket door = listen_on({"127.0.0.1", 0});
  RendezvousOptions lead{0_rank, 2, {"127.0.0.1", door.local_port()}, -1, 30, "b", "p"};
  RendezvousOptions other{1_rank, 2, lead.at, -1, 30, "b", "p"};
  lead.alike = mine;
  other.alike = theirs;
  lead.silence_s = other.silence_s = 30;
  lead.listener = door.release();
  std::string told;
  std::thread follows([&] { told = refused([&] { Rendezvous{other}; }); });
  const std::string refusal = refused([&] { Rendezvous{lead}; });
  follows.join();
  return {refusal, told};
}

// For each field of `train:`, another value than that of the job below.
const std::map<std::string, std::string> kOthers = {{"global_batch", "24"},
                                                    {"micro_batch", "1"},
                                                    {"sequence", "32"},
                                                    {"precision", "bf16"},
                                                    {"gradients", "bf16"},
                                                    {"optimizer", "sgd"},
                                                    {"master_weights", "false"},
                                                    {"frozen_weights", "nf4"},
                                                    {"matmuls", "fp8"},
                                                    {"kept_operands", "precision"},
                                                    {"kept_inner", "fp8"},
                                                    {"expert_dispatch", "fp8"},
                                                    {"expert_skew", "0.5"},
                                                    {"documents", "[8, 8]"},
                                                    {"expert_room", "2"},
                                                    {"fragmentation", "0.25"},
                                                    {"learning_rate", "0.004"},
                                                    {"beta1", "0.5"},
                                                    {"beta2", "0.5"},
                                                    {"epsilon", "1e-06"},
                                                    {"weight_decay", "0.25"},
                                                    {"seed", "77"},
                                                    {"steps", "123"},
                                                    {"tokens", "1e+06"},
                                                    {"goodput", "0.5"}};

}  // namespace

TEST_CASE("ranks that have another value of any field of `train:` refuse each other") {
  const Job job = tests::tiny_job({1, 2, 1});
  const Text text = tests::tiny_text();
  const Agreement mine = training_agreement(job, &text);
  CHECK(met(mine, mine) == std::pair<std::string, std::string>());
  for (const auto& [key, value] : values_by_key(job.train)) {
    if (key == "text") continue;  // its bytes count, not its path
    INFO("train: " << key);
    REQUIRE(kOthers.contains(key));
    std::string changed;
    for (const auto& [other_key, other_value] : values_by_key(job.train))
      if (other_key == key || other_value != "left out")
        changed += fmt::format("{}: {}\n", other_key, other_key == key ? kOthers.at(key) : other_value);
    Job other = job;
    other.train = parse_train(changed);
    REQUIRE_FALSE(other.train == job.train);
    const auto [told, told_too] = met(mine, training_agreement(other, &text));
    CHECK(told == told_too);
    CHECK_THAT(told, Catch::StartsWith(fmt::format("run-differs: rank 1 has {} ", key)) &&
                         Catch::EndsWith(fmt::format(", rank 0 has {}", value)));
  }
}

TEST_CASE("ranks that have another text or another model refuse each other") {
  const Job job = tests::tiny_job({1, 2, 1});
  const Text text = tests::tiny_text(), other_text("Let me not to the marriage of true minds");
  const Agreement mine = training_agreement(job, &text);
  CHECK_THAT(met(mine, training_agreement(job, &other_text)).second,
             Catch::StartsWith("run-differs: rank 1 has text 40 bytes (hash "));
  Job other = job;
  other.transformer.name = "another";
  CHECK_THAT(met(mine, training_agreement(other, &text)).second,
             Catch::StartsWith("run-differs: rank 1 has model another (hash "));
}

TEST_CASE("ranks that train with other options refuse each other") {
  const Job job = tests::tiny_job({1, 2, 1});
  const Program program = compile(job);
  const Text text = tests::tiny_text();
  const auto trained = [&](const TrainOptions& first, const TrainOptions& second) {
    Socket door = listen_on({"127.0.0.1", 0});
    Place place{0_rank, 2, {"127.0.0.1", door.local_port()}, -1};
    Place other = place;
    place.listener = door.release();
    other.rank = 1_rank;
    std::string told;
    std::thread follows([&] { told = refused([&] { train_rank(job, program, text, other, second); }); });
    const std::string refusal = refused([&] { train_rank(job, program, text, place, first); });
    follows.join();
    CHECK(refusal == told);
    return refusal;
  };
  const TrainOptions usual{.steps = 2};
  TrainOptions other = usual;
  CHECK(trained(usual, usual).empty());
  other.steps = 3;
  CHECK(trained(usual, other) == "run-differs: rank 1 has steps 3, rank 0 has 2");
  other = usual;
  other.library = KernelLibrary::reference;
  CHECK_THAT(trained(usual, other), Catch::StartsWith("run-differs: rank 1 has kernels reference kernels, "));
  other = usual;
  other.trace_step = 1;
  CHECK(trained(usual, other) == "run-differs: rank 1 has traced step 1, rank 0 has none");
  other = usual;
  other.traces_kernels = true;
  CHECK(trained(usual, other) == "run-differs: rank 1 has trace of kernels yes, rank 0 has no");
  other = usual;
  other.record_contributions = "/dev/null";
  CHECK(trained(usual, other) == "run-differs: rank 1 has recording yes, rank 0 has no");
  other = usual;
  other.silence_s = 7;
  CHECK(trained(usual, other) == "run-differs: rank 1 has limit of silence 7 s, rank 0 has 300 s");
  other = usual;
  other.alike = {{"colour", "red"}};
  CHECK(trained(usual, other) == "run-differs: rank 1 has colour red, rank 0 has nothing");
}
