// Files that a command writes: whole or not at all, by one run at a time, and never over what it has read. Read next:
// models/trace/trace_file.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace motley {

// What is written goes into a file beside `path`, which is renamed at the end: a reader never sees half a file. A
// device or a pipe (/dev/stdout) is written directly.
class OutputFile {
 public:
  // Takes over what open_outputs() has opened, or opens it now. Throws Refusal "unwritable-file", which says why, or
  // "output-in-use": another run is writing the same file.
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();  // without close(): removes what was written

  void write(std::string_view bytes);  // throws Refusal "unwritable-file"
  void close();                        // the same

 private:
  std::string path_;
  std::string written_;  // the file beside it; empty: a device, which is written directly
  int descriptor_ = -1;  // -1: it is closed
  [[noreturn]] void refuse(int error);
};

// Opens what a command will write, before its work begins: what cannot be written is told at once. Empty paths name
// nothing. Throws as OutputFile does, "output-in-use" if one is named twice, and "output-is-input" if it was read.
void open_outputs(const std::vector<std::string>& paths);

// Called where a file is read. Throws Refusal "output-is-input" if open_outputs() has opened it.
void note_input(const std::string& path);

// Removes what is not closed. May be called by a handler of a signal.
void remove_unfinished_outputs();

}  // namespace motley
