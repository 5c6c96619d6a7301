// Lists of ranks as users write them: "0-7,12".
#pragma once

#include <string>
#include <vector>

#include "models/program/program.hpp"

namespace motley {

// Returns the ranks in ascending order, without duplicates. Throws Refusal("bad-rank-list") if the text is not a
// list or names a rank that the Program does not have.
std::vector<Rank> parse_ranks(const std::string& text, std::int32_t rank_count);

}  // namespace motley
