// Opens a trace file, complete or damaged, and finds its blocks.
//
// The reader holds a file descriptor and the list of blocks; it reads no payload. A finished file
// is opened by its index, any other by scanning from frame to frame; after a damaged frame the scan
// continues at the next one that can be trusted. Immutable after open: many BlockDecoders may share
// it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "proto/base/result.h"
#include "proto/frame.h"
#include "proto/tables.h"

namespace tidemark {

struct BlockRef {
  uint64_t offset = 0;  // of the frame header
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  uint32_t stored_bytes = 0;
  uint32_t rows = 0;
  uint32_t process = 0;
  BlockKind kind = BlockKind::kNone;
};

// What could not be read. Every count is shown to the user.
struct Damage {
  uint64_t blocks = 0;         // damaged blocks
  uint64_t rows = 0;           // rows of damaged blocks whose header was still good
  uint64_t skipped_bytes = 0;  // bytes between blocks that are not a block
  bool truncated = false;      // the file ends inside a block
  bool unfinished = false;     // no index: the recording was interrupted

  bool any() const { return blocks != 0 || skipped_bytes != 0 || truncated; }
  Damage& operator+=(const Damage& other);
};

class TraceReader {
 public:
  static Result<TraceReader> open(const std::string& path);
  // Takes ownership of the descriptor; `name` is for error messages and reports.
  static Result<TraceReader> from_fd(int fd, const std::string& name);

  TraceReader(TraceReader&& other) noexcept;
  TraceReader& operator=(TraceReader&& other) noexcept;
  ~TraceReader();

  // Process by process; those of one process in the order of the file.
  std::span<const BlockRef> blocks() const { return blocks_; }
  std::span<const BlockRef> blocks_of(uint32_t process) const;
  const Damage& damage() const { return damage_; }
  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return size_; }

  // From now on the times of this process are converted to the clock of its job: those of blocks()
  // and of every row that a decoder returns. Copied frames stay raw. Call it once per process,
  // before any decoder is created.
  void set_alignment(uint32_t process, const Alignment& clock);
  // nullptr: times are as stored in the file.
  const Alignment* alignment(uint32_t process) const;

  // Hides the blocks of a process, as if the file did not have it. Call before creating a decoder.
  void leave_out(uint32_t process);
  const std::set<uint32_t>& left_out() const { return left_out_; }

  // True if all `size` bytes at `offset` were read.
  bool read_at(uint64_t offset, void* out, size_t size) const;

 private:
  TraceReader(std::string path, int fd, uint64_t size);
  Status check_file_header();
  bool load_index();
  void scan();
  uint64_t next_frame(uint64_t from) const;
  bool read_frame_header(uint64_t offset, FrameHeader& header) const;

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::vector<BlockRef> blocks_;
  std::map<uint32_t, Alignment> clocks_;
  std::set<uint32_t> left_out_;
  Damage damage_;
};

// True if the file begins like a trace. To distinguish kinds of input.
bool looks_like_trace(const std::string& path);

}  // namespace tidemark
