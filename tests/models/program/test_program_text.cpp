// The text form of a Program: every Program reads back equal, whatever its fields hold, and text that is not a Program
// is refused with the place of the error.
#include <catch2/catch.hpp>

#include "models/base/refusal.hpp"
#include "models/compile/compile.hpp"
#include "models/compile/one_call.hpp"
#include "tests/support/context_jobs.hpp"
#include "tests/support/program_changes.hpp"
#include "tests/support/random_jobs.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/row_jobs.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

// Two ranks with one program each, and a line of every kind.
const std::string kText = R"(motley-program 2
strategy 0123456789abcdef
job sequence=16 global_batch=4 precision=bf16 gradients=fp32 layers=2 p2p_buffers=2
routing experts=8 per_token=2 groups=1 groups_per_token=1 skew=0.5 seed=7
program "stage 0" pipeline=0 stage=0 first=1 last=0 tensor_parallel=1 micro_batch=2 micro_batches=1 static=16
  chunk virtual_stage=0 layers=0:1
  chunk virtual_stage=2 layers=2:3
  tensor w role=parameter format=bf16 shape=4,2 bytes=16 parameter=0
  tensor x role=activation format=bf16 shape=8,2 bytes=32
  tensor "two words" role=activation use=chunk_output format=bf16 shape=8,4 bytes=64
  tensor twice role=gathered format=bf16 shape=4,2 bytes=16 parameter=0
  tensor twice role=optimizer format=fp32 shape=2,4,2 bytes=64 parameter=0 on_host=1
  shard slot=1 gather_slot=2 parameters=#3 optimizer=#4 parameter_part=w
  block "forward 0" pass=forward
    matmul from x with w to "two words" layer=0 m=8 n=4 k=2 format=bf16 flops=128 bytes=112
    all_reduce to "two words" layer=0 over=context bytes=64 frees x
  block "forward 1" pass=forward chunk=1
  stream compute
    compute "forward 0" kernels 0:1 micro-batch 0 flops=128 allocated=64 peak=64 after recv_activation 0
    compute "forward 0" kernels 1:2 micro-batch 0 freed=32
    compute "forward 1" micro-batch 0 after compute 0, recv_activation 0
    optimizer
  stream recv_activation
    recv x micro-batch 0 from previous bytes=32
  stream send_activation chunk=1
    send "two words" micro-batch 0 to next.1 (rank 1) part=1 parts=2 bytes=32 after compute 1 frees "two words"
  stream gather
    all_gather #3 over 2 (gather) shard=0 bytes=16
  stream to_host
    copy w into #4 bytes=16
program "stage 1" pipeline=0 stage=1 first=0 last=1 tensor_parallel=1 micro_batch=2 micro_batches=1 static=0
group gather ranks=0,1
rank program=0 chip=0 stage=0 replica=0 tensor=0 sequence=0 peers=-,1,-,1 groups=-,-,0
rank program=1 chip=1 stage=1 replica=0 tensor=0 sequence=0 peers= groups=
)";

void check_round_trip(const Program& program) {
  const std::string text = print(program);
  INFO(text);
  REQUIRE(parse_program(text) == program);
}

std::string with(const std::string& old_words, const std::string& new_words) {
  std::string text = kText;
  const std::size_t place = text.find(old_words);
  REQUIRE(place != std::string::npos);
  return text.replace(place, old_words.size(), new_words);
}

std::string where_and_why(const std::string& text) {
  try {
    parse_program(text, "file");
  } catch (const Refusal& refusal) {
    CHECK(refusal.kind() == "bad-program");
    CHECK(refusal.where().file == "file");
    return std::to_string(refusal.where().line) + ":" + std::to_string(refusal.where().column) + ": " +
           refusal.message();
  }
  return "read";
}

}  // namespace

TEST_CASE("a Program's text says what it does in names") {
  const Program program = parse_program(kText);
  CHECK(print(program) == kText);
  const RankProgram& stage = program.program_of(0_rank);
  const auto& computes = stage.streams[kComputeStream].instructions;
  CHECK(computes[0].body == InstructionBody(Compute{BlockId(0), 0, 1}));
  CHECK(computes[2].body == InstructionBody(Compute{BlockId(1), 0, 0}));
  CHECK(computes[2].after == std::vector<After>{{kComputeStream, 0}, {StreamId(1), 0}});
  CHECK(computes[3].body == InstructionBody(OptimizerStep{}));
  CHECK(computes[3].micro_batch == kNoMicroBatch);
  const PeerMessage& sent = *program.at(0_rank, StreamId(2), 0).message();
  CHECK(sent.slot == next_slot(ChunkId(1)));
  CHECK(sent.tensor == TensorId(2));
  CHECK(program.at(0_rank, StreamId(4), 0).body ==
        InstructionBody(Copy{{TensorId(0)}, {TensorId(4)}, {}, 16}));
  CHECK(program.ranks[0_rank].peers.items() == std::vector<std::optional<Rank>>{{}, 1_rank, {}, 1_rank});
  const Kernel& matmul = stage.blocks.front().kernels[0];
  CHECK(matmul.parameters == std::vector<TensorId>{TensorId(0)});
  CHECK(matmul.factor == 1);
  CHECK(stage.shards.front().parameters == std::vector<TensorId>{TensorId(3)});
}

TEST_CASE("notes in parentheses are for the reader alone") {
  CHECK(parse_program(with(" (rank 1)", "")) == parse_program(kText));
  CHECK(parse_program(with("(gather)", "(what is here, after=1 or not)")) == parse_program(kText));
  CHECK(parse_program(with("stream gather", "\n    (all parameters)\n  stream gather")) ==
        parse_program(kText));
}

TEST_CASE("a Program of every small job reads back as it was printed", "[slow]") {
  const std::vector<std::vector<Job>> lists = {every_small_job(Family::gpt2),
                                               every_scheduled_job(Family::llama),
                                               every_divided_job(Family::gpt2),
                                               every_offloaded_job(Family::llama),
                                               every_resharded_job(Family::gpt2),
                                               every_context_job(Family::llama),
                                               every_job_of_unlike_replicas(Family::gpt2),
                                               every_row_job(tiny_variant("qwen3")),
                                               every_recomputing_job(tiny_variant("latent")),
                                               every_expert_job(tiny_variant("mixtral")),
                                               every_overlapped_expert_job(tiny_variant("mixtral")),
                                               every_divided_expert_job(tiny_variant("deepseek-v3"))};
  for (const std::vector<Job>& jobs : lists)
    for (const Job& job : jobs) {
      CAPTURE(print(job.strategy));
      check_round_trip(compile(job));
    }
  for (const std::string& name : variants())
    check_round_trip(compile(tiny_job({1, 2, 1}, with_extra_predictions(tiny_variant(name)))));
}

TEST_CASE("a Program of any random job reads back as it was printed") {
  for (unsigned seed = 1; seed <= (kSanitized ? 15U : 60U); ++seed) {
    CAPTURE(seed);
    check_round_trip(compile(any_job(seed)));
  }
}

TEST_CASE("an empty Program reads back as it was printed") { check_round_trip({}); }

TEST_CASE("whatever the fields of a Program hold is printed, and read back") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    CAPTURE(seed);
    check_round_trip(any_program(random));
  }
}

TEST_CASE("no field of a Program changes unless its text does", "[slow]") {
  Random random(1);
  const Program program = any_program(random);
  const std::string text = print(program);
  Program listed = program;
  const std::size_t fields = ProgramChanges(listed, random).all().size();
  CHECK(fields > 1000);
  for (std::size_t i = 0; i < fields; ++i) {
    Program changed = program;
    const ProgramChanges changes(changed, random);
    changes.all()[i]();
    CAPTURE(i);
    REQUIRE_FALSE(changed == program);
    REQUIRE(print(changed) != text);
    check_round_trip(changed);
  }
}

TEST_CASE("text that is no Program is refused where it is wrong") {
  struct Wrong {
    std::string old_words, new_words, refused;
  };
  for (const Wrong& wrong : {
           Wrong{"motley-program 2", "motley-program 1", "1:1: the first line is not `motley-program 2`"},
           {"job seq", "jobs seq", "3:1: unknown line `jobs`"},
           {"sequence=16", "sequence=16 sequence=16", "3:17: `sequence` is given twice"},
           {"sequence=16", "sequence=16x", "3:1: `16x` is not a number that fits"},
           {"layers=2 ", "layers=2 colour=2 ", "3:1: unknown key `colour`"},
           {"precision=bf16", "precision=bf61", "3:1: unknown word `bf61`: did you mean `bf16`?"},
           {"layers=0:1", "layers=0", "6:1: `layers` wants first:last"},
           {"tensor w role", "tensor role", "8:1: `tensor` wants a name"},
           {"\"two words\" role", "\"two words role", "10:10: a name without its closing quote"},
           {"tensor \"two words\"", "tensor two words", "10:14: stray word `words`"},
           {"from x with", "from x, y with", "15:20: no tensor `y`"},
           {"from x with", "from twice with", "15:17: no tensor `twice`"},
           {"with w to", "from w to", "15:19: `from` is given twice"},
           {"    matmul from", "    matmull from", "15:1: unknown word `matmull`: did you mean `matmul`?"},
           {"over=context", "over=contexts", "16:1: unknown word `contexts`: did you mean `context`?"},
           {"  block \"forward 0\"", "  blok \"forward 0\"", "14:1: `blok` outside a block or stream"},
           {"compute \"forward 0\" kernels", "compute \"forward 2\" kernels", "19:13: no block `forward 2`"},
           {"kernels 0:1", "kernels 0", "19:1: `kernels` wants first:last"},
           {"micro-batch 0 freed", "micro-batch 0 1 freed", "20:51: stray word `1`"},
           {"after compute 0, recv_activation 0", "after compute 0, gahter 0", "21:1: no stream `gahter`"},
           {"after compute 0, recv_activation 0", "after compute",
            "21:1: `after` wants a stream and an index"},
           {"    optimizer", "    optimizer into w", "22:1: `into` does not belong here"},
           {"    recv x", "    receive x",
            "24:1: unknown word `receive`: known: compute, send, recv, optimizer, copy, "
            "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather, scatter, "
            "barrier"},
           {"    recv x", "    recv", "24:1: `recv` wants a tensor"},
           {"from previous", "from before", "24:31: no peer `before`: next or previous"},
           {"to next.1", "to next.2", "26:39: no peer `next.2`: next or previous"},
           {"(rank 1)", "(rank 1", "26:46: a note without its closing parenthesis"},
           {"over 2 (gather)", "(gather)", "28:1: `over` wants a group slot"},
           {"stream gather", "stream gathers", "27:1: unknown word `gathers`: did you mean `gather`?"},
           {"group gather", "group", "32:1: `group` wants a kind"},
           {"ranks=0,1", "ranks=0,one", "32:1: `one` is not a number that fits"},
           {"peers=-,1", "peers=none,1", "33:1: `none` is not a number that fits"},
       }) {
    CAPTURE(wrong.new_words);
    CHECK(where_and_why(with(wrong.old_words, wrong.new_words)) == wrong.refused);
  }
  CHECK(where_and_why("") == "1:1: the file is empty");
}

TEST_CASE("a program of one call says what its ranks are") {
  const auto heads = [](const OneCall& call) {
    std::string names;
    for (const RankProgram& each : program_of(call, {0, 1}).rank_programs) names += each.name + "\n";
    return names;
  };
  CHECK(heads({CollectiveKind::all_reduce, 4}) == "member\n");
  CHECK(heads({.kind = {}, .bytes = 4}) == "sender\nreceiver\n");
  CHECK(heads({.kind = {}, .bytes = 4, .in_ring = true}) == "member\n");
}

TEST_CASE("a damaged Program is read or refused, never worse") {
  const std::string text = print(compile(tiny_job({1, 2, 1})));
  int refused = 0;
  for (std::uint32_t seed = 1; seed <= 1000; ++seed) {
    Random random(seed);
    const std::string wrong = damaged(seed % 2 == 0 ? text : kText, random);
    CAPTURE(seed);
    try {
      print(parse_program(wrong, "file"));
    } catch (const Refusal& refusal) {
      ++refused;
      CHECK(refusal.kind() == "bad-program");
      CHECK(refusal.where().line > 0);
    } catch (const std::exception& error) {
      FAIL("not a Refusal: " << error.what());
    }
  }
  CHECK(refused > 300);
  CHECK(refused < 1000);
}
