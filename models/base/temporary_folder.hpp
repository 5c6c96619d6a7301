// A new folder for files that one command or test passes to others, which its destructor removes. Read next:
// models/base/text_file.hpp.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "models/base/refusal.hpp"

namespace motley {

class TemporaryFolder {
 public:
  // Throws RunFailure if the folder for temporary files cannot be written.
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

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Makes the folders of the name, too. Returns the path of the file.
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(file(name), std::ios::binary).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

}  // namespace motley
