// JSON results: a figure that is not finite is refused by its path, wherever it stands.
#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/base/json_text.hpp"
#include "models/base/refusal.hpp"
#include "tests/refusals/pages.hpp"

using namespace motley;

TEST_CASE("JSON is written as it reads back, and a figure that is not finite is refused by its path") {
  nlohmann::ordered_json json = {{"schema", "x/1"},
                                 {"rows", {{{"seconds", 1.5}, {"bytes", 3}}, {{"none", nullptr}}}}};
  CHECK(nlohmann::ordered_json::parse(json_text(json)) == json);
  CHECK(json_text(json).ends_with("}\n"));
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  nlohmann::ordered_json slow = json;
  slow["rows"][1]["none"] = kInfinite;
  CHECK(tests::refusal_on_page([&] { json_text(slow); }) ==
        tests::expected_refusal("not-finite: a figure of a result in JSON"));
  for (const double figure : {kInfinite, -kInfinite, std::numeric_limits<double>::quiet_NaN()}) {
    json["rows"][1]["none"] = figure;
    try {
      json_text(json);
      FAIL_CHECK("was not refused");
    } catch (const Refusal& refusal) {
      CHECK(refusal.kind() == "not-finite");
      CHECK_THAT(refusal.what(), Catch::Contains("/rows/1/none"));
    }
  }
}
