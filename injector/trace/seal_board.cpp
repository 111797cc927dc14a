#include "injector/trace/seal_board.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "injector/process/file_system.h"

namespace tidemark::injector {

namespace {

constexpr char kFileName[] = "tidemark-seals";
constexpr int64_t kNetworkPeriodMs = 1000;
constexpr int64_t kLocalPeriodMs = 250;

// Without blanks, so that it is one word of a line.
void copy_word(const char* text, char (&out)[96]) {
  std::snprintf(out, sizeof out, "%s", text != nullptr && *text != '\0' ? text : "-");
  for (char* c = out; *c != '\0'; ++c) {
    if (std::isgraph(static_cast<unsigned char>(*c)) == 0) *c = '_';
  }
}

}  // namespace

bool is_seal_name(const char* name) noexcept {
  if (*name == '\0' || *name == '.') return false;
  size_t size = 0;
  for (; name[size] != '\0'; ++size) {
    const auto c = static_cast<unsigned char>(name[size]);
    if (std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.') return false;
  }
  return size < kSealNameBytes;
}

void make_seal_name(const char* reason, int64_t time_ns, char (&out)[kSealNameBytes]) noexcept {
  const auto seconds = static_cast<time_t>(time_ns / 1'000'000'000);
  struct tm utc {};
  gmtime_r(&seconds, &utc);
  char when[32] = "";
  strftime(when, sizeof when, "%Y%m%d-%H%M%S", &utc);
  std::snprintf(out, sizeof out, "%s-%s", reason, when);
}

SealBoard::SealBoard(const char* trace_path, const char* job) noexcept {
  const char* const slash = std::strrchr(trace_path, '/');
  const auto size = static_cast<int>(slash == nullptr ? 0 : slash - trace_path);
  std::snprintf(path_, sizeof path_, "%.*s", size, trace_path);
  period_ms_ = on_network_file_system(path_) ? kNetworkPeriodMs : kLocalPeriodMs;
  std::snprintf(path_, sizeof path_, "%.*s/%s", size, trace_path, kFileName);
  copy_word(job, job_);
  const int fd = ::open(path_, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  struct stat info {};
  if (fd < 0) return;
  if (::fstat(fd, &info) == 0) seen_ = static_cast<uint64_t>(info.st_size);
  ::close(fd);
}

bool SealBoard::look_due(int64_t now_ms) noexcept {
  if (now_ms < next_look_ms_) return false;
  next_look_ms_ = now_ms + period_ms_;
  return true;
}

uint64_t SealBoard::read_from(uint64_t offset, char* out, uint64_t size) noexcept {
  const int fd = ::open(path_, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = ::pread(fd, out, size, static_cast<off_t>(offset));
  ::close(fd);
  return n > 0 ? static_cast<uint64_t>(n) : 0;
}

bool SealBoard::next(char (&name)[kSealNameBytes], int64_t& time_ns) noexcept {
  char line[512];
  while (true) {
    const uint64_t size = read_from(seen_, line, sizeof line - 1);
    line[size] = '\0';
    char* const end = std::strchr(line, '\n');
    if (end == nullptr) {
      // Not complete yet; or no line of ours at all.
      if (size == sizeof line - 1) seen_ += size;
      return false;
    }
    *end = '\0';
    seen_ += static_cast<uint64_t>(end - line) + 1;
    const std::string_view words(line, static_cast<size_t>(end - line));
    const size_t job = words.find(' ');
    const size_t when = words.rfind(' ');
    if (job == words.npos || job == when || job >= sizeof name) continue;
    const auto parsed = std::from_chars(line + when + 1, end, time_ns);
    if (parsed.ec != std::errc() || words.substr(job + 1, when - job - 1) != job_) continue;
    std::memcpy(name, line, job);
    name[job] = '\0';
    if (is_seal_name(name)) return true;
  }
}

void SealBoard::announce(const char* name, int64_t time_ns) noexcept {
  char line[256];
  const int size = std::snprintf(line, sizeof line, "%s %s %lld\n", name, job_,
                                 static_cast<long long>(time_ns));
  const int fd = ::open(path_, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(fd, line, static_cast<size_t>(size));
  ::close(fd);
}

}  // namespace tidemark::injector
