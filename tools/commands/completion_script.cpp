#include "tools/commands/completion_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tools/commands/listed_data.hpp"

namespace motley {
namespace {

// What a value may be: words, names of data, a command, or a file. A name of data may always be a file's path, too.
struct CompletedValue {
  std::vector<std::string> words = {};
  std::vector<DataKind> data = {};
  bool is_command = false;
  bool is_file = true;
};

// Options and positional arguments whose values are names of data. `show` calls every positional argument `what`.
CompletedValue completed_value(const CommandWords& program, const std::string& path,
                               const OptionWords& option) {
  if (!option.choices.empty()) return {.words = option.choices, .is_file = false};
  const std::string name = option.names.empty() ? option.positional : option.names.back();
  const auto is_one_of = [&name](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (path == "launch" && name == "command") return {.is_command = true, .is_file = false};
  if (path == "help" && name == "command") {
    CompletedValue value{.is_file = false};
    for (const CommandWords& command : program.commands) value.words.push_back(command.name);
    return value;
  }
  if (path == "show model" && name == "what") return {.data = {DataKind::models, DataKind::scenarios}};
  if (path == "show cluster" && name == "what") return {.data = {DataKind::clusters, DataKind::scenarios}};
  if (path == "show formats" && name == "what")
    return {.words = {"all"}, .data = {DataKind::chips, DataKind::clusters}};
  if (is_one_of({"scenario", "a", "b", "what", "other"})) return {.data = {DataKind::scenarios}};
  if (is_one_of({"--chip"})) return {.data = {DataKind::chips}};
  if (is_one_of({"--cluster", "--host"})) return {.data = {DataKind::clusters}};
  if (is_one_of({"--model"})) return {.data = {DataKind::models}};
  if (is_one_of({"--software"})) return {.data = {DataKind::software}};
  return {};
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

// For fish, where a backslash escapes in single quotes.
std::string fish_quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

// Calls `visit` with each command and its path ("show program"; empty: the program itself).
void each_command(const CommandWords& command, const std::string& path,
                  const std::function<void(const std::string&, const CommandWords&)>& visit) {
  visit(path, command);
  for (const CommandWords& inner : command.commands)
    each_command(inner, path.empty() ? inner.name : path + " " + inner.name, visit);
}

// The value as a call of the script's own functions `_motley_words`, `_motley_data` and so on.
std::string calls_of(const CompletedValue& value) {
  std::string calls;
  if (!value.words.empty()) calls += "_motley_words " + joined(value.words) + "; ";
  for (const DataKind kind : value.data) calls += fmt::format("_motley_data {}; ", name_of(kind));
  if (value.is_command) calls += "_motley_commands; ";
  if (value.is_file) calls += "_motley_files; ";
  return calls;
}

// The tables of bash and zsh: functions with a `case` of the path, or of path and option, or of path and place.
std::string tables_of(const CommandWords& program) {
  std::string commands, flags, valued, values, positionals;
  each_command(program, "", [&](const std::string& path, const CommandWords& command) {
    std::vector<std::string> names, all, with_value;
    for (const CommandWords& inner : command.commands) names.push_back(inner.name);
    int place = 0;
    for (const OptionWords& option : command.options) {
      const std::string calls = calls_of(completed_value(program, path, option));
      all.insert(all.end(), option.names.begin(), option.names.end());
      if (option.names.empty()) {
        positionals +=
            fmt::format("    '{} {}') {};;\n", path, option.repeats ? "'*'" : std::to_string(place), calls);
        ++place;
      } else if (option.takes_value) {
        std::vector<std::string> patterns;
        for (const std::string& name : option.names) patterns.push_back(fmt::format("'{} {}'", path, name));
        with_value.insert(with_value.end(), option.names.begin(), option.names.end());
        values += fmt::format("    {}) {};;\n", fmt::join(patterns, "|"), calls);
      }
    }
    if (!names.empty()) commands += fmt::format("    '{}') echo '{}' ;;\n", path, joined(names));
    flags += fmt::format("    '{}') echo '{}' ;;\n", path, joined(all));
    if (!with_value.empty()) valued += fmt::format("    '{}') echo ' {} ' ;;\n", path, joined(with_value));
  });
  const auto table = [](const char* name, const char* key, const std::string& cases) {
    return fmt::format("{}() {{\n  case {} in\n{}  esac\n}}\n", name, key, cases);
  };
  return table("_motley_inner", "\"$1\"", commands) + table("_motley_options", "\"$1\"", flags) +
         table("_motley_valued", "\"$1\"", valued) + table("_motley_value", "\"$1 $2\"", values) +
         table("_motley_positional", "\"$1 $2\"", positionals);
}

// The walk over the words before the cursor, as bash and zsh both read it. It sets reached (the command that the words
// name), place (of a positional argument), option (whose value is missing) and rest (after `--`).
constexpr const char* kWalk = R"sh(_motley_walk() {
  reached= place=0 option= rest=
  local word
  for word in "$@"; do
    if [[ -n $option ]]; then
      [[ $word == = ]] || option=
    elif [[ -n $rest ]]; then
      place=$((place + 1))
    elif [[ $word == -- ]]; then
      rest=1
    elif [[ $word == -* ]]; then
      [[ $(_motley_valued "$reached") != *" $word "* ]] || option=$word
    elif [[ $place == 0 && " $(_motley_inner "$reached") " == *" $word "* ]]; then
      reached="${reached:+$reached }$word"
    else
      place=$((place + 1))
    fi
  done
}
)sh";

}  // namespace

std::string bash_completion(const CommandWords& program) {
  return "# Completes the words of motley in bash: `motley completion bash` printed this.\n" +
         tables_of(program) + kWalk + R"sh(_motley_words() { COMPREPLY+=($(compgen -W "$*" -- "$current")); }
_motley_data() { COMPREPLY+=($(compgen -W "$("${COMP_WORDS[0]}" list "$1" --names 2>/dev/null)" -- "$current")); }
_motley_commands() { COMPREPLY+=($(compgen -c -- "$current")); }
_motley_files() {
  local file
  compopt -o filenames 2>/dev/null
  while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$current")
}
_motley() {
  local reached place option rest current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  # bash takes `--kernels=fast` for three words.
  [[ $current != = ]] || current=
  _motley_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
  if [[ ${COMP_WORDS[COMP_CWORD]} == = && -z $option ]]; then return; fi
  if [[ -n $option ]]; then
    _motley_value "$reached" "$option"
  elif [[ -z $rest && $current == -* ]]; then
    _motley_words $(_motley_options "$reached")
  elif [[ $place == 0 && -n $(_motley_inner "$reached") ]]; then
    _motley_words $(_motley_inner "$reached")
  else
    _motley_positional "$reached" "$place"
  fi
}
complete -F _motley motley
)sh";
}

std::string zsh_completion(const CommandWords& program) {
  return "#compdef motley\n# Completes the words of motley in zsh: `motley completion zsh` printed this.\n" +
         tables_of(program) + kWalk + R"sh(_motley_words() { compadd -- "$@"; }
_motley_data() { compadd -- ${(f)"$("${words[1]}" list "$1" --names 2>/dev/null)"}; }
_motley_commands() { _command_names -e; }
_motley_files() { _files; }
_motley() {
  setopt localoptions noksharrays
  local reached place option rest current=${words[CURRENT]}
  if [[ $current == --*=* ]]; then  # `--kernels=fast` is one word here
    compset -P '*='
    _motley_walk "${(@)words[2,CURRENT-1]}"
    _motley_value "$reached" "${current%%=*}"
    return
  fi
  _motley_walk "${(@)words[2,CURRENT-1]}"
  if [[ -n $option ]]; then
    _motley_value "$reached" "$option"
  elif [[ -z $rest && $current == -* ]]; then
    _motley_words $(_motley_options "$reached")
  elif [[ $place == 0 && -n $(_motley_inner "$reached") ]]; then
    _motley_words $(_motley_inner "$reached")
  else
    _motley_positional "$reached" "$place"
  fi
}
if [[ ${funcstack[1]} == _motley ]]; then _motley "$@"; else compdef _motley motley; fi
)sh";
}

std::string fish_completion(const CommandWords& program) {
  std::string text =
      "# Completes the words of motley in fish: `motley completion fish` printed this.\n"
      "function __motley_path\n"
      "    set -l path\n"
      "    for word in (commandline -opc)[2..-1]\n"
      "        string match -q -- '-*' $word; and continue\n"
      "        contains -- (string join ' ' $path $word) $__motley_paths; and set -a path $word\n"
      "    end\n"
      "    string join ' ' $path\n"
      "end\n"
      "function __motley_at\n"
      "    set -l path (__motley_path)\n"
      "    test \"$path\" = \"$argv[1]\"\n"
      "end\n"
      "complete -c motley -f\n";
  std::vector<std::string> paths;
  std::string lines;
  each_command(program, "", [&](const std::string& path, const CommandWords& command) {
    if (!path.empty()) paths.push_back(fish_quote(path));
    const std::string at = fmt::format("complete -c motley -n {}", fish_quote("__motley_at '" + path + "'"));
    for (const CommandWords& inner : command.commands)
      lines += fmt::format("{} -a {} -d {}\n", at, inner.name, fish_quote(inner.description));
    for (const OptionWords& option : command.options) {
      const CompletedValue value = completed_value(program, path, option);
      std::string line = at;
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      std::vector<std::string> values = value.words;
      for (const DataKind kind : value.data)
        values.push_back(fmt::format("(motley list {} --names)", name_of(kind)));
      if (value.is_command) values.emplace_back("(__fish_complete_command)");
      if (option.takes_value) {
        line += option.names.empty() ? "" : " -r";
        line += value.is_file ? " -F" : "";
        if (!values.empty()) line += " -a " + fish_quote(joined(values));
      }
      lines += fmt::format("{} -d {}\n", line, fish_quote(option.description));
    }
  });
  return text + fmt::format("set -g __motley_paths {}\n", joined(paths)) + lines;
}

}  // namespace motley
