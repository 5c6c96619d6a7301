// Which rank runs where: lists of hosts, binding files, and what of them cannot be.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "hw/launch/binding.hpp"
#include "models/base/refusal.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/ranks.hpp"

using namespace motley;

namespace {

// The refusal of a file of these ranks, as the pages of tests/refusals print it.
std::string refusal_of(const std::string& ranks) {
  try {
    parse_binding("ranks:\n" + ranks, "ranks.yaml");
  } catch (const Refusal& refusal) {
    return tests::as_on_page(refusal);
  }
  return "was not refused";
}

}  // namespace

TEST_CASE("a list of hosts gives each as many ranks as it says") {
  const Binding binding = read_hosts("a:2,user@b,[fe80::1]:1");
  REQUIRE(binding.size() == 4);
  CHECK(binding[0_rank].host == "a");
  CHECK(binding[1_rank].host == "a");
  CHECK(binding[2_rank].host == "user@b");
  CHECK(binding[3_rank].host == "fe80::1");
  for (const char* list : {"", "a:", "a:0", ":2", "a:2,", "-a:2", "a:-1", "a:99999"})
    CHECK_THROWS_WITH(read_hosts(list), Catch::Contains("is no host:ranks"));
}

TEST_CASE("a binding that is printed and read is the same") {
  const int processor = usable_processors().at(0);
  Binding binding = read_hosts("localhost:2,b:2");
  binding[0_rank].processors = {processor};
  binding[2_rank].processors = {0, 1, 2, 8};
  binding[2_rank].device = 1;
  binding[3_rank].nic = "mlx5_0";
  for (const std::string& text : {print(binding), print_as_json(binding)}) {
    CAPTURE(text);
    CHECK(parse_binding(text, "ranks.yaml") == binding);
  }
}

TEST_CASE("ranks of this host are bound evenly, where none has processors yet") {
  const std::size_t usable = usable_processors().size();
  const Binding even = bound_evenly(read_hosts("localhost:1,b:2"));
  CHECK(even[0_rank].processors == usable_processors());
  CHECK(even[1_rank].processors.empty());
  CHECK(bound_evenly(read_hosts(fmt::format("localhost:{}", usable + 1)))[0_rank].processors.empty());
  Binding bound = read_hosts("localhost:2");
  bound[1_rank].processors = {usable_processors().front()};
  CHECK(bound_evenly(bound) == bound);
}

TEST_CASE("bindings that cannot be are refused with file, line and column") {
  using tests::expected_refusal;
  CHECK(refusal_of("  - {rank: 0}\n  - {rank: 2}\n") == expected_refusal("bad-binding: a rank too many"));
  CHECK(refusal_of("  - {rank: 0}\n  - {rank: 0}\n") == expected_refusal("bad-binding: a rank twice"));
  CHECK(refusal_of("  - {rank: 0, host: b, processors: 3-1}\n") ==
        expected_refusal("bad-binding: processors that are no list"));
  CHECK(refusal_of("  - {rank: 0, host: b, processors: 0-3}\n  - {rank: 1, host: b, processors: 3}\n") ==
        expected_refusal("bad-binding: two ranks on one processor"));
  std::string none_such = refusal_of("  - {rank: 0, processors: 4095}\n");
  const std::size_t usable = none_such.find("it may use ") + 11;  // those of this machine
  CHECK(none_such.replace(usable, none_such.find('\n', usable) - usable, "0-3") ==
        expected_refusal("bad-binding: a processor that is not there"));
  CHECK_THAT(refusal_of("  - {rank: 0, host: localhost, processors: 9999}\n"),
             Catch::StartsWith("ranks.yaml:2:44: this process may not use a processor 9999\n"));
  CHECK_THAT(refusal_of("  - {rank: 0, host: -b}\n"), Catch::StartsWith("ranks.yaml:2:21: `-b` is no host"));
}
