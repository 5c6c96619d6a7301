// The files that start the ranks of a job where its Program places them: a hostfile, and scripts for torchrun, Slurm
// and Open MPI that take the training command as their arguments. The order of hosts places the ranks; where no order
// can, mpirun gets a rankfile, Slurm a host for each task, and torchrun is refused. Read next: rank_map.hpp.
#pragma once

#include <string>

#include "models/frameworks/export.hpp"
#include "models/frameworks/rank_map.hpp"

namespace motley {

// plain: "HOST slots=8". with_types: "HOST slots=8 type=CHIP", as FlagScale reads it (flagscale/runner/utils.py,
// parse_hostfile).
enum class HostfileForm : std::uint8_t { plain, with_types };
std::string hostfile_text(const RankMap& map, HostfileForm form, const Wording& wording);

// A line that starts the ranks of one host with torchrun, without the script: "torchrun --nnodes 4 ...". NODE_RANK is
// the host's place. Where hosts have unlike numbers of ranks, NPROC_PER_NODE is the host's own.
std::string torchrun_line(const RankMap& map);

// The files of one of the targets torchrun, sbatch, mpirun, hostfile and rank_map.
std::vector<ExportedFile> launch_files(ExportTarget target, const std::string& name, const Job& job,
                                       const Wording& wording, const ExportOptions& options);

}  // namespace motley
