// Random jobs whose chips have prices and powers and whose groups have sites, so that every objective of a plan is
// known. Read next: tests/support/random_jobs.hpp.
#pragma once

#include "models/scenario/job.hpp"

namespace motley::tests {

// Gives every chip of the job a price and a power, and every group a site, drawn from the seed.
void price_chips(Job& job, unsigned seed);

// A random job that closed forms can lay out, without experts and with prices.
Job priced_job(unsigned seed);

}  // namespace motley::tests
