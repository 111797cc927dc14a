#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "export/safe_text.h"

namespace tidemark::cli {

void print_line(std::FILE* file, std::string_view text) {
  const std::string line = safe_text(text) + '\n';
  std::fwrite(line.data(), 1, line.size(), file);
}

bool stdout_has_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  if (term != nullptr && std::string_view(term) == "dumb") return false;
  return ::isatty(STDOUT_FILENO) != 0;
}

size_t stdout_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return std::clamp<size_t>(size.ws_col, 60, 200);
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::set(double share) {
  if (!terminal_) return;
  const auto now = Clock::now();
  if (now - start_ < std::chrono::seconds(1) || now - last_ < std::chrono::milliseconds(100))
    return;
  last_ = now;
  drawn_ = true;
  constexpr int kCells = 30;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kCells);
  std::fprintf(stderr, "\r%s [%s%s] %3d %%\x1b[K", what_.c_str(),
               std::string(static_cast<size_t>(filled), '#').c_str(),
               std::string(static_cast<size_t>(kCells - filled), '.').c_str(),
               static_cast<int>(100 * std::clamp(share, 0.0, 1.0)));
}

}  // namespace tidemark::cli
