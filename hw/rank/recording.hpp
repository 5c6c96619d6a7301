// A recording: what each real rank of a run received from other ranks at each of its steps, bit for bit. With it any of
// these ranks can compute again while the others are simulated, and leaves what it left then. A recording is of the
// first step of training, and holds no times: a tape (models/trace) does. Read next: hw/world/real_ranks.hpp.
//
// The file is little endian: the text "motley-recording", u32 version, the origin, the steps, u8 0, u64 number of
// steps, u64 XXH3 of everything before. A step: u8 1, i32 rank, i32 stream, i32 index, u64 count, and as many f32. The
// origin: the hashes of program and training (each u32 length and as many bytes), u64 seed, u64 hash of the text, u8
// Contribution, u8 inside_computes, u32 number of ranks, and as many i32.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hw/rank/data.hpp"
#include "models/base/output_file.hpp"
#include "models/scenario/job.hpp"
#include "models/scenario/world_choice.hpp"
#include "models/world/world.hpp"

namespace motley {

inline constexpr std::uint32_t kRecordingVersion = 1;

// The run that was recorded. What does not depend on it is not named: the cluster, times, which ranks were real.
struct RecordingOrigin {
  std::string program_hash;
  std::string training_hash;  // of the transformer and of how it is trained, but for the seed and the text
  std::uint64_t seed = 0;
  std::uint64_t text_hash = 0;  // 0: the data were made up
  // What was filled in for that which the run did not move: never `recorded`.
  Contribution contribution = Contribution::made_up;
  bool inside_computes = false;  // whether what came inside computes is recorded, too
  bool operator==(const RecordingOrigin&) const = default;
};
// `text`: null: the data are made up.
RecordingOrigin origin_of(const Job& job, const Program& program, const Text* text);

// Whether the step receives anything from other ranks; whether a compute does, in a collective inside it.
bool receives(const Program& program, const Step& step);
bool receives_inside(const Program& program, const Step& step);

// Writes a file beside `path` and renames it at the end, so that a reader never sees half a recording. A device is
// written directly. All throw Refusal "unwritable-file", also where the disk is full.
class RecordingWriter {
 public:
  RecordingWriter(std::string path, const RecordingOrigin& origin, const std::vector<Rank>& ranks);
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;
  ~RecordingWriter();  // without close(): removes what was written

  void add(const Step& step, std::span<const float> values);  // each step once
  void close();

 private:
  struct Checksum;
  void put(std::span<const std::byte> bytes);
  template <class T>
  void put_value(const T& value);
  void write_unwritten();

  OutputFile file_;
  std::string unwritten_;
  std::unique_ptr<Checksum> checksum_;
  std::uint64_t steps_ = 0;
};

class Recording {
 public:
  // Reads the whole file once, and then what is asked for. Throws Refusal "file-not-found" or "bad-recording".
  explicit Recording(std::string path);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  const RecordingOrigin& origin() const { return origin_; }
  // Throws Refusal "wrong-recording" if it was recorded of another run than `run`, or lacks a rank or a step.
  void check_suits(const RecordingOrigin& run, const Program& program, const std::vector<Rank>& ranks) const;
  std::vector<float> values(const Step& step) const;

 private:
  class Reader;
  struct Entry {
    long offset = 0;
    std::uint64_t count = 0;
  };
  void read_origin(Reader& reader);
  void read_steps(Reader& reader);
  [[noreturn]] void refuse_damaged() const;
  [[noreturn]] void refuse_wrong(const std::string& message, const std::string& hint,
                                 RefusalSite site = RefusalSite::here()) const;

  const std::string path_;
  std::FILE* file_ = nullptr;
  RecordingOrigin origin_;
  std::vector<Rank> ranks_;
  std::map<Step, Entry> entries_;
};

}  // namespace motley
