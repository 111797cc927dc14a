#include "collector/trace_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "collector/job/alignment.h"
#include "collector/job/job.h"
#include "collector/recover/trace_file.h"
#include "proto/read/block_decoder.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

// Each file of a job stays open: a thousand ranks need more than the usual 1,024 descriptors.
void allow_many_files() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

// Uses the alignment that an earlier merge stored.
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

// "rank10" sorts before "rank2" by name. Sorts by rank; processes without a rank come last.
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

// Leaves out the files of other jobs, and aligns the clocks of the rest.
void join_ranks(TraceSource& source) {
  const std::vector<std::vector<RankFacts>> facts = facts_in_order(source.readers);
  std::vector<JobMember> members;
  std::vector<size_t> reader_of;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].empty()) {
      source.warnings.push_back(note_on_empty_trace(source.readers[i].path()));
      source.incomplete = true;
    }
    for (const RankFacts& f : facts[i]) {
      members.push_back({fs::path(source.readers[i].path()).filename().string(), &f});
      reader_of.push_back(i);
    }
  }
  const JobCheck check = check_job(members);
  source.warnings.insert(source.warnings.end(), check.notes.begin(), check.notes.end());
  source.incomplete |= check.ranks_missing;
  if (!check.other_jobs.empty()) {
    source.jobs = check.other_jobs;
    source.jobs.insert(source.jobs.begin(), check.job);
  }
  std::vector<bool> wanted(source.readers.size(), false);
  std::vector<const RankFacts*> ranks;
  std::vector<size_t> places;
  for (size_t i = 0; i < members.size(); ++i) {
    if (check.foreign[i]) {
      source.readers[reader_of[i]].leave_out(members[i].facts->process);
      continue;
    }
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

// Windows that were sealed have the names of the traces beside their folder.
bool has_other_inputs(const fs::path& directory) {
  std::error_code error;
  const fs::directory_iterator entries(directory, error);
  return !error && std::any_of(begin(entries), end(entries), [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    std::error_code unknown;
    const bool sealed =
        name.ends_with(".tmk") && fs::exists(directory.parent_path() / name, unknown);
    return is_input_name(name) && !sealed;
  });
}

std::string note_on_directories(std::vector<std::string> names) {
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  constexpr size_t kMostNamed = 3;
  const size_t more = names.size() - std::min(names.size(), kMostNamed);
  names.resize(names.size() - more);
  return fmt::format("traces in sub-directories are not read: {}{}", fmt::join(names, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

Result<TraceSource> open_directory(const std::string& path) {
  std::vector<std::string> files;
  std::vector<std::string> directories;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code unknown;
    if (is_input_name(name)) {
      files.push_back(entry.path().string());
    } else if (entry.is_directory(unknown) && has_other_inputs(entry.path())) {
      directories.push_back(name);
    }
  }
  if (error) return Error{fmt::format("{}: {}", path, error.message())};
  if (files.empty()) {
    return Error{path + ": no trace (.tmk) and no snapshot (.pickle) in this directory"};
  }
  Result<TraceSource> source = open_traces(std::move(files));
  const std::string note = note_on_directories(std::move(directories));
  if (source && !note.empty()) source->warnings.push_back(note);
  return source;
}

}  // namespace

Result<TraceSource> open_traces(std::vector<std::string> files) {
  std::sort(files.begin(), files.end());
  allow_many_files();
  TraceSource source;
  for (const std::string& file : files) {
    Result<TraceReader> reader = open_trace_file(file, source.warnings);
    if (reader) {
      if (reader->damage().truncated) {
        source.warnings.push_back(file + ": truncated; the part before that is used");
      }
      source.readers.push_back(std::move(*reader));
    } else {
      source.warnings.push_back(reader.error().message);
      source.incomplete = true;
    }
  }
  if (source.readers.empty()) {
    return Error{source.warnings.empty() ? "no trace to read" : source.warnings.front()};
  }
  if (source.readers.size() > 1) {
    join_ranks(source);
  } else {
    apply_stored_clocks(source.readers.front());
  }
  return source;
}

Result<TraceSource> open_trace(const std::string& path) {
  std::error_code error;
  if (path.empty()) return Error{"the path of the trace is empty"};
  if (fs::is_directory(path, error)) return open_directory(path);
  TraceSource source;
  Result<TraceReader> reader = open_trace_file(path, source.warnings);
  if (!reader) return reader.error();
  apply_stored_clocks(*reader);
  source.readers.push_back(std::move(*reader));
  return source;
}

}  // namespace tidemark
