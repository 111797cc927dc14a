#include "summary/job_summaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "collector/job/job.h"
#include "collector/recover/trace_file.h"
#include "proto/base/hash.h"
#include "proto/base/work.h"
#include "proto/clock.h"
#include "summary/summarize.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

template <typename Each>
void on_threads(size_t count, unsigned threads, const Each& each) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) each(i);
  };
  const unsigned wanted = threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<Work> others;
  for (unsigned t = 1; t < wanted && t < count; ++t) others.emplace_back(WorkParts{work});
  work();
}

struct File {
  std::string path;
  std::string name;
  FileSummary summary;  // if it is not fresh, only the facts of its processes
  bool fresh = false;
  std::string error;
  std::vector<uint32_t> left_out;  // processes
  size_t group = 0;
};

// The files of the processes of one host.
struct Group {
  std::vector<size_t> files;
  bool fresh = false;
};

class Plan {
 public:
  Plan(std::string path, const SummaryOptions& options)
      : path_(std::move(path)), options_(options) {}

  Status look() {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
      File file;
      file.path = entry.path().string();
      file.name = entry.path().filename().string();
      if (file.name.ends_with(".tmk")) files_.push_back(std::move(file));
    }
    if (error) return Error{fmt::format("{}: {}", path_, error.message())};
    if (files_.empty()) return Error{path_ + ": no trace (.tmk) in this directory"};
    std::sort(files_.begin(), files_.end(),
              [](const File& a, const File& b) { return a.name < b.name; });
    on_threads(files_.size(), options_.threads, [&](size_t i) { look_at(files_[i]); });
    const bool none = std::all_of(files_.begin(), files_.end(),
                                  [](const File& f) { return !f.error.empty(); });
    if (none) return Error{files_.front().error};
    choose();
    make_groups();
    return {};
  }

  // What the files that belong together are, each in its state.
  uint64_t key_of(const Group& group) const {
    uint64_t key = group.files.size();
    for (const size_t i : group.files) {
      const FileIdentity& identity = files_[i].summary.identity;
      key = mix_bits(key ^ frame_hash(files_[i].name));
      for (const uint64_t word : {identity.bytes, static_cast<uint64_t>(identity.changed_ns),
                                  uint64_t{identity.tail}}) {
        key = mix_bits(key ^ word);
      }
      for (const uint32_t process : files_[i].left_out) key = mix_bits(key ^ process);
    }
    return key;
  }

  // Replaces the summaries of a group. Those that last are given to `keep`.
  template <typename Keep>
  Status make(Group& group, const Keep& keep) {
    std::vector<HostFile> host;
    for (const size_t i : group.files) host.push_back({files_[i].path, files_[i].left_out});
    Result<std::vector<MadeSummary>> made = summarize(host, options_.card_bytes);
    if (!made) return made.error();
    for (size_t k = 0; k < group.files.size(); ++k) {
      File& file = files_[group.files[k]];
      if (!(*made)[k].status) {
        file.error = (*made)[k].status.error().message;
        file.summary.ranks.clear();
        continue;
      }
      file.summary = std::move((*made)[k].summary);
    }
    const uint64_t key = key_of(group);
    for (size_t k = 0; k < group.files.size(); ++k) {
      File& file = files_[group.files[k]];
      if (!file.error.empty()) continue;
      file.summary.group = key;
      keep(file, (*made)[k]);
    }
    return {};
  }

  std::vector<File>& files() { return files_; }
  std::vector<Group>& groups() { return groups_; }
  const JobCheck& check() const { return check_; }

 private:
  void look_at(File& file) const {
    const std::optional<FileIdentity> identity = identity_of(file.path);
    if (identity && options_.card_bytes == 0) {
      if (auto stored = read_summary(file.path, *identity); stored) {
        file.summary = std::move(*stored);
        file.fresh = true;
        return;
      }
    }
    // Nothing is recovered yet: another task may be doing that.
    const Result<TraceReader> reader = TraceReader::open(file.path);
    if (!reader) {
      file.error = reader.error().message;
      return;
    }
    if (identity) file.summary.identity = *identity;
    for (RankFacts& facts : read_rank_facts(*reader, false)) {
      file.summary.ranks.emplace_back().facts = std::move(facts);
    }
  }

  // By rank, as everywhere; then the ranks of other jobs are left out.
  void choose() {
    const auto rank_of = [&](const File& file) {
      return file.summary.ranks.empty()
                 ? UINT64_MAX
                 : static_cast<uint64_t>(file.summary.ranks.front().facts.info.rank);
    };
    std::stable_sort(files_.begin(), files_.end(),
                     [&](const File& a, const File& b) { return rank_of(a) < rank_of(b); });
    std::vector<JobMember> members;
    std::vector<File*> of_member;
    for (File& file : files_) {
      for (const RankSummary& rank : file.summary.ranks) {
        members.push_back({file.name, &rank.facts});
        of_member.push_back(&file);
      }
    }
    check_ = check_job(members);
    for (size_t i = 0; i < members.size(); ++i) {
      if (check_.foreign[i]) of_member[i]->left_out.push_back(members[i].facts->process);
    }
  }

  void make_groups() {
    std::map<std::string, size_t> of_host;
    for (size_t i = 0; i < files_.size(); ++i) {
      File& file = files_[i];
      if (file.left_out.size() == file.summary.ranks.size()) continue;  // nothing is left
      // Without a host's name, a file is on its own.
      const std::string& host = file.summary.ranks.front().facts.host;
      const auto [known, fresh] =
          of_host.try_emplace(host.empty() ? "/" + file.name : host, groups_.size());
      if (fresh) groups_.emplace_back();
      file.group = known->second;
      groups_[known->second].files.push_back(i);
    }
    for (Group& group : groups_) {
      const uint64_t key = key_of(group);
      group.fresh = std::all_of(group.files.begin(), group.files.end(), [&](size_t i) {
        return files_[i].fresh && files_[i].summary.group == key;
      });
    }
  }

  std::string path_;
  const SummaryOptions& options_;
  std::vector<File> files_;
  std::vector<Group> groups_;
  JobCheck check_;
};

class GroupCounter {
 public:
  GroupCounter(const SummaryOptions& options, size_t total) : options_(options), total_(total) {}
  void one_more() {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (options_.progress) {
      options_.progress(static_cast<double>(done_) / static_cast<double>(total_));
    }
  }

 private:
  const SummaryOptions& options_;
  size_t total_;
  std::mutex mutex_;
  size_t done_ = 0;
};

// Not stored: files may be renamed.
void name_file(RankSummary& summary, const std::string& name) {
  summary.report.file = name;
  for (Finding& f : summary.findings) f.file = name;
}

// The ranks that are not left out, on one clock.
void join(Plan& plan, JobSummaries& job) {
  const bool several = plan.files().size() > 1;
  for (File& file : plan.files()) {
    if (!file.error.empty()) {
      job.notes.push_back(file.error);
      job.incomplete = true;
      continue;
    }
    for (std::string& note : file.summary.notes) job.notes.push_back(std::move(note));
    std::vector<uint32_t> processes = file.left_out;
    const auto is_left_out = [&](uint32_t process) {
      return std::find(file.left_out.begin(), file.left_out.end(), process) != file.left_out.end();
    };
    if (file.summary.ranks.empty()) {
      job.notes.push_back(note_on_empty_trace(file.path));
      job.incomplete = true;
    }
    if (file.left_out.size() == file.summary.ranks.size()) continue;
    job.damage += file.summary.damage;
    job.unknown_blocks += file.summary.unknown_blocks;
    for (const RankSummary& rank : file.summary.ranks) processes.push_back(rank.facts.process);
    for (RankSummary& rank : file.summary.ranks) {
      if (is_left_out(rank.facts.process)) continue;
      JobRank& added = job.ranks.emplace_back();
      added.path = file.path;
      added.process = rank.facts.process;
      for (const uint32_t p : processes) {
        if (p != added.process) added.others.push_back(p);
      }
      added.summary = std::move(rank);
      if (several && added.summary.facts.info.rank < 0) name_file(added.summary, file.name);
    }
  }
  job.notes.insert(job.notes.end(), plan.check().notes.begin(), plan.check().notes.end());
  job.incomplete |= plan.check().ranks_missing;
}

void put_on_one_clock(JobSummaries& job) {
  std::vector<const RankFacts*> facts;
  for (const JobRank& rank : job.ranks) facts.push_back(&rank.summary.facts);
  const ClockAlignment aligned = align_clocks(facts);
  job.notes.insert(job.notes.end(), aligned.warnings.begin(), aligned.warnings.end());
  job.start_ns = INT64_MAX;
  job.end_ns = INT64_MIN;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    job.ranks[i].clock = aligned.clocks[i];
    const RankSummary& s = job.ranks[i].summary;
    if (s.first_ns > s.last_ns) continue;
    job.start_ns = std::min(job.start_ns, aligned_ns(aligned.clocks[i], s.first_ns));
    job.end_ns = std::max(job.end_ns, aligned_ns(aligned.clocks[i], s.last_ns));
  }
  if (job.start_ns > job.end_ns) job.start_ns = job.end_ns = 0;
  for (JobRank& rank : job.ranks) {
    retime(rank.summary, rank.clock, job.start_ns);
    rank.summary.facts.ends = {};
  }
}

}  // namespace

std::shared_ptr<const FrameHashes> JobSummaries::frames_of(const JobRank& rank) const {
  const auto known = frames.find(rank.summary.frames);
  return known != frames.end() ? known->second : read_frames(path, rank.summary.frames);
}

size_t count_traces(const std::string& path) {
  std::error_code error;
  size_t traces = 0;
  if (!fs::is_directory(path, error)) return 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (!is_input_name(name)) continue;
    if (!name.ends_with(".tmk")) return 0;
    ++traces;
  }
  return error ? 0 : traces;
}

Result<JobSummaries> read_job(const std::string& path, const SummaryOptions& options) {
  Plan plan(path, options);
  if (Status status = plan.look(); !status) return status.error();
  JobSummaries job;
  job.path = path;
  std::vector<Group*> missing;
  for (Group& group : plan.groups()) {
    if (!group.fresh) missing.push_back(&group);
  }
  GroupCounter progress(options, missing.size());
  std::mutex mutex;
  on_threads(missing.size(), options.threads, [&](size_t i) {
    const auto keep = [&](const File&, MadeSummary& made) {
      const std::lock_guard lock(mutex);
      ++job.made;
      for (FrameHashes& frames : made.frames) {
        const uint64_t number = number_of(frames);
        if (job.frames.contains(number)) continue;
        job.frames[number] = std::make_shared<const FrameHashes>(std::move(frames));
      }
    };
    if (const Status status = plan.make(*missing[i], keep); !status) {
      for (const size_t f : missing[i]->files) {
        File& file = plan.files()[f];
        if (file.error.empty()) file.error = status.error().message;
      }
    }
    progress.one_more();
  });
  join(plan, job);
  if (job.ranks.empty()) {
    return Error{job.notes.empty() ? path + ": no rank could be read" : job.notes.front()};
  }
  put_on_one_clock(job);
  return job;
}

Result<Preparation> prepare_job(const std::string& path, const TaskShare& share,
                                const SummaryOptions& options) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return Error{path + (fs::exists(path, error)
                             ? ": is not a directory; one trace needs no preparation"
                             : ": no such directory")};
  }
  if (Status status = make_summary_folder(path); !status) return status.error();
  Plan plan(path, options);
  if (Status status = plan.look(); !status) return status.error();
  Preparation done;
  std::vector<Group*> mine;
  for (size_t i = 0; i < plan.groups().size(); ++i) {
    Group& group = plan.groups()[i];
    if (i % share.count != share.index) {
      done.others += group.files.size();
    } else if (group.fresh) {
      done.fresh += group.files.size();
    } else {
      mine.push_back(&group);
    }
  }
  for (const File& file : plan.files()) {
    if (!file.error.empty() && share.index == 0) done.failed.push_back(file.error);
  }
  GroupCounter progress(options, mine.size());
  std::mutex mutex;
  on_threads(mine.size(), options.threads, [&](size_t i) {
    const auto keep = [&](File& file, MadeSummary& made) {
      Status written;
      for (const FrameHashes& frames : made.frames) {
        if (written) written = write_frames(path, frames);
      }
      if (written && made.lasting) written = write_summary(file.path, file.summary);
      const std::lock_guard lock(mutex);
      if (!written) {
        done.failed.push_back(written.error().message);
      } else if (!made.lasting) {
        done.skipped.push_back(file.path + ": still being recorded, or interrupted");
      } else {
        ++done.made;
      }
      file.summary = {};  // thousands of them are not needed here
    };
    const Status status = plan.make(*mine[i], keep);
    const std::lock_guard lock(mutex);
    if (!status) done.failed.push_back(status.error().message);
    for (const size_t f : mine[i]->files) {
      if (!plan.files()[f].error.empty()) done.failed.push_back(plan.files()[f].error);
    }
    progress.one_more();
  });
  return done;
}

}  // namespace tidemark
