// A page that shows a prediction, or two side by side, for a person with a browser: one file, which asks no network for
// anything. Its data are JSON in the page (schema "motley.report/1"); models/page/*.js draws them. Read next:
// models/report/report.hpp, models/explain/explain.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/explain/explain.hpp"
#include "models/plan/prepare.hpp"

namespace motley {

// A prediction: the scenario, its simulation, and what explains it.
struct PageSide {
  const Prepared& prepared;
  const Trace& trace;
  Explained explained;  // its report is the whole one, with interval and name
};

struct Page {
  std::vector<PageSide> sides;  // one or two
  std::optional<Why> why;       // of two
  std::string version;          // of the program
};

// The version of D3 in this build; empty: this build has none, and makes no pages.
std::string plot_library_version();
// Throws Refusal("missing-part") if the version is empty.
void require_plots(const std::string& version);

std::string to_json(const Page& page);  // schema "motley.report/1"
// Throws what require_plots() throws for this build.
std::string to_html(const Page& page);

}  // namespace motley
