// The data that Motley finds by name, a line each: chips, clusters, models, software, scenarios and schedules. A file
// that somebody adds to a data folder is listed by itself. Read next: list.cpp, models/base/data_files.hpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/base/words.hpp"

namespace motley {

enum class DataKind : std::uint8_t { chips, clusters, models, software, scenarios, schedules };
template <>
inline constexpr auto kWords<DataKind> = words("chips", "clusters", "models", "software", "scenarios",
                                               "schedules");

struct ListedData {
  std::string name;
  std::vector<std::string> cells;  // what the columns after the name hold
  nlohmann::ordered_json
      figures;  // the same as numbers, in base units, with `says` where the file has a sentence
};

struct DataList {
  DataKind kind = DataKind::chips;
  std::string aligned;               // as for models/base/table.hpp, without the name
  std::vector<std::string> columns;  // the same
  std::vector<ListedData> items;
  std::vector<std::string> unreadable;  // why files are left out, each as a refusal says it
};

// Reads the files of that kind.
DataList list_data(DataKind kind);

// Names by which a user can ask for data of that kind. Reads no file, so a name may be that of a file with a mistake.
std::vector<std::string> data_names(DataKind kind);

}  // namespace motley
