// The interface of the stand-in for NCCL: NCCL's own names and arguments (types and operations as
// numbers), and a way to make a communicator without exchanging ids.
#pragma once

#include <cstddef>
#include <cstdint>

struct ncclComm;

extern "C" {
int simgpuNcclCommInit(ncclComm** comm, const char* name, uint64_t hash, int ranks, int rank);
int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation,
                  ncclComm* comm, void* stream);
int ncclSend(const void* buffer, size_t count, int type, int peer, ncclComm* comm, void* stream);
int ncclRecv(void* buffer, size_t count, int type, int peer, ncclComm* comm, void* stream);
int ncclMemAlloc(void** out, size_t bytes);
int ncclCommDestroy(ncclComm* comm);
int simgpuNcclProfilerVersion();
}
