// Aligns the clocks of the ranks of a job.
//
// Two ranks that took part in the same collective (same communicator, same sequence number) saw it
// end at the same instant, within microseconds; many such instants give offset and drift of one
// clock relative to the other. Ranks that share no communicator are aligned through ranks that
// share one with both; the errors of the steps add up. The clock of the first rank is the clock of
// the job.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collector/job/rank_facts.h"
#include "proto/rows.h"

namespace tidemark {

struct ClockAlignment {
  std::vector<Alignment> clocks;      // one per rank, in order; kNone: not known
  std::vector<std::string> warnings;  // ranks whose clock could not be checked
};

// Processes of one host share a clock. Unless the collectives contradict that, they only provide
// the error estimate (kHostClock, with samples).
ClockAlignment align_clocks(std::span<const RankFacts* const> ranks);

}  // namespace tidemark
