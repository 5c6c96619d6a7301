// Files that commands write: whole or not at all, by one run at a time, and never over what was read.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "models/base/output_file.hpp"
#include "models/base/refusal.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/base/text_file.hpp"
#include "tests/refusals/pages.hpp"

namespace motley {
namespace {

namespace fs = std::filesystem;

using KindAndMessage = std::pair<std::string, std::string>;

KindAndMessage refusal_of(const auto& body) {
  try {
    body();
  } catch (const Refusal& refusal) {
    return {refusal.kind(), refusal.message()};
  }
  return {};
}

long file_count(const TemporaryFolder& folder) {
  return std::distance(fs::directory_iterator(folder.path()), {});
}

void write_whole(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.close();
}

const KindAndMessage kInUse{"output-in-use", "another run is writing this file"},
    kTwice{"output-in-use", "two results would be written into this file"},
    kIsInput{"output-is-input", "would be written over, and is read"};

}  // namespace

TEST_CASE("a file that is not closed leaves what was there, and nothing beside it") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.json");
  write_whole(path, "before");
  {
    OutputFile file(path);
    file.write("half");
    CHECK(folder.read("out.json") == "before");
    CHECK(file_count(folder) == 2);
  }
  CHECK(folder.read("out.json") == "before");
  CHECK(file_count(folder) == 1);
  write_whole(path, "after");
  CHECK(folder.read("out.json") == "after");
  CHECK(file_count(folder) == 1);
}

TEST_CASE("a full disk and a missing folder are told as such") {
  CHECK_THROWS_WITH(write_whole("/dev/full", "text"), Catch::Contains("No space left on device"));
  CHECK_THROWS_WITH(write_whole("nowhere/out.json", "text"), Catch::Contains("No such file or directory"));
  CHECK_THROWS_WITH(open_outputs({"nowhere/out.json"}), Catch::Contains("No such file or directory"));
}

TEST_CASE("two runs do not write one file, and a killed one is no run") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.json");
  // Another process holds its part of the file, as a run does.
  const std::string part = path + ".1.partial";
  const int held = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  REQUIRE(flock(held, LOCK_EX) == 0);
  CHECK(refusal_of([&] { OutputFile file(path); }) == kInUse);
  CHECK(tests::refusal_on_page([&] { open_outputs({path}); }, folder.path()) ==
        tests::expected_refusal("output-in-use: a file that another run is writing"));
  CHECK(file_count(folder) == 1);
  close(held);  // it was killed
  write_whole(path, "text");
  CHECK(file_count(folder) == 1);
  CHECK(folder.read("out.json") == "text");
}

TEST_CASE("files of like names are nobody's part") {
  const TemporaryFolder folder;
  for (const char* name :
       {"out.json.partial", "out.json.a.partial", "out.json.1.partial.gz", "xout.json.1.partial"})
    std::ofstream(folder.file(name)) << "own";
  write_whole(folder.file("out.json"), "text");
  CHECK(file_count(folder) == 5);
}

TEST_CASE("what is read is not written over, whichever is told first") {
  const TemporaryFolder folder;
  const std::string path = folder.file("in.yaml"), other = folder.file("other.yaml"),
                    link = folder.file("link.yaml");
  std::ofstream(path) << "text";
  std::ofstream(other) << "text";
  fs::create_hard_link(path, link);
  CHECK(read_text_file(path) == "text");
  CHECK(refusal_of([&] { open_outputs({link}); }) == kIsInput);
  CHECK(tests::refusal_on_page([&] { open_outputs({path}); }, folder.path()) ==
        tests::expected_refusal("output-is-input: a result in place of what is read"));
  open_outputs({other});
  CHECK(refusal_of([&] { read_text_file(other); }) == kIsInput);
  CHECK(refusal_of([&] { refuse_irregular_file(other); }) == kIsInput);
  CHECK(tests::refusal_on_page([&] { open_outputs({other}); }, folder.path()) ==
        tests::expected_refusal("output-in-use: two results in one file"));
  write_whole(other, "written");  // takes over what was opened
  CHECK(read_text_file(other) == "written");
  CHECK(folder.read("in.yaml") == "text");
  CHECK(file_count(folder) == 3);
}

TEST_CASE("a process that was forked meanwhile removes nothing") {
  const TemporaryFolder folder;
  OutputFile file(folder.file("out.json"));
  file.write("whole");
  const pid_t child = fork();
  if (child == 0) {
    remove_unfinished_outputs();
    _exit(0);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
  file.close();
  CHECK(folder.read("out.json") == "whole");
}

TEST_CASE("a link beside the file is not followed") {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.json"), victim = folder.file("victim");
  std::ofstream(victim) << "own";
  fs::create_symlink(victim, path + "." + std::to_string(getpid()) + ".partial");
  CHECK(refusal_of([&] { write_whole(path, "text"); }) ==
        KindAndMessage("unwritable-file", "cannot be written: File exists"));
  CHECK(folder.read("victim") == "own");
}

}  // namespace motley
