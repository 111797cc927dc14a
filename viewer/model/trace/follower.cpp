#include "viewer/model/trace/follower.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace tidemark::view {

namespace {

namespace fs = std::filesystem;

// FNV-1a.
void mix(uint64_t& hash, const void* data, size_t size) {
  for (const char c : std::string_view(static_cast<const char*>(data), size)) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
}

void mix_file(uint64_t& hash, const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return;
  const int64_t facts[] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                           static_cast<int64_t>(info.st_ino)};
  mix(hash, path.data(), path.size());
  mix(hash, facts, sizeof facts);
}

}  // namespace

uint64_t Follower::fingerprint(const std::string& path) {
  uint64_t hash = 0xcbf29ce484222325;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    mix_file(hash, path);
    return hash;
  }
  std::vector<std::string> files;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".tmk") files.push_back(it->path().string());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) mix_file(hash, file);
  return hash;
}

void Follower::watch(const std::string& path) {
  path_ = path;
  seen_ = 0;
  next_look_ = {};
}

bool Follower::changed(Clock::time_point now) {
  if (!active() || now < next_look_) return false;
  next_look_ = now + kPeriod;
  const uint64_t print = fingerprint(path_);
  if (print == seen_) return false;
  seen_ = print;
  return true;
}

void Follower::was_read(Clock::time_point now, Clock::duration took) {
  next_look_ = now + std::max<Clock::duration>(kPeriod, 3 * took);
}

}  // namespace tidemark::view
