// The rank of this process in its job, and which parts of its environment and command line may be
// recorded.
//
// Only an allow-list of the environment is recorded: traces are passed around, and environments are
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
// this order: the innermost launcher is the most specific (torchrun under srun, mpirun inside a
// Slurm job).
JobPlace find_job_place(EnvironmentLookup lookup) noexcept;

// An id shared by all ranks of the job, written to `buffer`; empty when there is none.
std::string_view find_job_id(EnvironmentLookup lookup, char* buffer, size_t capacity) noexcept;

// Whether NAME=value may be written to the trace.
bool is_recorded_setting(std::string_view name, std::string_view value) noexcept;

// Copies a command line (zero-terminated arguments, as in /proc) as text, without the values of
// options whose names suggest a secret.
std::string_view readable_command(std::string_view arguments, char* buffer,
                                  size_t capacity) noexcept;

// Longer command lines are truncated.
inline constexpr size_t kLongestCommand = 4096;

// The command line of this process, in `buffer`.
std::string_view own_command(char* buffer, size_t capacity) noexcept;

}  // namespace tidemark::injector
