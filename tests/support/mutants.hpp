// Which change of the source is made: included in front of every file of a tree that tools/mutate has changed. In such
// a tree all changes are compiled, and MOTLEY_MUTANT in the environment chooses the one that is made. A process marks
// in the file MOTLEY_MUTANTS_REACHED, a byte for each, the changes whose place it comes to; it does so through shared
// memory, so that a process which is killed has marked them, too.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace motley {

class Mutants {
 public:
  static Mutants& of_process() {
    static Mutants mutants;
    return mutants;
  }
  bool is_made(std::size_t number) {
    if (number < reached_count_) reached_[number] = 1;
    return static_cast<long>(number) == active_;
  }

 private:
  long active_ = -1;  // -1: none
  unsigned char* reached_ = nullptr;
  std::size_t reached_count_ = 0;

  Mutants() {
    if (const char* number = std::getenv("MOTLEY_MUTANT")) active_ = std::atol(number);
    const char* path = std::getenv("MOTLEY_MUTANTS_REACHED");
    if (path == nullptr) return;
    const int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) return;
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return;
    reached_ = static_cast<unsigned char*>(memory);
    reached_count_ = bytes;
  }
};

inline bool mutant_is_made(std::size_t number) { return Mutants::of_process().is_made(number); }

}  // namespace motley
