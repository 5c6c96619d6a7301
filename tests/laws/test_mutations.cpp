// No input crashes Motley: of every shipped form of text (scenario, cluster, chip, software, config.json, tables,
// trace, tape, Program, schedule), mutated copies either work and give finite figures, or are refused with a place.
// Every draw has a process of its own, with limits: a crash, a hang or a flood of memory fails the draw that caused it.
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <regex>

#include "models/base/data_files.hpp"
#include "models/base/temporary_folder.hpp"
#include "models/base/text_file.hpp"
#include "models/check/check.hpp"
#include "models/compile/compile.hpp"
#include "models/plan/prepare.hpp"
#include "models/published/collective_errors.hpp"
#include "models/published/published_run.hpp"
#include "models/report/report.hpp"
#include "models/scenario/software.hpp"
#include "models/schedule/schedule.hpp"
#include "models/trace/compare.hpp"
#include "models/transformer/transformer_text.hpp"
#include "sim/workers/child.hpp"
#include "tests/support/random_text.hpp"
#include "tests/support/sanitized.hpp"

using namespace motley;
using namespace motley::tests;

namespace {

constexpr unsigned kSeconds_most = 60;  // a job at the limits takes five seconds on an idle machine
constexpr rlim_t kBytes_most = rlim_t{1} << 30;

const std::vector<std::string>& odd_numbers() {
  static const std::vector<std::string> numbers = {"0",
                                                   "-1",
                                                   "-0",
                                                   "1",
                                                   "2",
                                                   "3",
                                                   "7",
                                                   "1e308",
                                                   "1e-320",
                                                   "9e18",
                                                   "9223372036854775808",
                                                   "4294967296",
                                                   "nan",
                                                   "inf",
                                                   "",
                                                   "1e18",
                                                   "0.5",
                                                   "1000000",
                                                   "64000"};
  return numbers;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    lines.back() += c;
    if (c == '\n') lines.emplace_back();
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

// The places of the numbers in a text: begin and length.
std::vector<std::pair<std::size_t, std::size_t>> numbers_in(const std::string& text) {
  static const std::regex form("[0-9]+(\\.[0-9]+)?(e[+-]?[0-9]+)?");
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::sregex_iterator each(text.begin(), text.end(), form), end; each != end; ++each)
    places.emplace_back(each->position(), each->length());
  return places;
}

std::string with_odd_number(std::string text, Random& random) {
  const auto places = numbers_in(text);
  if (places.empty()) return text;
  const auto [begin, length] = random.one_of(places);
  std::string number = random.one_of(odd_numbers());
  if (random.integer(0, 3) == 0) number = text.substr(begin, length) + "000";  // a thousand times as much
  return text.replace(begin, length, number);
}

// One to three mutations: a line is deleted, doubled or exchanged with another; a number becomes an odd one; any byte
// is damaged.
std::string mutated(std::string text, Random& random) {
  for (std::int64_t i = random.integer(1, 3); i > 0; --i) {
    std::vector<std::string> lines = lines_of(text);
    const std::int64_t last = static_cast<std::int64_t>(lines.size()) - 1;
    const std::size_t one = at(random.integer(0, last)), other = at(random.integer(0, last));
    switch (random.integer(0, 7)) {
      case 0:
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(one));
        text = joined(lines);
        break;
      case 1:
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(other), std::string(lines[one]));
        text = joined(lines);
        break;
      case 2:
        std::swap(lines[one], lines[other]);
        text = joined(lines);
        break;
      case 3:
        text = damaged(text, random);
        break;
      default:
        text = with_odd_number(text, random);
    }
  }
  return text;
}

void limit_this_process() {
  alarm(kSanitized ? 10 * kSeconds_most : kSeconds_most);
  if (kSanitized) return;  // its shadow memory is terabytes of address space
  const rlimit memory{kBytes_most, kBytes_most};
  setrlimit(RLIMIT_AS, &memory);
}

// A form of text: one that ships, and what is done with it. `use` throws if a figure is not finite.
struct Form {
  std::string name;
  std::string text;
  std::function<void(const std::string& text)> use;
};

// Looks at the figures alone: sources and names in quotes may hold any word.
void expect_finite(const std::string& printed) {
  static const std::regex quoted("\"[^\"\n]*\""), odd("(^|[\\s,:({\\[=])[+-]?(inf|nan)($|[\\s,)%}\\]])");
  const std::string figures = std::regex_replace(printed, quoted, "");
  std::smatch match;
  if (std::regex_search(figures, match, odd))
    throw std::logic_error("printed " + match.str() + " in: " + figures.substr(0, 2000));
}

// MOTLEY_DRAWS in the environment asks for more draws of each form than `usual`.
std::size_t draws_of(std::size_t usual) {
  if (kSanitized) usual = std::min<std::size_t>(usual, 12);
  const char* const asked = std::getenv("MOTLEY_DRAWS");
  return asked == nullptr ? usual : std::stoul(asked);
}

// Returns what is wrong with the draw; empty: nothing.
std::string fault_of(const Form& form, const std::string& text) {
  limit_this_process();
  try {
    form.use(text);
  } catch (const Refusal& refusal) {
    if (refusal.where().file.empty()) return std::string("a refusal without a place: ") + refusal.what();
  } catch (const std::exception& error) {
    return std::string("not refused, but: ") + error.what();
  }
  return "";
}

// Draws each form `draws` times, every draw in its own process.
void check_forms(const std::vector<Form>& forms, std::size_t draws) {
  for (const Form& form : forms) {
    std::vector<std::string> texts = {form.text};  // the first one is as it ships
    for (std::size_t seed = 1; seed < draws; ++seed) {
      Random random(static_cast<std::uint32_t>(seed));
      texts.push_back(mutated(form.text, random));
    }
    PoolOptions pool;
    pool.name = [&](std::size_t i) { return form.name + ", this text:\n" + texts[i] + "\n"; };
    const auto faults = map_in_pool(
        texts.size(), [&](std::size_t i) { return fault_of(form, texts[i]); }, pool);
    for (std::size_t i = 0; i < faults.size(); ++i)
      if (!faults[i].empty()) FAIL(form.name << " " << i << ": " << faults[i] << "\ntext:\n" << texts[i]);
  }
}

std::string shipped(const std::string& path) {
  return read_text_file(data_folder() + "/" + path, {}, std::size_t{1} << 24);
}

// The first line and some others of a table.
std::string some_rows(const std::string& path, std::size_t first, std::size_t step, std::size_t count) {
  const std::vector<std::string> lines = lines_of(shipped(path));
  std::string text = lines[0];
  for (std::size_t i = 0; i < count; ++i) text += lines.at(first + i * step);
  return text;
}

void simulate_scenario(const std::string& path) {
  Scenario scenario = load_scenario(path);
  if (!scenario.job.fidelity.fold) scenario.job.fidelity.fold = true;
  const Prepared prepared = prepare(std::move(scenario));
  const Job& job = prepared.scenario.job;
  Trace trace;
  try {
    trace = simulate(job, prepared.program);
  } catch (const Refusal& refusal) {
    throw located(refusal, prepared.scenario.cluster_location);
  }
  if (!std::isfinite(last_end_s(trace))) throw std::logic_error("a step without an end");
  const Report report = make_report(job, prepared.program, trace, prepared.memory);
  expect_finite(to_text(report));
  expect_finite(to_json(report));
}

constexpr const char* kScenario =
    "model: {family: llama, vocabulary: 32000, hidden: 512, layers: 8, heads: 8, kv_heads: 4, ffn: 1408,\n"
    "  max_positions: 2048}\n"
    "cluster:\n"
    "  groups:\n"
    "    - name: a\n"
    "      nodes: 4\n"
    "      chips_per_node: 4\n"
    "      chip: a100-80gb-sxm\n"
    "      inside: {fabric: nvswitch, bandwidth: 300 GB/s, latency: 2 us}\n"
    "      nics:\n"
    "        - {kind: infiniband, count: 4, bandwidth: 200 Gb/s, latency: 5 us}\n"
    "  networks:\n"
    "    - {over: infiniband, shape: leaf_spine, nodes_per_leaf: 2, spines: 2, latency: 300 ns}\n"
    "train: {global_batch: 32, micro_batch: 1, sequence: 512, precision: bf16, tokens: 1 B}\n"
    "strategy: {tp: 2, pp: 2, dp: 4, zero: 1, recompute: full, schedule: 1f1b}\n"
    "fidelity: {data_parallel: fluid, tensor_parallel: formula}\n";

std::vector<Form> scenario_forms(const TemporaryFolder& folder) {
  std::vector<Form> forms;
  const auto add = [&](const std::string& name, const std::string& text) {
    forms.push_back({name, text, [&folder, name](const std::string& mutation) {
                       const std::string file = name.substr(name.rfind('/') + 1);
                       simulate_scenario(folder.write(std::to_string(getpid()) + file, mutation));
                     }});
  };
  add("scenario.yaml", kScenario);
  for (const char* name : {"quickstart.yaml", "mixtral-8x7b-256.yaml", "llama-2-13b-offload.yaml"})
    if (std::filesystem::exists(data_folder() + "/scenarios/" + name))
      add(name, shipped(std::string("scenarios/") + name));
  return forms;
}

std::vector<Form> part_forms() {
  std::vector<Form> forms;
  forms.push_back({"cluster", shipped("platforms/dgx-a100-4.yaml"),
                   [](const std::string& text) { expect_finite(print(parse_cluster(text))); }});
  forms.push_back({"cluster of unlike chips", shipped("platforms/rtx-4090-8.yaml"),
                   [](const std::string& text) { expect_finite(print(parse_cluster(text))); }});
  forms.push_back({"chip", shipped("platforms/chips/a100-80gb-sxm.yaml"), [](const std::string& text) {
                     expect_finite(print(read_chip(parse_yaml(text, "chip"), "chip"), ""));
                   }});
  forms.push_back({"software", shipped("platforms/software/megatron-2023.yaml"), [](const std::string& text) {
                     Cluster cluster = load_cluster("dgx-a100-4");
                     use_figures(parse_yaml(text, "software"), cluster);
                     expect_finite(print(cluster));
                   }});
  for (const char* model : {"llama-2-7b", "gpt2", "mixtral-8x7b", "deepseek-v3", "gemma-2-2b", "gemma-3-27b",
                            "gpt-oss-20b", "llama-4-scout", "olmo-2-7b", "glm-4.5-air"})
    forms.push_back(
        {model, shipped(std::string("scenarios/models/") + model + ".json"), [](const std::string& text) {
           const Transformer transformer = read_transformer(parse_yaml(text, "config.json"), "model");
           if (parameter_count(transformer) <= 0) throw std::logic_error("a model without parameters");
           if (!std::isfinite(model_flops_per_sequence(transformer, 4096)))
             throw std::logic_error("FLOPs without end");
         }});
  forms.push_back({"schedule", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n",
                   [](const std::string& text) {
                     const Timetable timetable = parse_csv(text, "schedule.csv");
                     if (find_complaint(timetable, 4)) return;
                     if (!std::isfinite(evaluate(timetable, {}).value().makespan_s))
                       throw std::logic_error("a schedule without end");
                   }});
  return forms;
}

}  // namespace

TEST_CASE("a mutated scenario gives finite figures or is refused where it is wrong", "[slow]") {
  const TemporaryFolder folder;
  check_forms(scenario_forms(folder), draws_of(40));
}

TEST_CASE(
    "a mutated cluster, chip, software, config.json or schedule reads, or is refused where it is wrong") {
  check_forms(part_forms(), draws_of(30));
}

TEST_CASE("a mutated table of runs or of collectives is predicted, or is refused where it is wrong",
          "[slow]") {
  const TemporaryFolder folder;
  const PublishedRules rules;
  std::vector<Form> forms;
  for (const std::size_t first : {1UL, 40UL, 200UL, 500UL})
    forms.push_back({"runs from line " + std::to_string(first),
                     some_rows("tests/validation/published_runs.csv", first, 7, 3),
                     [&](const std::string& text) {
                       const std::string file = folder.write(std::to_string(getpid()) + ".csv", text);
                       const auto runs = read_published_runs(file);
                       for (const PublishedRun& run : runs) {
                         const auto read = rules.read(run, runs);
                         const auto* const measured = std::get_if<Measured>(&read);
                         if (measured == nullptr) continue;
                         if (!(measured->step_s > 0 && std::isfinite(measured->step_s)))
                           throw std::logic_error("measured in no time");
                         try {
                           compile(measured->scenario.job);
                         } catch (const Refusal&) {  // `motley validate` passes over the run, and says why
                         }
                       }
                     }});
  forms.push_back(
      {"collectives", some_rows("tests/validation/collectives.csv", 1, 60, 3), [&](const std::string& text) {
         const std::string file = folder.write(std::to_string(getpid()) + ".csv", text);
         std::vector<CollectiveOutcome> outcomes;
         for (const MeasuredCollective& each : read_measured_collectives(file)) {
           make_run(each);
           outcomes.push_back({each, each.seconds, "ring"});
         }
         expect_finite(to_text(outcomes, true));
         expect_finite(to_json(outcomes));
       }});
  check_forms(forms, draws_of(30));
}

TEST_CASE(
    "a mutated trace, tape or Program is read, compared and replayed, or is refused where it is wrong") {
  const TemporaryFolder folder;
  const std::string path = folder.write("scenario.yaml",
                                        "model: tiny-gpt2\ncluster: host-2\n"
                                        "train: {global_batch: 2, sequence: 16, precision: fp32}\n"
                                        "strategy: {pipeline_parallel: 2}\n");
  const Prepared prepared = prepare(load_scenario(path));
  Trace recorded = simulate_in_child(prepared.scenario.job, prepared.program);
  recorded.measured_ranks = {Rank(0)};
  const std::string original = folder.write("original.json", "");
  write_trace(recorded, prepared.program, original);
  const std::string trace_text = read_text_file(original);
  const auto as_file = [&folder](const std::string& text) {
    return folder.write(std::to_string(getpid()) + ".json", text);
  };
  const Form compared = {"trace", trace_text, [&](const std::string& text) {
                           const std::string file = as_file(text);
                           Program program = read_program_of_trace(file);
                           const Trace trace = read_trace(file);
                           try {
                             check_indices(program);
                             expect_finite(to_text(compare(program, recorded, trace)));
                           } catch (const Refusal& refusal) {
                             throw located(refusal, {.file = file});
                           }
                         }};
  const Form replayed = {"tape", trace_text, [&](const std::string& text) {
                           const std::string file = as_file(text);
                           const Trace tape = read_trace(file);
                           SimOptions options;
                           options.tape = &tape;
                           try {
                             const Trace trace = simulate(prepared.scenario.job, prepared.program, options);
                             if (!std::isfinite(last_end_s(trace))) throw std::logic_error("no end");
                           } catch (const Refusal& refusal) {
                             throw located(refusal, {.file = file});
                           }
                         }};
  const Form checked = {"Program", print(prepared.program), [&](const std::string& text) {
                          try {
                            const Program program = parse_program(text, "program.txt");
                            check(program, prepared.scenario.job.cluster);
                          } catch (const Refusal& refusal) {
                            throw located(refusal, {.file = "program.txt"});
                          }
                        }};
  // The hash of what is run is that of the edited text, as a person's own tool would write it.
  const Form run = {"Program that is run", print(prepared.program), [&](const std::string& text) {
                      try {
                        const Program program = parse_program(text, "program.txt");
                        check_indices(program);
                        Trace trace = recorded;
                        trace.strategy_hash = program.strategy_hash;
                        trace.program_hash = program_hash(program);
                        expect_finite(to_text(compare(program, trace, trace)));
                        check(program, prepared.scenario.job.cluster);
                        const Trace simulated = simulate(prepared.scenario.job, program);
                        if (!std::isfinite(last_end_s(simulated))) throw std::logic_error("no end");
                        expect_finite(to_text(compare(program, simulated, simulated)));
                      } catch (const Refusal& refusal) {
                        throw located(refusal, {.file = "program.txt"});
                      }
                    }};
  check_forms({compared, replayed, checked}, draws_of(40));
  check_forms({run}, draws_of(120));
}
