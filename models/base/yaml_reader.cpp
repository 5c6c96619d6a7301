// yaml-cpp's event parser builds our own tree, so that limits are enforced while reading, before
// anything is expanded.
#include "models/base/yaml_reader.hpp"

#include <fmt/format.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "models/base/all_refusals.hpp"
#include "models/base/read_watcher.hpp"
#include "models/base/text_file.hpp"

namespace motley {
namespace {

// Limits far above what people write in a scenario or config.json (a few hundred values, four levels).
constexpr std::int64_t kMostNodes = 100'000;  // more where larger files are read
constexpr int kMostLevels = 32;
// The absolute value of a number without a unit: shares, factors, learning rates, exponents.
constexpr NumberRange kPlainNumber{1e-30, 1e18};

// The file of a value that stands in for another. No path has a line break at its end.
constexpr const char* kStandIn = "stands in\n";

// A comment that is appended to the text. If it ends up in a value, a quote before it was never closed, which
// yaml-cpp does not report. No file contains it, because control characters are refused.
constexpr std::string_view kEnd = "# \x01 end";

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string file) : file_(std::move(file)) {}

  Yaml root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      throw Refusal(Exit::usage, "yaml-syntax", at(mark), "a second document begins here",
                    "one file holds one document; remove `---`");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    leaf(mark, anchor, YamlNode::Kind::null, {}, false);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_tag(mark, tag);
    if (tag == "!" && value.find(kEnd) != std::string::npos)
      throw Refusal(Exit::usage, "yaml-syntax", at(mark), "a quote opens here and never closes");
    leaf(mark, anchor, YamlNode::Kind::scalar, value, tag == "!");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto anchored = anchors_.find(anchor);
    if (anchored == anchors_.end())
      throw Refusal(Exit::usage, "cyclic-alias", at(mark), "an alias stands inside its own anchor",
                    "write the value out");
    add(anchored->second, at(mark));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::sequence);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    std::shared_ptr<YamlNode> node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    bool has_key = false;
    std::string key;
    Location key_where;
    std::set<std::string> keys;
  };

  Location at(const YAML::Mark& mark) const { return {file_, mark.line + 1, mark.column + 1}; }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      throw Refusal(Exit::usage, "wrong-type", at(mark), fmt::format("tag `{}` is not taken", shortened(tag)),
                    "write a plain value");
  }

  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind, const std::string& text,
            bool quoted) {
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->where = at(mark);
    node->text = text;
    node->quoted = quoted;
    // YAML 1.2's core schema has these words for null.
    if (!quoted && (text == "~" || text == "null" || text == "Null" || text == "NULL"))
      node->kind = YamlNode::Kind::null;
    finish(node, anchor, node->where);
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_tag(mark, tag);
    if (!stack_.empty() && stack_.back().node->is_map() && !stack_.back().has_key)
      throw Refusal(Exit::usage, "wrong-type", at(mark), "a key must be a plain word");
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->where = at(mark);
    Open opened;
    opened.node = std::move(node);
    opened.anchor = anchor;
    stack_.push_back(std::move(opened));
    refuse_depth(static_cast<int>(stack_.size()), at(mark));
  }

  void close() {
    const Open closed = std::move(stack_.back());
    stack_.pop_back();
    finish(closed.node, closed.anchor, closed.node->where);
  }

  void finish(const Yaml& node, YAML::anchor_t anchor, const Location& where) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = node;
    add(node, where);
  }

  void add(const Yaml& node, const Location& where) {
    if (stack_.empty()) {
      root_ = node;
      return;
    }
    Open& parent = stack_.back();
    if (parent.node->is_map() && !parent.has_key) {
      add_key(parent, node, where);
      return;
    }
    parent.node->size += node->size;
    parent.node->depth = std::max(parent.node->depth, node->depth + 1);
    total_ += node->size;
    refuse_depth(static_cast<int>(stack_.size()) + node->depth, where);
    if (parent.node->size > most_nodes_ || total_ > most_nodes_ * kMostLevels)
      throw Refusal(Exit::usage, "alias-bomb", where,
                    fmt::format("this expands to more than {} values", most_nodes_),
                    "aliases of aliases multiply: write less, or without aliases");
    if (!parent.node->is_map()) {
      parent.node->items.push_back(node);
      return;
    }
    // A null is reported at its key, because a null may have no text of its own.
    Yaml value = node;
    if (node->kind == YamlNode::Kind::null) {
      auto null = std::make_shared<YamlNode>(*node);
      null->where = parent.key_where;
      value = null;
    }
    parent.node->entries.push_back({std::move(parent.key), parent.key_where, value});
    parent.has_key = false;
  }

  void add_key(Open& parent, const Yaml& node, const Location& where) {
    if (!node->is_scalar()) throw Refusal(Exit::usage, "wrong-type", where, "a key must be a plain word");
    if (!parent.keys.insert(node->text).second && !is_excused(where))
      throw Refusal(
          Exit::usage, "duplicate-key", where,
          fmt::format("key `{}` stands here for the second time", shortened(node->text)),
          fmt::format("it stands first at line {}: keep one", parent.node->find(node->text)->where.line));
    parent.key = node->text;
    parent.key_where = where;
    parent.has_key = true;
  }

  void refuse_depth(int levels, const Location& where) const {
    if (levels > kMostLevels)
      throw Refusal(Exit::usage, "too-deep", where,
                    fmt::format("more than {} levels of nesting", kMostLevels));
  }

  std::string file_;
  const std::int64_t most_nodes_ =
      kMostNodes * std::max<std::int64_t>(1, static_cast<std::int64_t>(most_text_bytes() / kMostTextBytes));
  int documents_ = 0;
  std::int64_t total_ = 0;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, Yaml> anchors_;
  Yaml root_;
};

// Finds a tab in an indent: the messages of yaml-cpp never name this mistake.
std::string hint_about_tabs(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (line.substr(0, line.find_first_not_of(" \t")).find('\t') != std::string::npos)
      return fmt::format("line {} is indented with a tab: YAML takes spaces", number);
  return {};
}

Yaml build_tree(const std::string& text, const std::string& file) {
  TreeBuilder builder(file);
  std::istringstream stream(text);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    throw Refusal(Exit::usage, "yaml-syntax", {file, error.mark.line + 1, error.mark.column + 1}, error.msg,
                  hint_about_tabs(text));
  }
  return builder.root();
}

[[noreturn]] void refuse_type(const Yaml& node, std::string_view wanted) {
  throw Refusal(Exit::usage, "wrong-type", node->where,
                fmt::format("expected {}, found {}", wanted, describe(node)));
}

// A plain (not quoted) scalar, as numbers and truth values must be.
const std::string& plain(const Yaml& node, std::string_view wanted) {
  if (!node->is_scalar() || node->quoted) refuse_type(node, wanted);
  return node->text;
}

void refuse_fault(NumberFault fault, const Yaml& node, std::string_view wanted, const std::string& hint) {
  const std::string says = describe(fault, shortened(node->text));
  switch (fault) {
    case NumberFault::none:
      return;
    case NumberFault::not_a_number:
      throw Refusal(Exit::usage, "wrong-type", node->where,
                    fmt::format("expected {}, found {}", wanted, describe(node)), hint);
    case NumberFault::octal:
      throw Refusal(Exit::usage, "octal-number", node->where, says, "leave out the leading zero");
    case NumberFault::out_of_range:
      throw Refusal(Exit::usage, "number-out-of-range", node->where, says);
    case NumberFault::not_finite:
      throw Refusal(Exit::usage, "not-finite", node->where, says);
    case NumberFault::missing_unit:
      throw Refusal(Exit::usage, "missing-unit", node->where, says, hint);
    case NumberFault::unknown_unit:
      throw Refusal(Exit::usage, "unknown-unit", node->where, says, hint);
    case NumberFault::out_of_bounds:
      throw Refusal(Exit::usage, "out-of-bounds", node->where, says, hint);
  }
}

ReadWatcher* read_watcher = nullptr;

void tell(const Yaml& node, const ValueForm& form) {
  if (read_watcher != nullptr) read_watcher->value_read(node->where, form);
}

void refuse_sign(double value, Sign sign, const Yaml& node) {
  if (sign == Sign::any || value > 0 || (value == 0 && sign == Sign::not_negative)) return;
  throw Refusal(Exit::usage, "out-of-bounds", node->where,
                fmt::format("`{}` is out of bounds", shortened(node->text)),
                sign == Sign::positive ? "must be more than 0" : "must not be negative");
}

// The map with other spellings of the key `on` written as `on`.
Yaml with_on(const Yaml& map, const std::vector<std::string>& known) {
  const auto is_known = [&](std::string_view key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  };
  Yaml result = map;
  if (!is_known("on")) return result;
  for (const std::string_view spelling : {"where", "true"}) {
    const YamlEntry* const written = result->find(spelling);
    if (written == nullptr || is_known(spelling)) continue;
    if (result->find("on") != nullptr)
      throw Refusal(Exit::usage, "duplicate-key", written->where,
                    fmt::format("`{}` and `on` are the same key", spelling),
                    "keep one; YAML 1.1 reads a plain `on` as `true`");
    auto renamed = std::make_shared<YamlNode>(*result);
    for (YamlEntry& entry : renamed->entries)
      if (entry.key == spelling) entry.key = "on";
    result = std::move(renamed);
  }
  return result;
}

// The map without the keys whose mistake is excused; one that resembles a known key which the map lacks has that name.
Yaml without_excused(const Yaml& map, const std::vector<std::string>& known) {
  const auto is_known = [&](const YamlEntry& entry) {
    return std::find(known.begin(), known.end(), entry.key) != known.end();
  };
  const auto passes = [&](const YamlEntry& entry) { return !is_known(entry) && is_excused(entry.where); };
  if (std::none_of(map->entries.begin(), map->entries.end(), passes)) return map;
  auto mended = std::make_shared<YamlNode>(*map);
  mended->entries.clear();
  for (const YamlEntry& entry : map->entries) {
    if (!passes(entry)) {
      mended->entries.push_back(entry);
    } else if (const auto near = nearest(entry.key, known);
               near && map->find(*near) == nullptr && mended->find(*near) == nullptr) {
      mended->entries.push_back(entry);
      mended->entries.back().key = *near;
    }
  }
  return mended;
}

// A value that stands in for one that a map needs: readers take it for whatever scalar they read.
const Yaml& stand_in() {
  static const Yaml kNode = [] {
    auto node = std::make_shared<YamlNode>();
    node->where.file = kStandIn;
    return node;
  }();
  return kNode;
}

bool passes(const Yaml& node) { return node->where.file == kStandIn || is_excused(node->where); }

}  // namespace

const YamlEntry* YamlNode::find(std::string_view key) const {
  const auto match =
      std::find_if(entries.begin(), entries.end(), [&](const YamlEntry& entry) { return entry.key == key; });
  return match == entries.end() ? nullptr : &*match;
}

void watch_reads(ReadWatcher* watcher) { read_watcher = watcher; }

Yaml parse_yaml(const std::string& text, const std::string& file) {
  refuse_not_utf8(text, file);
  const Yaml root = build_tree(text, file);
  if (text.find_first_of("\"'") != std::string::npos) build_tree(fmt::format("{}\n{}\n", text, kEnd), file);
  if (!root || root->kind == YamlNode::Kind::null)
    throw Refusal(Exit::usage, "empty-file", {file, 1, 1}, "nothing is written here");
  if (read_watcher != nullptr) read_watcher->file_parsed(file, root);
  return root;
}

Yaml read_yaml(const std::string& path, const Location& asked_from) {
  return parse_yaml(read_text_file(path, asked_from), path);
}

Fields::Fields(Yaml map, std::string what, std::vector<std::string> known)
    : map_(std::move(map)), what_(std::move(what)) {
  if (!map_->is_map()) refuse_type(map_, fmt::format("{} (a map of keys)", what_));
  map_ = without_excused(with_on(map_, known), known);
  if (read_watcher != nullptr) read_watcher->map_read(map_->where, known);
  for (const YamlEntry& entry : map_->entries)
    if (std::find(known.begin(), known.end(), entry.key) == known.end())
      throw Refusal(Exit::usage, "unknown-key", entry.where,
                    fmt::format("{} has no key `{}`", what_, shortened(entry.key)),
                    suggest(entry.key, known));
}

const YamlEntry* Fields::entry(std::string_view key) const {
  const YamlEntry* written = map_->find(key);
  if (!written || written->value->kind == YamlNode::Kind::null) return nullptr;
  return passes(written->value) ? nullptr : written;
}

Yaml Fields::find(std::string_view key) const {
  const YamlEntry* written = entry(key);
  return written ? written->value : nullptr;
}

Yaml Fields::need(std::string_view key) const {
  if (read_watcher != nullptr) read_watcher->key_needed(map_->where, key);
  const Yaml value = find(key);
  if (value) return value;
  const YamlEntry* const written = map_->find(key);
  if (is_excused(map_->where, key) || (written && passes(written->value))) return stand_in();
  note_missing(map_->where, key);
  throw Refusal(Exit::usage, "missing-key", where(key), fmt::format("{} needs a value for `{}`", what_, key));
}

Location Fields::where(std::string_view key) const {
  const YamlEntry* written = map_->find(key);
  return written ? written->where : map_->where;
}

std::int64_t to_integer(const Yaml& node, IntegerRange range) {
  tell(node, {.kind = ValueForm::Kind::integer, .range = range});
  if (passes(node)) return range.least;
  std::int64_t value = 0;
  refuse_fault(read_integer(plain(node, "a whole number"), value), node, "a whole number", {});
  if (value < range.least || value > range.most) {
    const bool open = range.most == IntegerRange{}.most;
    throw Refusal(Exit::usage, "out-of-bounds", node->where,
                  fmt::format("`{}` is out of bounds", shortened(node->text)),
                  open ? fmt::format("must be at least {}", range.least)
                       : fmt::format("must be {} to {}", range.least, range.most));
  }
  return value;
}

namespace {

// A number of the bounds' sign; what lies beyond the bounds is the caller's to refuse.
double read_plain_number(const Yaml& node, const NumberBounds& bounds) {
  tell(node, {.kind = ValueForm::Kind::number, .bounds = {bounds.sign, bounds.least, bounds.most}});
  if (passes(node)) return std::clamp(1.0, bounds.least, bounds.most);
  double value = 0;
  refuse_fault(read_number(plain(node, "a number"), value), node, "a number", {});
  if (value != 0 && (std::fabs(value) < kPlainNumber.least || std::fabs(value) > kPlainNumber.most))
    throw Refusal(Exit::usage, "out-of-bounds", node->where,
                  fmt::format("`{}` is out of bounds", shortened(node->text)),
                  fmt::format("must be {} to {}, or 0", kPlainNumber.least, kPlainNumber.most));
  refuse_sign(value, bounds.sign, node);
  return value;
}

}  // namespace

double to_number(const Yaml& node, Sign sign) { return read_plain_number(node, {.sign = sign}); }

double to_bounded_number(const Yaml& node, const NumberBounds& bounds, RefusalSite site) {
  const double value = read_plain_number(node, bounds);
  if (value < bounds.least || value > bounds.most)
    throw Refusal(Exit::usage, "out-of-bounds", node->where,
                  fmt::format("`{}` is out of bounds", shortened(node->text)), std::string(bounds.hint),
                  site);
  return value;
}

double to_quantity(const Yaml& node, Dimension dimension, Sign sign) {
  tell(node, {.kind = ValueForm::Kind::quantity, .bounds = {.sign = sign}, .dimension = dimension});
  if (passes(node)) return 1;
  if (!node->is_scalar()) refuse_type(node, "a number with its unit");
  double value = 0;
  std::string hint;
  const NumberFault fault = read_quantity(node->text, dimension, value, hint);
  refuse_fault(fault, node, "a number with its unit", hint);
  refuse_sign(value, sign, node);
  return value;
}

std::int64_t to_bytes(const Yaml& node) {
  const double bytes = to_quantity(node, Dimension::bytes, Sign::positive);
  // A double does not hold every whole number above 2^53.
  if (bytes != std::floor(bytes) || bytes > 9007199254740992.0)
    throw Refusal(Exit::usage, "out-of-bounds", node->where,
                  fmt::format("`{}` is no whole number of bytes", shortened(node->text)));
  return static_cast<std::int64_t>(bytes);
}

bool to_bool(const Yaml& node) {
  tell(node, {.kind = ValueForm::Kind::truth});
  if (passes(node)) return false;
  const std::string& text = plain(node, "true or false");
  if (text == "true") return true;
  if (text != "false") refuse_type(node, "true or false");
  return false;
}

std::string to_text(const Yaml& node) {
  tell(node, {.kind = ValueForm::Kind::text});
  if (passes(node)) return {};
  if (!node->is_scalar()) refuse_type(node, "text");
  return node->text;
}

static std::string one_of(const Yaml& node, const std::vector<std::string>& choices) {
  if (passes(node) && !choices.empty()) return nearest(node->text, choices).value_or(choices.front());
  if (!node->is_scalar()) refuse_type(node, "text");
  if (std::find(choices.begin(), choices.end(), node->text) == choices.end())
    throw Refusal(Exit::usage, "unknown-value", node->where,
                  fmt::format("`{}` is not known here", shortened(node->text)), suggest(node->text, choices));
  return node->text;
}

std::string to_choice(const Yaml& node, const std::vector<std::string>& choices) {
  tell(node, {.kind = ValueForm::Kind::word, .words = choices});
  return one_of(node, choices);
}

std::string to_name(const Yaml& node, const std::vector<std::string>& names) {
  tell(node, {.kind = ValueForm::Kind::text});
  return one_of(node, names);
}

const std::vector<Yaml>& to_sequence(const Yaml& node) {
  if (node->kind != YamlNode::Kind::sequence) refuse_type(node, "a list");
  return node->items;
}

std::string describe(const Yaml& node) {
  switch (node->kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return node->quoted ? fmt::format("the text \"{}\"", shortened(node->text))
                          : fmt::format("`{}`", shortened(node->text));
    case YamlNode::Kind::sequence:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
  }
  return {};
}

std::string shortened(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n')
      quoted += "\\n";
    else if (c == '\t')
      quoted += "\\t";
    else if (c == '\r')
      quoted += "\\r";
    else
      quoted += c;
  }
  return quoted + "\"";
}

}  // namespace motley
