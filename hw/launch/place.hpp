// Which rank this process is, and where the ranks meet: by flags, or by the variables of whoever has started it. Read
// next: hw/launch/rendezvous.hpp, which brings the ranks together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/launch/rendezvous.hpp"
#include "hw/transport/tcp/socket.hpp"
#include "hw/transport/token.hpp"
#include "models/program/program.hpp"

namespace motley {

struct Place {
  Rank rank;
  std::int32_t rank_count = 1;
  Address rendezvous;
  int listener = -1;  // rank 0: an inherited listening descriptor; -1: none
  JobToken token = JobToken();
  std::vector<std::string> nics =
      {};  // by which it talks with other hosts, in this order; empty: all that it can use
};

// What a user says on the command line of a rank.
struct PlaceFlags {
  std::string rank, rank_count, rendezvous;  // empty: not given
};

// Reads the place from the first of these that is there:
// 1. the flags --rank and --ranks-in-all;
// 2. MOTLEY_RANK and MOTLEY_RANK_COUNT, which motley launch sets;
// 3. torchrun's RANK and WORLD_SIZE;
// 4. Open MPI's OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE;
// 5. PMIX_RANK, and a count from --ranks-in-all, OMPI_COMM_WORLD_SIZE or SLURM_NTASKS;
// 6. SLURM_PROCID and SLURM_NTASKS of a step of Slurm. A batch script is no rank. A step of fewer tasks than the ranks
//    of 1 to 5 has started another launcher, and says nothing.
// The ranks meet at --rendezvous, at MOTLEY_RENDEZVOUS=host:port, or at MASTER_ADDR and MASTER_PORT. Where none of
// these is set and Open MPI or Slurm has started all ranks on one host, they meet at a port of its loopback interface
// that follows from the job and the user.
// The NICs are those of MOTLEY_NIC, with commas between them, which motley launch sets where the rank is bound to one.
// The token of the job is MOTLEY_JOB_TOKEN or the first line of the file MOTLEY_JOB_TOKEN_FILE. Ranks that do not meet
// on the loopback interface need one; those that do have one by themselves, of this user's secret.
// Returns none if nothing of this is set. Throws Refusal "rank-conflict" if two of them disagree, "bad-rank",
// "bad-rendezvous" or "no-job-token".
using Environment = std::function<const char*(const char*)>;
std::optional<Place> place_from(const Environment& environment, const PlaceFlags& flags = {});

// How such a rank comes to the rendezvous of ranks that all do `work`.
RendezvousOptions rendezvous_of(const Place& place, const std::string& work, double timeout_s);

}  // namespace motley
