// Reads whole text files and pipes. Neither may be larger than its reader allows, because a pipe could go on for ever.
// Read next: models/base/yaml_reader.hpp, models/base/csv.hpp.
#pragma once

#include <cstddef>
#include <string>

#include "models/base/refusal.hpp"

namespace motley {

// Far above what people write: a scenario or config.json has a few kB, a table of published runs a few hundred.
inline constexpr std::size_t kMostTextBytes = std::size_t{1} << 20;

// The most that is read of a file where its reader names no number: kMostTextBytes, unless a program was asked for
// more before it read anything.
std::size_t most_text_bytes();
void set_most_text_bytes(std::size_t bytes);

// Returns the whole text of a file or a pipe; the path `-` is standard input. Throws Refusal file-not-found,
// not-a-file, file-too-large.
std::string read_text_file(const std::string& path, const Location& asked_from = {});
std::string read_text_file(const std::string& path, const Location& asked_from, std::size_t most_bytes);

// Whether the path is a file or a pipe, or `-`.
bool is_text_source(const std::string& path);

// Throws Refusal not-a-file for a folder, a device, a pipe or `-`: some files are opened several times. A file that is
// not there is let pass.
void refuse_irregular_file(const std::string& path);

// Throws Refusal not-utf8 at the first byte that is not text in UTF-8. `file` is the name in locations.
void refuse_not_utf8(const std::string& text, const std::string& file);

}  // namespace motley
