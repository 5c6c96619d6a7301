// What `motley calibrate` says of measurements beside its fits of kernels: transfers, and work of a profile that is of
// no kind that Motley has. Read next: models/calibration/transfer_fit.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/calibration/measurements.hpp"
#include "models/calibration/transfer_fit.hpp"

namespace motley {

// "": there is nothing of the kind.
std::string transfers_text(const std::vector<TransferFit>& fits);
std::string unread_text(const Measurements& measurements);

nlohmann::ordered_json transfers_json(const std::vector<TransferFit>& fits);
nlohmann::ordered_json profile_json(const Measurements& measurements);

}  // namespace motley
