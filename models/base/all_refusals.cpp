#include "models/base/all_refusals.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace motley {
namespace {

constexpr std::size_t kMostTold = 20;

// Kinds of refusals that say how a value is written or a key is named, whatever stands elsewhere.
constexpr std::array<std::string_view, 12> kOfForm{
    "unknown-key", "missing-key",  "duplicate-key", "wrong-type",    "octal-number",  "number-out-of-range",
    "not-finite",  "missing-unit", "unknown-unit",  "out-of-bounds", "unknown-value", "file-not-found"};
// Those that stay true whatever was excused, but after which a file cannot be read on.
constexpr std::array<std::string_view, 6> kOfText{"yaml-syntax", "not-utf8",     "empty-file",
                                                  "alias-bomb",  "cyclic-alias", "too-deep"};

using Place = std::tuple<std::string, int, int>;
Place place_of(const Location& where) { return {where.file, where.line, where.column}; }

struct Excused {
  int readers = 0;
  std::set<Place> places, names;  // names: of files
  std::set<std::pair<Place, std::string>> missing;
  std::optional<std::pair<Place, std::string>> last_missing;  // of which no refusal is told yet
};
thread_local Excused excused;

bool is_one_of(const auto& kinds, const std::string& kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

bool is_excused(const Location& where) {
  return !excused.places.empty() && excused.places.contains(place_of(where));
}

bool is_excused_name(const Location& where) {
  return !excused.names.empty() && excused.names.contains(place_of(where));
}

bool is_excused(const Location& map, std::string_view key) {
  return !excused.missing.empty() && excused.missing.contains({place_of(map), std::string(key)});
}

void note_missing(const Location& map, std::string_view key) {
  if (excused.readers > 0) excused.last_missing = {place_of(map), std::string(key)};
}

ToldRefusals::ToldRefusals() : outermost_(excused.readers++ == 0) {}

ToldRefusals::~ToldRefusals() {
  --excused.readers;
  if (!outermost_) return;
  excused.places.clear();
  excused.names.clear();
  excused.missing.clear();
}

bool ToldRefusals::excuse(const Refusal& refusal) {
  const bool has_place = refusal.where().line > 0;
  // Some keys are missing because of what else is written: that could follow from what was excused.
  const auto missing = std::exchange(excused.last_missing, std::nullopt);
  const bool is_missing = refusal.kind() == "missing-key";
  const bool is_of_form =
      has_place && (is_missing ? missing.has_value() : is_one_of(kOfForm, refusal.kind()));
  const bool is_new = std::none_of(told_.begin(), told_.end(), [&](const Refusal& other) {
    return std::string_view(other.what()) == refusal.what();
  });
  if (is_new && (told_.empty() || is_of_form || is_one_of(kOfText, refusal.kind()))) told_.push_back(refusal);
  if (!is_new || !is_of_form || told_.size() >= kMostTold) return false;
  if (is_missing) return excused.missing.insert(*missing).second;
  auto& places = refusal.kind() == "file-not-found" ? excused.names : excused.places;
  return places.insert(place_of(refusal.where())).second;
}

void ToldRefusals::refuse() const {
  std::vector<Refusal> sorted = told_;
  std::map<std::string, std::size_t> order;  // of files, as their mistakes were met
  for (const Refusal& refusal : told_) order.try_emplace(refusal.where().file, order.size());
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Refusal& a, const Refusal& b) {
    return std::tuple(order.at(a.where().file), a.where().line, a.where().column) <
           std::tuple(order.at(b.where().file), b.where().line, b.where().column);
  });
  const Refusal first = sorted.front();
  sorted.erase(sorted.begin());
  throw Refusal(first, std::move(sorted));
}

}  // namespace motley
