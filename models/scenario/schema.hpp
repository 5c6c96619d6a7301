// JSON Schema of the files that people write. Nobody wrote it: it is what the readers ask for while they read every
// file that ships and every example of scenarios/README.md and platforms/README.md, which name each key (a test).
// Editors complete and check with it. It knows the form of a file, not what is possible: `motley check` tells that.
// Read next: models/base/read_watcher.hpp.
#pragma once

#include <string>

#include "models/base/words.hpp"

namespace motley {

enum class FileKind : std::uint8_t { scenario, cluster, chip, software };
template <>
inline constexpr auto kWords<FileKind> = words("scenario", "cluster", "chip", "software");

// The schema (draft 7) of a kind of file, as JSON text. A value of a key may also be null: it then counts as missing.
std::string schema_of(FileKind kind);

}  // namespace motley
