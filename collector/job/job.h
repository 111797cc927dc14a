// Checks that rank files belong together: one job, every rank present, each once.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "collector/job/rank_facts.h"

namespace tidemark {

struct JobMember {
  std::string file;  // name for messages
  const RankFacts* facts = nullptr;
};

struct JobCheck {
  std::vector<bool> foreign;       // by member: a rank of another job, to be left out
  std::vector<std::string> notes;  // one sentence each: foreign, missing and duplicate ranks
  bool ranks_missing = false;
  std::string job;                      // its name, if it has one
  std::vector<std::string> other_jobs;  // of the foreign processes; without ranks, of the others
  std::string doubled;                  // two files with one rank of unknown jobs; empty: none
};

// Of several captures of one process only the last counts. The job is the one that most ranks
// belong to. Processes without a job name are foreign only as below, and those without a rank only
// if there are ranks and they are of a job whose ranks are foreign, or ran at another time than the
// ranks. Where no job is named, two processes that have one rank at the same time are of two jobs,
// unless one started the other; the one that began last is used.
JobCheck check_job(std::span<const JobMember> members);

// "3", "3 and 5", "0-3, 7".
std::string list_of_ranks(const std::vector<uint64_t>& ranks);

// "1 of 4 ranks missing: 2"; empty if none is. `nameless` is the number of processes whose rank is
// lost, because the row that has it could not be read.
std::string note_on_missing_ranks(const std::set<uint64_t>& ranks, uint64_t world,
                                  uint64_t nameless);

// A trace without a process. The first rows are written about a second after a recording begins.
std::string note_on_empty_trace(const std::string& path);

}  // namespace tidemark
