// A file that appears under its name only when it is whole.
//
// Bytes go to a nameless file in the same directory (or, where the file system has none, to a
// ".partial" beside the target that is removed again); commit() gives it its name. A crash or
// Ctrl-C before that leaves nothing behind, and an existing file stays until it is replaced.
#pragma once

#include <string>

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
  std::string partial_;  // empty: nameless
};

}  // namespace tidemark
