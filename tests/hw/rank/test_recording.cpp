// Files of recordings: what is written is read back bit for bit, and what does not hold it is refused.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "hw/rank/arrivals.hpp"
#include "hw/rank/recording.hpp"
#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/compile/compile.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tiny_job.hpp"
#include "tests/support/tiny_text.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

const Step kFirst{0_rank, StreamId(1), 2}, kSecond{3_rank, StreamId(0), 7};
const RecordingOrigin kOrigin{.program_hash = "0123456789abcdef",
                              .training_hash = "fedcba9876543210",
                              .seed = 5,
                              .text_hash = 6,
                              .contribution = Contribution::zeros,
                              .inside_computes = true};

// Every kind of number: a NaN with a payload, both zeros, the smallest, infinity.
std::vector<float> odd_values() {
  return {std::nanf("77"), -0.0F, 0.0F, std::numeric_limits<float>::denorm_min(), 1.5F, -INFINITY};
}

std::string write_small(const TemporaryFolder& folder) {
  RecordingWriter writer(folder.file("recording"), kOrigin, {0_rank, 3_rank});
  writer.add(kFirst, odd_values());
  writer.add(kSecond, {});
  writer.close();
  return folder.read("recording");
}

// The message of what is refused, which is of that kind; empty: nothing is refused.
std::string refusal_of(const std::string& kind, const std::function<void()>& act) {
  try {
    act();
  } catch (const Refusal& refusal) {
    CHECK(refusal.exit_code() == Exit::usage);
    CHECK_FALSE(refusal.hint().empty());
    CHECK(refusal.kind() == kind);
    return refusal.message();
  }
  return "";
}

std::string refusal_of_text(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder.write("changed", text);
  return refusal_of("bad-recording", [&] { Recording recording(path); });
}

const std::string kDamaged = "a part of the recording is missing, or was changed after it was written";

}  // namespace

TEST_CASE("a recording is read back bit for bit") {
  const TemporaryFolder folder;
  write_small(folder);
  const Recording recording(folder.file("recording"));
  CHECK(recording.origin() == kOrigin);
  const std::vector<float> expected = odd_values(), values = recording.values(kFirst);
  REQUIRE(values.size() == expected.size());
  CHECK(std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)) == 0);
  CHECK(recording.values(kSecond).empty());
}

TEST_CASE("a recording that was cut off or changed anywhere is refused") {
  const TemporaryFolder folder;
  const std::string whole = write_small(folder);
  REQUIRE(refusal_of_text(folder, whole).empty());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO("cut off after " << length);
    const std::string refused = refusal_of_text(folder, whole.substr(0, length));
    REQUIRE(refused == (length < 16 ? "is no recording" : kDamaged));
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    INFO("changed at " << at);
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    REQUIRE_FALSE(refusal_of_text(folder, changed).empty());
  }
  CHECK(refusal_of_text(folder, whole + "x") == kDamaged);
  const auto refused = [&](const std::string& name, const std::string& text) {
    folder.write(name, text);
    return tests::refusal_on_page([&] { Recording recording(folder.file(name)); }, folder.path());
  };
  CHECK(refused("half.recording", whole.substr(0, whole.size() / 2)) ==
        tests::expected_refusal("bad-recording: a part is missing"));
}

TEST_CASE("a recorder that is not closed leaves no file") {
  const TemporaryFolder folder;
  folder.write("recording", "of before");
  {
    RecordingWriter writer(folder.file("recording"), kOrigin, {0_rank});
    writer.add(kFirst, odd_values());
  }
  CHECK(folder.read("recording") == "of before");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a recording for which the disk has no room is refused") {
  RecordingWriter writer("/dev/full", kOrigin, {0_rank});
  CHECK(refusal_of("unwritable-file", [&] {
          writer.add(kFirst, std::vector<float>(100'000));
          writer.close();
        }) == "cannot be written: No space left on device");
  const TemporaryFolder folder;
  CHECK(refusal_of("unwritable-file", [&] {
          RecordingWriter nowhere(folder.file("no/recording"), kOrigin, {0_rank});
        }) == "cannot be written: No such file or directory");
}

TEST_CASE("a recording suits only the run that it was made of, and ranks that it has") {
  const Job job = tiny_job({1, 2, 2});
  const Program program = compile(job);
  const Text text = tiny_text();
  const RecordingOrigin origin = origin_of(job, program, &text);
  const TemporaryFolder folder;
  std::vector<Step> receiving;  // of ranks 0 and 2
  for (const Rank rank : {0_rank, 2_rank}) {
    const auto& streams = program.program_of(rank).streams;
    for (const StreamId stream : streams.ids())
      for (std::size_t i = 0; i < streams[stream].instructions.size(); ++i)
        if (const Step step{rank, stream, static_cast<std::int32_t>(i)}; receives(program, step))
          receiving.push_back(step);
  }
  const auto record = [&](const char* name, const Step* without) {
    RecordingWriter writer(folder.file(name), origin, {0_rank, 2_rank});
    for (const Step& step : receiving)
      if (without == nullptr || step != *without) writer.add(step, odd_values());
    writer.close();
    return folder.file(name);
  };
  const Recording whole(record("whole", nullptr));
  const auto refused = [&](const RecordingOrigin& run, const std::vector<Rank>& ranks) {
    return refusal_of("wrong-recording", [&] { whole.check_suits(run, program, ranks); });
  };
  CHECK(refused(origin, {0_rank, 2_rank}).empty());
  CHECK(refused(origin, {2_rank}).empty());
  const auto told = [&](const RecordingOrigin& run, const std::vector<Rank>& ranks) {
    return tests::refusal_on_page([&] { whole.check_suits(run, program, ranks); }, folder.path());
  };
  CHECK(told(origin, {0_rank, 1_rank}) ==
        tests::expected_refusal("wrong-recording: a rank that is not recorded"));

  RecordingOrigin other = origin;
  other.program_hash = "fedcba9876543210";
  std::string of_another = told(other, {0_rank});
  of_another.replace(of_another.find(origin.program_hash), origin.program_hash.size(), "0123456789abcdef");
  CHECK(of_another == tests::expected_refusal("wrong-recording: a recording of another Program"));
  Job changed = job;
  changed.train.seed = 7;
  CHECK(told(origin_of(changed, program, &text), {0_rank}) ==
        tests::expected_refusal("wrong-recording: another seed"));
  changed = job;
  changed.train.learning_rate *= 2;
  CHECK(told(origin_of(changed, program, &text), {0_rank}) ==
        tests::expected_refusal("wrong-recording: another learning rate"));
  const Text longer("another text");
  const Text* const none = nullptr;
  for (const Text* const another : {none, &longer})
    CHECK(told(origin_of(job, program, another), {0_rank}) ==
          tests::expected_refusal("wrong-recording: another training text"));
  changed = job;
  changed.train.steps += 1;
  CHECK(refused(origin_of(changed, program, &text), {0_rank}).empty());

  const Step& lacking = receiving.back();
  const Recording part(record("part", &lacking));
  part.check_suits(origin, program, {0_rank});
  CHECK(tests::refusal_on_page([&] { part.check_suits(origin, program, {2_rank}); }, folder.path()) ==
        tests::expected_refusal("wrong-recording: a step that is not recorded"));
}

TEST_CASE("a step takes exactly the values that were recorded of it") {
  std::vector<float> into(3);
  const std::vector<std::span<float>> places = {std::span(into).first(1), std::span(into).subspan(1)};
  RecordedValues enough({1, 2, 3, 4, 5, 6});
  enough.fill(places);
  CHECK((into == std::vector<float>{1, 2, 3}));
  CHECK(tests::refusal_on_page([&] { enough.check_all_taken(); }) ==
        tests::expected_refusal("wrong-recording: more values than a step takes"));
  enough.fill(places);
  CHECK((into == std::vector<float>{4, 5, 6}));
  enough.check_all_taken();
  CHECK(tests::refusal_on_page([&] { enough.fill(places); }) ==
        tests::expected_refusal("wrong-recording: fewer values than a step takes"));
  enough.begin_again();
  enough.fill(places);
  CHECK((into == std::vector<float>{1, 2, 3}));
}
