// Every refusal: its input, and the exact message. README.md in this folder describes the pages that hold both.
// MOTLEY_REWRITE=1 in the environment writes the messages again; `git diff` then shows what has changed.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "models/check/check.hpp"
#include "models/plan/prepare.hpp"
#include "models/scenario/scenario.hpp"
#include "models/trace/trace.hpp"
#include "tests/refusals/pages.hpp"

namespace fs = std::filesystem;
using namespace motley;
using namespace motley::tests;

namespace {

const fs::path kRoot = MOTLEY_SOURCE_DIR;

// A new folder with the files of a case, which is the current folder until the destructor runs.
class Folder {
 public:
  explicit Folder(const std::map<std::string, std::string>& files) {
    fs::create_directory(here_);
    fs::current_path(here_);
    for (const auto& [name, bytes] : files) std::ofstream(name, std::ios::binary) << bytes;
  }
  ~Folder() {
    fs::current_path(before_);
    fs::remove_all(here_);
  }
  Folder(const Folder&) = delete;

 private:
  const fs::path before_ = fs::current_path();
  const fs::path here_ = fs::temp_directory_path() / ("motley-refusals-" + std::to_string(getpid()));
};

// The text of the Program after one edit ("- old" and "+ new").
std::string edited(std::string program, const std::string& edit) {
  std::smatch match;
  REQUIRE(std::regex_match(edit, match, std::regex("- (.+)\n\\+ (.+)\n")));
  const std::string from = match[1], to = match[2];
  const std::size_t at = program.find(from);
  INFO("the printed Program holds no `" << from << "`");
  REQUIRE(at != std::string::npos);
  return program.replace(at, from.size(), to);
}

// Reads and checks the case's files, as the commands do.
void take(const RefusalCase& refused) {
  const Folder folder(refused.files);
  if (refused.files.contains("trace.json")) {
    read_trace("trace.json");
    return;
  }
  Program program;
  if (refused.files.contains("program")) program = parse_program(refused.files.at("program"), "program");
  const Scenario scenario = load_scenario("input.yaml");
  if (!refused.files.contains("program")) program = compile(scenario);
  if (refused.files.contains("edit"))
    program = parse_program(edited(print(program), refused.files.at("edit")), "program");
  check(program, scenario);
}

// Writes another message into the page, which may have changed since the case was read.
void rewrite(const RefusalCase& refused, const std::string& message) {
  const fs::path path = refusal_pages_folder() / refused.page;
  std::string text = text_of(path);
  for (const RefusalCase& now : read_refusal_page(refused.page))
    if (now.title == refused.title) text.replace(now.message_begin, now.message.size(), message);
  std::ofstream(path, std::ios::binary) << text;
}

void compare(const RefusalCase& refused, const Refusal& refusal) {
  CHECK(refused.kind() == refusal.kind());
  const std::string message = as_on_page(refusal);
  if (std::getenv("MOTLEY_REWRITE")) {
    if (message != refused.message) rewrite(refused, message);
  } else {
    CHECK(refused.message == message);
  }
}

// The kinds of all refusals in the sources: the first string of each Refusal, of each StrategyComplaint, and of what
// hw/launch sends to all ranks.
std::set<std::string> kinds_in_sources() {
  const std::regex thrown(R"re((?:Refusal\(\s*Exit::\w+,\s*|Complaint\{\s*|return \{(?="\w+-))re"
                          R"re(|differs\()"([a-z0-9-]+)")re");
  std::set<std::string> kinds;
  for (const char* folder : {"models", "sim", "hw", "tools"}) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".cu") continue;
      const std::string source = text_of(entry.path());
      for (std::sregex_iterator it(source.begin(), source.end(), thrown), end; it != end; ++it)
        kinds.insert((*it)[1]);
    }
  }
  return kinds;
}

// The error that a page with this text gives.
std::string malformed(const std::string& text) {
  try {
    RefusalPage("page.txt", text).read();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("every input on the pages is refused with its message") {
  const std::vector<RefusalCase> all = read_refusal_pages();
  const auto is_input = [](const RefusalCase& each) { return each.command.empty() && each.test.empty(); };
  REQUIRE(std::count_if(all.begin(), all.end(), is_input) > 150);
  for (const RefusalCase& refused : all) {
    if (!is_input(refused)) continue;
    DYNAMIC_SECTION(refused.where()) {
      INFO(refused.where());
      try {
        take(refused);
        FAIL_CHECK("was not refused");
      } catch (const Refusal& refusal) {
        compare(refused, refusal);
      }
    }
  }
}

TEST_CASE("every kind of refusal in the sources has a case, and every case a kind in the sources") {
  const std::set<std::string> in_sources = kinds_in_sources();
  REQUIRE(in_sources.size() > 30);
  std::set<std::string> on_pages;
  for (const RefusalCase& refused : read_refusal_pages()) {
    on_pages.insert(refused.kind());
    INFO(refused.where() << ": no source refuses with this kind");
    CHECK(in_sources.contains(refused.kind()));
  }
  for (const std::string& kind : in_sources) {
    INFO("no page of tests/refusals has a case of `" << kind << "`; README.md there says how one is written");
    CHECK(on_pages.contains(kind));
  }
}

TEST_CASE("a test that a case names asks for that case") {
  int named = 0;
  for (const RefusalCase& refused : read_refusal_pages()) {
    if (refused.test.empty()) continue;
    ++named;
    INFO(refused.where() << ": " << refused.test << " does not ask for it: expected_refusal(TITLE)");
    const std::string source = text_of(kRoot / refused.test);
    CHECK(source.find('"' + refused.title + '"') != std::string::npos);
    CHECK(source.find("expected_refusal") != std::string::npos);
  }
  CHECK(named > 5);
}

TEST_CASE("a page holds the bytes of each input") {
  const std::string text =
      "# A page\nwith a word more\n\n"
      "## bad-csv: two files\nplain: text\n\n```runs.csv\n## kind: no title\n----\nexit 1\n```\n"
      "```text escaped\n\\xf6\\\\\\x00 \n```\n----\nit is\n  bad\nexit 2\n\n"
      "## bad-rank: another\nbefore: motley new x\ncommand: motley launch\n----\nno\nexit 130\n\n"
      "## bad-rank: a third\ntest: tests/a.cpp\n----\nno\nexit 1\n";
  const std::vector<RefusalCase> cases = RefusalPage("page.txt", text).read();
  REQUIRE(cases.size() == 3);
  CHECK(cases[0].where() == "tests/refusals/page.txt:4: bad-csv: two files");
  CHECK(cases[0].kind() == "bad-csv");
  CHECK(cases[0].files ==
        std::map<std::string, std::string>{{"input.yaml", "plain: text\n\n"},
                                           {"runs.csv", "## kind: no title\n----\nexit 1\n"},
                                           {"text", std::string("\xf6\\\0 \n", 5)}});
  CHECK(cases[0].message == "it is\n  bad\nexit 2\n");
  CHECK(text.substr(cases[0].message_begin).starts_with("it is\n"));
  CHECK(cases[1].before == std::vector<std::string>{"new x"});
  CHECK(cases[1].command == "motley launch");
  CHECK(cases[2].test == "tests/a.cpp");
  CHECK(cases[2].line == 27);
}

TEST_CASE("a page whose case is malformed is refused with its line") {
  const std::string good = "## b: c\nx\n----\nno\nexit 1\n";
  REQUIRE(malformed("# P\n\n" + good) == "nothing");
  const std::vector<std::pair<std::string, std::string>> malformed_pages = {
      {"", "1: the page ends here"},
      {good, "1: a page begins with `# ` and what it holds"},
      {"# P\nx\n", "2: the page has no case"},
      {"# P\n" + good + good, "7: an empty line follows `exit N`"},
      {"# P\n" + good + "\n" + good, "8: line 2 has this title"},
      {"# P\n" + good + "\n## a: c\n", "8: the cases of a page stand in the order of their kinds"},
      {"# P\n" + good + "\nx\n", "7: no title `## kind: what` stands below this line"},
      {"# P\n" + good + "\n", "7: no title `## kind: what` stands below this line"},
      {"# P\n## b\nx\n----\nno\nexit 1\n", "2: a title is `## kind: what in a few words`"},
      {"# P\n## b: \nx\n----\nno\nexit 1\n", "2: a title is `## kind: what in a few words`"},
      {"# P\n## B c: d\nx\n----\nno\nexit 1\n", "2: a title is `## kind: what in a few words`"},
      {"# P\n## b: c\nx\n\n" + good, "5: `----` stands between the input and its message"},
      {"# P\n## b: c\ntest: x\ny\n----\nno\nexit 1\n", "4: `----` stands between the input and its message"},
      {"# P\n## b: c\ncommand: rm x\n----\nno\nexit 1\n", "3: a command is of motley or of fit_published"},
      {"# P\n## b: c\nbefore: motley a\nx\n----\nno\nexit 1\n", "3: `command:` follows `before:`"},
      {"# P\n## b: c\n```f\n```\ny\n----\nno\nexit 1\n",
       "5: `----` stands between the input and its message"},
      {"# P\n## b: c\nx\n", "4: the page ends here"},
      {"# P\n## b: c\n----\nno\nexit 1\n", "3: nothing stands above `----` that could be refused"},
      {"# P\n## b: c\nx\n----\nexit 1\n", "5: no message stands above `exit N`"},
      {"# P\n## b: c\nx\n----\nno\nexit x\n\n" + good, "7: the message above does not end with `exit N`"},
      {"# P\n## b: c\nx\n----\nno\n" + good, "6: the message above does not end with `exit N`"},
      {"# P\n## b: c\n```f\nx\n----\nno\nexit 1\n", "8: the page ends here"},
      {"# P\n## b: c\n```\n```\n",
       "3: a block begins with ``` and the name of its file, and `escaped` where its text is"},
      {"# P\n## b: c\n```f\n```\n```f\n```\n", "5: a second `f` in one case"},
      {"# P\n## b: c\n```f escaped\n\\x0\n```\n",
       "4: in an escaped block a backslash begins `\\xNN`, a byte, or `\\\\`"},
  };
  for (const auto& [page, error] : malformed_pages)
    CHECK(malformed(page) == "tests/refusals/page.txt:" + error);
}

TEST_CASE("a file larger than any scenario is refused before it is parsed") {
  const Folder folder({{"input.yaml", std::string(2 << 20, '#')}});
  try {
    load_scenario("input.yaml");
    FAIL_CHECK("was not refused");
  } catch (const Refusal& refusal) {
    CHECK(as_on_page(refusal) == expected_refusal("file-too-large: more than a scenario can be"));
  }
}

TEST_CASE("a trace is not written into a folder that is not there") {
  try {
    write_trace({}, {}, "nowhere/trace.json");
    FAIL_CHECK("was not refused");
  } catch (const Refusal& refusal) {
    CHECK(as_on_page(refusal) == expected_refusal("unwritable-file: a folder that is not there"));
  }
}

TEST_CASE("a trace that is not there is refused by whoever reads its events alone") {
  CHECK(refusal_on_page([] { read_trace("nowhere.json"); }) ==
        expected_refusal("bad-trace: events of a trace that is not there"));
}
