// The result of replaying a large trace, kept in files, so that opening the trace again needs no
// replay.
//
// The index of one trace file is a directory in the user's cache: one file per column of each
// device's model (analysis/history/allocation_history.h), in their in-memory layout, and a manifest
// that says what they belong to. The columns are written during the replay, under a temporary name,
// and renamed when all are written: an index is complete or absent. It belongs to exactly one state
// of one trace file (path, size, time, checksum), read on one clock by one version of the replay.
// An index that does not match is ignored, and a new one is made. The least recently used are
// removed when all together exceed their limit.
//
// Columns are read as the replay wrote them, so only files owned by the user are trusted, and their
// checksums are compared unless that was done since (analysis/load/index_stamp.h). Names,
// marks, counters and other tables are not in the index: they are read from the trace. Of kernels,
// which may be as numerous as events, it has what the model keeps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/history/allocation_history.h"
#include "analysis/load/index_options.h"
#include "analysis/load/precision.h"
#include "proto/read/trace_reader.h"

namespace tidemark {

// The result of a pass over all kernels of a process.
struct KernelFacts {
  ComputeTime compute;
  std::vector<NcclOperation> nccl;  // with the times of their kernels
};

class TraceIndex {
 public:
  // Empty: this trace has no index.
  static std::optional<TraceIndex> open(const TraceReader& reader, const IndexOptions& options);

  // The models of one process; call once per process.
  std::vector<AllocationHistory> take(uint32_t process);
  KernelFacts take_kernels(uint32_t process);
  // Damage found while events and kernels were read.
  const Damage& damage() const { return damage_; }

 private:
  struct StoredModel {
    uint32_t process = 0;
    AllocationHistory model;
  };

  std::vector<StoredModel> models_;
  std::map<uint32_t, KernelFacts> kernels_;  // by process
  Damage damage_;
};

class TraceIndexWriter {
 public:
  // Null: the trace is small, or there is no space for an index.
  static std::unique_ptr<TraceIndexWriter> create(const TraceReader& reader,
                                                  const IndexOptions& options);
  // Removes unfinished files.
  ~TraceIndexWriter();
  TraceIndexWriter(const TraceIndexWriter&) = delete;
  TraceIndexWriter& operator=(const TraceIndexWriter&) = delete;

  // Puts the columns of a still empty model into files of the index.
  void adopt(AllocationHistory& model, uint32_t process);

  // Stores one process: its models, each adopted and complete, and its kernels. Closes their files:
  // a job may have more ranks than a process may have open files.
  void keep(uint32_t process, std::span<AllocationHistory> models, const ComputeTime& compute,
            std::span<const NcclOperation> nccl);
  // Computes the checksums of the columns, waits for the disk and renames the index. Reads files
  // only: it may run on any thread. False: there is no index; the models remain usable.
  bool finish(const Damage& damage);

 private:
  // Of a file whose checksum is still missing in kept_.
  struct StoredColumn {
    std::string path;
    size_t bytes = 0;
    size_t checksum_at = 0;  // in kept_
  };

  TraceIndexWriter(IndexOptions options, std::string identity);
  void keep_model(uint32_t process, AllocationHistory& model);
  bool add_checksums();

  IndexOptions options_;
  std::string identity_;
  std::string temporary_;  // directory; empty: none
  std::string kept_;       // the manifest's part on the processes
  std::vector<StoredColumn> columns_;
  uint64_t processes_ = 0;
  bool good_ = true;
};

// Whether an index for this trace would be kept, so that its columns need not fit into memory.
bool is_indexable(const TraceReader& reader, const IndexOptions& options);

}  // namespace tidemark
