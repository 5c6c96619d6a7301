// The file that a trace is written to: a few hundred megabytes at most, streamed, and compressed where its name ends
// with .gz. Read next: models/trace/trace.hpp.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "models/base/output_file.hpp"

namespace motley {

// Which of the two forms a file has, by its name.
enum class TraceForm : std::uint8_t {
  chrome,    // Chrome trace JSON, the only form that motley reads again
  perfetto,  // Perfetto's protobuf, for viewers: NAME.pftrace, NAME.perfetto-trace
};
// A last ".gz" of the name is passed over.
TraceForm form_of_trace(const std::string& path);
// Throws Refusal("bad-trace") if the file has, by its name, the form that motley does not read.
void refuse_perfetto_trace(const std::string& path);

// Collects text and writes it a megabyte at a time. Throws as OutputFile does.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path);
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile();

  // What is appended to it is written by write_full() and close().
  fmt::memory_buffer& text() { return text_; }
  void write_full() {
    if (text_.size() > 1'000'000) write_all(false);
  }
  void close();

 private:
  struct Compressor;

  void write_all(bool is_last);

  OutputFile file_;
  fmt::memory_buffer text_;
  std::unique_ptr<Compressor> compressor_;  // null: the file is not compressed
};

}  // namespace motley
