// What /proc says of a process.
#pragma once

#include <fstream>
#include <string>

namespace tidemark::inject {

// Up to where it can be read: a process may end meanwhile, and reading fails then. (An iterator
// over the stream's buffer would throw.) Empty: nothing, see errno.
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
