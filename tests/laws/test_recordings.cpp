// Recordings: a real rank that receives what was recorded computes, bit for bit, what it computed among real ranks.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <mutex>

#include "models/base/temporary_folder.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/laws.hpp"
#include "tests/support/mixed_run.hpp"
#include "tests/support/ranks.hpp"

namespace motley::tests {
namespace {

// What a step left of each rank, bit for bit.
struct RankLeft {
  double loss = 0;
  std::vector<std::vector<float>> parameters;
};
using LeftOf = std::map<Rank, RankLeft>;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
bool same_bits(const RankLeft& a, const RankLeft& b) {
  bool same = std::memcmp(&a.loss, &b.loss, sizeof a.loss) == 0 && a.parameters.size() == b.parameters.size();
  for (std::size_t i = 0; same && i < a.parameters.size(); ++i)
    same = same_bits(a.parameters[i], b.parameters[i]);
  return same;
}

LeftOf left_of(const Program& program, const std::vector<Rank>& real, const Ran& ran) {
  LeftOf left;
  auto next = ran.parameters.begin();
  for (std::size_t i = 0; i < real.size(); ++i) {
    RankLeft& of_rank = left[real[i]];
    of_rank.loss = ran.rank_losses[i];
    for (std::size_t count = parameters_of(program, real[i]).size(); count > 0; --count)
      of_rank.parameters.push_back(*next++);
  }
  return left;
}

class Recorded {
 public:
  explicit Recorded(const Job& job) : job_(job), program_(compile(job)) {}

  const Program& program() const { return program_; }
  std::string path() const { return folder_.file("recording"); }
  // Runs a step with these ranks real, and records it.
  LeftOf record(const std::vector<Rank>& real, const Text* text) {
    text_ = text;
    RecordingWriter recorder(path(), origin_of(job_, program_, text), real);
    const Ran ran = run_mixed(job_, program_, real, {.executor = how(), .recorder = &recorder});
    return left_of(program_, real, ran);
  }
  // Really trains for a step, and records it.
  LeftOf record_training(const Text& text) {
    text_ = &text;
    LeftOf left;
    std::mutex mutex;
    std::map<Rank, RankWork*> works;
    TrainOptions options;
    options.record_contributions = path();
    options.on_start = [&](Rank rank, RankWork& work) {
      const std::lock_guard lock(mutex);
      works[rank] = &work;
    };
    options.on_step = [&](std::int64_t, double,
                          std::optional<double>) {  // every rank has ended the step and waits for the others
      for (const auto& [rank, work] : works) {
        left[rank].loss = work->loss_sum() / static_cast<double>(program_.global_batch * program_.sequence);
        for (const TensorId id : parameters_of(program_, rank)) {
          const std::span<float> values = work->values(id, kNoMicroBatch);
          left[rank].parameters.emplace_back(values.begin(), values.end());
        }
      }
    };
    train_in_process(job_, program_, text, options);
    return left;
  }
  LeftOf run(const std::vector<Rank>& real, const Recording* recording, const Way& way = {}) const {
    return left_of(program_, real,
                   run_mixed(job_, program_, real, {.executor = how(), .recording = recording}, way));
  }
  // Whether these ranks leave what they left when they were recorded.
  bool computes_the_same(const std::vector<Rank>& real, const LeftOf& left, const Recording* recording,
                         const Way& way = {}) const {
    for (const auto& [rank, now] : run(real, recording, way))
      if (!same_bits(now, left.at(rank))) return false;
    return true;
  }

 private:
  ExecutorOptions how() const { return {.repeats = {1, 1}, .text = text_, .communicates = true}; }

  const Job job_;
  const Program program_;
  const TemporaryFolder folder_;
  const Text* text_ = nullptr;
};

std::vector<Rank> some_of(const std::vector<Rank>& ranks, Dice& dice) {
  std::vector<Rank> some;
  for (const Rank rank : ranks)
    if (dice.once_in(2)) some.push_back(rank);
  if (some.empty()) some.push_back(ranks.back());
  return some;
}

std::vector<std::vector<Job>> lists_of_jobs() {
  return {every_small_job(Family::gpt2),      every_divided_job(Family::llama),
          every_scheduled_job(Family::gpt2),  every_expert_job(tiny_variant("mixtral")),
          every_resharded_job(Family::llama), every_offloaded_job(Family::llama)};
}

}  // namespace

TEST_CASE("a real rank with what was recorded leaves what it left among real ranks, bit for bit",
          "[mixed][slow]") {
  Dice dice(23);
  const Text text = tiny_text();
  const auto lists = lists_of_jobs();
  int receive = 0, differ = 0;
  for (std::size_t draw = 0; draw < (kSanitized ? 6 : 24); ++draw) {
    const auto& list = lists[draw % lists.size()];
    Job job = list[dice.engine()() % list.size()];
    if (dice.once_in(2)) job.fidelity.tensor_parallel = CollectiveLevel::fluid;
    CAPTURE(draw, print(job.strategy));
    Recorded recorded(job);
    const std::vector<Rank> ranks = every_rank(recorded.program());
    const LeftOf left = recorded.record(ranks, &text);
    const Recording recording(recorded.path());
    recording.check_suits(origin_of(job, recorded.program(), &text), recorded.program(), ranks);
    for (const Rank rank : ranks) {
      CAPTURE(rank.value());
      REQUIRE(recorded.computes_the_same({rank}, left, &recording));
    }
    const std::vector<Rank> some = some_of(ranks, dice);
    REQUIRE(recorded.computes_the_same(some, left, &recording, {.launched = some.size() > 1}));
    if (ranks.size() == 1) continue;
    ++receive;
    if (!recorded.computes_the_same({ranks.front()}, left, nullptr)) ++differ;
  }
  CHECK(receive > (kSanitized ? 1 : 12));
  CHECK(differ > receive / 2);
}

TEST_CASE("what simulated ranks made up is recorded like what real ranks sent", "[mixed]") {
  Dice dice(31);
  const auto lists = lists_of_jobs();
  for (std::size_t draw = 0; draw < lists.size(); ++draw) {
    const Job& job = lists[draw][dice.engine()() % lists[draw].size()];
    CAPTURE(draw, print(job.strategy));
    Recorded recorded(job);
    const std::vector<Rank> real = some_of(every_rank(recorded.program()), dice);
    const LeftOf left = recorded.record(real, nullptr);
    const Recording recording(recorded.path());
    recording.check_suits(origin_of(job, recorded.program(), nullptr), recorded.program(), real);
    for (const Rank rank : real) REQUIRE(recorded.computes_the_same({rank}, left, &recording));
  }
}

TEST_CASE("a real rank with what was recorded in training leaves what training left, bit for bit",
          "[mixed]") {
  Dice dice(29);
  const Text text = tiny_text();
  int inside = 0;
  const auto lists = lists_of_jobs();
  for (std::size_t draw = 0; draw < (kSanitized ? 6 : 24); ++draw) {
    const auto& list = lists[draw % lists.size()];
    const Job& job = list[dice.engine()() % list.size()];
    CAPTURE(draw, print(job.strategy));
    Recorded recorded(job);
    const std::vector<Rank> ranks = every_rank(recorded.program());
    const LeftOf left = recorded.record_training(text);
    const Recording recording(recorded.path());
    recording.check_suits(origin_of(job, recorded.program(), &text), recorded.program(), ranks);
    for (const Rank rank : ranks) {
      CAPTURE(rank.value());
      REQUIRE(recorded.computes_the_same({rank}, left, &recording));
    }
    const std::vector<Rank> some = some_of(ranks, dice);
    REQUIRE(recorded.computes_the_same(some, left, &recording, {.launched = some.size() > 1}));
    const Step first{ranks.back(), kComputeStream, 0};
    if (receives_inside(recorded.program(), first)) ++inside;
  }
  CHECK(inside > (kSanitized ? 0 : 4));
}

}  // namespace motley::tests
