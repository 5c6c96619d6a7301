#include "models/frameworks/export.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/frameworks/launch_files.hpp"
#include "models/frameworks/megatron_settings.hpp"
#include "models/frameworks/rank_map.hpp"

namespace motley {
namespace {

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-_./:,=+%@").find(c) != std::string_view::npos;
}

std::string argument_lines(const Settings& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    text += "  --" + setting.name;
    for (const std::string& value : setting.values) text += " " + shell_quoted(value);
    text += "\n";
  }
  return text;
}

// The line that starts the ranks. Where hosts have unlike numbers of ranks, each host gives its own.
std::string megatron_launch(const RankMap& map) {
  const std::string common =
      "--master-addr \"${MASTER_ADDR:-localhost}\" --master-port \"${MASTER_PORT:-29500}\"";
  const std::string script = "pretrain_gpt.py \"${MEGATRON_ARGUMENTS[@]}\" \"$@\"\n";
  if (map.has_equal_hosts())
    return fmt::format(
        "torchrun --nnodes {} --nproc-per-node {} --node-rank \"${{NODE_RANK:-0}}\" {} \\\n  {}",
        map.hosts.size(), map.hosts[0].ranks.size(), common, script);
  return fmt::format(
      "# Hosts have unlike numbers of ranks: NPROC_PER_NODE is the host's own, as the hostfile says.\n"
      "WORLD_SIZE={} torchrun --nnodes {} --nproc-per-node \"$NPROC_PER_NODE\" --node-rank \"$NODE_RANK\" "
      "{} \\\n  {}",
      map.ranks.size(), map.hosts.size(), common, script);
}

std::vector<UnsaidKey> unsaid_keys(const Job& job) {
  std::vector<UnsaidKey> unsaid;
  const Train train;
  const auto add = [&](bool differs, const char* key, const char* why) {
    if (differs) unsaid.push_back({key, why});
  };
  add(job.train.expert_skew != train.expert_skew, "train.expert_skew", "it says what routing is expected");
  add(job.train.expert_room != train.expert_room, "train.expert_room", "it says how much memory is kept");
  add(job.train.fragmentation != train.fragmentation, "train.fragmentation",
      "it says how much memory is kept");
  add(job.train.tokens > 0, "train.tokens", "it says how long the whole run is, in reports");
  add(!job.train.text.empty(), "train.text", "data are named on the command line of a framework");
  return unsaid;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string export_header(ExportTarget target, const std::string& name, const Job& job,
                          const std::string& mark) {
  const FrameworkVersion& version = version_of(target);
  return fmt::format("{0} For {1} ({2}).\n{0} From scenario {3}, strategy {4}: {5}.\n", mark, version.text(),
                     version.source, quote(name), strategy_hash(job.transformer, job.train, job.strategy),
                     degrees_of(job.strategy));
}

std::vector<ExportedFile> megatron_files(const std::string& name, const Job& job, const Wording& wording,
                                         const ExportOptions& options) {
  Settings settings = megatron_strategy(job, wording);
  for (const Settings& more : {megatron_model(job, wording), megatron_train(job, wording)})
    settings.insert(settings.end(), more.begin(), more.end());
  const RankMap map = map_ranks(job, options.hosts);
  hostfile_text(map, HostfileForm::plain, wording);  // refuses ranks that no order of hosts places
  return {{"megatron-lm.sh", "#!/bin/bash\n" + export_header(ExportTarget::megatron_lm, name, job) +
                                 "MEGATRON_ARGUMENTS=(\n" + argument_lines(settings) + ")\n" +
                                 megatron_launch(map)}};
}

Export export_job(const std::string& name, const Job& job, ExportTarget target, const ScenarioKeys& keys,
                  const ExportOptions& options) {
  const Wording wording{version_of(target).text(), keys};
  Export exported{target, {}, unsaid_keys(job)};
  switch (target) {
    case ExportTarget::megatron_lm:
      exported.files = megatron_files(name, job, wording, options);
      break;
    case ExportTarget::flagscale:
      exported.files = flagscale_files(name, job, wording, options);
      break;
    default:
      exported.files = launch_files(target, name, job, wording, options);
      break;
  }
  return exported;
}

std::string export_json(const Export& exported) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array(), unsaid = nlohmann::ordered_json::array();
  for (const ExportedFile& file : exported.files) files.push_back({{"name", file.name}, {"text", file.text}});
  for (const UnsaidKey& key : exported.unsaid) unsaid.push_back({{"key", key.key}, {"why", key.why}});
  const FrameworkVersion& version = version_of(exported.target);
  return json_text({{"schema", "motley.export/1"},
                    {"to", name_of(exported.target)},
                    {"version", version.text()},
                    {"source", version.source},
                    {"files", files},
                    {"unsaid", unsaid}});
}

}  // namespace motley
