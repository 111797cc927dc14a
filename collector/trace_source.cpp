#include "collector/trace_source.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include "collector/alignment.h"
#include "collector/byte_source.h"
#include "collector/job.h"
#include "collector/recovery.h"
#include "collector/snapshot_import.h"
#include "proto/base/byte_sink.h"
#include "proto/base/output_file.h"
#include "proto/read/block_decoder.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

bool named_like_input(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".tmk") || name.ends_with(".pickle") || name.ends_with(".pickle.gz") ||
         name.ends_with(".pkl") || name.ends_with(".pkl.gz");
}

// A snapshot does not say which rank it is of; its name often does: "snapshot_rank3.pickle".
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

Result<TraceReader> open_snapshot(const std::string& path) {
  const int fd = ::memfd_create("tidemark-import", MFD_CLOEXEC);
  if (fd < 0) return Error{fmt::format("{}: {}", path, std::strerror(errno))};
  if (Status status = import_to_fd(path, fd, path); !status) {
    ::close(fd);
    return status.error();
  }
  return TraceReader::from_fd(fd, path);
}

// Each file of a job stays open: a thousand ranks need more than the usual 1,024 descriptors.
void allow_many_files() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

// The clocks that an earlier merge found.
void apply_stored_clocks(TraceReader& reader) {
  std::map<uint32_t, Alignment> clocks;
  {
    BlockDecoder decoder(reader);
    for_each_block<Alignment>(reader, decoder, 0, [&](auto rows, const BlockRef& ref) {
      if (!rows.empty()) clocks[ref.process] = rows.back();
    });
  }
  for (const auto& [process, clock] : clocks) reader.set_alignment(process, clock);
}

// "rank10" comes before "rank2" by name; here ranks stand in their order, and who has none behind.
std::vector<std::vector<RankFacts>> facts_in_order(std::vector<TraceReader>& readers) {
  std::vector<std::pair<std::vector<RankFacts>, size_t>> order;
  for (size_t i = 0; i < readers.size(); ++i) order.emplace_back(read_rank_facts(readers[i]), i);
  const auto rank_of = [](const auto& entry) {
    return entry.first.empty() ? UINT64_MAX : static_cast<uint64_t>(entry.first[0].info.rank);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  std::vector<TraceReader> sorted;
  std::vector<std::vector<RankFacts>> facts;
  for (auto& [of_file, i] : order) {
    sorted.push_back(std::move(readers[i]));
    facts.push_back(std::move(of_file));
  }
  readers = std::move(sorted);
  return facts;
}

// Leaves out the files that are of another job, and puts the others on one clock.
void join_ranks(TraceSource& source) {
  const std::vector<std::vector<RankFacts>> facts = facts_in_order(source.readers);
  std::vector<JobMember> members;
  std::vector<size_t> reader_of;
  for (size_t i = 0; i < facts.size(); ++i) {
    for (const RankFacts& f : facts[i]) {
      members.push_back({fs::path(source.readers[i].path()).filename().string(), &f});
      reader_of.push_back(i);
    }
  }
  const JobCheck check = check_job(members);
  source.warnings.insert(source.warnings.end(), check.notes.begin(), check.notes.end());
  std::vector<bool> wanted(source.readers.size(), false);
  std::vector<const RankFacts*> ranks;
  std::vector<size_t> places;
  for (size_t i = 0; i < members.size(); ++i) {
    if (check.foreign[i]) continue;
    wanted[reader_of[i]] = true;
    ranks.push_back(members[i].facts);
    places.push_back(reader_of[i]);
  }
  const ClockAlignment aligned = align_clocks(ranks);
  source.warnings.insert(source.warnings.end(), aligned.warnings.begin(), aligned.warnings.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (aligned.clocks[i].method == AlignmentMethod::kNone) continue;
    source.readers[places[i]].set_alignment(ranks[i]->process, aligned.clocks[i]);
  }
  std::vector<TraceReader> kept;
  for (size_t i = 0; i < source.readers.size(); ++i) {
    if (wanted[i]) kept.push_back(std::move(source.readers[i]));
  }
  if (!kept.empty()) source.readers = std::move(kept);
}

Result<TraceSource> open_directory(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (named_like_input(entry.path())) files.push_back(entry.path().string());
  }
  if (error) return Error{fmt::format("{}: {}", path, error.message())};
  std::sort(files.begin(), files.end());
  allow_many_files();
  TraceSource source;
  for (const std::string& file : files) {
    Result<TraceReader> reader = open_trace_file(file);
    if (reader) {
      if (reader->damage().truncated) {
        source.warnings.push_back(file + ": cut off; what is before the cut is used");
      }
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
  if (source.readers.size() > 1) {
    join_ranks(source);
  } else {
    apply_stored_clocks(source.readers.front());
  }
  return source;
}

}  // namespace

Result<TraceReader> open_trace_file(const std::string& path) {
  if (!looks_like_trace(path) && !path.ends_with(".tmk")) return open_snapshot(path);
  // What a killed process left in its ring belongs to its trace. Where that cannot be done (no
  // right to write, say), what is in the file is still worth reading.
  static_cast<void>(recover_file(path));
  return TraceReader::open(path);
}

Result<TraceSource> open_trace(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return open_directory(path);
  Result<TraceReader> reader = open_trace_file(path);
  if (!reader) return reader.error();
  apply_stored_clocks(*reader);
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
