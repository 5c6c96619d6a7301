// Quantities that a person writes ("300 GB/s", "2 us", "80 GiB"), and how numbers are printed. Inside Motley every
// time is a double in seconds, every size an int64 in bytes, every rate a double in bytes/s or flop/s; the unit
// stands last in a variable's name. Read next: models/cluster/chip.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motley {

enum class Dimension : std::uint8_t {
  seconds,             // ns us ms s min h d
  bytes,               // B kB MB GB TB KiB MiB GiB TiB
  bytes_per_second,    // B/s .. TB/s, KiB/s .. ; bit/s: b/s kb/s Mb/s Gb/s Tb/s
  flops,               // FLOP/s .. PFLOP/s (rate; written "312 TFLOP/s")
  watts,               // W kW
  dollars,             // USD
  dollars_per_hour,    // USD/h
  dollars_per_energy,  // USD/kWh USD/MWh (USD/kWh)
  carbon_per_energy,   // g/kWh kg/kWh kg/MWh t/MWh (g/kWh)
  count,               // no unit, k M B T: "15T", "300 B"
};

struct NumberRange {
  double least = 0, most = 0;
};

// Reads "<number> <unit>". Returns nullopt when the unit is missing, unknown or of another dimension, and when the
// number is not finite, is out of its dimension's bounds, or looks octal ("010"). `why` then names fault and hint.
std::optional<double> parse_quantity(std::string_view text, Dimension dimension, std::string& why);

// The fault of a number or quantity; `none`: it has no fault.
enum class NumberFault : std::uint8_t {
  none,
  not_a_number,
  octal,         // "010": 8 to some readers, 10 to others
  out_of_range,  // neither a double nor an int64 holds it
  not_finite,    // nan, inf
  missing_unit,
  unknown_unit,
  out_of_bounds,  // far from every chip, network and job that there is
};

// The units that a quantity may have, as they are written. A count has the empty one, too.
std::vector<std::string_view> unit_names(Dimension dimension);

// The bounds of a quantity's absolute value, in its base unit; 0 is in bounds, too. Every real figure lies far
// inside, and products of a few figures stay finite.
NumberRange bounds_of(Dimension dimension);

// Read decimal numbers only: an optional minus, digits without a leading zero, fraction, exponent.
NumberFault read_number(std::string_view text, double& value);
NumberFault read_integer(std::string_view text, std::int64_t& value);
// Reads what parse_quantity() reads. `hint` lists the units of the dimension where the unit is at fault, and says the
// bounds of the dimension where the value is.
NumberFault read_quantity(std::string_view text, Dimension dimension, double& value, std::string& hint);
// Describes a fault in one sentence: "`010` looks octal".
std::string describe(NumberFault fault, std::string_view text);

// "1.50 GiB", "312 TFLOP/s", "1.25 ms": three significant digits, for people. Never parsed back. Refuse ("not-finite")
// infinities and NaN.
std::string format_bytes(double bytes);
std::string format_seconds(double seconds);
std::string format_rate(double bytes_per_second);
std::string format_flops(double flop_per_second);
std::string format_count(double count);  // 175.2 B, 12.3 k

// The shortest text that reads back as the same double, for files that are parsed again.
std::string format_exact(double value);
// The shortest such text with a unit, in the unit that makes it shortest: "300 GB/s", "2 us", "80 GiB".
std::string format_exact(double value, Dimension dimension);
// The same for the rate of a line between nodes, which vendors state in bits: "400 Gb/s".
std::string format_line_rate(double bytes_per_second);

}  // namespace motley
