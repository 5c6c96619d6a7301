// Where a process learns which rank it is: flags, and the variables of each launcher, in their order.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "hw/launch/place.hpp"
#include "hw/launch/user_secret.hpp"
#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;

namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Place> place_of(const Variables& variables, const PlaceFlags& flags = {}) {
  return place_from(
      [&](const char* name) -> const char* {
        const auto variable = variables.find(name);
        return variable == variables.end() ? nullptr : variable->second.c_str();
      },
      flags);
}

// The kind of the refusal; empty: it is none.
std::string refused(const Variables& variables, const PlaceFlags& flags = {}) {
  try {
    place_of(variables, flags);
  } catch (const Refusal& refusal) {
    return refusal.kind();
  }
  return "";
}

Variables operator+(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

// As Open MPI 4.1 and Slurm 22.05 set them on one host.
const Variables kMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_RANK", "1"},
                        {"PMIX_NAMESPACE", "1074069505"}};
const Variables kSlurm = {{"SLURM_PROCID", "2"},  {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"},
                          {"SLURM_STEP_ID", "0"}, {"SLURM_NNODES", "1"}, {"SLURM_STEP_NUM_NODES", "1"}};

}  // namespace

TEST_CASE("a rank's place comes from motley launch, from torchrun or from Slurm, and they must agree") {
  REQUIRE_FALSE(place_of({}));
  const auto mine = place_of({{"MOTLEY_RANK", "1"},
                              {"MOTLEY_RANK_COUNT", "4"},
                              {"MOTLEY_RENDEZVOUS", "10.0.0.1:29500"},
                              {"MOTLEY_JOB_TOKEN", "s"}});
  REQUIRE(mine->rank == 1_rank);
  REQUIRE(mine->rank_count == 4);
  REQUIRE(mine->rendezvous.host == "10.0.0.1");
  REQUIRE(mine->rendezvous.port == 29500);
  const auto torch =
      place_of({{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "7"}});
  REQUIRE(torch->rank == 2_rank);
  REQUIRE(torch->rendezvous.host == "::1");
  REQUIRE(mine->nics.empty());
  REQUIRE(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MOTLEY_NIC", "mlx5_0,mlx5_1"}})->nics ==
          std::vector<std::string>{"mlx5_0", "mlx5_1"});
  REQUIRE(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}})->rank_count == 1);
  REQUIRE(refused({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}) ==
          "rank-conflict");
  // Without a token only ranks of one host meet, on its loopback interface.
  for (const char* const host : {"h", "10.0.0.1", "fe80::1"})
    REQUIRE(refused({{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", host}, {"MASTER_PORT", "7"}}) ==
            "no-job-token");
  REQUIRE(refused({{"RANK", "1"}}) == "bad-rank");
  REQUIRE(refused({{"RANK", "x"}, {"WORLD_SIZE", "2"}}) == "bad-rank");
  REQUIRE(refused({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) == "bad-rank");
  REQUIRE(refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}) == "bad-rank");
  const Variables two = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  REQUIRE(refused(two) == "bad-rendezvous");
  REQUIRE(refused(two + Variables{{"MOTLEY_RENDEZVOUS", "nowhere"}}) == "bad-rendezvous");
  REQUIRE(refused(two + Variables{{"MOTLEY_RENDEZVOUS", "h:70000"}}) == "bad-rendezvous");
}

TEST_CASE("flags say a rank's place, and variables that say another are refused") {
  const PlaceFlags flags{"1", "2", "127.0.0.1:7"};
  REQUIRE(place_of({}, flags)->rank == 1_rank);
  REQUIRE(place_of({{"MOTLEY_RENDEZVOUS", "127.0.0.1:8"}}, flags)->rendezvous.port == 7);
  REQUIRE(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, flags) == "rank-conflict");
  REQUIRE(refused({}, {"1", "", ""}) == "bad-rank");
  REQUIRE(refused({}, {"", "2", ""}) == "bad-rank");
  REQUIRE(refused({}, {"1", "2", ""}) == "bad-rendezvous");
}

TEST_CASE("ranks that Open MPI or Slurm has started on one host meet without being told where") {
  for (const Variables& started : {kMpi, kSlurm}) {
    const auto place = place_of(started);
    REQUIRE(place->rank_count == 4);
    REQUIRE(place->rank == (started == kMpi ? 1_rank : 2_rank));
    REQUIRE(place->rendezvous.host == "127.0.0.1");
    REQUIRE(place->rendezvous.port >= 20'000);
    REQUIRE(place->rendezvous.port < 32'000);
    REQUIRE(place->token.is_secret());
    REQUIRE(place_of(started)->rendezvous.port == place->rendezvous.port);
    REQUIRE(place_of(started + Variables{{"MOTLEY_RENDEZVOUS", "127.0.0.1:9"}})->rendezvous.port == 9);
  }
  const auto port_of = [](const Variables& variables) { return place_of(variables)->rendezvous.port; };
  REQUIRE(port_of(kMpi) != port_of(kMpi + Variables{{"PMIX_NAMESPACE", "1074069506"}}));
  REQUIRE(port_of(kSlurm) != port_of(kSlurm + Variables{{"SLURM_JOB_ID", "8"}}));
  REQUIRE(port_of(kSlurm) != port_of(kSlurm + Variables{{"SLURM_STEP_ID", "1"}}));
  // On several hosts they must be told.
  REQUIRE(refused(kMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}) == "bad-rendezvous");
  REQUIRE(refused(kSlurm + Variables{{"SLURM_STEP_NUM_NODES", "2"}}) == "bad-rendezvous");
}

TEST_CASE("PMIx tells the rank, and another source the count") {
  const Variables alone = {{"PMIX_RANK", "1"}};
  REQUIRE(refused(alone) == "bad-rank");
  REQUIRE(place_of(alone, {"", "4", "127.0.0.1:7"})->rank_count == 4);
  REQUIRE(refused(alone, {"2", "4", "127.0.0.1:7"}) == "rank-conflict");
  REQUIRE(place_of(kSlurm + Variables{{"PMIX_RANK", "2"}})->rank == 2_rank);
  REQUIRE(refused(kSlurm + alone) == "rank-conflict");
  REQUIRE(refused(kMpi + Variables{{"PMIX_RANK", "3"}}) == "rank-conflict");
}

TEST_CASE("a step of Slurm that starts other launchers says nothing, and a batch script is no rank") {
  REQUIRE(place_of(kMpi + Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}})->rank == 1_rank);
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  REQUIRE_FALSE(place_of(script));
  REQUIRE(place_of(kMpi + script)->rank == 1_rank);
  REQUIRE_FALSE(place_of(kSlurm + Variables{{"SLURM_STEP_ID", "4294967290"}}));  // an interactive shell
}

TEST_CASE("a user's secret stays the same, and a file that others can read is none") {
  const TemporaryFolder folder, other;
  const std::string secret = secret_of_user(folder.path());
  REQUIRE(secret.size() == 32);
  REQUIRE(secret_of_user(folder.path()) == secret);
  REQUIRE(secret_of_user(other.path()) != secret);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++files;
    chmod(entry.path().c_str(), 0644);
  }
  REQUIRE(files == 1);
  REQUIRE_THROWS_WITH(secret_of_user(folder.path()), Catch::Contains("is not a file of this user alone"));
}
