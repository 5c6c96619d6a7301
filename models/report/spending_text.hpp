// Spending for people: the report's rows for a step, and its block for a run.
#pragma once

#include <optional>
#include <string>

#include "models/base/table.hpp"
#include "models/report/spending.hpp"
#include "models/scenario/interval.hpp"

namespace motley {

// Adds the rows for a step: price, energy, carbon; and electricity if its price is known. Price and days are also
// printed at both ends of the interval of the step, if there is one.
void add_spending(const Spending& spending, Table& figures, const std::optional<Interval>& interval = {});
// The block for the whole run, with an empty line after it; empty if no run was asked for.
std::string print_run(const Spending& spending, const std::optional<Interval>& interval = {});

}  // namespace motley
