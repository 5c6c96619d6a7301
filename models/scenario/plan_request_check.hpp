// What a request for a plan may not ask of a job: prices of chips that have none, groups that are not there, pins that
// contradict each other. Read next: models/scenario/plan_request.hpp.
#pragma once

#include <map>
#include <string>

#include "models/base/yaml_reader.hpp"
#include "models/scenario/job.hpp"
#include "models/scenario/plan_request.hpp"

namespace motley {

// Where a request was written.
struct PlanPlaces {
  Location whole;                        // `plan`
  std::map<std::string, Location> keys;  // "objective", "pins", "pins.groups"
  const Location& place_of(const std::string& key) const {
    const auto place = keys.find(key);
    return place == keys.end() ? whole : place->second;
  }
};
// The places of a map that was read as `plan:`; null: it has none.
PlanPlaces places_of(const Yaml& plan, const Location& whole);

// Throws the Refusal of a request that the job cannot be asked.
void check_request(const PlanRequest& request, const PlanPlaces& places, const Job& job);

}  // namespace motley
