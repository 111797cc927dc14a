// The clocks of a job's ranks on one clock.
//
// Two ranks that took part in the same collective (same communicator, same sequence number) saw it
// end at the same instant, within microseconds; many such instants give offset and drift of one
// clock against the other. Ranks that share no communicator are joined through those that share one
// with both; what the steps on the way may be off by adds up. The clock of the first rank is the
// job's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collector/job/rank_facts.h"
#include "proto/rows.h"

namespace tidemark {

struct ClockAlignment {
  std::vector<Alignment> clocks;      // one per rank, in order; all kNone for a single one
  std::vector<std::string> warnings;  // ranks whose clock could not be checked
};

// Processes of one host have one clock. Where the collectives do not contradict that, they only say
// how far it can be trusted (kHostClock, with samples).
ClockAlignment align_clocks(std::span<const RankFacts* const> ranks);

}  // namespace tidemark
