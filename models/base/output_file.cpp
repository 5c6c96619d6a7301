#include "models/base/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "models/base/refusal.hpp"

namespace motley {
namespace {

namespace fs = std::filesystem;

using FileNumber = std::pair<dev_t, ino_t>;

// The number of a regular file; nothing: there is none.
std::optional<FileNumber> number_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return FileNumber{status.st_dev, status.st_ino};
}

std::set<FileNumber>& inputs() {
  static std::set<FileNumber> numbers;
  return numbers;
}

[[noreturn]] void refuse_over_input(const std::string& path) {
  throw Refusal(Exit::usage, "output-is-input", {.file = path}, "would be written over, and is read",
                "write another file");
}

bool is_special_file(const std::string& path) {
  std::error_code unknown;
  const auto status = fs::status(path, unknown);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// ---- what a signal removes

struct Unfinished {
  std::array<char, 4096> path{};
  volatile pid_t owner = 0;  // 0: the place is free
};
std::array<Unfinished, 16> unfinished;

void remember(const std::string& path) {
  for (Unfinished& each : unfinished) {
    if (each.owner != 0 || path.size() >= each.path.size()) continue;
    std::memcpy(each.path.data(), path.c_str(), path.size() + 1);
    each.owner = getpid();
    return;
  }
}

void forget(const std::string& path) {
  for (Unfinished& each : unfinished)
    if (each.owner != 0 && path == each.path.data()) each.owner = 0;
}

// Processes that were forked while a file is open hold it, too, and must not remove it.
bool is_own(const std::string& path) {
  for (const Unfinished& each : unfinished)
    if (each.owner != 0 && path == each.path.data()) return each.owner == getpid();
  return true;
}

// ---- files beside the file

// The files that runs write in place of `path`, until they rename them.
std::string beside(const std::string& path) { return fmt::format("{}.{}.partial", path, getpid()); }

bool is_beside(const std::string& name, const std::string& path) {
  const std::string begin = fs::path(path).filename().string() + ".", end = ".partial";
  if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end))
    return false;
  const std::string middle = name.substr(begin.size(), name.size() - begin.size() - end.size());
  return middle.find_first_not_of("0123456789") == std::string::npos;
}

// A run holds a lock on what it writes. What nobody holds was left behind by a run that was killed, and is removed.
void refuse_in_use(const std::string& path, const std::string& own) {
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    if (!is_beside(name, path) || name == fs::path(own).filename()) continue;
    const int other = open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (other < 0) continue;
    const bool is_left_behind = flock(other, LOCK_EX | LOCK_NB) == 0;
    close(other);
    if (!is_left_behind)
      throw Refusal(Exit::usage, "output-in-use", {.file = path}, "another run is writing this file",
                    "name another file, or wait until it has ended");
    fs::remove(entry.path(), unreadable);
  }
}

struct Opened {
  std::string written;
  int descriptor = -1;
};

[[noreturn]] void refuse_writing(const std::string& path, int error) {
  throw Refusal(Exit::usage, "unwritable-file", {.file = path},
                fmt::format("cannot be written: {}", std::strerror(error)),
                "does its folder exist, may you write there, and is the disk full?");
}

void discard(const Opened& opened) {
  if (opened.descriptor >= 0) close(opened.descriptor);
  if (opened.written.empty()) return;
  if (is_own(opened.written)) unlink(opened.written.c_str());
  forget(opened.written);
}

Opened open_output(const std::string& path) {
  Opened opened;
  if (is_special_file(path)) {
    opened.descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (opened.descriptor < 0) refuse_writing(path, errno);
    return opened;
  }
  opened.written = beside(path);
  constexpr int kNewFile = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  opened.descriptor = open(opened.written.c_str(), kNewFile, 0666);
  if (opened.descriptor < 0 && errno == EEXIST) {  // of an earlier process with this number
    refuse_in_use(path, "");
    opened.descriptor = open(opened.written.c_str(), kNewFile, 0666);
  }
  if (opened.descriptor < 0) refuse_writing(path, errno);
  remember(opened.written);
  flock(opened.descriptor, LOCK_EX | LOCK_NB);
  try {
    refuse_in_use(path, opened.written);
  } catch (...) {
    discard(opened);
    throw;
  }
  return opened;
}

// What open_outputs() has opened and no OutputFile has taken over.
class OpenedEarly {
 public:
  ~OpenedEarly() {
    for (const auto& [path, opened] : files_) discard(opened);
  }
  void add(const std::string& path) {
    const std::optional<FileNumber> number = number_of(path);
    const bool is_named_twice = files_.contains(path) && !files_.at(path).written.empty();
    if (is_named_twice || (number && numbers_.contains(*number)))
      throw Refusal(Exit::usage, "output-in-use", {.file = path},
                    "two results would be written into this file", "name another file for one of them");
    if (number && inputs().contains(*number)) refuse_over_input(path);
    if (!files_.contains(path)) files_[path] = open_output(path);
    if (number) numbers_[*number] = path;
  }
  std::optional<Opened> take(const std::string& path) {
    const auto node = files_.extract(path);
    if (node.empty()) return std::nullopt;
    std::erase_if(numbers_, [&](const auto& each) { return each.second == path; });
    return node.mapped();
  }
  bool has(const FileNumber& number) const { return numbers_.contains(number); }

 private:
  std::map<std::string, Opened> files_;
  std::map<FileNumber, std::string> numbers_;  // of the files that will be replaced
};

OpenedEarly& opened_early() {
  static OpenedEarly files;
  return files;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  std::optional<Opened> opened = opened_early().take(path_);
  if (!opened) opened = open_output(path_);
  written_ = opened->written;
  descriptor_ = opened->descriptor;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) discard({written_, descriptor_});
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) refuse(errno);
  if (written_.empty()) return;
  if (rename(written_.c_str(), path_.c_str()) != 0) refuse(errno);
  forget(written_);
}

void OutputFile::refuse(int error) {
  discard({written_, std::exchange(descriptor_, -1)});
  refuse_writing(path_, error);
}

void open_outputs(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (!path.empty()) opened_early().add(path);
}

void note_input(const std::string& path) {
  const std::optional<FileNumber> number = number_of(path);
  if (!number) return;
  if (opened_early().has(*number)) refuse_over_input(path);
  inputs().insert(*number);
}

void remove_unfinished_outputs() {
  const pid_t own = getpid();
  for (const Unfinished& each : unfinished)
    if (each.owner == own) unlink(each.path.data());
}

}  // namespace motley
