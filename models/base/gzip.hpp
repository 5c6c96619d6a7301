// Text that a file holds compressed by gzip, told by its first bytes and not by its name. Read next:
// models/base/text_file.hpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace motley {

bool is_gzip(std::string_view bytes);
// Of the library that reads and writes such files.
std::string version_of_zlib();

// What a whole gzip file holds; nothing: it is damaged or ends too early. Throws Refusal("file-too-large") if that is
// more than `most_bytes`; `path` is for the message.
std::optional<std::string> gunzip(std::string_view bytes, const std::string& path, std::size_t most_bytes);

// What read_text_file() returns, and of a gzip file what it holds, unless it is damaged.
std::string read_text_or_gzip(const std::string& path, std::size_t most_bytes);

// The text of a file, compressed or not, up to its first `until`, but no more than about `most_bytes`; empty: the file
// cannot be read. The rest of the file is not read.
std::string read_head(const std::string& path, std::optional<char> until, std::size_t most_bytes);

}  // namespace motley
