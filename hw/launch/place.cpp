#include "hw/launch/place.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "hw/launch/user_secret.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

// The rank and the number of ranks that one source tells, and the name of that of the rank.
struct StartedAs {
  std::string name;
  long rank = 0, rank_count = 0;
};

// A flag or a variable and its value.
struct Said {
  std::string name;
  std::optional<std::string> value;  // nothing: not set
};

class PlaceReader {
 public:
  PlaceReader(const Environment& environment, const PlaceFlags& flags)
      : environment_(environment), flags_(flags) {}

  std::optional<Place> read() const;

 private:
  const Environment& environment_;
  const PlaceFlags& flags_;

  Said variable(const char* name) const {
    const char* const value = environment_(name);
    return {name, value == nullptr ? std::nullopt : std::optional<std::string>(value)};
  }
  bool is(const char* name, const std::string& value) const { return variable(name).value == value; }
  static Said flag(const char* name, const std::string& value) {
    return {name, value.empty() ? std::nullopt : std::optional(value)};
  }
  bool is_rank_of_slurm() const;
  std::vector<StartedAs> told() const;
  std::string job_on_this_host() const;
  std::optional<Address> given_rendezvous() const;
  JobToken token_for(const Address& rendezvous) const;
  std::optional<std::string> given_secret() const;
};

long number(const Said& told, long least) {
  char* end = nullptr;
  const long value = told.value ? std::strtol(told.value->c_str(), &end, 10) : -1;
  if (!told.value || told.value->empty() || *end != '\0' || value < least || value > 1'000'000)
    throw Refusal(Exit::usage, "bad-rank", {},
                  fmt::format("{} is {}", told.name, told.value ? "`" + *told.value + "`" : "not set"),
                  "ranks count from 0, and each way of starting them sets both the rank and the count");
  return value;
}

// What one source says. None: neither value is set.
std::optional<StartedAs> started_as(const Said& rank, const Said& rank_count) {
  if (!rank.value && !rank_count.value) return std::nullopt;
  StartedAs started{rank.name, number(rank, 0), number(rank_count, 1)};
  if (started.rank >= started.rank_count)
    throw Refusal(Exit::usage, "bad-rank", {},
                  fmt::format("{}={} of {}={}", rank.name, started.rank, rank_count.name, started.rank_count),
                  "ranks count from 0 to one less than their number");
  return started;
}

// A batch script has SLURM_PROCID too, but no step, and an interactive shell is a step with a number near 2^32.
bool PlaceReader::is_rank_of_slurm() const {
  const Said step = variable("SLURM_STEP_ID");
  if (!step.value) return !variable("SLURM_JOB_ID").value;
  return step.value->size() < 10;
}

// What the sources say, in their order.
std::vector<StartedAs> PlaceReader::told() const {
  std::vector<StartedAs> all;
  const auto add = [&](const Said& rank, const Said& rank_count) {
    if (const auto started = started_as(rank, rank_count)) all.push_back(*started);
  };
  const Said count_flag = flag("--ranks-in-all", flags_.rank_count);
  const Said pmix_rank = variable("PMIX_RANK");
  if (!flags_.rank.empty() || !pmix_rank.value) add(flag("--rank", flags_.rank), count_flag);
  add(variable("MOTLEY_RANK"), variable("MOTLEY_RANK_COUNT"));
  add(variable("RANK"), variable("WORLD_SIZE"));
  add(variable("OMPI_COMM_WORLD_RANK"), variable("OMPI_COMM_WORLD_SIZE"));
  if (pmix_rank.value) {
    Said count = count_flag;
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"})
      if (!count.value) count = variable(name);
    if (!count.value) count.name = "--ranks-in-all (PMIx tells no count, which)";
    add(pmix_rank, count);
  }
  if (is_rank_of_slurm()) {
    const auto step = started_as(variable("SLURM_PROCID"), variable("SLURM_NTASKS"));
    if (step && (all.empty() || step->rank_count >= all.front().rank_count)) all.push_back(*step);
  }
  return all;
}

// What the launcher calls this job, if it has started all ranks on this host; else empty.
std::string PlaceReader::job_on_this_host() const {
  const auto text = [&](const char* name) { return variable(name).value.value_or(""); };
  const std::string here = text("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!here.empty() && is("OMPI_COMM_WORLD_SIZE", here)) {
    const std::string job = text("PMIX_NAMESPACE") + text("OMPI_MCA_ess_base_jobid");
    if (!job.empty()) return "mpi/" + job + "/" + text("OMPI_MCA_orte_precondition_transports");
  }
  const bool one_node =
      variable("SLURM_STEP_NUM_NODES").value ? is("SLURM_STEP_NUM_NODES", "1") : is("SLURM_NNODES", "1");
  if (one_node && !text("SLURM_JOB_ID").empty() && !text("SLURM_STEP_ID").empty() && is_rank_of_slurm())
    return fmt::format("slurm/{}/{}", text("SLURM_JOB_ID"), text("SLURM_STEP_ID"));
  return "";
}

// A port that processes of other programs seldom use: below those that the kernel gives to whoever asks for any.
// Jobs of one host may get the same, about one pair of jobs in 10,000: the ranks of one then do not find each other.
Address address_of_job(const std::string& job) {
  constexpr std::uint64_t kFirst = 20'000, kPorts = 12'000;
  const std::string named = fmt::format("{}/{}", getuid(), job);
  return {"127.0.0.1", static_cast<std::uint16_t>(kFirst + XXH3_64bits(named.data(), named.size()) % kPorts)};
}

std::optional<Address> PlaceReader::given_rendezvous() const {
  if (!flags_.rendezvous.empty()) return parse_address(flags_.rendezvous);
  if (const Said address = variable("MOTLEY_RENDEZVOUS"); address.value) return parse_address(*address.value);
  const Said host = variable("MASTER_ADDR"), port = variable("MASTER_PORT");
  if (!host.value || !port.value) return std::nullopt;
  const bool six = host.value->find(':') != std::string::npos;
  return parse_address(fmt::format("{}:{}", six ? "[" + *host.value + "]" : *host.value, *port.value));
}

std::string secret_in(const std::string& path) {
  std::ifstream file(path);
  std::string secret;
  std::getline(file, secret);
  if (secret.empty())
    throw Refusal(Exit::usage, "no-job-token", {},
                  fmt::format("MOTLEY_JOB_TOKEN_FILE: {} holds no token", path),
                  "a file whose first line is a secret that all ranks share");
  return secret;
}

std::optional<std::string> PlaceReader::given_secret() const {
  if (const Said secret = variable("MOTLEY_JOB_TOKEN"); secret.value && !secret.value->empty())
    return secret.value;
  if (const Said path = variable("MOTLEY_JOB_TOKEN_FILE"); path.value) return secret_in(*path.value);
  return std::nullopt;
}

JobToken PlaceReader::token_for(const Address& rendezvous) const {
  if (const auto secret = given_secret()) return JobToken(*secret);
  const std::string& host = rendezvous.host;
  if (host != "localhost" && host != "::1" && !host.starts_with("127."))
    throw Refusal(
        Exit::usage, "no-job-token", {},
        fmt::format("ranks that meet at {} need a token by which they know each other", print(rendezvous)),
        "export MOTLEY_JOB_TOKEN=$(openssl rand -hex 16) where the ranks are started");
  return JobToken(fmt::format("{}/loopback/{}", secret_of_user(), rendezvous.port));
}

std::optional<Place> PlaceReader::read() const {
  const std::vector<StartedAs> all = told();
  if (all.empty()) return std::nullopt;
  const StartedAs& first = all.front();
  for (const StartedAs& other : all)
    if (other.rank != first.rank || other.rank_count != first.rank_count)
      throw Refusal(Exit::usage, "rank-conflict", {},
                    fmt::format("{} says rank {} of {}, {} says rank {} of {}", first.name, first.rank,
                                first.rank_count, other.name, other.rank, other.rank_count),
                    "unset the one that does not hold");
  Place place;
  place.rank = Rank(first.rank);
  place.rank_count = static_cast<std::int32_t>(first.rank_count);
  if (const Said listener = variable("MOTLEY_RENDEZVOUS_LISTENER"); listener.value && place.rank == kLeader)
    place.listener = static_cast<int>(number(listener, 0));
  std::istringstream nics(variable("MOTLEY_NIC").value.value_or(""));
  for (std::string nic; std::getline(nics, nic, ',');)
    if (!nic.empty()) place.nics.push_back(nic);
  if (place.rank_count == 1) return place;
  const std::string job = job_on_this_host();
  if (const auto address = given_rendezvous()) {
    place.rendezvous = *address;
    place.token = token_for(*address);
  } else if (!job.empty()) {
    place.rendezvous = address_of_job(job);
    const auto secret = given_secret();
    place.token = JobToken(secret ? *secret : secret_of_user() + "/" + job);
  } else {
    throw Refusal(Exit::usage, "bad-rendezvous", {}, "several ranks, and no place where they meet",
                  "MOTLEY_RENDEZVOUS=host:port, where rank 0 listens (or MASTER_ADDR and MASTER_PORT)");
  }
  return place;
}

}  // namespace

std::optional<Place> place_from(const Environment& environment, const PlaceFlags& flags) {
  return PlaceReader(environment, flags).read();
}

RendezvousOptions rendezvous_of(const Place& place, const std::string& work, double timeout_s) {
  static const std::string binary = hash_of_this_binary();
  RendezvousOptions options;
  options.rank = place.rank;
  options.rank_count = place.rank_count;
  options.at = place.rendezvous;
  options.listener = place.listener;
  options.timeout_s = timeout_s;
  options.binary_hash = binary;
  options.program_hash = work;
  options.token = place.token;
  return options;
}

}  // namespace motley
