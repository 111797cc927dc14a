// Reads files of /proc.
#pragma once

#include <fstream>
#include <string>

namespace tidemark::inject {

// Reads as far as possible: a process may end meanwhile, and reading then fails. (An iterator over
// the stream's buffer would throw.) Empty on failure: see errno.
inline std::string proc_text(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  char piece[4096];
  while (in.read(piece, sizeof piece), in.gcount() > 0) {
    text.append(piece, static_cast<size_t>(in.gcount()));
  }
  return text;
}

}  // namespace tidemark::inject
