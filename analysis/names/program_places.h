// Where in the program's Python code each stack is: the chain of lines that led to it, without the
// frames of other languages. Every stack is examined once.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/names/dictionary.h"

namespace tidemark {

// A line of a function, called from another one.
struct Place {
  uint32_t caller = 0;     // place
  uint32_t outermost = 0;  // place
  uint32_t function = 0;
  uint32_t file = 0;
  uint32_t depth = 0;
  int64_t line = 0;
  bool inside = false;       // of a module's call or of PyTorch
  bool generates = false;    // probably a text: its rounds are tokens
  bool calls = false;        // the forward() of a module that the program itself calls
  bool within_call = false;  // of such a module, or of a container
};

class Places {
 public:
  explicit Places(const Dictionary& names);

  // 0 for stacks without Python. Callers precede the places they call.
  uint32_t of(uint32_t stack) const { return stack < of_stack_.size() ? of_stack_[stack] : 0; }
  const Place& operator[](uint32_t place) const { return places_[place]; }
  uint32_t count() const { return static_cast<uint32_t>(places_.size()); }
  bool same_function(uint32_t a, uint32_t b) const {
    return places_[a].function == places_[b].function && places_[a].file == places_[b].file;
  }

 private:
  void add(const Dictionary& names, const Frame& frame, uint32_t caller);

  std::vector<uint32_t> of_stack_;
  std::vector<Place> places_;
};

}  // namespace tidemark
