#include "models/trace/trace_file.hpp"

#include <zlib.h>

#include <array>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

bool is_gzip_name(const std::string& path) { return path.ends_with(".gz"); }

}  // namespace

// gzip's header has no time and no name here, so that the same text gives the same bytes.
struct TraceFile::Compressor {
  Compressor() {
    constexpr int kGzipWindow =
        15 + 16;  // zlib.h, deflateInit2: 16 more than the window asks for gzip's header
    MOTLEY_CHECK(
        deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  ~Compressor() { deflateEnd(&stream); }
  z_stream stream = {};
};

TraceForm form_of_trace(const std::string& path) {
  const std::string name = is_gzip_name(path) ? path.substr(0, path.size() - 3) : path;
  return name.ends_with(".pftrace") || name.ends_with(".perfetto-trace") ? TraceForm::perfetto
                                                                         : TraceForm::chrome;
}

void refuse_perfetto_trace(const std::string& path) {
  if (form_of_trace(path) == TraceForm::perfetto)
    throw Refusal(Exit::usage, "bad-trace", {.file = path}, "Perfetto's form of a trace is for viewers alone",
                  "write it with `--trace NAME.json` or `--trace NAME.json.gz`, which commands read again");
}

TraceFile::TraceFile(const std::string& path) : file_(path) {
  if (is_gzip_name(path)) compressor_ = std::make_unique<Compressor>();
}

TraceFile::~TraceFile() = default;

void TraceFile::close() {
  write_all(true);
  file_.close();
}

void TraceFile::write_all(bool is_last) {
  if (compressor_ == nullptr) {
    file_.write({text_.data(), text_.size()});
  } else {
    z_stream& stream = compressor_->stream;
    stream.next_in = reinterpret_cast<Bytef*>(text_.data());
    stream.avail_in = static_cast<uInt>(text_.size());
    std::array<char, 65536> packed{};
    do {
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = static_cast<uInt>(packed.size());
      MOTLEY_CHECK(deflate(&stream, is_last ? Z_FINISH : Z_NO_FLUSH) != Z_STREAM_ERROR);
      file_.write({packed.data(), packed.size() - stream.avail_out});
    } while (stream.avail_out == 0);
  }
  text_.clear();
}

}  // namespace motley
