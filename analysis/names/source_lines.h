// Source lines of addresses, from an object's debug information (DWARF).
//
// Read with elfutils if it was available at build time (else source_lines_missing.cpp). Only the
// units that contain a requested address are read. Nothing is downloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tidemark {

struct SourceLine {
  std::string file;
  int64_t line = 0;
  std::string inlined;  // innermost function inlined here, mangled if C++, or ""
};

class SourceLines {
 public:
  // Null when there is no usable debug information. The caller keeps the descriptor, and keeps it
  // open.
  static std::unique_ptr<SourceLines> open(int fd);
  virtual ~SourceLines() = default;

  // False when nothing is known about this address.
  virtual bool find(uint64_t address, SourceLine& out) = 0;
};

// Whether this build supports it.
bool reads_source_lines();

}  // namespace tidemark
