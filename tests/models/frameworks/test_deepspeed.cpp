// DeepSpeed's JSON out and in.
#include <catch2/catch.hpp>
#include <set>

#include "models/frameworks/export.hpp"
#include "models/frameworks/import.hpp"
#include "models/strategy/strategy_complaint.hpp"
#include "models/transformer/train_text.hpp"
#include "tests/models/frameworks/random_strategies.hpp"

using namespace motley;

TEST_CASE("DeepSpeed's JSON of a thousand random jobs is imported as the same jobs") {
  const Cluster cluster = tests::unlike_cluster();
  std::set<std::string> strategies;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    Job job = tests::deepspeed_job(seed);
    job.cluster = cluster;
    INFO("seed " << seed << "\n" << print(job.strategy) << print(job.train));
    const Export exported = export_job("random", job, ExportTarget::deepspeed);
    INFO(exported.files.at(0).text);
    ImportOptions options{.name = "random", .cluster = "unlike", .chips = job.strategy.rank_count()};
    options.model = job.transformer;
    options.sequence = job.train.sequence;
    Imported imported =
        import_text(ImportSource::deepspeed, exported.files[0].text, "deepspeed.json", options);
    REQUIRE(print(imported.strategy) == print(job.strategy));
    REQUIRE(imported.strategy == job.strategy);
    imported.train.seed = job.train.seed;  // the JSON has no seed
    REQUIRE(print(imported.train) == print(job.train));
    strategies.insert(print(job.strategy));
  }
  CHECK(strategies.size() > 300);
}

// DeepSpeed's own examples write so: "reduce_bucket_size": 5e8.
TEST_CASE("DeepSpeed's whole numbers may have an exponent") {
  const Job job = tests::deepspeed_job(0);
  ImportOptions options{.name = "one", .cluster = "unlike", .chips = 8};
  options.model = job.transformer;
  options.sequence = 64;
  const auto bucket_of = [&](const std::string& bucket) {
    const std::string text =
        R"({"train_micro_batch_size_per_gpu": 1e0, "zero_optimization": {"stage": 2, "overlap_comm": true, )"
        R"("reduce_bucket_size": )" +
        bucket + "}}";
    return import_text(ImportSource::deepspeed, text, "ds.json", options).strategy.bucket_bytes;
  };
  CHECK(bucket_of("5e8") == bucket_of("500000000"));
  CHECK(bucket_of("5E+8") == bucket_of("500000000"));
  CHECK(bucket_of("2.5e3") == bucket_of("2500"));
  for (const char* const fault : {"2.55e1", "1e-3", "1e300", "1e", "0e0"})
    CHECK_THROWS_AS(bucket_of(fault), Refusal);
}
