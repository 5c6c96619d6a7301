#include "models/base/data_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "models/base/all_refusals.hpp"
#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/base/yaml_reader.hpp"

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMeasuredFolder = "platforms/measured";

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// What is measured here is found like what ships.
std::vector<std::string> with_measured(const std::string& under) {
  if (under == "platforms" || under == "platforms/chips") return {under, kMeasuredFolder};
  return {under};
}

// The folders in which a name is searched: `under` in all data folders, then what was measured in these.
std::vector<std::string> folders_under(const std::string& under) {
  std::vector<std::string> folders;
  for (const std::string& each : with_measured(under))
    for (const DataFolder& data : data_folders())
      if (data.exists && (!data.only_platforms || each.starts_with("platforms")))
        folders.push_back(data.path == "." ? each : data.path + "/" + each);
  return folders;
}

// The folder of the data of a person, which need not exist. Empty: the person has no home.
std::string own_folder() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && *config == '/')
    return std::string(config) + "/motley";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.config/motley";
  return {};
}

std::string installed_folder() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path().parent_path() / "share" / "motley").string();
}

std::vector<std::string> files_in(const std::string& folder, const std::string& extension) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == extension) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end(),
            [](const std::string& a, const std::string& b) { return stem_of(a) < stem_of(b); });
  return paths;
}

}  // namespace

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string stem_of(const std::string& path) {
  return path == "-" ? "stdin" : fs::path(path).stem().string();
}

std::string data_folder() {
  if (const char* named = std::getenv("MOTLEY_DATA"); named && *named) return named;
  if (is_folder(std::string(MOTLEY_SOURCE_DIR) + "/platforms")) return MOTLEY_SOURCE_DIR;
  return installed_folder();
}

std::vector<DataFolder> data_folders() {
  std::vector<DataFolder> folders{{".", true, is_folder("platforms")}};
  const auto add = [&](const std::string& path) {
    std::error_code ignored;
    std::erase_if(folders,
                  [&](const DataFolder& other) { return fs::equivalent(other.path, path, ignored); });
    folders.push_back({path, false, is_folder(path)});
  };
  if (const std::string own = own_folder(); !own.empty()) add(own);
  add(data_folder());
  return folders;
}

std::vector<HiddenFile> hidden_files() {
  std::vector<HiddenFile> hidden;
  constexpr std::pair<const char*, const char*> kKinds[] = {{"platforms/chips", ".yaml"},
                                                            {"platforms", ".yaml"},
                                                            {"scenarios/models", ".json"},
                                                            {"platforms/software", ".yaml"},
                                                            {"scenarios", ".yaml"}};
  std::set<std::string> told;  // what was measured is searched for chips and for clusters
  for (const auto& [under, extension] : kKinds) {
    std::map<std::string, std::string> used;  // by name
    for (const std::string& folder : folders_under(under))
      for (const std::string& path : files_in(folder, extension))
        if (const auto [first, is_first] = used.try_emplace(stem_of(path), path);
            !is_first && told.insert(path).second)
          hidden.push_back({first->second, path});
  }
  return hidden;
}

std::string measured_path(const std::string& name) {
  if (name.empty() || name == "-" || name.find('/') != std::string::npos ||
      name.find('.') != std::string::npos)
    return name;
  const std::string file = "/" + name + ".yaml";
  for (const std::string folder : {"platforms", "platforms/chips"})
    if (is_text_source(data_folder() + "/" + folder + file))
      throw Refusal(Exit::usage, "shipped-name", {},
                    fmt::format("`{}` is the name of a file that ships in {}", name, folder),
                    fmt::format("give another name, or a path: ./{}.yaml", name));
  const std::string data = data_folder(), own = own_folder();
  const bool is_installed = data == installed_folder() && !own.empty();
  const std::string folder = (is_installed ? own : data) + "/" + kMeasuredFolder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Refusal(Exit::usage, "unwritable-file", {.file = folder}, "cannot be made: " + error.message(),
                  fmt::format("give a path: ./{}.yaml", name));
  return folder + file;
}

std::vector<std::string> data_files(const std::string& under, const std::string& extension) {
  std::vector<std::string> paths;
  for (const std::string& each : with_measured(under)) {
    std::map<std::string, std::string> by_name;
    for (const std::string& folder : folders_under(under))
      if (folder == each || folder.ends_with("/" + each))
        for (const std::string& path : files_in(folder, extension)) by_name.try_emplace(stem_of(path), path);
    for (const auto& [name, path] : by_name) paths.push_back(path);
  }
  return paths;
}

std::string default_text_path() { return data_folder() + "/scenarios/text/sonnets.txt"; }

std::string find_shipped_scenario(const std::string& name) {
  const bool is_file_name = name.find('.') != std::string::npos;
  for (const std::string& folder : folders_under("scenarios"))
    if (const std::string path = fmt::format("{}/{}.yaml", folder, name);
        !is_file_name && is_text_source(path))
      return path;
  std::vector<std::string> known;
  for (const std::string& file : data_files("scenarios", ".yaml")) known.push_back(stem_of(file));
  const std::string near = suggest(stem_of(name), known);
  if (is_file_name)
    throw Refusal(Exit::usage, "file-not-found", {},
                  fmt::format("cannot read the file `{}`", shortened(name)),
                  near.starts_with("did") ? near : "");
  throw Refusal(
      Exit::usage, "file-not-found", {},
      fmt::format("no file `{}` is here, and no scenario that ships has this name", shortened(name)), near);
}

// Whether the file is a scenario. find_file() skips scenarios: one may have the name of its cluster and stand beside
// it.
static bool is_scenario(const std::string& path) {
  if (!path.ends_with(".yaml")) return false;
  try {
    const Yaml node = read_yaml(path);
    return node->is_map() && node->find("model") != nullptr && node->find("train") != nullptr;
  } catch (const Refusal&) {
    return false;  // the reader of that file reports its mistakes
  }
}

std::string find_file(const std::string& name, const std::string& folder, const std::string& under,
                      const std::string& extension, const Location& asked_from) {
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(extension);
  const std::string file = name.ends_with(extension) ? name : name + extension;
  if (name == "-") return name;
  std::vector<std::string> places;
  if (!name.empty() && name[0] == '/') {
    places = {file, name};
  } else {
    const std::string beside = folder == "." ? "" : folder + "/";
    places = {beside + file, file};
    for (const std::string& each : folders_under(under)) places.push_back(each + "/" + file);
    if (is_path) places.insert(places.begin(), {beside + name, name});
  }
  for (const std::string& place : places)
    if (is_text_source(place) && !is_scenario(place)) return place;
  const std::vector<std::string> shipped = data_files(under, extension);
  std::vector<std::string> known;  // names of the files that the user could have meant
  for (const std::string& path : shipped) known.push_back(stem_of(path));
  if (is_excused_name(asked_from) && !known.empty()) {
    const std::string near = nearest(name, known).value_or(known.front());
    return shipped[static_cast<std::size_t>(std::find(known.begin(), known.end(), near) - known.begin())];
  }
  throw Refusal(Exit::usage, "file-not-found", asked_from,
                fmt::format("no file `{}`, beside this one or among those that ship", shortened(file)),
                known.empty() ? fmt::format("none ship in {}", under) : suggest(name, known));
}

}  // namespace motley
