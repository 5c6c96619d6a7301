// Tells all mistakes in the form of files at once: unknown keys, missing ones, values of another type or out of bounds.
// A reader stops at the first mistake. So its place is excused and the reader is asked again, until it comes to the end
// or stops at something that could follow from what was excused. Where a key is excused, the key that it resembles is
// read in its place. An excused value counts as not written; where one is needed, readers get the smallest that they
// accept, and stop where it is no scalar.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/refusal.hpp"

namespace motley {

// Whether readers of YAML pass the mistake at this place without a word.
bool is_excused(const Location& where);
// Whether a file of the nearest name is read for the name at this place, of which there is none.
bool is_excused_name(const Location& where);
// Whether they pass that the map at `map` lacks the key.
bool is_excused(const Location& map, std::string_view key);
// Notes which key a map lacks, as the place of that refusal is the map's.
void note_missing(const Location& map, std::string_view key);

// The mistakes that were told by a reader of this thread. Only the outermost of several collects them.
class ToldRefusals {
 public:
  ToldRefusals();
  ~ToldRefusals();
  ToldRefusals(const ToldRefusals&) = delete;
  ToldRefusals& operator=(const ToldRefusals&) = delete;

  bool is_outermost() const { return outermost_; }
  // Excuses the place of the refusal. false: reading again is of no use. A refusal of what files say together is told
  // only if nothing was excused before, as it could follow from that.
  bool excuse(const Refusal& refusal);
  bool is_empty() const { return told_.empty(); }
  // Throws the first mistake with the others, in the order of files and lines.
  [[noreturn]] void refuse() const;

 private:
  std::vector<Refusal> told_;
  bool outermost_;
};

// Returns what `read` returns, or throws a Refusal that holds all mistakes of form.
template <typename Read>
auto telling_all_refusals(const Read& read) {
  ToldRefusals told;
  if (!told.is_outermost()) return read();
  for (;;) {
    try {
      auto result = read();
      if (told.is_empty()) return result;
      break;
    } catch (const Refusal& refusal) {
      if (!told.excuse(refusal)) break;
    } catch (const std::exception&) {
      if (told.is_empty())
        throw;  // else a value that stands in for another has broken what the reader relies on
      break;
    }
  }
  told.refuse();
}

}  // namespace motley
