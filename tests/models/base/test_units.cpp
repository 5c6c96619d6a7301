// Quantities in the form in which users write them: which are read, and which are refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "models/base/refusal.hpp"
#include "models/base/size.hpp"
#include "models/base/units.hpp"
#include "tests/refusals/pages.hpp"

using namespace motley;

TEST_CASE("quantities read as the nearest double of their decimal value") {
  std::string why;
  CHECK(parse_quantity("3 us", Dimension::seconds, why) == 3e-6);
  CHECK(parse_quantity("7 ns", Dimension::seconds, why) == 7e-9);
  CHECK(parse_quantity("300 GB/s", Dimension::bytes_per_second, why) == 300e9);
  CHECK(parse_quantity("200 Gb/s", Dimension::bytes_per_second, why) == 25e9);
  CHECK(parse_quantity("80 GiB", Dimension::bytes, why) == 80.0 * (1 << 30));
  CHECK(parse_quantity("312 TFLOP/s", Dimension::flops, why) == 312e12);
  CHECK(parse_quantity("1.5e2 W", Dimension::watts, why) == 150);
  CHECK(parse_quantity("0.38 t/MWh", Dimension::carbon_per_energy, why) == 380);
  CHECK(parse_quantity("80 USD/MWh", Dimension::dollars_per_energy, why) == 0.08);
  CHECK(parse_quantity("15T", Dimension::count, why) == 15e12);
  CHECK(parse_quantity("128", Dimension::count, why) == 128);
}

TEST_CASE("quantities that could mean two things are refused with the reason") {
  const auto [text, reason] = GENERATE(table<std::string, std::string>({
      {"300", "has no unit"},
      {"300 GB", "unit that does not fit"},
      {"300 gb/s", "unit that does not fit"},
      {"010 GB/s", "looks octal"},
      {"1e999 GB/s", "too large"},
      {"nan GB/s", "not a finite number"},
      {"inf", "not a finite number"},
      {"fast", "not a number"},
      {"", "not a number"},
      {"0x10 GB/s", "unit that does not fit"},
      {"1,000 GB/s", "unit that does not fit"},
  }));
  std::string why;
  INFO(text);
  CHECK_FALSE(parse_quantity(text, Dimension::bytes_per_second, why));
  CHECK_THAT(why, Catch::Contains(reason));
}

TEST_CASE("whole numbers refuse fractions and what int64 cannot hold") {
  std::int64_t value = 0;
  CHECK(read_integer("-12", value) == NumberFault::none);
  CHECK(value == -12);
  CHECK(read_integer("1.5", value) == NumberFault::not_a_number);
  CHECK(read_integer("9223372036854775808", value) == NumberFault::out_of_range);
  CHECK(read_integer("007", value) == NumberFault::octal);
  CHECK(read_integer("0", value) == NumberFault::none);
}

TEST_CASE("numbers for people have three digits and a unit") {
  CHECK(format_bytes(1.5 * (1 << 30)) == "1.50 GiB");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_seconds(1.25e-3) == "1.25 ms");
  CHECK(format_seconds(0.9996) == "1.00 s");
  CHECK(format_rate(25e9) == "25.0 GB/s");
  CHECK(format_flops(312e12) == "312 TFLOP/s");
  CHECK(format_count(175.2e9) == "175.2 B");
  CHECK(format_count(12300) == "12.3 k");
}

TEST_CASE("an exactly printed number reads back as the same double") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const int exponent = static_cast<int>(random() % 600) - 300;
    const double value = std::ldexp(static_cast<double>(random()), exponent);
    double read = 0;
    REQUIRE(read_number(format_exact(value), read) == NumberFault::none);
    REQUIRE(read == value);
  }
}

TEST_CASE("an exactly printed quantity is short and reads back as the same double") {
  CHECK(format_exact(300e9, Dimension::bytes_per_second) == "300 GB/s");
  CHECK(format_exact(2e-6, Dimension::seconds) == "2 us");
  CHECK(format_exact(0, Dimension::seconds) == "0 s");
  CHECK(format_exact(80.0 * (1 << 30), Dimension::bytes) == "80 GiB");
  CHECK(format_exact(19.5e12, Dimension::flops) == "19.5 TFLOP/s");
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-12, 12);  // within the bounds of every dimension
  for (int i = 0; i < 3000; ++i) {
    const double value = std::pow(10.0, exponent(random));
    const auto dimension = static_cast<Dimension>(i % 9);
    std::string why;
    REQUIRE(parse_quantity(format_exact(value, dimension), dimension, why) == value);
  }
}

TEST_CASE("the rate of a line is printed in bits, and reads back as the same double") {
  CHECK(format_line_rate(50e9) == "400 Gb/s");
  CHECK(format_line_rate(3.125e9) == "25 Gb/s");
  CHECK(format_line_rate(12.5e6) == "100 Mb/s");
  CHECK(format_line_rate(8) == "8 B/s");
  std::mt19937_64 engine(7);
  std::string why;
  for (int i = 0; i < 2000; ++i) {
    const double rate = std::pow(10, 1 + 13 * std::uniform_real_distribution<double>()(engine));
    const std::string text = format_line_rate(rate);
    CAPTURE(text);
    CHECK(parse_quantity(text, Dimension::bytes_per_second, why) == rate);
    CHECK((rate < 1e5 || text.ends_with("b/s")));
  }
}

TEST_CASE("quantities far from anything real are out of bounds, and no such figure is printed for people") {
  std::string why;
  for (const char* text : {"1e18 s", "1e-320 s", "-1e18 s", "1e18 d"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_quantity(text, Dimension::seconds, why));
    CHECK_THAT(why, Catch::Contains("out of bounds") && Catch::Contains("1e-15 to 1e+12 s"));
  }
  CHECK(parse_quantity("0 s", Dimension::seconds, why) == 0);
  for (int i = 0; i < 9; ++i) {
    const auto dimension = static_cast<Dimension>(i);
    CHECK(parse_quantity(format_exact(bounds_of(dimension).least, dimension), dimension, why));
    CHECK(parse_quantity(format_exact(bounds_of(dimension).most, dimension), dimension, why));
  }
  for (const double figure : {INFINITY, -INFINITY, NAN}) {
    CHECK_THROWS_AS(format_seconds(figure), Refusal);
    CHECK_THROWS_AS(format_bytes(figure), Refusal);
    CHECK_THROWS_AS(format_rate(figure), Refusal);
    CHECK_THROWS_AS(format_flops(figure), Refusal);
    CHECK_THROWS_AS(format_count(figure), Refusal);
  }
}

TEST_CASE("products and sums of sizes are exact or refused") {
  CHECK(size_product({}) == 1);
  CHECK(size_product({3, 0, kMostSize}) == 0);
  CHECK(size_product({kMostSize, 1}) == kMostSize);
  CHECK(size_sum(kMostSize - 1, 1) == kMostSize);
  CHECK_THROWS_AS(size_product({kMostSize, 2}), Refusal);
  CHECK_THROWS_AS(size_product({INT64_MAX, INT64_MAX}), Refusal);
  CHECK_THROWS_AS(size_sum(kMostSize, 1), Refusal);
}

TEST_CASE("no figure that people read is infinite") {
  CHECK(tests::refusal_on_page([] { format_seconds(std::numeric_limits<double>::infinity()); }) ==
        tests::expected_refusal("not-finite: a figure of a result"));
}
