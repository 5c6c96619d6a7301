// The algorithm of collectives changes the order in which numbers are added, and nothing else.
#include <catch2/catch.hpp>

#include "tests/support/laws.hpp"

namespace motley::tests {
namespace {

TEST_CASE("whatever algorithm its collectives have, a strategy trains the same function",
          "[laws][communicator]") {
  const Job one = tiny_job({1, 1, 1});
  const std::vector<double> expected = compared_losses(one);
  for (const int zero : {0, 2})
    for (const CollectiveAlgorithm algorithm :
         {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree, CollectiveAlgorithm::double_binary_tree,
          CollectiveAlgorithm::recursive, CollectiveAlgorithm::hierarchical}) {
      CAPTURE(zero, name_of(algorithm));
      Job job = tiny_job({1, 1, 4});
      job.strategy.zero = zero;
      TrainOptions options;
      options.steps = static_cast<std::int64_t>(compared_steps);
      options.algorithms.per_node = [](GroupId) { return 2; };
      options.algorithms.choose = [algorithm](GroupId, const GroupCall& call) {
        if (call.bytes <= 0) throw std::logic_error("a collective of a Program without a payload");
        return algorithm;
      };
      const std::vector<double> losses = train_in_process(job, compile(job), tiny_text(), options).losses;
      REQUIRE(losses.size() == expected.size());
      for (std::size_t i = 0; i < losses.size(); ++i) REQUIRE(losses[i] == Approx(expected[i]).epsilon(1e-5));
    }
}

}  // namespace
}  // namespace motley::tests
