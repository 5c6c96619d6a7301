// Lists of ranks as a person writes them: "0-7,12".
#pragma once

#include <string>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// Ascending, each once. Throws Refusal("bad-rank-list") for what is no list or names a rank that the
// Program does not have.
std::vector<Rank> parse_ranks(const std::string& text, Rank rank_count);

}  // namespace motley
