// Reads whole text files. A file must be regular and no larger than its reader allows: a device or a pipe could go on
// for ever. Read next: models/base/yaml_reader.hpp, models/base/csv.hpp.
#pragma once

#include <cstddef>
#include <string>

#include "models/base/refusal.hpp"

namespace motley {

// Far above what people write: a scenario or config.json has a few kB, a table of published runs a few hundred.
inline constexpr std::size_t kMostTextBytes = std::size_t{1} << 20;

// Returns the whole text of a file. Throws Refusal file-not-found, not-a-file, file-too-large.
std::string read_text_file(const std::string& path, const Location& asked_from = {},
                           std::size_t most_bytes = kMostTextBytes);

// Throws Refusal not-a-file for a folder, a device or a pipe. A file that is not there is let pass.
void refuse_irregular_file(const std::string& path, const Location& asked_from = {});

// Throws Refusal not-utf8 at the first byte that is not text in UTF-8. `file` is the name in locations.
void refuse_not_utf8(const std::string& text, const std::string& file);

}  // namespace motley
