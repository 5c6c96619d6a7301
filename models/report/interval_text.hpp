// What a likely interval says and rests on, in words. Read next: models/scenario/interval.hpp.
#pragma once

#include <string>

#include "models/scenario/interval.hpp"

namespace motley {

// "5.1 s to 6.2 s, as 8 of 10 published runs of this software"; `seconds`: the predicted step.
std::string describe(const Interval& interval, double seconds);

}  // namespace motley
