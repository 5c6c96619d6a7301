// The part of a fuzz target that libFuzzer calls: it runs take(), and bounds what one input may cost. Times are of the
// processor, of this process and its children, so that a busy machine changes nothing. Bytes are those that the program
// has asked for: AddressSanitizer's shadow and quarantine are not among them.
#include "tests/fuzz/target.hpp"

#include <fmt/format.h>
#include <sanitizer/allocator_interface.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"

namespace motley::tests {
namespace {

// Of the processor: about two in a release build, where a cluster of four million links takes 0.95 s and here 8.3 s.
constexpr double kMost_s = 16;
constexpr double kLearning_s = 5;  // of the processor, for a dictionary
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

// Not std::atomic: the targets have one thread.
std::int64_t live_bytes = 0, peak_bytes = 0;

void note_allocated(const volatile void* at, std::size_t) {
  live_bytes += static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(at)));
  if (live_bytes > peak_bytes) peak_bytes = live_bytes;
}
void note_freed(const volatile void* at) {
  if (at != nullptr)
    live_bytes -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(at)));
}

double seconds_of(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
double processor_s() { return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN); }

void refuse_cost(const std::string& what) {
  fmt::print(stderr, "too dear an input: {}\n", what);
  std::abort();
}

// The dearest inputs so far, printed where they become much dearer: libFuzzer ends the process without asking.
class Dearest {
 public:
  void take_in(double seconds, std::int64_t bytes) {
    const bool is_much = seconds > 1.1 * printed_s_ || static_cast<double>(bytes) > 1.1 * printed_bytes_;
    seconds_ = std::max(seconds_, seconds);
    bytes_ = std::max(bytes_, static_cast<double>(bytes));
    if (!is_much) return;
    printed_s_ = seconds_;
    printed_bytes_ = bytes_;
    fmt::print(stderr, "dearest inputs: {:.2f} s of the processor, {:.0f} MB\n", seconds_, bytes_ / 1e6);
  }

 private:
  double seconds_ = 0, bytes_ = 0, printed_s_ = 0.01, printed_bytes_ = 1e6;
};
Dearest dearest;

const std::string& file_path() {
  static const std::string path = fmt::format("/dev/shm/motley-fuzz-{}", getpid());
  return path;
}

// A file named `-` is standard input: nobody writes there.
void set_up_target() {
  if (freopen("/dev/null", "r", stdin) == nullptr) std::abort();
  __sanitizer_install_malloc_and_free_hooks(note_allocated, note_freed);
}

// What is wrong with an input is told with its place. What a job cannot do is a matter of all of it.
void check_answer(const Refusal& refusal) {
  MOTLEY_CHECK(!refusal.message().empty());
  const Exit code = refusal.exit_code();
  const bool is_documented = code == Exit::usage || code == Exit::infeasible || code == Exit::mismatch;
  // What is wrong with a whole file, as one of bytes, has no line.
  const Location& where = refusal.where();
  const bool has_place = !where.file.empty() && (where.line > 0 || where.file == file_path());
  if (is_documented && (has_place || code != Exit::usage)) return;
  fmt::print(stderr, "refused without its place, or by another exit code: {} (exit {})\n", refusal.what(),
             static_cast<int>(code));
  std::abort();
}

void run_input(const std::string& input) {
  const double before_s = processor_s();
  const std::int64_t before_bytes = peak_bytes = live_bytes;
  try {
    take(input);
  } catch (const Refusal& refusal) {
    check_answer(refusal);
  }
  const double seconds = processor_s() - before_s;
  const std::int64_t bytes = peak_bytes - before_bytes;
  if (seconds > kMost_s) refuse_cost(fmt::format("{:.1f} s of the processor", seconds));
  if (bytes > kMostBytes) refuse_cost(fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6));
  dearest.take_in(seconds, bytes);
}

// A word that no reader knows takes the place of each word of an input in turn. What the refusals then call known are
// the words that the readers accept: they are printed as a dictionary of libFuzzer.
class Words {
 public:
  void learn_from(const std::string& input) {
    for (std::size_t begin = 0; begin < input.size() && processor_s() < kLearning_s;) {
      std::size_t end = begin;
      while (end < input.size() && is_of_word(input[end])) ++end;
      if (end > begin) try_without(input, begin, end - begin);
      begin = end + 1;
    }
  }
  void print_dictionary() const {
    for (const std::string& word : words_) fmt::print("\"{}\"\n", word);
  }

 private:
  static bool is_of_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  }
  void try_without(std::string input, std::size_t at, std::size_t length) {
    if (!tried_.insert(input.substr(at, length)).second) return;
    try {
      take(input.replace(at, length, "qqzzqqzzqqzz"));
    } catch (const Refusal& refusal) {
      take_known(refusal.hint());
    } catch (const std::exception&) {
      // A finding, perhaps: the fuzzer itself is for these.
    }
  }
  void take_known(const std::string& hint) {
    constexpr std::string_view kKnown = "known: ";
    if (hint.find(kKnown) == std::string::npos) return;
    std::string word;
    for (const char c : hint.substr(hint.find(kKnown) + kKnown.size()) + ',') {
      if (is_of_word(c))
        word += c;
      else if (!word.empty())
        words_.insert(std::exchange(word, {}));
    }
  }
  std::set<std::string> tried_, words_;
};

// With MOTLEY_FUZZ_WORDS in the environment the program prints the dictionary of the files that it is given, and ends.
void print_words(int count, char** arguments) {
  Words words;
  for (int i = 1; i < count; ++i) words.learn_from(read_text_file(arguments[i]));
  words.print_dictionary();
  std::exit(0);
}

}  // namespace

void check_finite(const std::string& text) {
  std::string printed;  // without what stands in quotes: names and sources are the input's own words
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    if (!quoted) printed += text[i];
  }
  const auto is_word = [&](std::size_t at) {
    return at < printed.size() && (std::isalnum(static_cast<unsigned char>(printed[at])) != 0 ||
                                   printed[at] == '_' || printed[at] == '-');
  };
  for (const char* const word : {"inf", "nan"})
    for (std::size_t at = printed.find(word); at != std::string::npos; at = printed.find(word, at + 1))
      MOTLEY_CHECK(is_word(at + 3) || (at > 0 && is_word(at - 1)));
}

std::string file_with(const std::string& text) {
  std::ofstream(file_path(), std::ios::binary | std::ios::trunc) << text;
  return file_path();
}

}  // namespace motley::tests

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  motley::tests::set_up_target();
  if (std::getenv("MOTLEY_FUZZ_WORDS") != nullptr) motley::tests::print_words(*count, *arguments);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  motley::tests::run_input(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
