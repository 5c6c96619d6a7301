#include "models/base/text_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "models/base/units.hpp"

namespace motley {
namespace {

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

}  // namespace

void refuse_irregular_file(const std::string& path, const Location& asked_from) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  throw Refusal(Exit::usage, "not-a-file", place_of_file(path, asked_from),
                fmt::format("`{}` is no regular file", path), "a folder, a device or a pipe is not read");
}

std::string read_text_file(const std::string& path, const Location& asked_from, std::size_t most_bytes) {
  refuse_irregular_file(path, asked_from);
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(path, unknown);
  if (!unknown && bytes > most_bytes)
    throw Refusal(Exit::usage, "file-too-large", {path, 0, 0},
                  fmt::format("larger than {}", format_bytes(static_cast<double>(most_bytes))));
  std::string text(unknown ? 0 : bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (unknown || (!file && !file.eof()))
    throw Refusal(Exit::usage, "file-not-found", asked_from, fmt::format("cannot read the file `{}`", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
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
