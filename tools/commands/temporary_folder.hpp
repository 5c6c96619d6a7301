// A folder for files that one command passes to the processes that it starts. Read next: tools/commands/runs.hpp.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "models/base/refusal.hpp"

namespace motley {

// A new folder, which the destructor removes.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "motley-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw RunFailure("cannot make a temporary folder: " + pattern);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace motley
