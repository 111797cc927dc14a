#include "collector/trace_source.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "collector/byte_source.h"
#include "proto/output_file.h"
#include "collector/recovery.h"
#include "collector/snapshot_import.h"
#include "proto/byte_sink.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

bool named_like_input(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".tmk") || name.ends_with(".pickle") || name.ends_with(".pickle.gz") ||
         name.ends_with(".pkl") || name.ends_with(".pkl.gz");
}

Status import_to_fd(const std::string& snapshot, int fd, const std::string& output) {
  const Result<ByteSource> source = open_bytes(snapshot);
  if (!source) return source.error();
  if (!looks_like_pickle(source->bytes())) {
    return Error{snapshot + ": neither a tidemark trace nor a PyTorch memory snapshot"};
  }
  FdSink sink(fd);
  TraceWriter writer(sink);
  const Result<ImportSummary> summary = import_snapshot(source->bytes(), snapshot, writer);
  if (!summary) return summary.error();
  if (!writer.finish()) {
    return Error{fmt::format("{}: cannot write: {}", output, std::strerror(writer.error_number()))};
  }
  return {};
}

Result<TraceReader> open_snapshot(const std::string& path) {
  const int fd = ::memfd_create("tidemark-import", MFD_CLOEXEC);
  if (fd < 0) return Error{fmt::format("{}: {}", path, std::strerror(errno))};
  if (Status status = import_to_fd(path, fd, path); !status) {
    ::close(fd);
    return status.error();
  }
  return TraceReader::from_fd(fd, path);
}

Result<TraceReader> open_file(const std::string& path) {
  if (!looks_like_trace(path) && !path.ends_with(".tmk")) return open_snapshot(path);
  // What a killed process left in its ring belongs to its trace. Where that cannot be done (no
  // right to write, say), what is in the file is still worth reading.
  static_cast<void>(recover_file(path));
  return TraceReader::open(path);
}

Result<TraceSource> open_directory(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (named_like_input(entry.path())) files.push_back(entry.path().string());
  }
  if (error) return Error{fmt::format("{}: {}", path, error.message())};
  std::sort(files.begin(), files.end());
  TraceSource source;
  for (const std::string& file : files) {
    Result<TraceReader> reader = open_file(file);
    if (reader) {
      source.readers.push_back(std::move(*reader));
    } else {
      source.warnings.push_back(reader.error().message);
    }
  }
  if (source.readers.empty()) {
    return Error{source.warnings.empty()
                     ? path + ": no trace (.tmk) and no snapshot (.pickle) in this directory"
                     : source.warnings.front()};
  }
  return source;
}

}  // namespace

Result<TraceSource> open_trace(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return open_directory(path);
  Result<TraceReader> reader = open_file(path);
  if (!reader) return reader.error();
  TraceSource source;
  source.readers.push_back(std::move(*reader));
  return source;
}

Status import_snapshot_file(const std::string& snapshot, const std::string& output) {
  Result<OutputFile> file = OutputFile::create(output);
  if (!file) return file.error();
  if (Status status = import_to_fd(snapshot, file->fd(), output); !status) return status;
  return file->commit();
}

}  // namespace tidemark
