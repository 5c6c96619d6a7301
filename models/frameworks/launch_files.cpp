#include "models/frameworks/launch_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "models/base/index.hpp"

namespace motley {
namespace {

// Refuses ranks that no order of hosts places: `why` says what the target can do instead.
void refuse_disorder(const RankMap& map, const Wording& wording) {
  if (!map.out_of_order) return;
  const std::int64_t rank = *map.out_of_order;
  wording.refuse("strategy.on", "",
                 fmt::format("numbers the ranks of a host one after the other; rank {} is on host {} again",
                             rank, map.hosts[at(map.ranks[at(rank)].host)].name),
                 "`--to mpirun` writes a rankfile, `--to sbatch` a host for each task");
}

// A shell's array with a word for each host.
template <class Text>
std::string host_array(const char* name, const RankMap& map, Text text) {
  std::string words;
  for (const HostOfRanks& host : map.hosts) words += (words.empty() ? "" : " ") + shell_quoted(text(host));
  return fmt::format("{}=({})\n", name, words);
}

std::string torchrun_script(const RankMap& map, const Wording& wording) {
  refuse_disorder(map, wording);
  std::string text =
      "# Run it on every host, with NODE_RANK its place in HOSTS, and the training command behind it:\n";
  text += "# NODE_RANK=0 ./torchrun.sh pretrain_gpt.py ARGUMENTS\n";
  text += host_array("HOSTS", map, [](const HostOfRanks& host) { return host.name; });
  text += host_array("SLOTS", map, [](const HostOfRanks& host) { return std::to_string(host.ranks.size()); });
  return text +
         fmt::format(
             "torchrun --nnodes {} --nproc-per-node \"${{SLOTS[$NODE_RANK]}}\" --node-rank \"$NODE_RANK\" "
             "\\\n  --master-addr \"${{HOSTS[0]}}\" --master-port \"${{MASTER_PORT:-29500}}\" \"$@\"\n",
             map.hosts.size());
}

// What a rank needs to know of itself, from the names that a launcher gives it.
std::string rank_environment(const RankMap& map, const char* rank, const char* world, const char* local) {
  std::string text = fmt::format("export RANK=${} WORLD_SIZE=${} LOCAL_RANK=${}; ", rank, world, local);
  text += fmt::format("export MASTER_ADDR={} MASTER_PORT=${{MASTER_PORT:-29500}}; exec \"$@\"",
                      map.hosts[0].name);
  return text;
}

std::vector<ExportedFile> sbatch_files(const std::string& header, const std::string& name,
                                       const RankMap& map) {
  std::string hosts, names;
  for (const RankPlace& place : map.ranks) hosts += map.hosts[at(place.host)].name + "\n";
  for (const HostOfRanks& host : map.hosts) names += (names.empty() ? "" : ",") + host.name;
  std::size_t most = 0;
  for (const HostOfRanks& host : map.hosts) most = std::max(most, host.ranks.size());
  std::string job;
  for (const char c : name)
    job += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' ? c : '-';
  std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks={}\n"
      "#SBATCH --ntasks-per-node={}\n#SBATCH --gpus-per-node={}\n#SBATCH --nodelist={}\n#SBATCH "
      "--exclusive\n",
      job, map.hosts.size(), map.ranks.size(), most, most, names);
  text += header;
  text +=
      "# sbatch sbatch.sh python pretrain_gpt.py ARGUMENTS. Line r of the file `tasks` is the host of rank "
      "r.\n";
  text += "export SLURM_HOSTFILE=\"${TASKS:-tasks}\"\n";
  text +=
      fmt::format("srun --distribution=arbitrary --ntasks={} bash -c '{}' rank \"$@\"\n", map.ranks.size(),
                  rank_environment(map, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"));
  return {{"sbatch.sh", text}, {"tasks", hosts}};
}

std::vector<ExportedFile> mpirun_files(const std::string& header, const RankMap& map,
                                       const Wording& wording) {
  const std::string body =
      rank_environment(map, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
  std::string text = "#!/bin/bash\n" + header + "# ./mpirun.sh python pretrain_gpt.py ARGUMENTS\n";
  if (!map.out_of_order) {
    text += fmt::format(
        "mpirun -np {} --hostfile \"${{HOSTFILE:-hostfile}}\" --map-by slot --bind-to none \\\n  bash -c "
        "'{}' rank \"$@\"\n",
        map.ranks.size(), body);
    return {{"mpirun.sh", text}, {"hostfile", hostfile_text(map, HostfileForm::plain, wording)}};
  }
  std::string ranks;
  for (std::size_t rank = 0; rank < map.ranks.size(); ++rank)
    ranks += fmt::format("rank {}={} slot={}\n", rank, map.hosts[at(map.ranks[rank].host)].name,
                         map.ranks[rank].chip);
  text += fmt::format(
      "mpirun -np {} --map-by rankfile:file=\"${{RANKFILE:-rankfile}}\" \\\n  bash -c '{}' rank \"$@\"\n",
      map.ranks.size(), body);
  return {{"mpirun.sh", text}, {"rankfile", ranks}};
}

}  // namespace

std::string torchrun_line(const RankMap& map) {
  const char* const rest =
      "--node-rank \"${NODE_RANK:-0}\" --master-addr \"${MASTER_ADDR:-localhost}\" --master-port "
      "\"${MASTER_PORT:-29500}\"";
  if (map.has_equal_hosts())
    return fmt::format("torchrun --nnodes {} --nproc-per-node {} {}", map.hosts.size(),
                       map.hosts[0].ranks.size(), rest);
  return fmt::format("WORLD_SIZE={} torchrun --nnodes {} --nproc-per-node \"$NPROC_PER_NODE\" {}",
                     map.ranks.size(), map.hosts.size(), rest);
}

std::string hostfile_text(const RankMap& map, HostfileForm form, const Wording& wording) {
  refuse_disorder(map, wording);
  std::string text;
  for (const HostOfRanks& host : map.hosts) {
    text += fmt::format("{} slots={}", host.name, host.ranks.size());
    if (form == HostfileForm::with_types && host.device.find(' ') != std::string::npos)
      wording.refuse("cluster", host.device, "reads a type of device without blanks");
    if (form == HostfileForm::with_types) text += " type=" + host.device;
    text += "\n";
  }
  return text;
}

std::vector<ExportedFile> launch_files(ExportTarget target, const std::string& name, const Job& job,
                                       const Wording& wording, const ExportOptions& options) {
  const RankMap map = map_ranks(job, options.hosts);
  const std::string header = export_header(target, name, job);
  switch (target) {
    case ExportTarget::torchrun:
      return {{"torchrun.sh", "#!/bin/bash\n" + header + torchrun_script(map, wording)}};
    case ExportTarget::sbatch:
      return sbatch_files(header, name, map);
    case ExportTarget::mpirun:
      return mpirun_files(header, map, wording);
    case ExportTarget::hostfile:
      return {{"hostfile", header + hostfile_text(map, HostfileForm::plain, wording)}};
    default:
      return {{"rank-map", header + print(map)}};
  }
}

}  // namespace motley
