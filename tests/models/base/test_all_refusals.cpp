// All mistakes of a file at once: of random mistakes in scenarios that ship, nearly all are told, each at its line, and
// nothing else.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/base/all_refusals.hpp"
#include "models/scenario/scenario.hpp"
#include "models/scenario/setting.hpp"
#include "tests/support/dice.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using tests::Dice;
using tests::kSanitized;

namespace {

// The node's lines, each value on one of its own.
void add_lines(const Yaml& node, const std::string& indent, std::vector<std::string>& lines) {
  const auto add = [&](const std::string& begin, const Yaml& value) {
    std::string flow = print_yaml(value);
    flow.pop_back();
    if (value->entries.empty() && value->items.empty()) {
      lines.push_back(begin + flow);
    } else {
      lines.push_back(begin);
      add_lines(value, indent + "  ", lines);
    }
  };
  for (const YamlEntry& entry : node->entries) add(indent + entry.key + ": ", entry.value);
  for (const Yaml& item : node->items) add(indent + "- ", item);
}

std::vector<std::string> lines_of(const Yaml& node) {
  std::vector<std::string> lines;
  add_lines(node, "", lines);
  return lines;
}

// The lines of the refusals' places; empty: the text is taken.
std::vector<int> refused_lines(const std::vector<std::string>& lines, const std::string& path) {
  try {
    read_scenario(parse_yaml(fmt::format("{}\n", fmt::join(lines, "\n")), path), path, ScenarioUse::plan);
    return {};
  } catch (const Refusal& refusal) {
    std::vector<int> refused{refusal.where().line};
    for (const Refusal& other : refusal.others()) refused.push_back(other.where().line);
    return refused;
  }
}

// The line with a mistake; empty: it has no `key: value` of its own.
std::string mistaken(const std::string& line, Dice& dice) {
  const std::size_t mark = line.find(": "), first = line.find_first_not_of(" -");
  if (mark == std::string::npos || first >= mark || mark + 2 == line.size()) return {};
  const std::string key = line.substr(0, mark);
  switch (dice.one_of({0, 1, 2, 3})) {
    case 0:
      return key + key.back() + line.substr(mark);
    case 1:
      return key + ": [[1]]";
    case 2:
      return key + ": 12 parsecs";
    default:
      return key + ": -7";
  }
}

struct Mistake {
  std::size_t line = 0;
  std::string text;
};

// Mistakes that are refused at their line when they stand alone.
std::vector<Mistake> draw_mistakes(const std::vector<std::string>& lines, const std::string& path, Dice& dice,
                                   std::size_t most) {
  std::vector<Mistake> mistakes;
  for (int tries = 0; tries < 60 && mistakes.size() < most; ++tries) {
    const std::size_t line = dice.engine()() % lines.size();
    const bool is_taken = std::any_of(mistakes.begin(), mistakes.end(),
                                      [&](const Mistake& other) { return other.line == line; });
    const std::string text = mistaken(lines[line], dice);
    if (is_taken || text.empty()) continue;
    std::vector<std::string> changed = lines;
    changed[line] = text;
    if (refused_lines(changed, path) == std::vector<int>{static_cast<int>(line) + 1})
      mistakes.push_back({line, text});
  }
  return mistakes;
}

const std::string kScenarios = std::string(MOTLEY_SOURCE_DIR) + "/scenarios/";

std::vector<std::string> told(const std::string& text) {
  std::vector<std::string> messages;
  try {
    read_scenario(parse_yaml(text, "own.yaml"), "own.yaml");
  } catch (const Refusal& refusal) {
    messages.emplace_back(refusal.what());
    for (const Refusal& other : refusal.others()) messages.emplace_back(other.what());
  }
  return messages;
}

}  // namespace

TEST_CASE("of random mistakes in a scenario nearly all are told, each at its line, and nothing else") {
  std::size_t all = 0, all_told = 0;
  for (unsigned seed = 1; seed <= (kSanitized ? 12 : 60); ++seed) {
    Dice dice(seed);
    const std::string path =
        kScenarios + dice.one_of<std::string>({"mixed-fleet.yaml", "holmes-hybrid.yaml", "quickstart.yaml",
                                               "two-site-wan.yaml", "deepseek-v3-2048.yaml"});
    std::vector<std::string> lines = lines_of(read_scenario_file(path, {}));
    const std::vector<Mistake> mistakes = draw_mistakes(lines, path, dice, 2 + seed % 5);
    std::vector<int> expected;
    for (const Mistake& mistake : mistakes) {
      lines[mistake.line] = mistake.text;
      expected.push_back(static_cast<int>(mistake.line) + 1);
    }
    std::sort(expected.begin(), expected.end());
    INFO(fmt::format("seed {}\n{}", seed, fmt::join(lines, "\n")));
    const std::vector<int> lines_told = refused_lines(lines, path);
    CHECK(lines_told.size() >= std::min<std::size_t>(1, expected.size()));
    CHECK(std::includes(expected.begin(), expected.end(), lines_told.begin(), lines_told.end()));
    all += expected.size();
    all_told += lines_told.size();
  }
  // What a reader cannot go on without ends it: a cluster that is no map.
  CHECK(static_cast<double>(all_told) > 0.7 * static_cast<double>(all));
}

TEST_CASE("a key that resembles another is told once, and its value is read") {
  CHECK(told("modle: llama-2-7b\n"
             "cluster: dgx-a100-5\n"
             "train: {global_batch: 128, micro_batch: none, sequence: 4096, precison: bf17}\n"
             "strategy: {tensor_paralel: 4 GB, pipeline_parallel: 2, schedule: 1f1c, recompute: full}\n") ==
        std::vector<std::string>{
            "own.yaml:1:1: a scenario has no key `modle`\n  hint: did you mean `model`?",
            "own.yaml:2:10: no file `dgx-a100-5.yaml`, beside this one or among those that ship\n"
            "  hint: did you mean `dgx-a100-4`?",
            "own.yaml:3:41: expected a whole number, found `none`",
            "own.yaml:3:63: `train` has no key `precison`\n  hint: did you mean `precision`?",
            "own.yaml:3:73: `bf17` is not known here\n  hint: did you mean `bf16`?",
            "own.yaml:4:12: `strategy` has no key `tensor_paralel`\n  hint: did you mean `tensor_parallel`?",
            "own.yaml:4:28: expected a whole number, found `4 GB`",
            "own.yaml:4:66: `1f1c` is not known here\n  hint: did you mean `1f1b`?",
        });
}

TEST_CASE("what could follow from a mistake is not told beside it") {
  // Too many ranks, and a batch that the replicas cannot share: both hang on a value that is wrong.
  CHECK(told("model: llama-2-7b\n"
             "cluster: dgx-a100-4\n"
             "train: {global_batch: 127, sequence: 4096}\n"
             "strategy: {tensor_parallel: 64, pipeline_parallel: two, data_parallel: 400}\n")
            .size() == 1);
}

TEST_CASE("where a value is needed that is not there, readers go on with the smallest that they accept") {
  const Yaml map = parse_yaml("{}", "own.yaml");
  std::optional<bool> truth;
  std::optional<std::int64_t> count;
  const auto read = [&] {
    const Fields fields(map, "a map", {"truth", "count"});
    truth = to_bool(fields.need("truth"));
    count = to_integer(fields.need("count"), {3, 9});
    return 0;
  };
  CHECK_THROWS_AS(telling_all_refusals(read), Refusal);
  CHECK(truth == false);
  CHECK(count == 3);
}

TEST_CASE("readers of one thread excuse nothing once their mistakes are told") {
  const Yaml wrong = parse_yaml("a: [1]", "own.yaml")->find("a")->value;
  const auto read = [&] { return to_integer(wrong, kPositive); };
  CHECK_THROWS_AS(telling_all_refusals(read), Refusal);
  CHECK_THROWS_AS(read(), Refusal);
  CHECK_FALSE(is_excused(wrong->where));
}
