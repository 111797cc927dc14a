// The ring of a recording process: a file next to its trace that holds what is not in the trace
// yet.
//
//   RingHeader | ChunkControl × n | released × n (slot 0) | released × n (slot 1) | pad | chunk × n
//
// The recorder maps the file shared and writes to it with atomic operations. When the process dies,
// everything it had committed stays in the file, and recovery moves it into the trace. Three rules
// make that exact whenever a SIGKILL comes:
//   1. A record counts once its chunk's `commit` word covers it: one 64-bit store, made after the
//      record's bytes.
//   2. The trace counts up to `file_bytes` of the active checkpoint slot, which also says how much
//      of each chunk those bytes contain. A slot is filled while inactive and made active by one
//      store.
//   3. A chunk is reused only after an active slot covers it, and then under a new generation; a
//      generation that the slot does not know has nothing in the trace yet.
// A recording with a limited window replaces its trace by a shorter one from time to time. The new
// file (kNextSuffix) is complete before the checkpoint that counts it becomes active, and gets the
// trace's name after that. So the checkpoint's generation says which of the two files counts.
// The layout belongs to one version of tidemark: `layout` is a fingerprint of the rows, and a ring
// with another one is rejected. All numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tuple>

#include "proto/base/crc32.h"
#include "proto/table_names.h"
#include "proto/tables.h"

namespace tidemark::ring {

// The ring of run.tmk is run.tmk.ring.
inline constexpr std::string_view kSuffix = ".ring";
// The file that will replace run.tmk is run.tmk.next.
inline constexpr std::string_view kNextSuffix = ".next";

inline constexpr uint64_t kMagic = 0x474e49524b4d4954;  // "TIMKRING"
inline constexpr uint32_t kVersion = 2;

inline constexpr size_t kHeaderBytes = 4096;
inline constexpr size_t kKinds = 64;  // every BlockKind is below
inline constexpr uint32_t kMinChunkBytes = 16 << 10;
inline constexpr uint32_t kMaxChunkBytes = 64 << 10;
inline constexpr uint32_t kMaxChunks = 1 << 18;
inline constexpr size_t kChunkAlignment = 64 << 10;  // the largest page size in use

// ChunkControl::commit, and the entries of the released tables (without the sealed bit):
//   63 … 32 generation | 31 sealed | 30 … 0 bytes committed
inline constexpr uint64_t kSealed = 1ULL << 31;
constexpr uint64_t commit_word(uint32_t generation, uint32_t bytes) {
  return (static_cast<uint64_t>(generation) << 32) | bytes;
}
constexpr uint32_t generation_of(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}
constexpr uint32_t bytes_of(uint64_t word) {
  return static_cast<uint32_t>(word & (kSealed - 1));
}

// One cache line each: threads that fill neighbouring chunks must not share one.
struct alignas(64) ChunkControl {
  uint64_t commit;
  uint64_t sequence;  // order in which chunks were taken; a thread's records are in this order
  uint32_t thread;
  uint32_t reserved[11];
};
static_assert(sizeof(ChunkControl) == 64);

// Precedes each record. Records begin and end at multiples of eight bytes.
struct RecordHeader {
  uint16_t kind;  // BlockKind
  uint16_t reserved;
  uint32_t bytes;  // header, content, padding
};
static_assert(sizeof(RecordHeader) == 8);

// Content of a kStrings record; the text follows.
struct StringHead {
  uint32_t id;
  uint32_t size;
};

constexpr uint32_t record_bytes(size_t content) {
  return static_cast<uint32_t>((sizeof(RecordHeader) + content + 7) & ~size_t{7});
}

struct Checkpoint {
  uint64_t file_bytes;                // of the trace: bytes beyond are not counted
  uint64_t rows;                      // in those bytes
  uint64_t dropped_reported[kKinds];  // how much of RingHeader::dropped has its row in those bytes
  uint32_t generation;                // of the trace, FileHeader::generation
  uint32_t crc;                       // of the members above and of the slot's released table
};

enum class RingState : uint32_t {
  kStarting = 0,  // nothing recorded yet
  kLive = 1,
};

// Members marked * are written while the process records, by atomic operations.
struct RingHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t state;  // * RingState
  uint64_t layout;
  uint64_t total_bytes;
  uint64_t chunks_offset;
  uint32_t chunk_bytes;
  uint32_t chunk_count;

  // The process that writes here. The start time distinguishes it from a later process with the
  // same pid; boot and namespace say whether the pid means anything to the reader.
  uint32_t pid;
  uint32_t write_error;          // * errno that ended the writing of the trace; 0: none
  uint64_t pid_namespace;        // inode of /proc/self/ns/pid
  uint64_t process_start_ticks;  // field 22 of /proc/self/stat
  char boot_id[40];
  char host[64];
  int64_t start_ns;

  int64_t heartbeat_ns;      // * CLOCK_REALTIME, about once per second
  uint32_t active_slot;      // * 0 or 1
  uint32_t strings_used;     // * greatest string id in use
  uint64_t dropped[kKinds];  // * rows lost because the ring was full, by kind
  Checkpoint slots[2];
};
static_assert(sizeof(RingHeader) <= kHeaderBytes);

constexpr uint64_t controls_offset() {
  return kHeaderBytes;
}
constexpr uint64_t released_offset(uint64_t chunk_count, uint64_t slot) {
  return controls_offset() + chunk_count * (sizeof(ChunkControl) + slot * sizeof(uint64_t));
}
constexpr uint64_t chunks_offset(uint64_t chunk_count) {
  return (released_offset(chunk_count, 2) + kChunkAlignment - 1) / kChunkAlignment *
         kChunkAlignment;
}

// `released` is the slot's table.
inline uint32_t checkpoint_crc(const Checkpoint& slot, const uint64_t* released,
                               size_t chunk_count) noexcept {
  const uint32_t parts[2] = {crc32(&slot, offsetof(Checkpoint, crc)),
                             crc32(released, chunk_count * sizeof(uint64_t))};
  return crc32(parts, sizeof parts);
}

namespace detail {
constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x100000001b3;
}

template <typename Row, typename ColumnType>
constexpr uint64_t mix_column(uint64_t hash) {
  for (const char c : std::string_view(ColumnType::name)) {
    hash = mix(hash, static_cast<uint64_t>(c));
  }
  return mix(mix(hash, ColumnType::field), sizeof(Row{}.*ColumnType::member));
}

template <typename Row, typename... Columns>
constexpr uint64_t mix_row(uint64_t hash, std::tuple<Columns...>*) {
  hash = mix(mix(hash, static_cast<uint64_t>(Table<Row>::kind)), sizeof(Row));
  ((hash = mix_column<Row, Columns>(hash)), ...);
  return hash;
}

template <typename... Rows>
constexpr uint64_t mix_rows(uint64_t hash, RowList<Rows...>) {
  ((hash = mix_row<Rows>(hash, static_cast<typename Table<Rows>::Columns*>(nullptr))), ...);
  return hash;
}
}  // namespace detail

// Fingerprint of the rows' layout in memory, as the records hold them.
inline constexpr uint64_t kLayout = detail::mix_rows(0xcbf29ce484222325, RecordedRows{});

// Decodes one record: calls on_row(row) or on_string(id, text) and returns the record's bytes, or 0
// if the first `available` bytes are not a record. Trusts nothing.
template <typename OnRow, typename OnString>
uint32_t visit_record(const uint8_t* at, size_t available, OnRow&& on_row, OnString&& on_string) {
  RecordHeader header;
  if (available < sizeof header) return 0;
  std::memcpy(&header, at, sizeof header);
  if (header.bytes > available || header.bytes % 8 != 0) return 0;
  const uint8_t* const content = at + sizeof header;
  const auto kind = static_cast<BlockKind>(header.kind);
  bool known = false;
  if (kind == BlockKind::kStrings) {
    StringHead head;
    if (header.bytes < record_bytes(sizeof head)) return 0;
    std::memcpy(&head, content, sizeof head);
    if (head.size > available || header.bytes != record_bytes(sizeof head + head.size)) return 0;
    on_string(head.id,
              std::string_view(reinterpret_cast<const char*>(content + sizeof head), head.size));
    return header.bytes;
  }
  [&]<typename... Rows>(RowList<Rows...>) {
    const auto try_row = [&]<typename Row>(Row row) {
      if (header.bytes != record_bytes(sizeof row)) return;
      std::memcpy(&row, content, sizeof row);
      known = true;
      on_row(row);
    };
    static_cast<void>(((kind == Table<Rows>::kind && (try_row(Rows{}), true)) || ...));
  }(RecordedRows{});
  return known ? header.bytes : 0;
}

}  // namespace tidemark::ring
