#include "collector/snapshot/snapshot_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "collector/pickle/byte_source.h"
#include "collector/snapshot/snapshot_import.h"
#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

// A snapshot does not contain its rank, but its name often does: "snapshot_rank3.pickle".
int64_t rank_in_name(const std::string& path) {
  std::string name = fs::path(path).filename().string();
  size_t at = name.rfind("rank");
  if (at == std::string::npos) return -1;
  at += 4;
  if (at < name.size() && (name[at] == '_' || name[at] == '-')) ++at;
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), rank);
  return error == std::errc() && rank >= 0 ? rank : -1;
}

Status import_to_fd(const std::string& snapshot, int fd, const std::string& output) {
  const Result<ByteSource> source = open_bytes(snapshot);
  if (!source) return source.error();
  if (!looks_like_pickle(source->bytes())) {
    return Error{snapshot + ": neither a tidemark trace nor a PyTorch memory snapshot"};
  }
  FdSink sink(fd);
  TraceWriter writer(sink);
  const Result<ImportSummary> summary =
      import_snapshot(source->bytes(), snapshot, writer, rank_in_name(snapshot));
  if (!summary) return summary.error();
  if (!writer.finish()) {
    return Error{fmt::format("{}: cannot write: {}", output, std::strerror(writer.error_number()))};
  }
  return {};
}

bool looks_like_snapshot(const std::string& path) {
  const Result<ByteSource> source = open_bytes(path);
  return source && looks_like_pickle(source->bytes());
}

}  // namespace

bool is_snapshot(const std::string& path) {
  return !looks_like_trace(path) && (!path.ends_with(".tmk") || looks_like_snapshot(path));
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

Status import_snapshot_file(const std::string& snapshot, const std::string& output) {
  if (looks_like_trace(snapshot)) {
    return Error{snapshot + ": is already a tidemark trace; import converts PyTorch snapshots"};
  }
  Result<OutputFile> file = OutputFile::create(output);
  if (!file) return file.error();
  if (Status status = import_to_fd(snapshot, file->fd(), output); !status) return status;
  return file->commit();
}

}  // namespace tidemark
