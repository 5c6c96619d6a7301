// Finds the files that ship with Motley, and turns a name in a scenario into a path.
#pragma once

#include <string>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley {

// The folder of the data that ship, with platforms/ and scenarios/: $MOTLEY_DATA, else the source tree, else the
// installed share folder.
std::string data_folder();

// A folder in which names are searched. A file in an earlier folder hides one of its name in a later folder.
struct DataFolder {
  std::string path;
  bool only_platforms = false;  // whether only its platforms/ is searched
  bool exists = false;
};
// The working directory, of which platforms/ is searched; one's own folder, $XDG_CONFIG_HOME/motley, else
// ~/.config/motley; and data_folder(). A folder stands here once, at its last place.
std::vector<DataFolder> data_folders();

// A file that is not found by its name, because a file in an earlier folder has the same name.
struct HiddenFile {
  std::string used, hidden;
};
// Those of chips, clusters, models, software and scenarios.
std::vector<HiddenFile> hidden_files();

// The path of the training text that ships: a file in scenarios/text/ of the data folder.
std::string default_text_path();

// The path of a scenario in the data folders, by its name without `.yaml`. Throws Refusal file-not-found, with the
// nearest name.
std::string find_shipped_scenario(const std::string& name);

// Where a command writes a chip or cluster that it measured and that is to have this name:
// `<data>/platforms/measured/NAME.yaml`, whose folder is made; below one's own folder where motley is installed. A
// path (with `/` or `.`, or `-`) and an empty name stay as they are. Throws Refusal shipped-name, unwritable-file.
std::string measured_path(const std::string& name);

// Searches `folder`, the working directory and `<under>` in each of data_folders(), in this order, for a file of that
// name that is not a scenario. After platforms/ and platforms/chips/ it searches platforms/measured/. `extension` is
// appended to a name that lacks it. A name that begins with `/` is an absolute path, and `-` is standard input. Throws
// Refusal file-not-found, which lists the files that ship.
std::string find_file(const std::string& name, const std::string& folder, const std::string& under,
                      const std::string& extension, const Location& asked_from);
// The paths of the files in `<under>` of all data_folders() that are not hidden and have this extension, ordered by
// name. Those of platforms/measured/ come after those of platforms/ and of platforms/chips/: a chip that was measured
// is no cluster, which only its reader can tell.
std::vector<std::string> data_files(const std::string& under, const std::string& extension);
std::string folder_of(const std::string& path);  // "." when the path has no folder
std::string stem_of(const std::string& path);    // "a/b.yaml" -> "b", "-" -> "stdin"

}  // namespace motley
