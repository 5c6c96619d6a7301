// The file of rows that a sweep has done: a line of JSON that says which sweep it is, then one for each row, in the
// order in which they ended. A sweep that goes on reads it, and so does whoever joins the parts of a sweep. Read next:
// models/sweep/sweep_table.hpp.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "models/sweep/sweep_table.hpp"

namespace motley {

// What makes two sweeps the same: each row of one is that of the other.
struct SweepOrigin {
  std::string name;  // of the scenario
  std::vector<SweepAxis> axes;
  std::string hash;  // of the scenario, of the files that it names, and of this version of Motley
};

std::string origin_line(const SweepOrigin& origin);             // with a newline at its end
std::string row_line(std::size_t number, const SweepRow& row);  // with a newline at its end

struct SweepRows {
  SweepOrigin origin;
  std::map<std::size_t, SweepRow> rows;  // by the number of their scenario
  std::size_t whole_bytes = 0;           // without the last line, where it was cut off while it was written
};

// Reads such a file; `file` is its name in refusals. Throws Refusal bad-rows.
SweepRows parse_rows(const std::string& text, const std::string& file);

// Throws Refusal other-sweep, unless the rows are of this sweep.
void check_same_sweep(const SweepRows& rows, const SweepOrigin& origin, const std::string& file);

// The rows of several files of one sweep as one table. Throws Refusal other-sweep, and unlike-rows where two files have
// a row with unlike figures.
SweepTable join_rows(const std::vector<SweepRows>& parts, const std::vector<std::string>& files);

}  // namespace motley
