// Random jobs for laws: small clusters of one to three unlike groups, strategies of one or several pipelines on them,
// every link shared by whoever crosses it. All from one seed, and what was drawn prints (written_out). Degrees, bytes
// and rates are chosen so that computes, latencies and transfers take about as long: none of them may hide the others.
#pragma once

#include <string>

#include "models/scenario/job.hpp"
#include "tests/support/dice.hpp"

namespace motley::tests {

Job any_job(unsigned seed);

std::string written_out(const Job& job);

}  // namespace motley::tests
