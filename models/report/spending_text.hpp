// Spending for people: the report's rows for a step, and its block for a run.
#pragma once

#include <string>

#include "models/base/table.hpp"
#include "models/report/spending.hpp"

namespace motley {

// Adds the rows for a step: price, energy, carbon; and electricity if its price is known.
void add_spending(const Spending& spending, Table& figures);
// The block for the whole run, with an empty line after it; empty if no run was asked for.
std::string print_run(const Spending& spending);

}  // namespace motley
