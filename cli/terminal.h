// What the terminal can do, and a progress bar for slow work.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace tidemark::cli {

// Print a line that is safe for a terminal, whatever it is made of (export/safe_text.h).
void print_line(std::FILE* file, std::string_view text);
inline void print_line(std::string_view text) {
  print_line(stdout, text);
}

// Colours: on a terminal, unless NO_COLOR is set or TERM is dumb.
bool stdout_has_colour();
// Columns of the terminal, 100 when stdout is not a terminal.
size_t stdout_width();

// Draws on stderr, only on a terminal and only after a second. Erases itself at the end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void set(double share);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

}  // namespace tidemark::cli
