// A chip's two parts: its datasheet, and what software achieves on it. Each key belongs to exactly one of them, and any
// figures print as text that reads back equal.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "models/base/refusal.hpp"
#include "models/cluster/chip.hpp"

using namespace motley;

namespace {

// The unit of each figure in a chip's file; a plain number has none.
const std::map<std::string, std::string> kDatasheetUnits = {{"memory", " GB"},
                                                            {"memory_bandwidth", " GB/s"},
                                                            {"multiprocessors", ""},
                                                            {"power", " W"},
                                                            {"price", " USD/h"}};
const std::map<std::string, std::string> kSoftwareUnits = {{"reserved_memory", " MiB"},
                                                           {"gemm_efficiency", ""},
                                                           {"gemm_k_half", ""},
                                                           {"gemm_wave", ""},
                                                           {"attention_efficiency", ""},
                                                           {"attention_s_half", ""},
                                                           {"bandwidth_efficiency", ""},
                                                           {"kernel_overhead", " us"},
                                                           {"step_overhead", " ms"},
                                                           {"gemm_backward", ""},
                                                           {"elementwise_passes", ""},
                                                           {"unfused_attention", ""},
                                                           {"layer_launch", " ms"},
                                                           {"expert_launch", " ms"},
                                                           {"launch_wait", ""},
                                                           {"micro_batch_overhead", " ms"},
                                                           {"pass_overhead", " ms"},
                                                           {"collective_share", ""},
                                                           {"variation", ""},
                                                           {"overlap_slowdown", ""},
                                                           {"kept_scores", ""},
                                                           {"kept_masks", ""},
                                                           {"kept_logits", ""},
                                                           {"kept_weight_gradients", ""},
                                                           {"one_master", ""},
                                                           {"kept_optimizer", ""},
                                                           {"kept_weights", ""}};
const std::string kTimes =
    "{tensor_parallel: 1, micro_batch: 2, optimizer: 1 ms, forward: [1 ms, 2 ms, 3 ms], "
    "backward: [2 ms, 4 ms, 6 ms]}";
// The keys that are not figures, each with two values that it may have.
const std::map<std::string, std::array<std::string, 2>> kOthers = {
    {"name", {"one", "other"}},
    {"vendor", {"nvidia", "amd"}},
    {"family", {"ampere", "hopper"}},
    {"kind", {"gpu", "npu"}},
    {"usual_node", {"dgx-a100", "dgx-h100-pod"}},
    {"peak", {"{fp32: {value: 1 TFLOP/s, source: a}}", "{fp32: {value: 2 TFLOP/s, source: a}}"}},
    {"kernels",
     {"{source: a, matmul: {overhead: 1 us, flops: 1 TFLOP/s, bandwidth: 2 GB/s}, optimizer: {bandwidth: 1 "
      "GB/s}}",
      "{source: a, matmul: {overhead: 1 us, flops: 1 TFLOP/s, bandwidth: 2 GB/s}}"}},
    {"layers",
     {"{source: a, communication: included, times: [" + kTimes + "]}",
      "{source: a, communication: excluded, times: [" + kTimes + "]}"}}};

using ChipFile = std::map<std::string, std::string>;  // the value of each key

// A plain number is at most 0.3, which every bound of such figures allows; but one is a factor of 1 or more.
bool is_small(const std::string& key, const std::string& unit) {
  return unit.empty() && key != "one_master" && key != "overlap_slowdown";
}

// A file with every key. Each figure is 1 in its unit, or a quarter where it is a plain number.
ChipFile whole_file() {
  ChipFile file;
  for (const auto* units : {&kDatasheetUnits, &kSoftwareUnits})
    for (const auto& [key, unit] : *units)
      file[key] = "{value: " + std::string(is_small(key, unit) ? "0.25" : "1") + unit + ", source: assumed}";
  for (const auto& [key, values] : kOthers) file[key] = values[0];
  return file;
}

std::string text_of(const ChipFile& file) {
  std::string text;
  for (const auto& [key, value] : file) text += key + ": " + value + "\n";
  return text;
}

Chip read(const std::string& text) { return read_chip(parse_yaml(text, "chip.yaml"), ""); }

std::set<std::string> as_set(const std::vector<std::string>& keys) {
  const std::set<std::string> set(keys.begin(), keys.end());
  REQUIRE(set.size() == keys.size());
  return set;
}

// The chip with its datasheet only.
Chip without_software(Chip chip) {
  chip.software = {};
  return chip;
}

std::string other_value(const std::string& key) {
  if (kOthers.contains(key)) return kOthers.at(key)[1];
  if (key == "one_master") return "{value: 0, source: assumed}";
  const std::string unit = (kDatasheetUnits.contains(key) ? kDatasheetUnits : kSoftwareUnits).at(key);
  return "{value: " + std::string(is_small(key, unit) ? "0.125" : "2") + unit + ", source: assumed}";
}

}  // namespace

TEST_CASE("every key of a chip's file belongs to its datasheet or to its software, and to one alone") {
  const std::set<std::string> datasheet = as_set(datasheet_keys()), software = as_set(software_keys());
  for (const std::string& key : datasheet) CHECK_FALSE(software.contains(key));
  std::set<std::string> known = datasheet;
  known.insert(software.begin(), software.end());
  const ChipFile file = whole_file();
  std::set<std::string> written;
  for (const auto& [key, value] : file) written.insert(key);
  CHECK(written == known);
  // A key changes the part of the chip whose list it is in.
  const Chip chip = read(text_of(file));
  for (const std::string& key : known) {
    INFO(key);
    ChipFile changed = file;
    changed[key] = other_value(key);
    const Chip other = read(text_of(changed));
    CHECK((other.software != chip.software) == software.contains(key));
    CHECK((without_software(other) != without_software(chip)) == datasheet.contains(key));
  }
}

TEST_CASE("a figure without a unit that no chip and no software can have is refused") {
  const std::map<std::string, std::array<std::string, 2>> most = {{"gemm_efficiency", {"1.5", "9"}},
                                                                  {"gemm_wave", {"1", "1.001"}},
                                                                  {"attention_efficiency", {"1.5", "1e18"}},
                                                                  {"bandwidth_efficiency", {"1.5", "2"}},
                                                                  {"collective_share", {"1.5", "1.6"}},
                                                                  {"launch_wait", {"1", "3"}},
                                                                  {"variation", {"0.3", "0.31"}},
                                                                  {"gemm_backward", {"1000", "1001"}},
                                                                  {"kept_scores", {"4096", "4097"}},
                                                                  {"multiprocessors", {"1048576", "1e7"}},
                                                                  {"attention_s_half", {"4194304", "1e9"}},
                                                                  {"overlap_slowdown", {"1000", "1e4"}}};
  for (const auto& [key, values] : most) {
    INFO(key);
    ChipFile file = whole_file();
    file[key] = values[0];
    CHECK_NOTHROW(read(text_of(file)));
    file[key] = "{value: " + values[1] + ", source: assumed}";
    CHECK_THROWS_AS(read(text_of(file)), Refusal);
  }
}

TEST_CASE("a key of neither list is refused") {
  for (const char* key : {"speed", "software", "memory_bytes"}) {
    ChipFile file = whole_file();
    file[key] = "{value: 1, source: assumed}";
    CHECK_THROWS_AS(read(text_of(file)), Refusal);
  }
}

TEST_CASE("any figures of both parts print as text that reads back equal, and replace what they name alone") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto coin = [&] { return random() % 2 == 0; };
    const auto figure = [&](const std::string& key, const std::string& unit) {
      const double exponent = is_small(key, unit) ? std::uniform_real_distribution<double>(-9, -0.6)(random)
                              : key == "overlap_slowdown"
                                  ? std::uniform_real_distribution<double>(0, 3)(random)
                                  : std::uniform_real_distribution<double>(0, 9)(random);
      const std::string value =
          key == "one_master" ? (coin() ? "1" : "0") : format_exact(std::pow(10.0, exponent));
      return "{value: " + value + unit + ", source: " + (coin() ? "assumed" : "\"null: {\"") + "}";
    };
    ChipFile file = whole_file(), some;
    for (const auto* units : {&kDatasheetUnits, &kSoftwareUnits})
      for (const auto& [key, unit] : *units) {
        file[key] = figure(key, unit);
        if (coin()) some[key] = figure(key, unit);
      }
    const Chip chip = read(text_of(file));
    const std::string printed = print(chip, "");
    INFO("seed " << seed << ":\n" << printed);
    REQUIRE(read(printed) == chip);
    REQUIRE(print(read(printed), "") == printed);
    if (some.empty()) continue;
    Chip replaced = chip;
    replace_figures(parse_yaml(text_of(some), "figures.yaml"), replaced);
    for (const auto& [key, value] : some) file[key] = value;
    REQUIRE(replaced == read(text_of(file)));
  }
}

TEST_CASE("a switch is written as 0 or 1 and has no other value") {
  const auto with = [](const std::string& value) {
    ChipFile file = whole_file();
    file["one_master"] = "{value: " + value + ", source: assumed}";
    return read(text_of(file));
  };
  CHECK(with("1").software.one_master == SourcedSwitch{true, "assumed"});
  CHECK(with("0").software.one_master == SourcedSwitch{false, "assumed"});
  CHECK(print(with("1"), "").find("one_master: {value: 1, source: \"assumed\"}") != std::string::npos);
  CHECK(print(with("0"), "").find("one_master: {value: 0, source: \"assumed\"}") != std::string::npos);
  for (const char* value : {"2", "-1", "0.5", "true"}) CHECK_THROWS_AS(with(value), Refusal);
  ChipFile silent = whole_file();
  silent.erase("one_master");
  CHECK_FALSE(read(text_of(silent)).software.one_master.value);
  CHECK(print(read(text_of(silent)), "").find("one_master") == std::string::npos);
}
