// The command that started this process, for ranks that run it again. Read next: hw/launch/launch.hpp.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace motley {

inline std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

}  // namespace motley
