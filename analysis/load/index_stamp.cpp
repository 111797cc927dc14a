#include "analysis/load/index_stamp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "proto/base/file_io.h"
#include "proto/base/hash.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

struct Contents {
  std::string text;  // of the stamp; empty: unknown
  int64_t latest_ns = INT64_MIN;
};

Contents contents_of(const std::string& directory) {
  Contents c;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  if (!std::getline(boot, boot_id)) return c;
  std::vector<std::string> lines;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(directory, error)) {
    const std::string name = file.path().filename().string();
    if (name == kIndexStamp) continue;
    struct stat info {};
    if (::lstat(file.path().c_str(), &info) != 0) return c;
    const int64_t changed_ns = nanoseconds(info.st_ctim);
    c.latest_ns = std::max(c.latest_ns, changed_ns);
    lines.push_back(fmt::format("{} {} {} {}\n", name, info.st_size, info.st_ino, changed_ns));
  }
  if (error) return c;
  std::sort(lines.begin(), lines.end());
  c.text = boot_id + "\n";
  for (const std::string& line : lines) c.text += line;
  return c;
}

uint64_t mixed(uint64_t lane, uint64_t word) {
  return std::rotl(lane ^ (word * 0xc2b2ae3d27d4eb4fU), 31) * kGoldenRatio;
}

}  // namespace

bool has_valid_stamp(const std::string& directory) {
  // Two writes within one tick of the file system's clock have the same time: a file as young as
  // the stamp may have been written to after it.
  constexpr int64_t kTick_ns = 2'000'000'000;
  const std::string path = directory + "/" + kIndexStamp;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) {
    return false;
  }
  const Contents now = contents_of(directory);
  if (now.text.empty() || now.text.size() != static_cast<uint64_t>(info.st_size) ||
      now.latest_ns > nanoseconds(info.st_ctim) - kTick_ns) {
    return false;
  }
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {}) == now.text;
}

void write_stamp(const std::string& directory) {
  const Contents now = contents_of(directory);
  const std::string path = directory + "/" + kIndexStamp;
  if (now.text.empty()) return;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;  // read-only: the checksums are compared again next time
  if (!write_all(fd, now.text.data(), now.text.size())) ::unlink(path.c_str());
  ::close(fd);
}

// Four independent lanes, so that their multiplications overlap.
void ChecksumLanes::add(const uint8_t* data, size_t bytes) {
  uint64_t words[4];
  for (; bytes >= sizeof words; bytes -= sizeof words, data += sizeof words) {
    std::memcpy(words, data, sizeof words);
    for (size_t i = 0; i < 4; ++i) lane[i] = mixed(lane[i], words[i]);
  }
  if (bytes == 0) return;
  std::memset(words, 0, sizeof words);
  std::memcpy(words, data, bytes);
  for (size_t i = 0; i < 4; ++i) lane[i] = mixed(lane[i], words[i]);
}

uint64_t ChecksumLanes::finish(uint64_t total_bytes) const {
  uint64_t hash = mix_bits(total_bytes);
  for (const uint64_t l : lane) hash = mix_bits(hash ^ l);
  return hash;
}

}  // namespace tidemark
