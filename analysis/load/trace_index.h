// What replaying a large trace gave, kept in files, so that opening the trace again takes no
// replay.
//
// The index of one trace file is a directory in the user's cache: one file per column of each
// device's model (analysis/history/allocation_history.h), as they lie in memory, and a manifest
// that tells what they belong to. The columns are written while the replay goes on, under a name of
// their own, and take their final name when all is written: an index is whole or it is not there.
// It belongs to exactly one state of one trace file (path, size, time, checksum), read on one clock
// by one version of the replay; whatever does not fit is left alone and made again. The least
// recently used go when all together take more than they may.
//
// Columns are as the replay left them, so only files that are the user's own are believed. Names,
// marks, counters and other tables are not in the index: they are read from the trace. Of kernels,
// which may be as many as events, it has what the model keeps.
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

// What a walk through all kernels of a process gave.
struct KernelFacts {
  ComputeTime compute;
  std::vector<NcclOperation> nccl;  // with the times of their kernels
};

class TraceIndex {
 public:
  // Empty: there is none for this trace.
  static std::optional<TraceIndex> open(const TraceReader& reader, const IndexOptions& options);

  // The models of one process, once.
  std::vector<AllocationHistory> take(uint32_t process);
  KernelFacts take_kernels(uint32_t process);
  // Met when events and kernels were read.
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
  // Null: the trace is small, or the index would find no place.
  static std::unique_ptr<TraceIndexWriter> create(const TraceReader& reader,
                                                  const IndexOptions& options);
  // Unfinished files are removed.
  ~TraceIndexWriter();
  TraceIndexWriter(const TraceIndexWriter&) = delete;
  TraceIndexWriter& operator=(const TraceIndexWriter&) = delete;

  // The columns of a model that is still empty will lie in files of the index.
  void adopt(AllocationHistory& model, uint32_t process);

  // What is kept of one process: its models, each of those adopted and complete, and its kernels.
  // Their files are closed: a job may have more ranks than a process may have files open.
  void keep(uint32_t process, std::span<AllocationHistory> models, const ComputeTime& compute,
            std::span<const NcclOperation> nccl);
  // Waits for the disk, and gives the index its name. False: there is no index, and the models are
  // as good.
  bool finish(const Damage& damage);

 private:
  TraceIndexWriter(IndexOptions options, std::string identity);

  IndexOptions options_;
  std::string identity_;
  std::string temporary_;  // directory; empty: none
  std::string kept_;       // what the manifest says of the processes
  uint64_t processes_ = 0;
  bool good_ = true;
};

// True when an index for this trace would be kept: its columns need not fit into memory.
bool is_indexable(const TraceReader& reader, const IndexOptions& options);

}  // namespace tidemark
