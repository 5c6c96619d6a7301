// Writes JSON results. All that the program prints as JSON is written here, so that no figure is silently a null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace motley {

// The text of a result: indented by two spaces, with a newline at its end. Throws Refusal not-finite, which names the
// first figure that is infinite or NaN: JSON has no such numbers, and the library would write null.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace motley
