// Where the files that ship are, and how a name in a scenario becomes a path.
#pragma once

#include <string>

#include "models/base/refusal.hpp"

namespace motley {

// Where platforms/ and scenarios/ are: $MOTLEY_DATA, else beside the source tree, else the
// installed share folder.
std::string data_folder();

// The text that ships for training: scenarios/text/ of the data folder.
std::string default_text_path();

// The first of `<folder>/<name>` and `<data>/<under>/<name>` that is a file, where `name` gets
// `extension` unless it has it; a text with a `/` is a path, from `folder` or from here. Throws
// Refusal file-not-found naming what is there.
std::string find_file(const std::string& name, const std::string& folder, const std::string& under,
                      const std::string& extension, const Location& asked_from);
std::string folder_of(const std::string& path);  // "." when it has none
std::string stem_of(const std::string& path);    // "a/b.yaml" -> "b"

}  // namespace motley
