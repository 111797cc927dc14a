#include "proto/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "proto/base/file_io.h"

namespace tidemark {

namespace {

Error failure(const std::string& path) {
  return Error{path + ": " + std::strerror(errno)};
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

constexpr int kAttempts = 100;

// A name beside the target that is not in use, most likely. Creating it makes sure.
std::string partial_name(const std::string& path) {
  static std::random_device random;
  char suffix[16];
  std::snprintf(suffix, sizeof suffix, ".%08x", static_cast<unsigned>(random()));
  return path + suffix + ".partial";
}

}  // namespace

OutputFile::OutputFile(std::string path, int fd, std::string partial)
    : path_(std::move(path)), fd_(fd), partial_(std::move(partial)) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      partial_(std::exchange(other.partial_, {})) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  struct stat info {};
  if (path.empty()) return Error{"the output file needs a name"};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    // A device or a pipe must not be replaced by a file.
    return Error{path + (S_ISDIR(info.st_mode) ? ": is a directory" : ": is not a regular file")};
  }
  const int nameless = ::open(directory_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (nameless >= 0) return OutputFile(path, nameless, {});
  // Neither an existing file nor a link is opened: O_EXCL.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string partial = partial_name(path);
    const int fd = ::open(partial.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0) return OutputFile(path, fd, partial);
    if (errno != EEXIST) break;
  }
  return failure(path);
}

Status OutputFile::commit() {
  if (partial_.empty()) {
    // linkat() only accepts a name that does not exist; rename() then replaces the target
    // atomically.
    const std::string self = "/proc/self/fd/" + std::to_string(fd_);
    for (int attempt = 0; attempt < kAttempts && partial_.empty(); ++attempt) {
      const std::string name = partial_name(path_);
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        partial_ = name;
      } else if (errno != EEXIST) {
        break;
      }
    }
    if (partial_.empty()) return failure(path_);
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) return failure(path_);
  partial_.clear();
  return {};
}

Status write_file(const std::string& path, std::string_view text) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file) return file.error();
  if (!write_all(file->fd(), text.data(), text.size())) return failure(path);
  return file->commit();
}

}  // namespace tidemark
