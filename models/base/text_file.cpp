#include "models/base/text_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "models/base/output_file.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

namespace fs = std::filesystem;

// Length of the UTF-8 character that begins at `at`; 0 when none does (RFC 3629).
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return first >= 0x20 || first == '\n' || first == '\r' || first == '\t' ? 1 : 0;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool beyond = first == 0xF4 && second > 0x8F;
    return tail(1) && tail(2) && tail(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

// The place that a refusal of the whole file names: where it was asked for, or else the file itself.
Location place_of_file(const std::string& path, const Location& asked_from) {
  return asked_from.file.empty() ? Location{path, 0, 0} : asked_from;
}

std::size_t most_bytes_of_text = kMostTextBytes;

const char* path_to_open(const std::string& path) { return path == "-" ? "/dev/stdin" : path.c_str(); }

fs::file_status status_of(const std::string& path) {
  std::error_code unknown;
  return fs::status(path_to_open(path), unknown);
}

bool is_pipe(const fs::file_status& status) { return fs::is_fifo(status) || fs::is_socket(status); }

bool is_standard_input(const std::string& path) { return path == "-" || path == "/dev/stdin"; }

// Refuses a folder or a device, unless it is standard input.
void refuse_device(const std::string& path, const Location& asked_from) {
  const fs::file_status status = status_of(path);
  if (!fs::exists(status) || fs::is_regular_file(status) || is_pipe(status) || is_standard_input(path))
    return;
  throw Refusal(Exit::usage, "not-a-file", place_of_file(path, asked_from),
                fmt::format("`{}` is no file", path), "a folder or a device is not read; a pipe or `-` is");
}

// What a pipe or a file holds, but no more than one byte above `most_bytes`. No value: it cannot be read.
std::optional<std::string> read_at_most(const std::string& path, std::size_t most_bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  std::ifstream file(path_to_open(path), std::ios::binary);
  std::string text;
  while (file && text.size() <= most_bytes) {
    const std::size_t had = text.size(), wanted = std::min(kPiece, most_bytes + 1 - had);
    text.resize(had + wanted);
    file.read(text.data() + had, static_cast<std::streamsize>(wanted));
    text.resize(had + static_cast<std::size_t>(file.gcount()));
  }
  if (!file && !file.eof()) return std::nullopt;
  return text;
}

// The text of what can be read only once is kept, because a command may read a file again.
std::optional<std::string> read_and_keep(const std::string& path, std::size_t most_bytes) {
  static std::map<std::string, std::string> kept;
  if (const auto earlier = kept.find(path); earlier != kept.end()) return earlier->second;
  std::optional<std::string> text = read_at_most(path, most_bytes);
  if (text && !fs::is_regular_file(status_of(path))) kept.emplace(path, *text);
  return text;
}

}  // namespace

std::size_t most_text_bytes() { return most_bytes_of_text; }
void set_most_text_bytes(std::size_t bytes) { most_bytes_of_text = bytes; }

bool is_text_source(const std::string& path) {
  const fs::file_status status = status_of(path);
  return path == "-" || fs::is_regular_file(status) || is_pipe(status);
}

void refuse_irregular_file(const std::string& path) {
  const fs::file_status status = status_of(path);
  if (!is_standard_input(path) && (!fs::exists(status) || fs::is_regular_file(status)))
    return note_input(path);
  throw Refusal(Exit::usage, "not-a-file", {path, 0, 0}, fmt::format("`{}` is no regular file", path),
                "it is read several times, which a pipe or a device does not allow");
}

std::string read_text_file(const std::string& path, const Location& asked_from) {
  return read_text_file(path, asked_from, most_text_bytes());
}

std::string read_text_file(const std::string& path, const Location& asked_from, std::size_t most_bytes) {
  refuse_device(path, asked_from);
  note_input(path_to_open(path));
  std::optional<std::string> text = read_and_keep(path, most_bytes);
  if (!text)
    throw Refusal(Exit::usage, "file-not-found", asked_from, fmt::format("cannot read the file `{}`", path));
  if (text->size() > most_bytes)
    throw Refusal(Exit::usage, "file-too-large", {path, 0, 0},
                  fmt::format("larger than {}", format_bytes(static_cast<double>(most_bytes))),
                  most_bytes == most_text_bytes() ? "`--max-input 16MiB` reads larger files" : "");
  return *std::move(text);
}

void refuse_not_utf8(const std::string& text, const std::string& file) {
  int line = 1, column = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    if (length == 0)
      throw Refusal(Exit::usage, "not-utf8", {file, line, column},
                    fmt::format("byte 0x{:02x} is not text in UTF-8", static_cast<unsigned char>(text[at])),
                    "save the file as UTF-8, without control characters");
    ++column;
    if (text[at] == '\n') {
      ++line;
      column = 1;
    }
    at += length;
  }
}

}  // namespace motley
