#include "collector/job/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tidemark {

namespace {

struct Candidate {
  std::set<int64_t> ranks;
  int64_t latest_ns = INT64_MIN;
};

std::string main_job(std::span<const JobMember> members) {
  std::map<std::string, Candidate> jobs;
  for (const JobMember& m : members) {
    if (m.facts->info.rank < 0 || m.facts->job.empty()) continue;
    Candidate& job = jobs[m.facts->job];
    job.ranks.insert(m.facts->info.rank);
    job.latest_ns = std::max(job.latest_ns, m.facts->info.start_ns);
  }
  const auto largest = std::max_element(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return a.second.ranks.size() != b.second.ranks.size()
               ? a.second.ranks.size() < b.second.ranks.size()
               : a.second.latest_ns < b.second.latest_ns;
  });
  return largest != jobs.end() ? largest->first : "";
}

void note_ranks(std::span<const JobMember> members, JobCheck& check) {
  std::map<uint64_t, uint64_t> seen;
  uint64_t world = 0;
  uint64_t nameless = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const Process& info = members[i].facts->info;
    if (check.foreign[i]) continue;
    nameless += info.source == Source::kNone;
    if (info.rank < 0) continue;
    ++seen[static_cast<uint64_t>(info.rank)];
    // Snapshots do not tell the world's size, but a gap below their highest rank shows.
    world = std::max({world, info.world_size, static_cast<uint64_t>(info.rank) + 1});
  }
  std::set<uint64_t> ranks;
  for (const auto& [rank, times] : seen) ranks.insert(rank);
  if (std::string note = note_on_missing_ranks(ranks, world, nameless); !note.empty()) {
    check.ranks_missing = true;
    check.notes.push_back(std::move(note));
  }
  for (const auto& [rank, times] : seen) {
    if (times > 1) {
      check.notes.push_back(
          fmt::format("rank {} occurs {} times: it was restarted, or "
                      "processes of several runs have this rank",
                      rank, times));
    }
  }
}

}  // namespace

std::string list_of_ranks(const std::vector<uint64_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string note_on_missing_ranks(const std::set<uint64_t>& ranks, uint64_t world,
                                  uint64_t nameless) {
  // A forged world size must not become a list of that length.
  constexpr uint64_t kLargestWorld = 1 << 20;
  std::vector<uint64_t> missing;
  for (uint64_t rank = 0; rank < std::min(world, kLargestWorld); ++rank) {
    if (!ranks.contains(rank)) missing.push_back(rank);
  }
  if (ranks.empty()) return "";
  std::string note;
  if (!missing.empty()) {
    note = fmt::format("{} of {} ranks missing: {}", missing.size(), world, list_of_ranks(missing));
  }
  if (nameless == 0) return note;
  if (!note.empty()) note += "; ";
  note += nameless == 1 ? "the rank of 1 process is lost with its damaged name"
                        : fmt::format("the ranks of {} processes are lost with their damaged names",
                                      nameless);
  if (nameless == 1 && missing.size() == 1) note += ", it is probably the missing one";
  return note;
}

std::string note_on_empty_trace(const std::string& path) {
  return path + ": has no readable process yet: its recording has only just begun, or was cut off";
}

namespace {

// A merged trace next to its input files contains the same processes again.
void find_copies(std::span<const JobMember> members, JobCheck& check) {
  std::map<std::tuple<std::string, uint64_t, int64_t>, size_t> seen;
  for (size_t i = 0; i < members.size(); ++i) {
    const RankFacts& facts = *members[i].facts;
    if (facts.info.pid == 0) continue;
    const auto [first, fresh] =
        seen.try_emplace({facts.host, facts.info.pid, facts.info.start_ns}, i);
    if (fresh) continue;
    check.foreign[i] = true;
    check.notes.push_back(fmt::format("{}: left out: {} is already in {}", members[i].file,
                                      facts.label(), members[first->second].file));
  }
}

// A process that was attached to several times has several captures, but is one process. The last
// capture is used; the others can be opened one by one.
void find_earlier_captures(std::span<const JobMember> members, JobCheck& check) {
  std::map<std::tuple<std::string, uint64_t, int64_t>, std::vector<size_t>> captures;
  for (size_t i = 0; i < members.size(); ++i) {
    const RankFacts& facts = *members[i].facts;
    if (check.foreign[i] || facts.info.pid == 0) continue;
    captures[{facts.host, facts.info.pid, facts.info.rank}].push_back(i);
  }
  for (auto& [process, of_process] : captures) {
    const size_t last =
        *std::max_element(of_process.begin(), of_process.end(), [&](size_t a, size_t b) {
          return members[a].facts->info.start_ns < members[b].facts->info.start_ns;
        });
    if (!members[last].facts->attached) continue;  // a reused pid: several processes
    for (const size_t i : of_process) {
      if (i == last) continue;
      check.foreign[i] = true;
      check.notes.push_back(fmt::format("{}: left out: {} was captured again later, in {}",
                                        members[i].file, members[i].facts->label(),
                                        members[last].file));
    }
  }
}

bool ran_at_the_same_time(const RankFacts& a, const RankFacts& b) {
  return a.first_ns <= b.last_ns && b.first_ns <= a.last_ns;
}

// A process passes its rank on to those that it starts.
bool are_related(const RankFacts& a, const RankFacts& b) {
  if (a.host != b.host || a.info.pid == 0 || b.info.pid == 0) return false;
  return a.info.parent_pid == b.info.pid || b.info.parent_pid == a.info.pid ||
         (a.info.parent_pid != 0 && a.info.parent_pid == b.info.parent_pid);
}

void leave_out_doubles(std::span<const JobMember> members, JobCheck& check) {
  std::map<int64_t, std::vector<size_t>> by_rank;
  for (size_t i = 0; i < members.size(); ++i) {
    const RankFacts& facts = *members[i].facts;
    if (!check.foreign[i] && facts.info.rank >= 0 && facts.job.empty()) {
      by_rank[facts.info.rank].push_back(i);
    }
  }
  for (const auto& [rank, of_rank] : by_rank) {
    const size_t last = *std::max_element(of_rank.begin(), of_rank.end(), [&](size_t a, size_t b) {
      return members[a].facts->info.start_ns < members[b].facts->info.start_ns;
    });
    for (const size_t i : of_rank) {
      const RankFacts& facts = *members[i].facts;
      const RankFacts& kept = *members[last].facts;
      if (i == last || are_related(facts, kept)) continue;
      if (check.doubled.empty()) {
        check.doubled =
            fmt::format("rank {} is in {} and in {}", rank, members[i].file, members[last].file);
      }
      if (!ran_at_the_same_time(facts, kept)) continue;  // it may have been restarted
      check.foreign[i] = true;
      check.notes.push_back(
          fmt::format("{}: left out: {} ran at the same time in {}, so this is another job's",
                      members[i].file, kept.label(), members[last].file));
    }
  }
}

// Whether the process ran while a rank of the job did.
bool ran_beside_ranks(std::span<const JobMember> members, const JobCheck& check,
                      const RankFacts& process) {
  for (size_t i = 0; i < members.size(); ++i) {
    const RankFacts& rank = *members[i].facts;
    if (check.foreign[i] || rank.info.rank < 0) continue;
    if (ran_at_the_same_time(rank, process)) return true;
  }
  return false;
}

// The processes without a rank of another job. One whose job no rank has may be the launcher of the
// ranks beside it: torchrun gives its ranks a name that it does not have itself.
void leave_out_other_launchers(std::span<const JobMember> members, std::set<std::string>& others,
                               JobCheck& check) {
  if (check.job.empty()) return;
  for (size_t i = 0; i < members.size(); ++i) {
    const RankFacts& facts = *members[i].facts;
    if (check.foreign[i] || facts.info.rank >= 0 || facts.job.empty() || facts.job == check.job) {
      continue;
    }
    if (!others.contains(facts.job) && ran_beside_ranks(members, check, facts)) continue;
    check.foreign[i] = true;
    others.insert(facts.job);
    check.notes.push_back(fmt::format("{}: left out: {} belongs to job {}, the ranks to job {}",
                                      members[i].file, facts.label(), facts.job, check.job));
  }
}

// Processes without ranks are all read, but if they are of several jobs, that is said.
void find_jobs_without_ranks(std::span<const JobMember> members, std::set<std::string>& others,
                             JobCheck& check) {
  for (size_t i = 0; i < members.size(); ++i) {
    if (!check.foreign[i] && !members[i].facts->job.empty()) others.insert(members[i].facts->job);
  }
  if (others.empty()) return;
  check.job = *others.begin();
  if (others.size() > 1) {
    check.notes.push_back(fmt::format("recordings of {} jobs are read together", others.size()));
  }
  others.erase(check.job);
}

// A snapshot does not tell which process it is of.
void note_snapshots_beside_recordings(std::span<const JobMember> members, JobCheck& check) {
  bool recordings = false;
  std::string snapshot;
  for (size_t i = 0; i < members.size(); ++i) {
    if (check.foreign[i]) continue;
    const bool is_snapshot = members[i].facts->info.source == Source::kTorchSnapshot;
    recordings |= !is_snapshot;
    if (is_snapshot && snapshot.empty()) snapshot = members[i].file;
  }
  if (!recordings || snapshot.empty()) return;
  check.notes.push_back(fmt::format(
      "{}: read as another process than those recorded; a run that has both counts twice",
      snapshot));
}

// Snapshots without ranks of which one begins after another ended are hardly of the processes of
// one job. A state without a history has no time.
void note_snapshots_of_other_times(std::span<const JobMember> members, JobCheck& check) {
  std::vector<const JobMember*> snapshots;
  for (size_t i = 0; i < members.size(); ++i) {
    const RankFacts& facts = *members[i].facts;
    const bool without_rank =
        facts.info.source == Source::kTorchSnapshot && facts.info.rank < 0 && facts.last_ns > 0;
    if (!check.foreign[i] && without_rank) snapshots.push_back(&members[i]);
  }
  std::sort(snapshots.begin(), snapshots.end(), [](const JobMember* a, const JobMember* b) {
    return a->facts->first_ns < b->facts->first_ns;
  });
  for (size_t i = 1; i < snapshots.size(); ++i) {
    if (snapshots[i]->facts->first_ns <= snapshots[i - 1]->facts->last_ns) continue;
    check.notes.push_back(fmt::format(
        "{} begins after {} ended: the snapshots are read together, but may be of different runs",
        snapshots[i]->file, snapshots[i - 1]->file));
    return;
  }
}

}  // namespace

JobCheck check_job(std::span<const JobMember> members) {
  JobCheck check;
  check.foreign.assign(members.size(), false);
  find_copies(members, check);
  find_earlier_captures(members, check);
  leave_out_doubles(members, check);
  check.job = main_job(members);
  std::set<std::string> others;
  for (size_t i = 0; i < members.size(); ++i) {
    const RankFacts& facts = *members[i].facts;
    if (check.foreign[i] || facts.info.rank < 0 || facts.job.empty() || facts.job == check.job) {
      continue;
    }
    check.foreign[i] = true;
    others.insert(facts.job);
    check.notes.push_back(fmt::format("{}: left out: {} belongs to job {}, the others to job {}",
                                      members[i].file, facts.label(), facts.job, check.job));
  }
  leave_out_other_launchers(members, others, check);
  if (check.job.empty()) find_jobs_without_ranks(members, others, check);
  check.other_jobs.assign(others.begin(), others.end());
  note_ranks(members, check);
  note_snapshots_beside_recordings(members, check);
  note_snapshots_of_other_times(members, check);
  return check;
}

}  // namespace tidemark
