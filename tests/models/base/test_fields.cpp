// Laws of every struct that lists its fields: any value is printed as text that reads back equal, and a change of any
// one member changes the value, the text and the list of differences. The forms of the fields say what to draw.
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "models/base/fields.hpp"
#include "models/explain/key_differences.hpp"
#include "models/scenario/scenario_fields.hpp"
#include "models/strategy/strategy_fields.hpp"
#include "models/transformer/train_fields.hpp"
#include "models/transformer/transformer_fields.hpp"

using namespace motley;

namespace {

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : engine_(seed) {}

  // Draws all fields of a struct.
  template <typename List>
  typename List::Struct value(const List& list) {
    typename List::Struct drawn{};
    list.each([&](const auto& entry) { draw(entry, drawn); });
    return drawn;
  }

  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine_);
  }
  bool coin() { return integer(0, 1) == 1; }

 private:
  template <typename Entry, typename Struct>
  void draw(const Entry& entry, Struct& into) {
    if (entry.hides_standard && integer(0, 2) == 0) return;
    if constexpr (requires { into_struct(entry.form, into); })
      into_struct(entry.form, into);
    else
      into_member(entry.form, into.*std::get<0>(entry.members));
  }

  template <std::integral Whole>
  void into_member(const Integer& form, Whole& value) {
    const bool is_open = form.range.most > (std::int64_t{1} << 40);
    value = static_cast<Whole>(integer(form.range.least, is_open ? 1 << 30 : form.range.most));
  }
  void into_member(const Truth&, bool& value) { value = coin(); }
  // Draws a number that the form does not refuse.
  void into_member(const Number& form, double& value) {
    static const std::vector<double> some = {0, 1e-12, 1e-5, 0.05, 0.5, 0.95, 1, 1.5, 3, 1e6, 1.5e13};
    for (bool reads = false; !reads;) {
      value = some[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(some.size()) - 1))];
      try {
        form.to_value(parse_yaml(form.text(value), "drawn"));
        reads = true;
      } catch (const Refusal&) {
      }
    }
  }
  void into_member(const Bytes&, std::int64_t& value) { value = integer(1, std::int64_t{1} << 40); }
  void into_member(const QuotedText&, std::string& value) { value = coin() ? "say \"so\"\n" : "- a: b"; }
  void into_member(const FilePath&, std::string& value) { value = coin() ? "/a b.recording" : "below/it"; }
  void into_member(const TextPath&, std::string& value) {
    value = coin() ? MOTLEY_SOURCE_DIR "/README.md" : MOTLEY_SOURCE_DIR "/CMakeLists.txt";
  }
  template <typename E>
  void into_member(const Word<E>& form, E& value) {
    const auto all = every<E>();
    const std::span<const E> choices = form.choices.empty() ? std::span<const E>(all) : form.choices;
    value = choices[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(choices.size()) - 1))];
  }
  void into_member(const RecomputeForm&, Recompute& value) {
    value = Recompute::full;
    if (coin()) return;
    value = Recompute::none;
    for (const Module module : every<Module>())
      if (coin()) value.add(module);
  }
  template <typename Form, typename Value>
  void into_member(const Maybe<Form>& form, std::optional<Value>& value) {
    into_member(form.form, value.emplace());
  }
  template <typename Tag>
  void into_member(const Index& form, Id<Tag>& id) {
    std::int64_t number = 0;
    into_member(Integer{form.range}, number);
    id = Id<Tag>(number);
  }
  template <typename Form, typename Value>
  void into_member(const Several<Form>& form, std::vector<Value>& values) {
    for (std::int64_t count = integer(1, 3); count > 0; --count)
      into_member(form.item, values.emplace_back());
  }
  template <typename List>
  void into_member(const Map<List>& form, typename List::Struct& value) {
    value = this->value(form.list);
  }
  template <typename List, Layout kLayout>
  void into_member(const Items<List, kLayout>& form, std::vector<typename List::Struct>& values) {
    for (std::int64_t count = integer(0, 2); count > 0; --count) values.push_back(value(form.list));
  }
  void into_member(const GroupNames&, std::vector<std::string>& names) {
    names = coin() ? std::vector<std::string>{"ib", "roce"} : std::vector<std::string>{"ib"};
  }
  void into_member(const LayerNumbers&, std::vector<std::int64_t>& layers) {
    layers = {integer(0, 3), integer(4, 9)};
  }
  void into_member(const LinearLayers&, std::vector<std::string>& layers) {
    layers = coin() ? std::vector<std::string>{"proj"} : std::vector<std::string>{};
  }

  template <typename List>
  void into_struct(const Part<List>& form, typename List::Struct& into) {
    form.list.each([&](const auto& entry) { draw(entry, into); });
  }
  void into_struct(const Documents&, Train& train) { train.documents = {integer(1, 100), integer(1, 100)}; }
  void into_struct(const Adapters&, Transformer& transformer) { transformer.lora = value(LoraFields{}); }
  void into_struct(const ScheduleOrder&, Strategy& strategy) {
    strategy.schedule = static_cast<Schedule>(integer(0, static_cast<int>(Schedule::custom)));
    if (strategy.schedule == Schedule::custom)
      strategy.timetable = {{{{Pass::forward, 0, 0}, {Pass::backward, 0, static_cast<int>(integer(0, 9))}}}};
  }
  void into_struct(const Chunks&, Stage& stage) {
    stage.first_layer = integer(0, 9);
    stage.last_layer = stage.first_layer + integer(0, 9);
    if (coin()) stage.more = {{integer(0, 9), integer(10, 19)}};
  }

  std::mt19937 engine_;
};

template <typename List>
typename List::Struct read_back(const List& list, const std::string& text) {
  typename List::Struct value{};
  read_map(list, parse_yaml(text, "printed"), "what was printed", value);
  return value;
}

// Calls `check` for every field of two drawn values: with the first value as it is, with this one field taken from the
// second, and whether the two then differ.
template <typename List, typename Check>
void for_each_change(const List& list, std::uint32_t seed, const Check& check) {
  Draw draw(seed);
  const auto a = draw.value(list), b = draw.value(list);
  list.each([&](const auto& entry) {
    auto changed = a;
    const auto take = [&](auto member) { changed.*member = b.*member; };
    if constexpr (detail::is_part<decltype(entry.form)>)
      each_member(entry.form.list, take);
    else
      std::apply([&](auto... member) { (take(member), ...); }, entry.members);
    check(std::string(entry.key), a, changed, differ(entry, a, b));
  });
}

template <typename List>
void check_laws(const List& list) {
  using Struct = typename List::Struct;
  std::set<std::size_t> seen_to_differ;
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    Draw draw(seed);
    const Struct a = draw.value(list), b = draw.value(list);
    const std::string text = print_lines(list, a);
    INFO("seed " << seed << ":\n" << text);
    REQUIRE(read_back(list, text) == a);
    Struct all_of_b = a;
    std::size_t place = 0;
    each_member(list, [&](auto member) {
      all_of_b.*member = b.*member;
      Struct one_of_b = a;
      one_of_b.*member = b.*member;
      const bool differs = !(a.*member == b.*member);
      if (differs) seen_to_differ.insert(place);
      ++place;
      CHECK((one_of_b == a) == !differs);
    });
    REQUIRE(all_of_b == b);  // no member is listed twice instead of another
    for_each_change(
        list, seed, [&](const std::string& key, const Struct& one, const Struct& changed, bool differs) {
          INFO("changed " << key);
          REQUIRE(one == a);
          CHECK(differs == (changed != a));
          CHECK(differs == (print_lines(list, changed) != text));
          const std::vector<KeyDifference> keys = key_differences(text, print_lines(list, changed));
          if (key != "source") CHECK(differs == !keys.empty());  // the source of a figure is no difference
          for (const KeyDifference& each : keys) CHECK(each.key.substr(0, each.key.find('.')) == key);
        });
  }
  CHECK(seen_to_differ.size() == member_count<Struct>());
}

struct Pair {
  int first = 0;
  std::optional<int> second;
  bool operator==(const Pair&) const = default;
};
struct HalfOfPair {
  using Struct = Pair;
  constexpr void each(auto&& visit) const { visit(field("first", Integer{}, &Pair::first).or_short("f")); }
};
struct WholePair {
  using Struct = Pair;
  constexpr void each(auto&& visit) const {
    HalfOfPair{}.each(visit);
    visit(field("second", Maybe<Integer>{}, &Pair::second).unless_standard());
  }
};

}  // namespace

TEST_CASE("a list of fields that forgets a member does not compile where it says that it lists every one") {
  STATIC_REQUIRE(member_count<Pair>() == 2);
  STATIC_REQUIRE_FALSE(lists_every_member<HalfOfPair>());
  STATIC_REQUIRE(lists_every_member<WholePair>());
  STATIC_REQUIRE(member_count<Strategy>() == 21);
}

TEST_CASE("a field is read by its short name too, and refused by both") {
  const auto read = [](const std::string& text) {
    Pair pair;
    read_map(WholePair{}, parse_yaml(text, "pair"), "a pair", pair);
    return pair;
  };
  CHECK(read("{f: 3}") == Pair{3, {}});
  CHECK(read("{first: 3, second: 4}") == Pair{3, 4});
  CHECK(print_flow(WholePair{}, Pair{3, {}}) == "first: 3");
  CHECK(print_lines(WholePair{}, Pair{3, 4}, 2) == "  first: 3\n  second: 4\n");
  CHECK_THROWS_WITH(read("{f: 3, first: 3}"), Catch::Contains("are the same key"));
  CHECK_THROWS_WITH(read("{third: 3}"), Catch::Contains("a pair has no key `third`"));
}

TEST_CASE("`on` may be written `where`, or `true` as YAML 1.1 reads it, but not twice") {
  const auto fields = [](const std::string& text, const char* known) {
    return Fields(parse_yaml(text, "a page"), "a map", {known, "other"});
  };
  for (const char* spelling : {"on", "where", "true"}) {
    CAPTURE(spelling);
    const Fields map = fields(std::string("{other: 2, ") + spelling + ": 3}", "on");
    CHECK(to_integer(map.need("on"), {}) == 3);
    CHECK(map.where("on").column == 12);
  }
  for (const char* twice : {"{on: 3, where: 4}", "{on: 3, true: 4}", "{where: 3, true: 4}"})
    CHECK_THROWS_WITH(fields(twice, "on"), Catch::Contains("are the same key"));
  CHECK_THROWS_WITH(fields("{where: 3}", "off"), Catch::Contains("a map has no key `where`"));
  CHECK_THROWS_WITH(fields("{true: 3}", "where"), Catch::Contains("a map has no key `true`"));
}

TEMPLATE_TEST_CASE("every field is printed, read back, and told apart", "", TrainFields, OffloadFields,
                   StageFields, PipelineTemplateFields, StrategyFields, LatentAttentionFields, ExpertsFields,
                   TransformerFields, FidelityFields, WorldChoiceFields) {
  check_laws(TestType{});
}

TEST_CASE("a strategy's hash changes with every field on which the Program depends, and with no other") {
  std::set<std::string> of_program;
  TrainFields{}.each_of_program([&](const auto& entry) { of_program.insert(std::string(entry.key)); });
  std::set<std::string> changed_it;
  const auto check = [&](const std::string& key, bool expected, const std::string& before,
                         const std::string& after) {
    INFO("changed " << key);
    CHECK((before != after) == expected);
    if (expected) changed_it.insert(key);
  };
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    for_each_change(TransformerFields{}, seed,
                    [&](const auto& key, const auto& a, const auto& b, bool differs) {
                      check(key, differs && key != "name" && key != "source", strategy_hash(a, {}, {}),
                            strategy_hash(b, {}, {}));
                    });
    for_each_change(TrainFields{}, seed, [&](const auto& key, const auto& a, const auto& b, bool differs) {
      check(key, differs && of_program.contains(key), strategy_hash({}, a, {}), strategy_hash({}, b, {}));
    });
    for_each_change(StrategyFields{}, seed, [&](const auto& key, const auto& a, const auto& b, bool differs) {
      check(key, differs, strategy_hash({}, {}, a), strategy_hash({}, {}, b));
    });
  }
  for (const std::string& key : of_program) CHECK(changed_it.contains(key));
  for (const char* key : {"hidden", "layers", "experts", "schedule", "overlap", "templates"})
    CHECK(changed_it.contains(key));
  for (const char* key : {"seed", "learning_rate"}) CHECK_FALSE(of_program.contains(key));
}
