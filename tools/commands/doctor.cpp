// motley doctor: which parts this build found, which of them really run here, and what each missing part
// would add. It changes nothing and exits 0 unless a part named with --need is missing. --peers asks what ranks find
// between them.
#include <fmt/format.h>
#include <spdlog/version.h>

#include <CLI/Version.hpp>
#include <boost/version.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "hw/device/probe.hpp"
#include "models/base/data_files.hpp"
#include "models/base/gzip.hpp"
#include "models/base/json_text.hpp"
#include "models/page/page.hpp"
#include "models/trace/trace_forms.hpp"
#include "sim/version.hpp"
#include "tools/commands/command.hpp"
#include "tools/commands/doctor_peers.hpp"
#include "tools/commands/place_flags.hpp"

namespace motley {
namespace {

struct DoctorArguments {
  bool json = false, peers = false;
  std::string need;
  PeersArguments of_peers;
};

PartReport linked(std::string name, std::string version, std::string enables) {
  return {.name = std::move(name),
          .version = std::move(version),
          .state = PartState::ran,
          .detail = "linked",
          .devices = {},
          .enables = std::move(enables)};
}

std::string version_of(int major, int minor, int patch) {
  return fmt::format("{}.{}.{}", major, minor, patch);
}

// D3 draws the plots of a page; the build takes it from Debian's package.
PartReport plots() {
  PartReport part = linked("D3", plot_library_version(), "pages for a browser: `motley report`");
  if (!part.version.empty()) return part;
  part.state = PartState::absent;
  part.detail = "libjs-d3 was not installed when this program was built";
  return part;
}

// Writes Perfetto's form of a trace.
PartReport messages() {
  PartReport part =
      linked("protobuf", protobuf_version(), "traces in Perfetto's form: `--trace FILE.pftrace`");
  if (!part.version.empty()) return part;
  part.state = PartState::absent;
  part.detail = "libprotobuf-dev and protobuf-compiler were not installed when this program was built";
  return part;
}

std::vector<PartReport> all_parts() {
  std::vector<PartReport> parts = {
      linked("SimGrid", simgrid_version(), "virtual time: `motley simulate`"),
      linked("Boost", version_of(BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100),
             "the cluster's topology"),
      linked("yaml-cpp", MOTLEY_YAML_CPP_VERSION, "scenarios and platforms"),
      linked("fmt", version_of(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100), "text"),
      linked("spdlog", version_of(SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH), "logs"),
      linked(
          "nlohmann-json",
          version_of(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH),
          "--json, traces"),
      linked("CLI11", CLI11_VERSION, "this command line"),
      linked("zlib", version_of_zlib(), "compressed traces: `--trace FILE.json.gz`"),
  };
  parts.push_back(plots());
  parts.push_back(messages());
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  for (PartReport& part : probe_hardware(folder)) parts.push_back(std::move(part));
  return parts;
}

std::string to_json(const std::vector<PartReport>& parts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PartReport& part : parts)
    list.push_back({{"name", part.name},
                    {"version", part.version},
                    {"state", name_of(part.state)},
                    {"detail", part.detail},
                    {"devices", part.devices},
                    {"enables", part.enables}});
  nlohmann::ordered_json whole = {
      {"schema", "motley.doctor/1"}, {"version", MOTLEY_VERSION}, {"parts", list}};
  whole["data"] = nlohmann::ordered_json::array();
  for (const DataFolder& folder : data_folders())
    whole["data"].push_back(
        {{"folder", folder.path}, {"only_platforms", folder.only_platforms}, {"exists", folder.exists}});
  whole["hidden"] = nlohmann::ordered_json::array();
  for (const HiddenFile& file : hidden_files())
    whole["hidden"].push_back({{"hidden", file.hidden}, {"used", file.used}});
  return json_text(whole);
}

// Where files are searched by their names, and which files have a name that another file has before them.
std::string data_text() {
  std::string text =
      "\nchips, clusters, models, software and scenarios are searched by name in this order:\n";
  for (const DataFolder& folder : data_folders())
    text += fmt::format("  {}{}\n", folder.path == "." ? "./platforms" : folder.path,
                        folder.exists ? "" : " (not there)");
  for (const HiddenFile& file : hidden_files())
    text += fmt::format("  {} is used, which hides {}\n", file.used, file.hidden);
  return text;
}

std::string to_text(const std::vector<PartReport>& parts) {
  std::string text = fmt::format("motley {}\n\n", MOTLEY_VERSION);
  text += fmt::format("{:<14} {:<9} {:<9} {}\n", "part", "version", "state", "what it gives");
  for (const PartReport& part : parts) {
    text += fmt::format("{:<14} {:<9} {:<9} {}\n", part.name, part.version.empty() ? "-" : part.version,
                        name_of(part.state), part.enables);
    if (part.detail != "linked") text += fmt::format("{:<34} ({})\n", "", part.detail);
    for (const std::string& device : part.devices) text += fmt::format("{:<34} {}\n", "", device);
  }
  text +=
      "\nran: linked into this program, or did real work here just now; compiled: in this build,\n"
      "but not run here; absent: not found when this program was built.\n";
  return text + data_text();
}

// The part named with --need. Null: no part was named.
const PartReport* needed(const std::vector<PartReport>& parts, const std::string& need) {
  if (need.empty()) return nullptr;
  std::vector<std::string> names;
  for (const PartReport& part : parts) {
    if (part.name == need) return &part;
    names.push_back(part.name);
  }
  throw Refusal(Exit::usage, "unknown-part", {}, fmt::format("no part is named `{}`", need),
                suggest(need, names));
}

Exit run(DoctorArguments& options) {
  if (options.peers) {
    options.of_peers.json = options.json;
    return report_peers(options.of_peers);
  }
  const std::vector<PartReport> parts = all_parts();
  const PartReport* need = needed(parts, options.need);
  write_result(options.json ? to_json(parts) : to_text(parts), "");
  return need == nullptr || need->state == PartState::ran ? Exit::ok : Exit::missing;
}

}  // namespace

void add_doctor(const Command& program) {
  const auto options = std::make_shared<DoctorArguments>();
  const Command command =
      program.subcommand("doctor", "List what was found, what of it runs here, and what is missing");
  command.flag("--json", options->json, "print JSON (schema motley.doctor/1)");
  command.option("--need", options->need, "exit with 5 unless this part ran here");
  command.flag(
      "--peers", options->peers,
      "say instead by which path ranks send each other messages, and why (schema motley.doctor_peers/1)");
  command.option("-n,--ranks", options->of_peers.ranks,
                 "with --peers: how many ranks on this host, where no launcher started them");
  add_place_flags(command, options->of_peers.place);
  command.example("motley doctor --need CUDA\n  motley doctor --peers -n 2");
  command.runs([options] { return run(*options); });
}

}  // namespace motley
