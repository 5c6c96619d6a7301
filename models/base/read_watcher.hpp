// Whoever watches what readers ask of the nodes of YAML files: which keys a map may have and needs, and how a value is
// written. So the form of files can be described without saying it twice. Read next: models/scenario/schema.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/yaml_reader.hpp"

namespace motley {

// How a reader reads a value.
struct ValueForm {
  enum class Kind : std::uint8_t { integer, number, quantity, truth, text, word };
  Kind kind = Kind::text;
  IntegerRange range = {};                 // of an integer
  NumberBounds bounds = {};                // of a number, without its hint
  Dimension dimension = Dimension::count;  // of a quantity
  std::vector<std::string> words = {};     // of a word
  bool operator==(const ValueForm&) const = default;
};

class ReadWatcher {
 public:
  virtual ~ReadWatcher() = default;
  virtual void file_parsed(const std::string& file, const Yaml& root) = 0;
  virtual void map_read(const Location& map, const std::vector<std::string>& known) = 0;
  virtual void key_needed(const Location& map, std::string_view key) = 0;
  virtual void value_read(const Location& value, const ValueForm& form) = 0;
};

// The watcher of all readers of this process from now on; nullptr: none. It is not owned.
void watch_reads(ReadWatcher* watcher);

}  // namespace motley
