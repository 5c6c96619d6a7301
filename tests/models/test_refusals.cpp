// Every refusal: its input, and the exact message. tests/refusals/README.md says what a folder holds.
// MOTLEY_REWRITE=1 in the environment writes the messages anew, to be read in `git diff`.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "models/check.hpp"
#include "models/refusal.hpp"
#include "models/scenario.hpp"
#include "models/trace.hpp"

namespace fs = std::filesystem;
using namespace motley;

namespace {

const fs::path kRoot = MOTLEY_SOURCE_DIR;
const fs::path kFolders = kRoot / "tests" / "refusals";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolders))
    if (entry.is_directory()) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// The program's text with the edit of edit.txt ("- old" and "+ new") made once.
std::string edited(std::string program, const std::string& edit) {
  const std::size_t end = edit.find('\n');
  const std::string from = edit.substr(2, end - 2), to = edit.substr(end + 3, edit.size() - end - 4);
  const std::size_t at = program.find(from);
  REQUIRE(at != std::string::npos);
  return program.replace(at, from.size(), to);
}

// Reads and checks what the folder (the current one) holds, as the commands do.
void take(const fs::path& folder) {
  if (fs::exists("trace.json")) {
    read_trace("trace.json");
    return;
  }
  const Scenario scenario = load_scenario("input.yaml");
  Program program = compile(scenario);
  if (fs::exists("edit.txt"))
    program = parse_program(edited(print(program), text_of(folder / "edit.txt")), "program");
  check(program, scenario);
}

void compare(const fs::path& folder, const Refusal& refusal) {
  const std::string name = folder.filename();
  CHECK((name == refusal.kind() || name.starts_with(refusal.kind() + "-")));
  const std::string said =
      std::string(refusal.what()) + "\nexit " + std::to_string(static_cast<int>(refusal.exit_code())) + "\n";
  if (std::getenv("MOTLEY_REWRITE")) std::ofstream(folder / "expected.txt") << said;
  CHECK(said == text_of(folder / "expected.txt"));
}

// Kinds that the sources can refuse with: the first word of each Refusal, StrategyComplaint and of what hw/rendezvous
// sends to all ranks.
std::set<std::string> kinds_in_sources() {
  const std::regex thrown(
      R"re((?:Refusal\(\s*Exit::\w+,\s*|Complaint\{\s*|differs\(|json\{\{"kind", )"([a-z0-9-]+)")re");
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

}  // namespace

TEST_CASE("every input of tests/refusals is refused with its message") {
  const fs::path before = fs::current_path();
  for (const fs::path& folder : folders()) {
    if (fs::exists(folder / "how.txt")) continue;
    DYNAMIC_SECTION(folder.filename().string()) {
      fs::current_path(folder);
      try {
        take(folder);
        FAIL_CHECK("was not refused");
      } catch (const Refusal& refusal) {
        compare(folder, refusal);
      }
    }
  }
  fs::current_path(before);
}

TEST_CASE("every kind of refusal in the sources has an input in tests/refusals") {
  std::set<std::string> names;
  for (const fs::path& folder : folders()) names.insert(folder.filename());
  const std::set<std::string> kinds = kinds_in_sources();
  REQUIRE(kinds.size() > 30);
  for (const std::string& kind : kinds) {
    INFO("tests/refusals/" << kind << " is missing; tests/refusals/README.md says what goes in it");
    CHECK(names.contains(kind));
  }
}

TEST_CASE("a how.txt names a command, or a test that asks for that kind") {
  for (const fs::path& folder : folders()) {
    if (!fs::exists(folder / "how.txt")) continue;
    const std::string how = text_of(folder / "how.txt");
    INFO(folder);
    if (how.starts_with("command: motley ")) continue;
    REQUIRE(how.starts_with("test: "));
    const std::string kind = folder.filename();
    CHECK_THAT(text_of(kRoot / how.substr(6, how.size() - 7)), Catch::Contains('"' + kind));
  }
}

TEST_CASE("a file larger than any scenario is refused before it is parsed") {
  const fs::path before = fs::current_path(), here = fs::temp_directory_path();
  fs::current_path(here);
  const std::string name = "motley-too-large-" + std::to_string(getpid()) + ".yaml";
  std::ofstream(name) << std::string(2 << 20, '#');
  try {
    load_scenario(name);
    FAIL_CHECK("was not refused");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "file-too-large");
    CHECK(refusal.what() + std::string("\nexit 2\n") ==
          std::regex_replace(text_of(kFolders / "file-too-large/expected.txt"), std::regex("input.yaml"),
                             name));
  }
  fs::remove(name);
  fs::current_path(before);
}

TEST_CASE("a trace is not written into a folder that is not there") {
  try {
    write_trace({}, {}, "nowhere/trace.json");
    FAIL_CHECK("was not refused");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "unwritable-file");
    CHECK(refusal.what() + std::string("\nexit 2\n") == text_of(kFolders / "unwritable-file/expected.txt"));
  }
}
