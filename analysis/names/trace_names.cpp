#include "analysis/names/trace_names.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "analysis/names/resolver.h"
#include "proto/base/descriptor.h"
#include "proto/base/file_io.h"
#include "proto/read/trace_appending.h"
#include "proto/ring_layout.h"

namespace tidemark {

namespace {

class BufferSink final : public ByteSink {
 public:
  bool write(std::span<const uint8_t> from) noexcept override {
    try {
      bytes.insert(bytes.end(), from.begin(), from.end());
    } catch (const std::bad_alloc&) {
      errno = ENOMEM;
      return false;
    }
    return true;
  }
  std::vector<uint8_t> bytes;
};

struct NamedFrames {
  Dictionary names;
  uint32_t first_string = 0;  // of those that are new
  std::vector<uint32_t> frames;
};

// By process of the file.
std::map<uint32_t, NamedFrames> name_all(const TraceReader& reader,
                                         const std::function<void(double)>& advance) {
  std::map<uint32_t, NamedFrames> all;
  for (const BlockRef& block : reader.blocks()) {
    if (block.kind == BlockKind::kModules) all.try_emplace(block.process);
  }
  BlockDecoder decoder(reader);
  for (auto it = all.begin(); it != all.end();) {
    NamedFrames& named = it->second;
    named.names = Dictionary::load(reader, decoder, it->first);
    named.first_string = static_cast<uint32_t>(std::max<size_t>(named.names.string_count(), 1));
    named.frames = resolve_frames(named.names, advance);
    it = named.frames.empty() ? all.erase(it) : std::next(it);
  }
  if (decoder.damage().any()) all.clear();
  return all;
}

uint64_t next_sequence(const std::vector<FrameHeader>& frames, uint32_t process) {
  uint64_t next = 0;
  for (const FrameHeader& frame : frames) {
    if (frame.process == process) next = std::max(next, frame.sequence + 1);
  }
  return next;
}

// The names, the index and the trailer: everything after the existing frames.
bool encode_tail(const SoundFrames& present, const std::map<uint32_t, NamedFrames>& named,
                 BufferSink& tail) {
  TailSink sink(tail, present.end);
  TraceWriter trace(sink);
  pass_over(trace, present.headers);
  for (const auto& [process, added] : named) {
    trace.begin_process(process, next_sequence(present.headers, process));
    for (uint32_t id = added.first_string; id < added.names.string_count(); ++id) {
      trace.append_string(id, added.names.string(id));
    }
    for (const uint32_t id : added.frames) trace.append(added.names.frame(id));
  }
  return trace.finish();
}

// The new tail is longer than the old one and contains all of it in updated form: if the machine
// stops halfway, a reader scans the file and finds every frame.
Status replace_tail(int fd, const TraceReader& reader, uint64_t at, std::span<const uint8_t> tail) {
  std::vector<uint8_t> old(reader.file_bytes() - at);
  if (!reader.read_at(at, old.data(), old.size())) return Error{reader.path() + ": cannot read"};
  if (write_at(fd, at, tail.data(), tail.size())) return {};
  const Error error{reader.path() + ": " + std::strerror(errno)};
  const bool restored = write_at(fd, at, old.data(), old.size()) &&
                        ::ftruncate(fd, static_cast<off_t>(at + old.size())) == 0;
  return restored ? error : Error{error.message + "; the index at its end is lost"};
}

}  // namespace

Result<uint64_t> write_names(const std::string& path, const std::function<void(double)>& advance) {
  const std::string ring = path + std::string(ring::kSuffix);
  if (::faccessat(AT_FDCWD, ring.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return uint64_t{0};
  const Descriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return Error{path + ": " + std::strerror(errno)};
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return uint64_t{0};
  const Result<TraceReader> reader = TraceReader::from_fd(::dup(file.get()), path);
  if (!reader) return reader.error();
  if (reader->damage().unfinished) return uint64_t{0};
  const std::optional<SoundFrames> present = find_sound_frames(*reader);
  if (!present) return uint64_t{0};
  const std::map<uint32_t, NamedFrames> named = name_all(*reader, advance);
  uint64_t count = 0;
  for (const auto& [process, added] : named) count += added.frames.size();
  if (count == 0) return count;
  BufferSink tail;
  if (!encode_tail(*present, named, tail)) return Error{path + ": not enough memory for its names"};
  if (Status status = replace_tail(file.get(), *reader, present->end, tail.bytes); !status) {
    return status.error();
  }
  return count;
}

}  // namespace tidemark
