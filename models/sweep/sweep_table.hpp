// What a sweep gives: a row for each scenario, as a table for people, CSV or JSON. Read next:
// models/sweep/sweep_rows.hpp, models/sweep/sweep_plot.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/refusal.hpp"
#include "models/base/words.hpp"
#include "models/report/report.hpp"
#include "models/sweep/sweep_axis.hpp"

namespace motley {

// The figures of a simulation that a row has.
struct SweepFigures {
  double step_s = 0;
  double likely_least_s = 0, likely_most_s = 0;  // both 0: not known
  double tokens_per_s = 0;
  double mfu = 0;
  double memory_bytes = 0, memory_share = 0;  // of the chip that is fullest
  double usd_billion_tokens = 0;              // 0: not known
  double kwh_billion_tokens = 0;              // 0: not known
  std::int64_t chips = 0;
  std::string strategy_hash;
  bool operator==(const SweepFigures&) const = default;
};
SweepFigures figures_of(const Report& report);

struct SweepRow {
  std::vector<std::string> values;      // one for each axis
  std::optional<SweepFigures> figures;  // nothing: the scenario was refused
  std::string refusal_kind, refusal;    // "impossible-stages", and what it says with its place
};
SweepRow refused_row(std::vector<std::string> values, const Refusal& refusal);

struct SweepTable {
  std::string name;  // of the scenario
  std::vector<SweepAxis> axes;
  std::vector<SweepRow> rows;
  std::size_t missing = 0;              // rows that another shard does, or that were not done
  std::vector<std::size_t> front = {};  // rows of which no other is better in all that `front_of` names
  std::vector<std::string> front_of = {};
};

// What may be asked of a front: less of each is better.
enum class SweepMeasure : std::uint8_t { time, price, energy, memory };
template <>
inline constexpr auto kWords<SweepMeasure> = words("time", "price", "energy", "memory");

// What the figures have of the measure; infinite: not known.
double measured(const SweepFigures& figures, SweepMeasure measure);

// Fills in `front`: each row with figures than which no other has less of one measure and no more of any. Rows that are
// equal in all measures stand for each other: the first one is in the front.
void find_front(SweepTable& table, const std::vector<SweepMeasure>& measures);

std::string to_text(const SweepTable& table);
std::string to_csv(const SweepTable& table);
std::string to_json(const SweepTable& table);  // schema "motley.sweep/1"

}  // namespace motley
