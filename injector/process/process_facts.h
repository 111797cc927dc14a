// Who this process is in its job, and what of its environment and command line may be recorded.
//
// Of the environment only an allow-list is recorded: a trace is handed around, and environments are
// full of credentials.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/process/options.h"

namespace tidemark::injector {

struct JobPlace {
  int64_t rank = -1;  // -1: not part of a ranked job
  int64_t local_rank = -1;
  uint64_t world_size = 0;
};

// From the variables of torchrun, Open MPI, MVAPICH, PMI (MPICH, Intel MPI), Slurm and PMIx, in
// this order: the innermost launcher knows best (a torchrun under srun, an mpirun inside a Slurm
// job).
JobPlace find_job_place(EnvironmentLookup lookup) noexcept;

// A name that the ranks of one job share, in `buffer`; empty when there is none.
std::string_view find_job_id(EnvironmentLookup lookup, char* buffer, size_t capacity) noexcept;

// Whether NAME=value goes into the trace.
bool is_recorded_setting(std::string_view name, std::string_view value) noexcept;

// Copies a command line (arguments ended by zeros, as /proc has it) as text, without the values of
// options whose names sound like secrets.
std::string_view readable_command(std::string_view arguments, char* buffer,
                                  size_t capacity) noexcept;

// Longer command lines are cut.
inline constexpr size_t kLongestCommand = 4096;

// The command line of this process, in `buffer`.
std::string_view own_command(char* buffer, size_t capacity) noexcept;

}  // namespace tidemark::injector
