// The lines of source code behind addresses, from an object's debugging information (DWARF).
//
// Read with elfutils where it was there to build with (source_lines_missing.cpp where not). Only
// the units that an address lies in are looked at. Nothing is fetched from anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tidemark {

struct SourceLine {
  std::string file;
  int64_t line = 0;
  std::string inlined;  // mangled where C++: the innermost function that was inlined here, or ""
};

class SourceLines {
 public:
  // Nothing when there is no debugging information to be used. The descriptor stays the caller's
  // and open.
  static std::unique_ptr<SourceLines> open(int fd);
  virtual ~SourceLines() = default;

  // False when nothing is known of this address.
  virtual bool find(uint64_t address, SourceLine& out) = 0;
};

// Whether this build can do it at all.
bool reads_source_lines();

}  // namespace tidemark
