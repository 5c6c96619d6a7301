#include "models/base/gzip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/base/units.hpp"

namespace motley {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 16;
constexpr int kAnyWindowOfGzip = 15 + 16;  // zlib.h, inflateInit2: 16 more than the window: only gzip

struct Inflater {
  Inflater() { MOTLEY_CHECK(inflateInit2(&stream, kAnyWindowOfGzip) == Z_OK); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
  z_stream stream = {};
};

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string version_of_zlib() { return zlibVersion(); }

std::optional<std::string> gunzip(std::string_view bytes, const std::string& path, std::size_t most_bytes) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::string text;
  std::array<char, kPieceBytes> piece{};
  std::size_t taken = 0;
  while (true) {
    if (stream.avail_in == 0) {  // zlib counts in 32 bits
      const std::size_t count = std::min(bytes.size() - taken, std::size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));
      stream.avail_in = static_cast<uInt>(count);
      taken += count;
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    const int outcome = inflate(&stream, Z_NO_FLUSH);
    if (outcome != Z_OK && outcome != Z_STREAM_END) return std::nullopt;
    text.append(piece.data(), piece.size() - stream.avail_out);
    if (text.size() > most_bytes)
      throw Refusal(
          Exit::usage, "file-too-large", {path, 0, 0},
          fmt::format("holds, compressed, more than {}", format_bytes(static_cast<double>(most_bytes))));
    if (outcome != Z_STREAM_END) continue;
    // A gzip file may have several members, one after another.
    if (stream.avail_in == 0 && taken == bytes.size()) return text;
    if (inflateReset(&stream) != Z_OK) return std::nullopt;
  }
}

std::string read_text_or_gzip(const std::string& path, std::size_t most_bytes) {
  std::string text = read_text_file(path, {}, most_bytes);
  if (!is_gzip(text)) return text;
  std::optional<std::string> inflated = gunzip(text, path, most_bytes);
  return inflated ? *std::move(inflated) : text;
}

std::string read_head(const std::string& path, std::optional<char> until, std::size_t most_bytes) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  std::string head;
  std::array<char, kPieceBytes> piece{};
  while (file != nullptr && head.size() < most_bytes) {
    const int count = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    if (count <= 0) break;
    const std::string_view read(piece.data(), static_cast<std::size_t>(count));
    const std::size_t end = until ? read.find(*until) : std::string_view::npos;
    head.append(read.substr(0, end));
    if (end != std::string_view::npos) break;
  }
  return head;
}

}  // namespace motley
