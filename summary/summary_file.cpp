#include "summary/summary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "proto/base/crc32.h"
#include "proto/base/file_io.h"
#include "proto/base/hash.h"
#include "proto/base/output_file.h"
#include "proto/base/version.h"
#include "summary/summary_fields.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = ".tidemark";
constexpr uint64_t kMostBytes = uint64_t{256} << 20;

// Before the compressed content.
struct Header {
  char magic[8];
  uint64_t raw_bytes;
  uint64_t stored_bytes;
  uint64_t checksum;  // of the stored bytes
};
constexpr char kMagic[8] = {'T', 'M', 'K', 'S', 'U', 'M', '0', '1'};

std::string folder_of(const std::string& directory) {
  return (fs::path(directory) / kFolder).string();
}

std::string summary_path(const std::string& trace) {
  const fs::path path(trace);
  return (path.parent_path() / kFolder / (path.filename().string() + ".summary")).string();
}

std::string frames_path(const std::string& directory, uint64_t number) {
  return fmt::format("{}/{:016x}.frames", folder_of(directory), number);
}

// What the content is written by, before all else.
std::string version_key() {
  return fmt::format("tidemark {}, {}", kVersion, TIDEMARK_SUMMARY_KEY);
}

Status write_content(const std::string& path, const std::string& raw) {
  std::string stored(ZSTD_compressBound(raw.size()), '\0');
  const size_t bytes = ZSTD_compress(stored.data(), stored.size(), raw.data(), raw.size(), 3);
  if (ZSTD_isError(bytes) != 0) return Error{path + ": cannot be compressed"};
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.raw_bytes = raw.size();
  header.stored_bytes = bytes;
  header.checksum = crc32(stored.data(), bytes);
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  if (!write_all(file->fd(), &header, sizeof header) ||
      !write_all(file->fd(), stored.data(), bytes)) {
    return Error{path + ": " + std::strerror(errno)};
  }
  return file->commit();
}

std::optional<std::string> read_content(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  struct stat info {};
  Header header{};
  std::string stored;
  bool good = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
              read_at(fd, 0, &header, sizeof header) &&
              std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
              header.raw_bytes <= kMostBytes && header.stored_bytes <= kMostBytes &&
              static_cast<uint64_t>(info.st_size) == sizeof header + header.stored_bytes;
  if (good) {
    stored.resize(header.stored_bytes);
    good = read_at(fd, sizeof header, stored.data(), stored.size()) &&
           crc32(stored.data(), stored.size()) == header.checksum;
  }
  ::close(fd);
  if (!good) return {};
  std::string raw(header.raw_bytes, '\0');
  if (ZSTD_decompress(raw.data(), raw.size(), stored.data(), stored.size()) != raw.size()) {
    return {};
  }
  return raw;
}

}  // namespace

std::optional<FileIdentity> identity_of(const std::string& path) {
  constexpr size_t kTail = 4096;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  struct stat info {};
  std::string tail;
  bool good = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (good) {
    const auto size = static_cast<uint64_t>(info.st_size);
    tail.resize(std::min<uint64_t>(size, kTail));
    good = read_at(fd, size - tail.size(), tail.data(), tail.size());
  }
  ::close(fd);
  if (!good) return {};
  // Ranks may be written in one instant, with the same sizes and ends: their names differ.
  tail += std::filesystem::path(path).filename().string();
  return FileIdentity{static_cast<uint64_t>(info.st_size),
                      int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
                      crc32(tail.data(), tail.size())};
}

Status make_summary_folder(const std::string& directory) {
  const std::string folder = folder_of(directory);
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) return Error{fmt::format("{}: {}", folder, error.message())};
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return Error{fmt::format("{}: {}", folder, std::strerror(errno))};
  }
  return {};
}

Status write_summary(const std::string& trace, FileSummary& summary) {
  ArchiveWriter out;
  std::string key = version_key();
  out(key, summary);
  return write_content(summary_path(trace), out.bytes);
}

std::optional<FileSummary> read_summary(const std::string& trace, const FileIdentity& identity) {
  const std::optional<std::string> raw = read_content(summary_path(trace));
  if (!raw) return {};
  ArchiveReader in(*raw);
  std::string key;
  in(key);
  if (key != version_key()) return {};
  FileSummary summary;
  in(summary);
  if (!in.complete() || summary.identity != identity) return {};
  return summary;
}

uint64_t number_of(const FrameHashes& frames) {
  if (frames.empty()) return 0;
  uint64_t number = frames.size();
  for (const uint64_t frame : frames) number = mix_bits(number + frame);
  return std::max<uint64_t>(number, 1);
}

Status write_frames(const std::string& directory, const FrameHashes& frames) {
  const uint64_t number = number_of(frames);
  if (number == 0 || read_frames(directory, number) != nullptr) return {};
  std::string raw(reinterpret_cast<const char*>(frames.data()), frames.size() * sizeof frames[0]);
  return write_content(frames_path(directory, number), raw);
}

std::shared_ptr<const FrameHashes> read_frames(const std::string& directory, uint64_t number) {
  if (number == 0) return std::make_shared<const FrameHashes>();
  const std::optional<std::string> raw = read_content(frames_path(directory, number));
  if (!raw || raw->size() % sizeof(uint64_t) != 0) return nullptr;
  FrameHashes frames(raw->size() / sizeof(uint64_t));
  std::memcpy(frames.data(), raw->data(), raw->size());
  if (number_of(frames) != number || !std::is_sorted(frames.begin(), frames.end())) return nullptr;
  return std::make_shared<const FrameHashes>(std::move(frames));
}

std::string_view lasting_text(std::string_view text) {
  for (const std::string_view known :
       {"same instant", "allocated peak", "reserved peak", "out-of-memory error"}) {
    if (known == text) return known;
  }
  return "";
}

}  // namespace tidemark
