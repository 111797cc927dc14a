#include "analysis/load/index_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "analysis/load/index_stamp.h"
#include "proto/base/file_io.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = "unfinished-";
constexpr time_t kAbandonedSeconds = 24 * 3600;
// Keep this much of the user's disk free.
constexpr uint64_t kSpareBytes = uint64_t{2} << 30;

bool make_own_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  ::mkdir(path.c_str(), 0700);
  return is_own_directory(path);
}

struct Entry {
  std::string path;
  time_t used = 0;
  uint64_t bytes = 0;
  bool unfinished = false;
};

uint64_t bytes_in(const fs::path& directory) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(directory, error)) {
    const uintmax_t size = file.file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

// Calls act(fd) for every file. False: one cannot be opened, or `act` failed.
template <typename Act>
bool for_each_file(const std::string& place, const Act& act) {
  bool good = true;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(place, error)) {
    const int fd = ::open(file.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    good = good && fd >= 0 && act(fd);
    if (fd >= 0) ::close(fd);
  }
  return good && !error;
}

bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "manifest", "verified", "PROCESS.nccl" or "PROCESS.DEVICE.COLUMN".
bool is_index_file(std::string_view name) {
  if (name == kIndexManifest || name == kIndexStamp) return true;
  const size_t first = name.find('.');
  if (first == std::string_view::npos || !is_number(name.substr(0, first))) return false;
  name.remove_prefix(first + 1);
  if (name == "nccl") return true;
  const size_t second = name.find('.');
  return second != std::string_view::npos && is_number(name.substr(0, second));
}

// Sixteen hexadecimal digits.
bool is_index_name(std::string_view name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Begins as those of any version do.
bool is_our_manifest(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  char begin[kIndexMagic.size()];
  const bool ours =
      read_at(fd, 0, begin, sizeof begin) && std::string_view(begin, sizeof begin) == kIndexMagic;
  ::close(fd);
  return ours;
}

std::vector<Entry> entries_of(const std::string& directory) {
  std::vector<Entry> entries;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    struct stat info {};
    if (::lstat(entry.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    const std::string name = entry.path().filename().string();
    const bool unfinished = name.starts_with(kUnfinished);
    const bool finished = is_index_name(name) && is_our_manifest(entry.path() / kIndexManifest);
    if (!unfinished && !finished) continue;
    entries.push_back({entry.path().string(), info.st_mtime, bytes_in(entry.path()), unfinished});
  }
  return entries;
}

}  // namespace

IndexOptions IndexOptions::from_environment() {
  IndexOptions options;
  const char* const wanted = std::getenv("TIDEMARK_INDEX");
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (wanted != nullptr && std::string_view(wanted) == "0") return options;
  if (wanted != nullptr && wanted[0] == '/') {
    options.directory = std::string(wanted) + "/tidemark-index";
  } else if (cache != nullptr && cache[0] == '/') {
    options.directory = std::string(cache) + "/tidemark/index";
  } else if (home != nullptr && home[0] == '/') {
    options.directory = std::string(home) + "/.cache/tidemark/index";
  }
  return options;
}

bool is_own_directory(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string make_index_place(const IndexOptions& options) {
  if (options.directory.empty() || !make_own_directory(options.directory)) return "";
  std::string place = options.directory + "/" + std::string(kUnfinished) + "XXXXXX";
  return ::mkdtemp(place.data()) != nullptr ? place : "";
}

void start_writing_index(const std::string& place) {
  for_each_file(place, [](int fd) {
    // Not every file system supports it; sync_index is what matters.
    ::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return true;
  });
}

bool sync_index(const std::string& place) {
  // Write the data of all files first, then their metadata: the first file to wait for the journal
  // commits the others too.
  constexpr unsigned kAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const bool opened = for_each_file(place, [](int fd) {
    ::sync_file_range(fd, 0, 0, kAll);
    return true;
  });
  return opened && for_each_file(place, [](int fd) { return ::fdatasync(fd) == 0; });
}

bool name_index(const std::string& place, const std::string& final_path) {
  if (::rename(place.c_str(), final_path.c_str()) == 0) return true;
  // Another process made the same index meanwhile, or an older one was unusable.
  remove_index(final_path);
  return ::rename(place.c_str(), final_path.c_str()) == 0;
}

void remove_index(const std::string& path) {
  // Only files that an index consists of: a directory that holds anything else stays.
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(path, error)) {
    if (is_index_file(file.path().filename().string())) ::unlink(file.path().c_str());
  }
  ::rmdir(path.c_str());
}

uint64_t index_space_bytes(const IndexOptions& options) {
  fs::path existing = options.directory;
  std::error_code error;
  while (!existing.empty() && existing != existing.parent_path() &&
         !fs::is_directory(existing, error)) {
    existing = existing.parent_path();
  }
  struct statvfs disk {};
  if (options.directory.empty() || ::access(existing.c_str(), W_OK) != 0 ||
      ::statvfs(existing.c_str(), &disk) != 0) {
    return 0;
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  return std::min(options.most_bytes, free - std::min(free, kSpareBytes));
}

void touch_index(const std::string& path) {
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

void trim_indexes(const IndexOptions& options, const std::string& but_not) {
  std::vector<Entry> entries = entries_of(options.directory);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used > b.used; });
  uint64_t kept = 0;
  for (const Entry& e : entries) {
    if (e.path == but_not) kept += e.bytes;
  }
  for (const Entry& e : entries) {
    if (e.path == but_not) continue;
    if (e.unfinished) {
      if (e.used + kAbandonedSeconds < ::time(nullptr)) remove_index(e.path);
      continue;
    }
    kept += e.bytes;
    if (kept > options.most_bytes) {
      remove_index(e.path);
      kept -= e.bytes;
    }
  }
}

}  // namespace tidemark
