#include "hw/rank/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "models/base/refusal.hpp"
#include "models/base/text_file.hpp"
#include "models/transformer/train_text.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace motley {
namespace {

static_assert(std::endian::native == std::endian::little && std::numeric_limits<float>::is_iec559,
              "values are written as they lie in memory");

constexpr std::string_view kMagic = "motley-recording";
constexpr std::uint32_t kLongestText = 64;  // of a hash

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

const Instruction& instruction_at(const Program& program, const Step& step) {
  return program.at(step.rank, step.stream, step.index);
}

}  // namespace

RecordingOrigin origin_of(const Job& job, const Program& program, const Text* text) {
  Train train = job.train;
  train.seed = Train{}.seed;
  train.text.clear();
  train.steps = Train{}.steps;
  train.tokens = train.goodput = 1;
  const std::string training =
      print(job.transformer) + print(train) + fmt::format("{}", job.transformer.extra_prediction_weight);
  return {.program_hash = program_hash(program),
          .training_hash = fmt::format("{:016x}", XXH3_64bits(training.data(), training.size())),
          .seed = job.train.seed,
          .text_hash = text == nullptr ? 0 : text->hash()};
}

bool receives(const Program& program, const Step& step) {
  const Instruction& instruction = instruction_at(program, step);
  const auto* const collective = instruction.as<Collective>();
  return instruction.op() == Op::recv ||
         (collective != nullptr && program.ranks[step.rank].groups[collective->slot].has_value());
}

bool receives_inside(const Program& program, const Step& step) {
  const auto* const compute = instruction_at(program, step).as<Compute>();
  const RankEntry& entry = program.ranks[step.rank];
  if (compute == nullptr || !entry.groups.has(kTensorGroup) || !entry.groups[kTensorGroup]) return false;
  const auto& kernels = program.program_of(step.rank).blocks[compute->block].kernels;
  return std::any_of(kernels.begin() + compute->first_kernel, kernels.begin() + compute->last_kernel,
                     [](const Kernel& kernel) { return is_collective(kernel.op); });
}

struct RecordingWriter::Checksum {
  XXH3_state_t state;
};

RecordingWriter::RecordingWriter(std::string path, const RecordingOrigin& origin,
                                 const std::vector<Rank>& ranks)
    : file_(std::move(path)), checksum_(std::make_unique<Checksum>()) {
  XXH3_64bits_reset(&checksum_->state);
  put(std::as_bytes(std::span(kMagic)));
  put_value(kRecordingVersion);
  for (const std::string* const hash : {&origin.program_hash, &origin.training_hash}) {
    MOTLEY_CHECK(hash->size() <= kLongestText);
    put_value(static_cast<std::uint32_t>(hash->size()));
    put(std::as_bytes(std::span(*hash)));
  }
  put_value(origin.seed);
  put_value(origin.text_hash);
  MOTLEY_CHECK(origin.contribution != Contribution::recorded);
  put_value(static_cast<std::uint8_t>(origin.contribution));
  put_value(static_cast<std::uint8_t>(origin.inside_computes));
  put_value(static_cast<std::uint32_t>(ranks.size()));
  for (const Rank rank : ranks) put_value(rank.value());
}

RecordingWriter::~RecordingWriter() = default;

void RecordingWriter::put(std::span<const std::byte> bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20U;
  XXH3_64bits_update(&checksum_->state, bytes.data(), bytes.size());
  unwritten_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (unwritten_.size() >= kPiece) write_unwritten();
}

void RecordingWriter::write_unwritten() {
  file_.write(unwritten_);
  unwritten_.clear();
}

template <class T>
void RecordingWriter::put_value(const T& value) {
  put(bytes_of(value));
}

void RecordingWriter::add(const Step& step, std::span<const float> values) {
  put_value(std::uint8_t{1});
  put_value(step.rank.value());
  put_value(step.stream.value());
  put_value(step.index);
  put_value(std::uint64_t{values.size()});
  put(std::as_bytes(values));
  ++steps_;
}

void RecordingWriter::close() {
  put_value(std::uint8_t{0});
  put_value(steps_);
  put_value(std::uint64_t{XXH3_64bits_digest(&checksum_->state)});
  write_unwritten();
  file_.close();
}

// Reads on from the begin, and sums up what it has read.
class Recording::Reader {
 public:
  explicit Reader(std::FILE* file) : file_(file) { XXH3_64bits_reset(&checksum_); }
  // Both return false at the end of the file.
  bool take(std::span<std::byte> bytes) {
    if (std::fread(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return false;
    XXH3_64bits_update(&checksum_, bytes.data(), bytes.size());
    return true;
  }
  template <class T>
  bool take_value(T& value) {
    return take(std::as_writable_bytes(std::span(&value, 1)));
  }
  bool take_text(std::string& text) {
    std::uint32_t length = 0;
    if (!take_value(length) || length > kLongestText) return false;
    text.resize(length);
    return take(std::as_writable_bytes(std::span(text)));
  }
  bool skip(std::uint64_t floats) {
    std::array<float, 16384> piece;
    for (; floats > 0; floats -= std::min<std::uint64_t>(floats, piece.size()))
      if (!take(std::as_writable_bytes(std::span(piece))
                    .first(sizeof(float) *
                           static_cast<std::size_t>(std::min<std::uint64_t>(floats, piece.size())))))
        return false;
    return true;
  }
  std::uint64_t sum() const { return XXH3_64bits_digest(&checksum_); }
  long offset() const { return std::ftell(file_); }
  bool is_at_end() { return std::fgetc(file_) == EOF; }

 private:
  std::FILE* const file_;
  XXH3_state_t checksum_;
};

Recording::Recording(std::string path) : path_(std::move(path)) {
  refuse_irregular_file(path_);
  file_ = std::fopen(path_.c_str(), "rbe");
  if (file_ == nullptr)
    throw Refusal(Exit::usage, "file-not-found", {.file = path_},
                  fmt::format("cannot read the recording: {}", std::strerror(errno)),
                  "`--record-contributions FILE` writes one");
  try {
    Reader reader(file_);
    read_origin(reader);
    read_steps(reader);
  } catch (...) {
    std::fclose(file_);
    throw;
  }
}

Recording::~Recording() { std::fclose(file_); }

void Recording::read_origin(Reader& reader) {
  std::string magic(kMagic.size(), ' ');
  if (!reader.take(std::as_writable_bytes(std::span(magic))) || magic != kMagic)
    throw Refusal(
        Exit::usage, "bad-recording", {.file = path_}, "is no recording",
        "`--record-contributions FILE` writes one; a tape is read with `--world replay --tape FILE`");
  std::uint32_t version = 0, ranks = 0;
  std::uint8_t contribution = 0, inside_computes = 0;
  if (!reader.take_value(version)) refuse_damaged();
  if (version != kRecordingVersion)
    throw Refusal(Exit::usage, "bad-recording", {.file = path_},
                  fmt::format("a recording of version {}, and only {} is read", version, kRecordingVersion),
                  "record it again with this version of Motley");
  const bool whole = reader.take_text(origin_.program_hash) && reader.take_text(origin_.training_hash) &&
                     reader.take_value(origin_.seed) && reader.take_value(origin_.text_hash) &&
                     reader.take_value(contribution) && reader.take_value(inside_computes) &&
                     reader.take_value(ranks);
  const bool known = contribution < static_cast<std::uint8_t>(Contribution::recorded) && inside_computes <= 1;
  if (!whole || !known) refuse_damaged();
  origin_.contribution = static_cast<Contribution>(contribution);
  origin_.inside_computes = inside_computes == 1;
  for (; ranks > 0; --ranks) {
    std::int32_t rank = 0;
    if (!reader.take_value(rank)) refuse_damaged();
    ranks_.emplace_back(rank);
  }
}

void Recording::read_steps(Reader& reader) {
  for (std::uint8_t more = 0; reader.take_value(more) && more == 1;) {
    std::int32_t rank = 0, stream = 0, index = 0;
    std::uint64_t count = 0;
    if (!reader.take_value(rank) || !reader.take_value(stream) || !reader.take_value(index) ||
        !reader.take_value(count))
      refuse_damaged();
    const Entry entry{.offset = reader.offset(), .count = count};
    const bool first = entries_.emplace(Step{Rank(rank), StreamId(stream), index}, entry).second;
    if (!first || !reader.skip(count)) refuse_damaged();
  }
  std::uint64_t steps = 0, sum = 0;
  if (!reader.take_value(steps) || steps != entries_.size()) refuse_damaged();
  const std::uint64_t expected = reader.sum();
  if (!reader.take_value(sum) || sum != expected || !reader.is_at_end()) refuse_damaged();
}

void Recording::refuse_damaged() const {
  throw Refusal(Exit::usage, "bad-recording", {.file = path_},
                "a part of the recording is missing, or was changed after it was written", "record it again");
}

void Recording::refuse_wrong(const std::string& message, const std::string& hint, RefusalSite site) const {
  throw Refusal(Exit::usage, "wrong-recording", {.file = path_}, message, hint, site);
}

void Recording::check_suits(const RecordingOrigin& run, const Program& program,
                            const std::vector<Rank>& ranks) const {
  const std::string same = "record it again, or run the scenario that it was recorded of";
  if (origin_.program_hash != run.program_hash)
    refuse_wrong(fmt::format("the recording is of program {}, and this is program {}", origin_.program_hash,
                             run.program_hash),
                 same);
  if (origin_.training_hash != run.training_hash)
    refuse_wrong("the recording is of another model, or of one that was trained in another way", same);
  if (origin_.seed != run.seed)
    refuse_wrong(fmt::format("the recording has seed {}, and this run has seed {}", origin_.seed, run.seed),
                 same);
  if (origin_.text_hash != run.text_hash)
    refuse_wrong("the recording was made with another training text", same);
  for (const Rank rank : ranks) {
    if (std::find(ranks_.begin(), ranks_.end(), rank) == ranks_.end())
      refuse_wrong(fmt::format("rank {} is not recorded", rank), "record it again with that rank real");
    const auto& streams = program.program_of(rank).streams;
    for (const StreamId stream : streams.ids())
      for (std::size_t i = 0; i < streams[stream].instructions.size(); ++i) {
        const Step step{rank, stream, static_cast<std::int32_t>(i)};
        const bool needed =
            receives(program, step) || (origin_.inside_computes && receives_inside(program, step));
        if (needed && !entries_.contains(step))
          refuse_wrong(fmt::format("{} is not recorded", describe(program, rank, stream, step.index)),
                       "record it again");
      }
  }
}

std::vector<float> Recording::values(const Step& step) const {
  const Entry& entry = entries_.at(step);
  std::vector<float> values(entry.count);
  if (std::fseek(file_, entry.offset, SEEK_SET) != 0 ||
      std::fread(values.data(), sizeof(float), values.size(), file_) != values.size())
    refuse_damaged();
  return values;
}

}  // namespace motley
