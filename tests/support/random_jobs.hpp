// Random jobs for laws: small clusters of one to three unlike groups, and strategies of one or several pipelines on
// them; flows share every link that they cross. One seed decides everything, and written_out() prints the drawn job.
// Degrees, bytes and rates are chosen so that computes, latencies and transfers take about the same time, and none of
// them hides the others.
#pragma once

#include <string>

#include "models/scenario/job.hpp"
#include "tests/support/dice.hpp"

namespace motley::tests {

Job any_job(unsigned seed);

std::string written_out(const Job& job);

}  // namespace motley::tests
