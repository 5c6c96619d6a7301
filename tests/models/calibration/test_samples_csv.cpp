// The table of samples: what is written is read, and a writer that was stopped anywhere loses no finished probe.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>

#include "models/base/refusal.hpp"
#include "models/calibration/samples_csv.hpp"
#include "tests/refusals/pages.hpp"

using namespace motley;

namespace {

Samples made_up_samples(std::mt19937& random) {
  Samples samples;
  const auto number = [&](std::uint32_t below) { return static_cast<std::int64_t>(random() % below); };
  for (const RatedKernel& kernel : rated_kernels()) {
    if (number(4) != 0) continue;
    KernelSample sample;
    sample.kernel = kernel;
    sample.format = Format::fp32;
    sample.shape = {number(9999),
                    number(9999),
                    number(99),
                    number(4),
                    static_cast<double>(number(1 << 30)) / 7,
                    static_cast<double>(number(1 << 30)),
                    0};
    for (std::int64_t i = 0; i <= number(5); ++i)
      sample.times.push_back(static_cast<double>(number(1000) + 1) * 1e-6);
    samples.kernels.push_back(sample);
  }
  samples.optimizer = {{1e6, 1e-3}, {1e6, 2e-3}, {2e6, 3e-3}};
  return samples;
}

const SamplesOrigin kOrigin{"a machine, 2 processors, 4 GiB", "fast kernels, made up 1.0", 2};

std::string kind_of(const std::string& text) {
  try {
    parse_samples_csv(text, "table.csv");
  } catch (const Refusal& refusal) {
    return refusal.kind();
  }
  return "accepted";
}

std::size_t count_times(const Samples& samples) {
  std::size_t count = samples.optimizer.size();
  for (const KernelSample& each : samples.kernels) count += each.times.size();
  return count;
}

}  // namespace

TEST_CASE("a table of samples reads back as it was", "[calibration]") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    Samples written;
    std::string text = samples_csv_head();
    for (const char* probe : {"0000 gpt2 64 x 1, tp 1", "0001 llama"}) {
      const Samples one = made_up_samples(random);
      text += samples_csv_rows(kOrigin, probe, one);
      add_samples(one, written);
    }
    const SamplesTable table = parse_samples_csv(text, "table.csv");
    CHECK(table.origin == kOrigin);
    CHECK(table.probes.size() == 2);
    CHECK(table.complete_bytes == text.size());
    REQUIRE(table.samples.kernels.size() == written.kernels.size());
    for (std::size_t i = 0; i < written.kernels.size(); ++i) {
      const KernelSample &a = written.kernels[i], &b = table.samples.kernels[i];
      CHECK((a.kernel == b.kernel && a.format == b.format && a.shape.is_like(b.shape)));
      CHECK(std::abs(a.shape.seconds / b.shape.seconds - 1) < 1e-8);
      CHECK(a.times.size() == b.times.size());
      REQUIRE(a.job_medians.size() == b.job_medians.size());  // 2 where both probes have the shape, else none
      for (std::size_t job = 0; job < a.job_medians.size(); ++job)
        CHECK(std::abs(a.job_medians[job] / b.job_medians[job] - 1) < 1e-8);
    }
    CHECK(table.samples.optimizer.size() == written.optimizer.size());
  }
}

TEST_CASE("a table that ends anywhere keeps every finished probe, and none twice", "[calibration]") {
  std::mt19937 random(6);
  const Samples first = made_up_samples(random), second = made_up_samples(random);
  const std::string head = samples_csv_head(), one = samples_csv_rows(kOrigin, "0000 a", first),
                    two = samples_csv_rows(kOrigin, "0001 b", second), whole = head + one + two;
  for (std::size_t length = head.size(); length <= whole.size(); ++length) {
    const SamplesTable table = parse_samples_csv(whole.substr(0, length), "table.csv");
    const std::size_t finished =
        (length >= head.size() + one.size() ? 1U : 0U) + (length == whole.size() ? 1U : 0U);
    REQUIRE(table.probes.size() == finished);
    const std::size_t complete = finished == 0   ? head.size()
                                 : finished == 1 ? head.size() + one.size()
                                                 : whole.size();
    REQUIRE(table.complete_bytes == complete);
    REQUIRE(count_times(table.samples) ==
            (finished > 0 ? count_times(first) : 0) + (finished > 1 ? count_times(second) : 0));
    // A writer that goes on there ends with the same table as one that was never stopped.
    const std::string resumed =
        whole.substr(0, table.complete_bytes) + (finished < 1 ? one : "") + (finished < 2 ? two : "");
    REQUIRE(resumed == whole);
  }
}

TEST_CASE("samples of two machines, libraries or numbers of ranks are not blended", "[calibration]") {
  std::mt19937 random(7);
  const Samples samples = made_up_samples(random);
  const std::string begin = samples_csv_head() + samples_csv_rows(kOrigin, "0000 a", samples);
  CHECK(kind_of(begin + samples_csv_rows(kOrigin, "0001 b", samples)) == "accepted");
  for (int i = 0; i < 3; ++i) {
    SamplesOrigin other = kOrigin;
    if (i == 0) other.machine = "another";
    if (i == 1) other.library = "reference kernels";
    if (i == 2) other.ranks = 1;
    CHECK(kind_of(begin + samples_csv_rows(other, "0001 b", samples)) == "two-origins");
  }
  SamplesOrigin another = kOrigin;
  another.machine = "another";
  Samples few;
  few.kernels = {samples.kernels[0]};
  CHECK(tests::refusal_on_page([&] {
          parse_samples_csv(samples_csv_head() + samples_csv_rows(kOrigin, "0000 a", few) +
                                samples_csv_rows(another, "0001 b", few),
                            "samples.csv");
        }) == tests::expected_refusal("two-origins: samples of two machines in one table"));
  CHECK(kind_of("") == "bad-csv");
  CHECK(kind_of("a,b\n1,2\n") == "bad-csv");
  std::string bad = begin;
  bad.insert(bad.size() - 1, "x");
  CHECK(kind_of(bad) == "bad-csv");
}
