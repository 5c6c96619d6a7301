// The layout of nccl-tests: sizes, factors and figures as it prints them, and logs that are read back.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "models/base/index.hpp"
#include "models/calibration/nccl_tests.hpp"
#include "models/published/nccl_table.hpp"
#include "tests/support/random_text.hpp"

using namespace motley;

namespace {

NcclTable drawn_table(tests::Random& random) {
  NcclTable table;
  const auto operations = every<NcclOperation>();
  table.operation = operations[at(random.integer(0, static_cast<std::int64_t>(operations.size()) - 1))];
  table.ranks = static_cast<int>(random.integer(2, 100));
  table.type = random.one_of(nccl_types());
  table.cluster = table.software = "none";
  for (int rank = 0; rank < table.ranks; ++rank)
    table.devices.push_back(fmt::format("node {} device {} chip", rank / 8, rank % 8));
  std::int64_t asked = 16 * 8 * table.ranks;
  for (std::int64_t rows = random.integer(1, 12); rows > 0; --rows, asked *= 2) {
    const NcclSize size = nccl_size(table.operation, asked, table.type, table.ranks);
    table.rows.push_back({size, std::pow(10.0, static_cast<double>(random.integer(-6, 0))), "ring", {}});
  }
  return table;
}

constexpr const char* kNcclHead =
    "# nThread 1 nGpus 8 minBytes 8388608 maxBytes 1073741824 step: 2(factor) warmup iters: 5\n"
    "#  Rank  0 Group  0 Pid  37300 on   g100n126 device  0 [0000:05:00] AMD Instinct MI300X\n"
    "#  Rank  7 Group  0 Pid  37300 on   g100n126 device  7 [0000:e7:00] AMD Instinct MI300X\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   "
    "busbw "
    "#wrong\n";

}  // namespace

// rccl-tests on 8 MI300X (github:crickett-hpe/hpc-ai-envs, pull request 30, 2025), nccl-tests on 8 ranks
// (github:kvcache-ai/Mooncake, pull request 3484), and on 16 (github:ROCm/rccl, pull request 2078).
TEST_CASE("busbw is algbw times the factor that published logs have") {
  const auto [bytes, time_us, algbw, busbw, ranks] = GENERATE(
      table<std::int64_t, double, double, double, int>({{8'388'608, 91.10, 92.08, 161.14, 8},
                                                        {1'048'576, 27.76, 37.78, 66.11, 8},
                                                        {2'147'483'648, 11'186, 191.99, 359.98, 16}}));
  const NcclRow row{{bytes, bytes / 4}, time_us * 1e-6, "", {}};
  CHECK(row.algbw(row.seconds) == Approx(algbw).epsilon(2e-4));
  CHECK(row.algbw(row.seconds) * bus_factor(NcclOperation::all_reduce, ranks) == Approx(busbw).epsilon(2e-4));
}

TEST_CASE("factors are those of nccl-tests") {
  CHECK(bus_factor(NcclOperation::all_reduce, 16) == 2 * 15.0 / 16);
  for (const auto each : {NcclOperation::all_gather, NcclOperation::reduce_scatter, NcclOperation::all_to_all,
                          NcclOperation::gather, NcclOperation::scatter})
    CHECK(bus_factor(each, 16) == 15.0 / 16);
  for (const auto each : {NcclOperation::broadcast, NcclOperation::reduce, NcclOperation::send_recv})
    CHECK(bus_factor(each, 16) == 1);
}

TEST_CASE("sizes and counts are those that nccl-tests prints") {
  const NcclType fp32{"float", 4}, half{"half", 2};
  CHECK(nccl_size(NcclOperation::all_reduce, 1'000, fp32, 8) == NcclSize{1'000, 250});
  CHECK(nccl_size(NcclOperation::all_reduce, 1'001, half, 8) == NcclSize{1'000, 500});
  CHECK(nccl_size(NcclOperation::all_gather, 1'024, fp32, 8) == NcclSize{1'024, 32});
  CHECK(nccl_size(NcclOperation::all_gather, 1'000, fp32, 8) ==
        NcclSize{896, 28});  // 31 elements: 28 are 7 x 16 B
  CHECK(nccl_size(NcclOperation::reduce_scatter, 64, fp32, 8) == NcclSize{0, 0});
  CHECK(nccl_size(NcclOperation::broadcast, 8, fp32, 1'024) == NcclSize{8, 2});
}

TEST_CASE("sizes are read as nccl-tests reads them") {
  CHECK(parse_nccl_size("8") == 8);
  CHECK(parse_nccl_size("8K") == 8'192);
  CHECK(parse_nccl_size("1.5m") == 1'572'864);
  CHECK(parse_nccl_size("8G") == 8'589'934'592);
  for (const char* text : {"", "K", "8T", "8KB", "-8", "nan", "010", "1e30", "8 B"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_nccl_size(text), Catch::Contains("not a size of a message"));
  }
  CHECK(sizes_of({8, 64, 2, 0}) == std::vector<std::int64_t>{8, 16, 32, 64});
  CHECK(sizes_of({8, 30, 0, 10}) == std::vector<std::int64_t>{8, 18, 28});
  CHECK_THROWS_WITH(sizes_of({64, 8, 2, 0}), Catch::Contains("are none"));
  CHECK_THROWS_WITH(sizes_of({8, 64, 0, 0}), Catch::Contains("have no end"));
  CHECK_THROWS_WITH(sizes_of({0, 64, 2, 0}), Catch::Contains("have no end"));
  CHECK_THROWS_WITH(sizes_of({0, 1 << 30, 0, 1}), Catch::Contains("more than 1024 sizes"));
}

TEST_CASE("names of operations are read as people write them") {
  for (const char* name : {"all_to_all", "alltoall", "AlltoAll", "alltoall_perf", "all-to-all"})
    CHECK(parse_operation(name) == NcclOperation::all_to_all);
  for (const NcclOperation each : every<NcclOperation>()) CHECK(parse_operation(nccl_program(each)) == each);
  CHECK(!parse_operation("hypercube"));
}

TEST_CASE("a printed table is read back as measured, each time to the digits that it has") {
  tests::Random random(3);
  for (int draw = 0; draw < 200; ++draw) {
    NcclTable table = drawn_table(random);
    std::string text = to_text(table);
    for (int time = 0; time < 2; ++time) {
      CAPTURE(text);
      const auto rows = read_nccl_rows(text, "log");
      REQUIRE(rows.size() == table.rows.size());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        CHECK(name_of(rows[i].kind) == name_of(table.operation));
        CHECK(rows[i].ranks == table.ranks);
        CHECK(rows[i].bytes == static_cast<double>(table.rows[i].size.bytes));
        CHECK(rows[i].seconds[0] == Approx(table.rows[i].seconds).epsilon(0.05));
        table.rows[i].measured_s = rows[i].seconds[0];
      }
      text = to_text(table);  // the comparison can be read, too: its first times are the measured ones
    }
  }
}

TEST_CASE("lines of mpirun and NCCL between rows are passed over") {
  const auto rows =
      read_nccl_rows(std::string("# Collective test starting: ./build/all_reduce_perf\n") + kNcclHead +
                         "g100n126:37300:37377 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
                         "     8388608       2097152     float     sum      -1    91.10   92.08  161.14      "
                         "0    94.94   88.36  "
                         "154.63      0\n"
                         "[1,0]<stdout>:  16777216  4194304  float  sum  -1  120.0  139.81  244.67  0  121.0 "
                         " 138.65  242.64  0\n",
                     "log");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].ranks == 8);
  CHECK(rows[0].line == 7);
  CHECK(rows[0].seconds[0] == Approx(91.10e-6));
  CHECK(rows[0].seconds[1] == Approx(94.94e-6));
  CHECK(rows[1].seconds[0] == Approx(120e-6));
  // The columns `error` of versions before 2.11 (2021) hold rounding errors, which are no wrong values.
  const auto older = read_nccl_rows(
      "# Using devices\n#   Rank  1 Pid   2066 on host device  0 [0x00] Tesla V100-SXM2-16GB\n"
      "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw "
      " error\n"
      "  1310720000     327680000     float     sum   1048576    1.25    1.25  4e-07   1048576    1.25    "
      "1.25  4e-07\n",
      "all_reduce_perf.txt");
  REQUIRE(older.size() == 1);
  CHECK(older[0].seconds[0] == Approx(1.048576));
}

TEST_CASE("a log of something else is refused") {
  NcclTable table;
  table.ranks = 8;
  table.rows.push_back({{8'388'608, 2'097'152}, 1e-4, "", {}});
  MeasuredTable log{NcclOperation::all_reduce, 8, {{8'388'608, 91.10e-6, {"log", 5, 1}}}};
  use_measured(table, log);
  CHECK(table.rows[0].measured_s == Approx(91.10e-6));
  table.rows[0].size.bytes = 16;
  CHECK_THROWS_WITH(use_measured(table, log),
                    Catch::Contains("log:5:1") && Catch::Contains("no size of 16 B"));
  log.ranks = 16;
  CHECK_THROWS_WITH(use_measured(table, log),
                    Catch::Contains("log:5:1") && Catch::Contains("16 ranks, not of 8"));
  log.operation = NcclOperation::broadcast;
  CHECK_THROWS_WITH(use_measured(table, log), Catch::Contains("of broadcast, not of all_reduce"));
}

TEST_CASE("a damaged table gives finite times or is refused at a line of it") {
  tests::Random random(4);
  int read = 0, refused = 0;
  for (int draw = 0; draw < 2'000; ++draw) {
    const std::string text = tests::damaged(to_text(drawn_table(random)), random);
    try {
      for (const NcclTestsRow& row : read_nccl_rows(text, "log")) {
        CHECK(std::isfinite(row.bytes));
        for (const double seconds : row.seconds) CHECK((std::isfinite(seconds) && seconds >= 0));
        CHECK(row.line > 0);
      }
      ++read;
    } catch (const Refusal& refusal) {
      CHECK(refusal.where().file == "log");
      CHECK(refusal.where().line > 0);
      ++refused;
    }
  }
  CHECK(read > 500);
  CHECK(refused > 50);
}

TEST_CASE("figures take the room that nccl-tests gives them") {
  CHECK(nccl_figure(1.234, 7) == "   1.23");
  CHECK(nccl_figure(12345.678, 7) == "12345.7");
  CHECK(nccl_figure(123456.78, 7) == " 123457");
  CHECK(nccl_figure(12345678, 7) == "1.2e+07");
  CHECK(nccl_figure(360.04, 6) == "360.04");
  CHECK(nccl_figure(1234567, 6) == " 1e+06");
}
