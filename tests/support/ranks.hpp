// How tests name ranks: 0_rank, 1_rank.
#pragma once

#include "models/program/program.hpp"

namespace motley {

consteval Rank operator""_rank(unsigned long long number) { return Rank(number); }

}  // namespace motley
