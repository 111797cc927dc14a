// The summary of one trace file, kept next to the trace: DIR/.tidemark/NAME.summary.
//
// It lies where the trace lies, so that all nodes of a cluster can write and read it, and goes where
// the directory goes. It belongs to one state of one file and to one version of the code: a summary
// that does not match, or is damaged, is as good as none. It appears under its name only when it is
// complete.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"
#include "proto/read/trace_reader.h"
#include "summary/rank_summary.h"

namespace tidemark {

// The state of a file.
struct FileIdentity {
  uint64_t bytes = 0;
  int64_t changed_ns = 0;
  uint32_t tail = 0;  // checksum of its end, where the index of a trace is, and of its name

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
std::optional<FileIdentity> identity_of(const std::string& path);

struct FileSummary {
  FileIdentity identity;
  // Findings concern the card and the host, too: the files of all processes of the host, each in
  // one state, give this number.
  uint64_t group = 0;
  std::vector<std::string> notes;
  Damage damage;  // of all files of the group; only in the first of them
  uint64_t unknown_blocks = 0;
  std::vector<RankSummary> ranks;  // the processes of the file
};

// Creates the folder of the summaries of a directory.
Status make_summary_folder(const std::string& directory);
Status write_summary(const std::string& trace, FileSummary& summary);
// Nothing: there is none of this state of the trace by this version.
std::optional<FileSummary> read_summary(const std::string& trace, const FileIdentity& identity);

// The frames that the ranks of a job run, which most have in common: one file for all that have the
// same. Returns its number; 0: none.
uint64_t number_of(const FrameHashes& frames);
Status write_frames(const std::string& directory, const FrameHashes& frames);
std::shared_ptr<const FrameHashes> read_frames(const std::string& directory, uint64_t number);

// The same text in storage that lasts, of those that a report consists of.
std::string_view lasting_text(std::string_view text);

}  // namespace tidemark
