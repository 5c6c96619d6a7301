// Spending for people: how a run's length is written, and the report's rows and block on what a step and a run take.
#pragma once

#include <string>

#include "models/spending.hpp"
#include "models/table.hpp"
#include "models/yaml_reader.hpp"

namespace motley {

// Of a whole run: `15T`, `300 B`, or a plain number. Throws Refusal.
double to_tokens(const Yaml& node);
double to_goodput(const Yaml& node);  // more than 0, at most 1

// Adds the rows on a step: price, energy, carbon; electricity where its price is known.
void add_spending(const Spending& spending, Table& figures);
// The block on the whole run, with an empty line behind it; empty where none is asked for.
std::string print_run(const Spending& spending);

}  // namespace motley
