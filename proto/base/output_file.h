// A file that appears under its name only when it is complete.
//
// Bytes go to an unnamed file in the same directory (or, if the file system does not support those,
// to a new ".partial" file next to the target, which is removed on failure); commit() gives it its
// name. A crash or Ctrl-C before commit() leaves nothing on disk, and an existing file stays until
// it is replaced.
#pragma once

#include <string>
#include <string_view>

#include "proto/base/result.h"

namespace tidemark {

class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  int fd() const { return fd_; }
  Status commit();

 private:
  OutputFile(std::string path, int fd, std::string partial);

  std::string path_;
  int fd_ = -1;
  std::string partial_;  // empty: unnamed
};

// All of a file at once.
Status write_file(const std::string& path, std::string_view text);

}  // namespace tidemark
