// Fuzz target: a recording is read, asked for what a rank of a small job receives, and written again.
#include "hw/rank/recording.hpp"
#include "models/plan/prepare.hpp"
#include "tests/fuzz/target.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace motley::tests {

void take(const std::string& input) {
  static const Prepared small =
      prepare(read_scenario(parse_yaml(small_scenario(), "small.yaml"), "small.yaml"));
  // The input ends before the checksum, which is added here: else hardly a changed input would get further.
  const std::uint64_t sum = XXH3_64bits(input.data(), input.size());
  const std::string path = file_with(input + std::string(reinterpret_cast<const char*>(&sum), sizeof sum));
  const std::string again = path + "-again";
  const Recording recording(path);
  const std::vector<Rank> ranks = {Rank(1)};
  recording.check_suits(recording.origin(), small.program, ranks);
  std::vector<Step> steps;
  for (const Rank rank : ranks) {
    const auto& streams = small.program.program_of(rank).streams;
    for (const StreamId stream : streams.ids())
      for (std::size_t i = 0; i < streams[stream].instructions.size(); ++i)
        if (const Step step{rank, stream, static_cast<std::int32_t>(i)}; receives(small.program, step))
          steps.push_back(step);
  }
  RecordingWriter writer(again, recording.origin(), ranks);
  for (const Step& step : steps) writer.add(step, recording.values(step));
  writer.close();
  const Recording written(again);
  MOTLEY_CHECK(written.origin() == recording.origin());
  for (const Step& step : steps) MOTLEY_CHECK(written.values(step).size() == recording.values(step).size());
}

}  // namespace motley::tests
