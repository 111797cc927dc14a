// The variables from which a process learns its place in a job, by launcher. The innermost launcher
// comes first, as it is the most specific (torchrun under srun, mpirun inside a Slurm job).
#pragma once

namespace tidemark {

struct LauncherVariables {
  const char* rank;
  const char* local_rank;
  const char* size;
  const char* required;  // must be set too; nullptr: no other variable
};

inline constexpr LauncherVariables kLaunchers[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE", nullptr},
    {"MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_SIZE", nullptr},
    {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "PMI_SIZE"},
    // A batch script is not a step: it has SLURM_PROCID=0 whatever the number of tasks.
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
    {"PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE", "PMIX_NAMESPACE"},
};

}  // namespace tidemark
