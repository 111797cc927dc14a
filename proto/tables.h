// How the members of each row become columns: field numbers and codings of tidemark.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "proto/rows.h"

namespace tidemark {

// How a column's values become varints.
enum class Coding : uint8_t {
  kPlain,   // unsigned, as it is
  kZigzag,  // signed, zigzag: small magnitudes are short
  kDelta,   // difference to the row before (wrapping), zigzag
};

// A member's name as a template argument.
template <size_t N>
struct MemberName {
  char text[N];
  constexpr MemberName(const char (&from)[N]) {  // NOLINT: implicit by design
    for (size_t i = 0; i < N; ++i) text[i] = from[i];
  }
};

template <auto Member, uint32_t Field, Coding How, MemberName Name>
struct Column {
  static constexpr auto member = Member;
  static constexpr uint32_t field = Field;
  static constexpr Coding coding = How;
  static constexpr std::string_view name{Name.text};
};

template <typename Row>
struct Table;

inline constexpr uint32_t kHotRows = 32768;
inline constexpr uint32_t kColdRows = 4096;

// Fields begin at 2: field 1 of every message is the number of rows.
#define TIDEMARK_PLAIN(member, field) Column<&Row::member, field, Coding::kPlain, #member>
#define TIDEMARK_ZIGZAG(member, field) Column<&Row::member, field, Coding::kZigzag, #member>
#define TIDEMARK_DELTA(member, field) Column<&Row::member, field, Coding::kDelta, #member>
#define TIDEMARK_TABLE(row, block_kind, rows, time_member)              \
  template <>                                                           \
  struct Table<row> : TableBase<row, BlockKind::block_kind, rows> {     \
    static constexpr int64_t time(const Row& r) { return time_member; } \
    using Columns = std::tuple <
#define TIDEMARK_END \
  > ;                \
  }

template <typename RowType, BlockKind Kind, uint32_t Rows>
struct TableBase {
  using Row = RowType;
  static constexpr BlockKind kind = Kind;
  static constexpr uint32_t block_rows = Rows;  // a recorder closes a block at this many rows
};

// clang-format off
TIDEMARK_TABLE(Process, kProcesses, 16, r.start_ns)
  TIDEMARK_DELTA(start_ns, 2), TIDEMARK_PLAIN(pid, 3), TIDEMARK_ZIGZAG(rank, 4),
  TIDEMARK_ZIGZAG(local_rank, 5), TIDEMARK_PLAIN(world_size, 6), TIDEMARK_PLAIN(parent_pid, 7),
  TIDEMARK_PLAIN(host, 8), TIDEMARK_PLAIN(command, 9), TIDEMARK_PLAIN(job, 10),
  TIDEMARK_PLAIN(tool_version, 11), TIDEMARK_PLAIN(driver_version, 12),
  TIDEMARK_PLAIN(framework, 13), TIDEMARK_PLAIN(source, 14)
TIDEMARK_END;

TIDEMARK_TABLE(Device, kDevices, 64, (void(r), 0))
  TIDEMARK_ZIGZAG(ordinal, 2), TIDEMARK_PLAIN(total_bytes, 3), TIDEMARK_PLAIN(reserved_bytes, 4),
  TIDEMARK_PLAIN(name, 5), TIDEMARK_PLAIN(uuid, 6), TIDEMARK_PLAIN(bus, 7),
  TIDEMARK_PLAIN(compute_major, 8), TIDEMARK_PLAIN(compute_minor, 9)
TIDEMARK_END;

TIDEMARK_TABLE(Setting, kSettings, 256, (void(r), 0))
  TIDEMARK_PLAIN(key, 2), TIDEMARK_PLAIN(value, 3), TIDEMARK_PLAIN(scope, 4)
TIDEMARK_END;

TIDEMARK_TABLE(Module, kModules, 256, (void(r), 0))
  TIDEMARK_DELTA(id, 2), TIDEMARK_DELTA(base, 3), TIDEMARK_PLAIN(size_bytes, 4),
  TIDEMARK_PLAIN(path, 5), TIDEMARK_PLAIN(build_id, 6)
TIDEMARK_END;

TIDEMARK_TABLE(Frame, kFrames, kColdRows, (void(r), 0))
  TIDEMARK_DELTA(id, 2), TIDEMARK_PLAIN(function, 3), TIDEMARK_PLAIN(file, 4),
  TIDEMARK_PLAIN(module, 5), TIDEMARK_ZIGZAG(line, 6), TIDEMARK_PLAIN(offset, 7),
  TIDEMARK_PLAIN(kind, 8), TIDEMARK_PLAIN(detail, 9)
TIDEMARK_END;

TIDEMARK_TABLE(Stack, kStacks, kColdRows, (void(r), 0))
  TIDEMARK_DELTA(id, 2), TIDEMARK_DELTA(parent, 3), TIDEMARK_PLAIN(frame, 4),
  TIDEMARK_PLAIN(nn_module, 5)
TIDEMARK_END;

TIDEMARK_TABLE(NnModule, kNnModules, kColdRows, (void(r), 0))
  TIDEMARK_DELTA(id, 2), TIDEMARK_PLAIN(path, 3), TIDEMARK_PLAIN(class_name, 4),
  TIDEMARK_PLAIN(root, 5)
TIDEMARK_END;

TIDEMARK_TABLE(Thread, kThreads, 256, (void(r), 0))
  TIDEMARK_DELTA(tid, 2), TIDEMARK_PLAIN(name, 3)
TIDEMARK_END;

TIDEMARK_TABLE(Pool, kPools, 256, (void(r), 0))
  TIDEMARK_DELTA(id, 2), TIDEMARK_PLAIN(first, 3), TIDEMARK_PLAIN(second, 4),
  TIDEMARK_PLAIN(name, 5)
TIDEMARK_END;

TIDEMARK_TABLE(DriverEvent, kDriverEvents, kColdRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_DELTA(address, 3), TIDEMARK_PLAIN(size_bytes, 4),
  TIDEMARK_DELTA(handle, 5), TIDEMARK_DELTA(stream, 6), TIDEMARK_PLAIN(offset, 7),
  TIDEMARK_ZIGZAG(device, 8), TIDEMARK_PLAIN(context, 9), TIDEMARK_PLAIN(pool, 10),
  TIDEMARK_DELTA(thread, 11), TIDEMARK_PLAIN(stack, 12), TIDEMARK_PLAIN(owner, 13),
  TIDEMARK_PLAIN(result, 14), TIDEMARK_PLAIN(flags, 15), TIDEMARK_DELTA(correlation, 16),
  TIDEMARK_PLAIN(operation, 17), TIDEMARK_PLAIN(kind, 18)
TIDEMARK_END;

TIDEMARK_TABLE(FrameworkEvent, kFrameworkEvents, kHotRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_DELTA(address, 3), TIDEMARK_PLAIN(size_bytes, 4),
  TIDEMARK_PLAIN(block_bytes, 5), TIDEMARK_DELTA(stream, 6), TIDEMARK_ZIGZAG(device, 7),
  TIDEMARK_PLAIN(stack, 8), TIDEMARK_PLAIN(forward_stack, 9), TIDEMARK_PLAIN(pool, 10),
  TIDEMARK_DELTA(thread, 11), TIDEMARK_PLAIN(compile_context, 12), TIDEMARK_PLAIN(metadata, 13),
  TIDEMARK_PLAIN(action, 14), TIDEMARK_PLAIN(category, 15)
TIDEMARK_END;

TIDEMARK_TABLE(OutOfMemory, kOutOfMemory, 64, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_ZIGZAG(device, 3), TIDEMARK_PLAIN(requested_bytes, 4),
  TIDEMARK_PLAIN(allocated_bytes, 5), TIDEMARK_PLAIN(reserved_bytes, 6),
  TIDEMARK_PLAIN(device_free_bytes, 7), TIDEMARK_PLAIN(device_total_bytes, 8),
  TIDEMARK_PLAIN(limit_bytes, 9), TIDEMARK_PLAIN(largest_hole_bytes, 10),
  TIDEMARK_DELTA(stream, 11), TIDEMARK_PLAIN(stack, 12), TIDEMARK_DELTA(thread, 13),
  TIDEMARK_PLAIN(layer, 14)
TIDEMARK_END;

TIDEMARK_TABLE(SegmentState, kSegmentStates, kColdRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_DELTA(address, 3), TIDEMARK_PLAIN(size_bytes, 4),
  TIDEMARK_PLAIN(allocated_bytes, 5), TIDEMARK_PLAIN(active_bytes, 6),
  TIDEMARK_PLAIN(requested_bytes, 7), TIDEMARK_DELTA(stream, 8), TIDEMARK_ZIGZAG(device, 9),
  TIDEMARK_PLAIN(pool, 10), TIDEMARK_PLAIN(stack, 11), TIDEMARK_PLAIN(flags, 12)
TIDEMARK_END;

TIDEMARK_TABLE(BlockState, kBlockStates, kColdRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_DELTA(address, 3), TIDEMARK_PLAIN(size_bytes, 4),
  TIDEMARK_PLAIN(requested_bytes, 5), TIDEMARK_ZIGZAG(device, 6), TIDEMARK_PLAIN(stack, 7),
  TIDEMARK_PLAIN(condition, 8)
TIDEMARK_END;

TIDEMARK_TABLE(Counter, kCounters, kColdRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_DELTA(value, 3), TIDEMARK_PLAIN(subject, 4),
  TIDEMARK_ZIGZAG(device, 5), TIDEMARK_PLAIN(kind, 6)
TIDEMARK_END;

TIDEMARK_TABLE(Kernel, kKernels, kHotRows, r.start_ns)
  TIDEMARK_DELTA(start_ns, 2), TIDEMARK_PLAIN(duration_ns, 3), TIDEMARK_DELTA(stream, 4),
  TIDEMARK_DELTA(graph_node, 5), TIDEMARK_PLAIN(local_memory_bytes, 6),
  TIDEMARK_ZIGZAG(device, 7), TIDEMARK_PLAIN(name, 8), TIDEMARK_PLAIN(context, 9),
  TIDEMARK_DELTA(correlation, 10), TIDEMARK_PLAIN(grid_x, 11), TIDEMARK_PLAIN(grid_y, 12),
  TIDEMARK_PLAIN(grid_z, 13), TIDEMARK_PLAIN(block_x, 14), TIDEMARK_PLAIN(block_y, 15),
  TIDEMARK_PLAIN(block_z, 16), TIDEMARK_PLAIN(shared_bytes, 17), TIDEMARK_PLAIN(registers, 18)
TIDEMARK_END;

TIDEMARK_TABLE(Copy, kCopies, kColdRows, r.start_ns)
  TIDEMARK_DELTA(start_ns, 2), TIDEMARK_PLAIN(duration_ns, 3), TIDEMARK_PLAIN(size_bytes, 4),
  TIDEMARK_DELTA(stream, 5), TIDEMARK_ZIGZAG(device, 6), TIDEMARK_PLAIN(context, 7),
  TIDEMARK_DELTA(correlation, 8), TIDEMARK_PLAIN(kind, 9)
TIDEMARK_END;

TIDEMARK_TABLE(Communicator, kCommunicators, 64, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_PLAIN(id, 3), TIDEMARK_PLAIN(ranks, 4),
  TIDEMARK_ZIGZAG(rank, 5), TIDEMARK_PLAIN(nodes, 6), TIDEMARK_ZIGZAG(device, 7),
  TIDEMARK_PLAIN(name, 8)
TIDEMARK_END;

TIDEMARK_TABLE(NcclOperation, kNcclOperations, kColdRows, r.start_ns)
  TIDEMARK_DELTA(start_ns, 2), TIDEMARK_PLAIN(duration_ns, 3), TIDEMARK_DELTA(gpu_start_ns, 4),
  TIDEMARK_PLAIN(gpu_duration_ns, 5), TIDEMARK_DELTA(communicator, 6),
  TIDEMARK_DELTA(sequence, 7), TIDEMARK_PLAIN(count, 8), TIDEMARK_PLAIN(size_bytes, 9),
  TIDEMARK_DELTA(send_address, 10), TIDEMARK_DELTA(receive_address, 11),
  TIDEMARK_DELTA(stream, 12), TIDEMARK_ZIGZAG(peer, 13), TIDEMARK_ZIGZAG(device, 14),
  TIDEMARK_PLAIN(function, 15), TIDEMARK_PLAIN(datatype, 16), TIDEMARK_PLAIN(algorithm, 17),
  TIDEMARK_PLAIN(protocol, 18), TIDEMARK_PLAIN(channels, 19), TIDEMARK_DELTA(thread, 20),
  TIDEMARK_PLAIN(kind, 21), TIDEMARK_DELTA(group, 22)
TIDEMARK_END;

TIDEMARK_TABLE(Mark, kMarks, kColdRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_DELTA(correlation, 3), TIDEMARK_ZIGZAG(device, 4),
  TIDEMARK_PLAIN(name, 5), TIDEMARK_PLAIN(domain, 6), TIDEMARK_DELTA(thread, 7),
  TIDEMARK_PLAIN(phase, 8), TIDEMARK_PLAIN(kind, 9)
TIDEMARK_END;

TIDEMARK_TABLE(TensorTag, kTensorTags, kColdRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_DELTA(address, 3), TIDEMARK_PLAIN(size_bytes, 4),
  TIDEMARK_ZIGZAG(device, 5), TIDEMARK_PLAIN(name, 6), TIDEMARK_PLAIN(category, 7),
  TIDEMARK_PLAIN(nn_module, 8)
TIDEMARK_END;

TIDEMARK_TABLE(ClockSample, kClockSamples, 256, r.realtime_ns)
  TIDEMARK_DELTA(realtime_ns, 2), TIDEMARK_DELTA(monotonic_ns, 3),
  TIDEMARK_PLAIN(uncertainty_ns, 4)
TIDEMARK_END;

TIDEMARK_TABLE(Alignment, kAlignments, 16, r.reference_ns)
  TIDEMARK_DELTA(reference_ns, 2), TIDEMARK_ZIGZAG(offset_ns, 3), TIDEMARK_ZIGZAG(drift_ppb, 4),
  TIDEMARK_PLAIN(residual_ns, 5), TIDEMARK_PLAIN(samples, 6), TIDEMARK_PLAIN(method, 7)
TIDEMARK_END;

TIDEMARK_TABLE(Health, kHealth, 256, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_PLAIN(value, 3), TIDEMARK_PLAIN(detail, 4),
  TIDEMARK_PLAIN(kind, 5)
TIDEMARK_END;

TIDEMARK_TABLE(Summary, kSummaries, kColdRows, r.time_ns)
  TIDEMARK_DELTA(time_ns, 2), TIDEMARK_ZIGZAG(device, 3), TIDEMARK_DELTA(allocated_bytes, 4),
  TIDEMARK_DELTA(reserved_bytes, 5), TIDEMARK_DELTA(device_used_bytes, 6),
  TIDEMARK_DELTA(lowest_bytes, 7), TIDEMARK_DELTA(highest_bytes, 8), TIDEMARK_DELTA(steps, 9)
TIDEMARK_END;

TIDEMARK_TABLE(IndexEntry, kIndex, kColdRows, (void(r), 0))
  TIDEMARK_DELTA(offset, 2), TIDEMARK_PLAIN(stored_bytes, 3), TIDEMARK_DELTA(first_ns, 4),
  TIDEMARK_DELTA(last_ns, 5), TIDEMARK_PLAIN(block_rows, 6), TIDEMARK_DELTA(process, 7),
  TIDEMARK_PLAIN(block_kind, 8)
TIDEMARK_END;
// clang-format on

#undef TIDEMARK_PLAIN
#undef TIDEMARK_ZIGZAG
#undef TIDEMARK_DELTA
#undef TIDEMARK_TABLE
#undef TIDEMARK_END

template <typename... Rows>
struct RowList {};

// Every table except the strings, which contain text and have a separate codec.
using RecordedRows = RowList<Process, Device, Setting, Module, Frame, Stack, Thread, Pool,
                             DriverEvent, FrameworkEvent, OutOfMemory, SegmentState, BlockState,
                             Counter, Kernel, Copy, Communicator, NcclOperation, Mark, TensorTag,
                             ClockSample, Alignment, Health, Summary, NnModule>;

}  // namespace tidemark
