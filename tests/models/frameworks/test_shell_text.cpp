// The reader of shell text, beside what bash itself makes of the same text, and layouts of layers.
#include <catch2/catch.hpp>

#include "models/frameworks/launch_line.hpp"
#include "models/frameworks/layer_layout.hpp"
#include "models/frameworks/megatron_flags.hpp"
#include "models/frameworks/megatron_settings.hpp"
#include "models/frameworks/shell_text.hpp"
#include "tests/refusals/pages.hpp"
#include "tests/support/dice.hpp"

using namespace motley;

namespace {

// The words of the only command, each in brackets.
std::string words_of(const std::string& text) {
  const std::vector<ShellCommand> commands = parse_shell(text, "script");
  std::string words;
  for (const ShellCommand& command : commands) {
    if (!words.empty()) words += ";";
    for (const ShellWord& word : command.words)
      words += "<" + word.text + (word.unknown.empty() ? "" : "?") + ">";
  }
  return words;
}

std::string ranks_of(const std::string& text) {
  const auto ranks = read_launch_line(text, "script").ranks;
  return ranks ? std::to_string(*ranks) : "unknown";
}

}  // namespace

TEST_CASE("words are split, quoted and joined as in a shell") {
  CHECK(words_of("a  b\tc") == "<a><b><c>");
  CHECK(words_of("a 'b  c' \"d  e\"") == "<a><b  c><d  e>");
  CHECK(words_of("a\\ b \"c\\\"d\" '\\'") == "<a b><c\"d><\\>");
  CHECK(words_of("pre'mid'\"end\"") == "<premidend>");
  CHECK(words_of("a ''") == "<a><>");
  CHECK(words_of("a \\\n  b \\\r\n c") == "<a><b><c>");
  CHECK(words_of("a # b\nc#d") == "<a>;<c#d>");
  CHECK(words_of("a; b && c | d") == "<a>;<b>;<c>;<d>");
  CHECK(words_of("a > out 2>&1 b") == "<a><b>");
}

TEST_CASE("variables that the text sets are expanded and the others stay unknown") {
  CHECK(words_of("N=4\nrun $N ${N}x \"$N\" '$N'") == "<run><4><4x><4><$N>");
  CHECK(words_of("A='1 2'\nrun $A \"$A\"") == "<run><1><2><1 2>");
  CHECK(words_of("A=(x 'y z')\nA+=(w)\nrun ${A[@]} \"${A[@]}\"") == "<run><x><y z><w><x><y z><w>");
  CHECK(words_of("run ${N:-8} ${M-9}") == "<run><8><9>");
  CHECK(words_of("run $1 $(nproc) `nproc` ${A%x}") == "<run><$1?><$(nproc)?><`nproc`?><${A%x}?>");
  CHECK(words_of("export A=3 B\nrun $A") == "<run><3>");
  CHECK(words_of("A=1 B=$A run $B") == "<run><1>");
  CHECK(words_of("A=a\nA+=b\nrun $A") == "<run><ab>");
  CHECK(words_of("run\nA=") == "<run>");
}

TEST_CASE("a word has the place where it was written, through variables too") {
  const auto commands = parse_shell("ARGS=\"--a 1 \\\n  --b 2\"\nrun $ARGS\n", "script");
  const ShellWord& word = commands.at(0).words.at(3);
  CHECK(word.text == "--b");
  CHECK(word.where.line == 2);
  CHECK(word.where.column == 3);
}

TEST_CASE("a text that expands without end is refused") {
  std::string text = "A=0123456789\n";
  for (int i = 0; i < 40; ++i) text += "A=$A$A\n";
  CHECK_THROWS_AS(parse_shell(text + "run $A", "script"), Refusal);
}

TEST_CASE("a word that a shell would not read in an array is refused") {
  for (const char* const text : {"A=(a | b)", "A=(a; b)", "A=(a (b))", "A=(<b)"})
    CHECK_THROWS_AS(parse_shell(text, "script"), Refusal);
}

TEST_CASE("launchers say how many ranks start") {
  CHECK(ranks_of("torchrun --nnodes 4 --nproc-per-node=8 train.py --num-layers 2") == "32");
  CHECK(ranks_of("torchrun --nnodes=2:2 --nproc_per_node 4 train.py") == "8");
  CHECK(ranks_of("python -m torch.distributed.run --nproc-per-node 4 train.py") == "4");
  CHECK(ranks_of("mpirun -np 12 -x PATH python train.py") == "12");
  CHECK(ranks_of("srun -N 2 --ntasks-per-node=8 python train.py") == "16");
  CHECK(ranks_of("srun -N 2 torchrun --nnodes 2 --nproc-per-node 8 train.py") == "16");
  CHECK(ranks_of("WORLD_SIZE=20 torchrun --nnodes 3 --nproc-per-node \"$N\" train.py") == "20");
  CHECK(ranks_of("deepspeed --num_nodes 2 --num_gpus 8 train.py") == "16");
  CHECK(ranks_of("--num-layers 2") == "unknown");
}

TEST_CASE("Megatron-LM's own examples of layouts mean what its documentation says") {
  // pipeline_parallel_layer_layout.py: a stage of three layers, thirty of two, and one with a module and the head.
  const LayerLayout long_layout = parse_layout("Ettt|(tt|)*29tt|mL", {}, 32, 63, 1);
  CHECK(long_layout.layers.size() == 32);
  CHECK(long_layout.layers[0] == 3);
  CHECK(long_layout.layers[30] == 2);
  CHECK(long_layout.layers[31] == 0);
  CHECK(parse_layout("Et*3|(tt|)*2,t|L", {}, 5, 8, 0).layers == std::vector<std::int64_t>{3, 2, 2, 1, 0});
}

TEST_CASE("a list of layers stands in sixteen brackets at most") {
  const auto in_brackets = [](std::size_t count) {
    return parse_layer_pattern(std::string(count, '(') + "[1,0]" + std::string(count, ')'), {}, 2, 0);
  };
  CHECK(in_brackets(16) == std::vector<bool>{true, false});
  CHECK_THROWS_AS(in_brackets(17), Refusal);
}

TEST_CASE("the layout of any pipeline reads back as its layers") {
  tests::Dice dice(1);
  for (int i = 0; i < 300; ++i) {
    const auto pp = dice.one_of<std::int64_t>({2, 3, 4}), chunks = dice.one_of<std::int64_t>({1, 2, 3});
    PipelineTemplate pipeline;
    pipeline.stages.resize(static_cast<std::size_t>(pp));
    std::vector<std::int64_t> layers;
    Transformer t;
    for (std::int64_t v = 0; v < pp * chunks; ++v) {
      const bool is_end = v == 0 || v + 1 == pp * chunks;
      layers.push_back(is_end ? dice.one_of({0, 1, 5}) : dice.one_of({1, 2, 12}));
      Stage& stage = pipeline.stages[static_cast<std::size_t>(v % pp)];
      const Layers chunk{t.layers, t.layers + layers.back()};
      t.layers = chunk.last;
      if (v >= pp)
        stage.more.push_back(chunk);
      else
        stage.first_layer = chunk.first, stage.last_layer = chunk.last;
    }
    const std::string text = megatron_layout(t, pipeline);
    INFO(text);
    REQUIRE(parse_layout(text, {}, pp, t.layers, 0).layers == layers);
  }
}

TEST_CASE("the table of Megatron-LM's arguments has those that everybody writes") {
  CHECK(megatron_flags().size() > 800);
  CHECK(megatron_flags().at("num-layers") == FlagValues::one);
  CHECK(megatron_flags().at("sequence-parallel") == FlagValues::none);
  CHECK(megatron_flags().at("data-path") == FlagValues::several);
  CHECK_FALSE(megatron_flags().contains("num-layer"));
}

TEST_CASE("a backslash at the end of a text is refused") {
  CHECK(tests::refusal_on_page([] { parse_shell("run --seed \\", "train.sh"); }) ==
        tests::expected_refusal("shell-syntax: a backslash that ends the text"));
}
