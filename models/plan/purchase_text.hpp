// What to buy, for people and for programs. Read next: models/plan/purchase.hpp.
#pragma once

#include <string>

#include "models/plan/purchase.hpp"

namespace motley {

std::string to_text(const std::string& scenario, const Purchases& purchases, const Goal& goal);
std::string to_json(const std::string& scenario, const Purchases& purchases,
                    const Goal& goal);  // schema motley.buy/1

}  // namespace motley
