// The results of a fit: files of platforms/software/ and platforms/published/, in a folder of their own or in the data
// folder, and a table of how far predictions lie from measurements. Read next: tools/fit/main.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/fit/intervals.hpp"
#include "tools/fit/rounds.hpp"

namespace motley::fit {

// How large the errors of a set's runs are, in percent of the measured value.
struct SetErrors {
  std::string set;
  std::size_t rows = 0;
  double mean_pct = 0, median_pct = 0, worst_pct = 0;
};
struct ErrorTable {
  std::vector<SetErrors> sets;  // sorted by name
  double mean_of_sets_pct = 0, median_of_sets_pct = 0;
};
// Errors are logarithms of predicted over measured.
ErrorTable table_of(const std::vector<double>& errors, const std::vector<std::string>& sets);
std::string to_text(const ErrorTable& table);
std::string to_json(const ErrorTable& table);  // a JSON object
// A JSON list of the figures that the fit moves.
std::string to_json(const Figures& figures, const Fit& fit);

// The text of each file, by its path relative to the data folder.
using Files = std::map<std::string, std::string>;

struct Written {
  Bounds bounds;
  std::string source;
};
// The interval of one software. `own`: its runs, each predicted without the runs of its size. If these are few, the
// interval is at least as wide as that of `all`, the runs of all software.
Written interval_of_software(const std::vector<Ratio>& own, const std::vector<Ratio>& all,
                             const std::string& month);

// The text of platforms/software/NAME.yaml.
std::string software_file(const Figures& figures, const Fit& fit, const std::string& software,
                          const std::vector<FitRun>& runs, const Written& interval, const std::string& month);
// The text of a file of platforms/published/left_out/.
std::string left_out_text(const Figures& figures, const LeftOut& left_out, const std::string& month);
// The text without its line for that key, and with a new line for it at the end. `told`: "12 sets, ...", what the runs
// are. The interval is at least as wide as `at_least`.
std::string with_interval(const std::string& text, const std::string& key, const std::vector<Ratio>& ratios,
                          const std::string& told, const Bounds& at_least = {});
// The mean over sets of the mean logarithm of predicted over measured: how far predictions lie to one side.
double bias_of(const std::vector<Ratio>& ratios);

// The path of a new folder of its own for the results of a fit. Throws Refusal("unwritable-file").
std::string new_folder_in(const std::string& parent);
// Throws Refusal("unwritable-file").
void write_files(const Files& files, const std::string& folder);

}  // namespace motley::fit
