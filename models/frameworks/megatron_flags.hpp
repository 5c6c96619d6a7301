// The names of all arguments that Megatron-LM knows, so that an importer tells an argument that it does not read from
// one that is misspelt. Read next: megatron_import.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace motley {

enum class FlagValues : std::uint8_t { none, one, several };

// By name without dashes: how many values the argument takes.
const std::map<std::string, FlagValues>& megatron_flags();

}  // namespace motley
