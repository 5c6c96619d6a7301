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
