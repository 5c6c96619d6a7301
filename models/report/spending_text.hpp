// Spending for people: the report's rows and block on what a step and a run take.
#pragma once

#include <string>

#include "models/base/table.hpp"
#include "models/report/spending.hpp"

namespace motley {

// Adds the rows on a step: price, energy, carbon; electricity where its price is known.
void add_spending(const Spending& spending, Table& figures);
// The block on the whole run, with an empty line behind it; empty where none is asked for.
std::string print_run(const Spending& spending);

}  // namespace motley
