#include "proto/read/trace_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/base/file_io.h"
#include "proto/clock.h"
#include "proto/read/block_decoder.h"

namespace tidemark {

namespace {

BlockRef ref_of(const FrameHeader& h, uint64_t offset) {
  return {offset,
          h.first_ns,
          h.last_ns,
          h.stored_bytes,
          h.rows,
          h.process,
          static_cast<BlockKind>(h.kind)};
}

BlockRef ref_of(const IndexEntry& e) {
  return {e.offset,
          e.first_ns,
          e.last_ns,
          static_cast<uint32_t>(e.stored_bytes),
          e.block_rows,
          e.process,
          static_cast<BlockKind>(e.block_kind)};
}

bool by_process(const BlockRef& a, const BlockRef& b) { return a.process < b.process; }

uint64_t end_of(const BlockRef& ref) {
  return ref.offset + sizeof(FrameHeader) + ref.stored_bytes;
}

}  // namespace

Damage& Damage::operator+=(const Damage& other) {
  blocks += other.blocks;
  rows += other.rows;
  skipped_bytes += other.skipped_bytes;
  truncated |= other.truncated;
  unfinished |= other.unfinished;
  return *this;
}

TraceReader::TraceReader(std::string path, int fd, uint64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

TraceReader::TraceReader(TraceReader&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      blocks_(std::move(other.blocks_)),
      clocks_(std::move(other.clocks_)),
      left_out_(std::move(other.left_out_)),
      damage_(other.damage_) {}

TraceReader& TraceReader::operator=(TraceReader&& other) noexcept {
  path_ = std::move(other.path_);
  std::swap(fd_, other.fd_);
  size_ = other.size_;
  blocks_ = std::move(other.blocks_);
  clocks_ = std::move(other.clocks_);
  left_out_ = std::move(other.left_out_);
  damage_ = other.damage_;
  return *this;
}

TraceReader::~TraceReader() {
  if (fd_ >= 0) ::close(fd_);
}

Result<TraceReader> TraceReader::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error{path + ": " + std::strerror(errno)};
  return from_fd(fd, path);
}

Result<TraceReader> TraceReader::from_fd(int fd, const std::string& name) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Error{name + ": not a regular file"};
  }
  TraceReader reader(name, fd, static_cast<uint64_t>(info.st_size));
  if (Status status = reader.check_file_header(); !status) return status.error();
  if (!reader.load_index()) {
    reader.damage_.unfinished = true;
    reader.scan();
  }
  std::stable_sort(reader.blocks_.begin(), reader.blocks_.end(), by_process);
  return reader;
}

Status TraceReader::check_file_header() {
  FileHeader header;
  if (!read_at(0, &header, sizeof header)) {
    return Error{path_ + ": too short to be a tidemark trace (" + std::to_string(size_) +
                 " bytes)"};
  }
  FrameHeader first;
  const bool frame_follows = read_frame_header(sizeof header, first);
  if (header.magic != kFileMagic) {
    if (!frame_follows) return Error{path_ + ": not a tidemark trace"};
    damage_.skipped_bytes += sizeof header;
  } else if (header.major != kFormatMajor && !frame_follows) {
    return Error{path_ + ": format " + std::to_string(header.major) +
                 " cannot be read by this version of tidemark, which reads format " +
                 std::to_string(kFormatMajor) + ": update tidemark"};
  }
  return {};
}

std::span<const BlockRef> TraceReader::blocks_of(uint32_t process) const {
  BlockRef any;
  any.process = process;
  const auto [first, last] = std::equal_range(blocks_.begin(), blocks_.end(), any, by_process);
  return std::span(blocks_).subspan(static_cast<size_t>(first - blocks_.begin()),
                                    static_cast<size_t>(last - first));
}

void TraceReader::set_alignment(uint32_t process, const Alignment& clock) {
  if (!clocks_.emplace(process, clock).second) return;
  const auto skipped = static_cast<size_t>(blocks_of(process).data() - blocks_.data());
  for (BlockRef& ref : std::span(blocks_).subspan(skipped, blocks_of(process).size())) {
    // Tables without time have 0 there.
    if (ref.first_ns == 0 && ref.last_ns == 0) continue;
    ref.first_ns = aligned_ns(clock, ref.first_ns);
    ref.last_ns = aligned_ns(clock, ref.last_ns);
  }
}

const Alignment* TraceReader::alignment(uint32_t process) const {
  const auto it = clocks_.find(process);
  return it != clocks_.end() ? &it->second : nullptr;
}

void TraceReader::leave_out(uint32_t process) {
  std::erase_if(blocks_, [&](const BlockRef& block) { return block.process == process; });
  left_out_.insert(process);
}

bool TraceReader::read_at(uint64_t offset, void* out, size_t size) const {
  return tidemark::read_at(fd_, offset, out, size);
}

bool TraceReader::read_frame_header(uint64_t offset, FrameHeader& header) const {
  return offset < size_ && size_ - offset >= sizeof header &&
         read_at(offset, &header, sizeof header) && plausible(header);
}

bool TraceReader::load_index() {
  Trailer trailer;
  if (size_ < sizeof(FileHeader) + sizeof trailer ||
      !read_at(size_ - sizeof trailer, &trailer, sizeof trailer) ||
      trailer.magic != kTrailerMagic ||
      trailer.crc != crc32(&trailer.index_offset, sizeof trailer.index_offset)) {
    return false;
  }
  FrameHeader header;
  if (!read_frame_header(trailer.index_offset, header) ||
      header.kind != static_cast<uint16_t>(BlockKind::kIndex)) {
    return false;
  }
  BlockDecoder decoder(*this);
  const auto entries = decoder.rows<IndexEntry>(ref_of(header, trailer.index_offset));
  if (decoder.damage().any()) return false;

  std::vector<BlockRef> blocks;
  blocks.reserve(entries.size());
  uint64_t end = sizeof(FileHeader);
  for (const IndexEntry& entry : entries) {
    // Frames follow one another without a gap: an index that says otherwise is not trusted.
    if (entry.offset != end || entry.stored_bytes > kMaxPayloadBytes) return false;
    blocks.push_back(ref_of(entry));
    end = end_of(blocks.back());
  }
  if (end != trailer.index_offset) return false;
  blocks_ = std::move(blocks);
  return true;
}

void TraceReader::scan() {
  uint64_t at = sizeof(FileHeader);
  while (at < size_) {
    FrameHeader header;
    if (read_frame_header(at, header)) {
      const BlockRef ref = ref_of(header, at);
      if (end_of(ref) > size_) {
        damage_.truncated = true;
        return;
      }
      if (ref.kind != BlockKind::kIndex) blocks_.push_back(ref);
      at = end_of(ref);
      continue;
    }
    Trailer trailer;
    if (size_ - at >= sizeof trailer && read_at(at, &trailer, sizeof trailer) &&
        trailer.magic == kTrailerMagic) {
      at += sizeof trailer;
      continue;
    }
    const uint64_t next = next_frame(at + 1);
    if (next == size_) {
      damage_.truncated = true;  // no valid frame follows: the same as truncation
      damage_.skipped_bytes += size_ - at;
      return;
    }
    ++damage_.blocks;
    damage_.skipped_bytes += next - at;
    at = next;
  }
}

uint64_t TraceReader::next_frame(uint64_t from) const {
  constexpr size_t kChunk = 1 << 20;
  std::vector<uint8_t> chunk(kChunk + sizeof(FrameHeader));
  for (; from + sizeof(FrameHeader) <= size_; from += kChunk) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(chunk.size(), size_ - from));
    if (!read_at(from, chunk.data(), size)) return size_;
    const uint8_t* p = chunk.data();
    const uint8_t* const last = p + size - sizeof(FrameHeader);
    while (p <= last) {
      p = static_cast<const uint8_t*>(
          std::memchr(p, kFrameMagic & 0xff, static_cast<size_t>(last - p) + 1));
      if (p == nullptr) break;
      FrameHeader header;
      std::memcpy(&header, p, sizeof header);
      const auto offset = static_cast<size_t>(p - chunk.data());
      if (plausible(header) && offset < kChunk) return from + offset;
      ++p;
    }
  }
  return size_;
}

bool looks_like_trace(const std::string& path) {
  uint64_t magic = 0;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool read = read_at(fd, 0, &magic, sizeof magic);
  ::close(fd);
  return read && magic == kFileMagic;
}

}  // namespace tidemark
