// Compares abi/nccl_profiler.h with NVIDIA's headers, member by member. If it compiles, the test
// has passed.
#include <sys/types.h>

#include <cstddef>

#include "abi/nccl_profiler.h"
#include "err.h"
#include "profiler.h"

namespace ours = tidemark::nccl;

#define SAME(V, MEMBER)                                              \
  static_assert(offsetof(ncclProfilerEventDescr_v##V##_t, MEMBER) == \
                offsetof(ours::EventDescr_v##V, MEMBER))
#define SAME_EVERYWHERE(V) \
  SAME(V, type);           \
  SAME(V, parentObj);      \
  SAME(V, rank);           \
  SAME(V, coll.seqNumber); \
  SAME(V, coll.func);      \
  SAME(V, coll.sendBuff);  \
  SAME(V, coll.recvBuff);  \
  SAME(V, coll.count);     \
  SAME(V, coll.root);      \
  SAME(V, coll.datatype);  \
  SAME(V, coll.algo);      \
  SAME(V, coll.proto);     \
  SAME(V, p2p.func);       \
  SAME(V, p2p.buff);       \
  SAME(V, p2p.datatype);   \
  SAME(V, p2p.count);      \
  SAME(V, p2p.peer)
#define SAME_OWNER(V)         \
  SAME(V, coll.name);         \
  SAME(V, coll.commHash);     \
  SAME(V, coll.nMaxChannels); \
  SAME(V, p2p.name);          \
  SAME(V, p2p.commHash)
#define SAME_CALLS(V)             \
  SAME(V, coll.nChannels);        \
  SAME(V, coll.parentGroup);      \
  SAME(V, p2p.nChannels);         \
  SAME(V, p2p.parentGroup);       \
  SAME(V, collApi.func);          \
  SAME(V, collApi.count);         \
  SAME(V, collApi.datatype);      \
  SAME(V, collApi.root);          \
  SAME(V, collApi.stream);        \
  SAME(V, collApi.graphCaptured); \
  SAME(V, p2pApi.func);           \
  SAME(V, p2pApi.count);          \
  SAME(V, p2pApi.datatype);       \
  SAME(V, p2pApi.stream);         \
  SAME(V, p2pApi.graphCaptured)

SAME_EVERYWHERE(1);
SAME_EVERYWHERE(2);
SAME_EVERYWHERE(3);
SAME_EVERYWHERE(4);
SAME_EVERYWHERE(5);
SAME_EVERYWHERE(6);
SAME_OWNER(1);
SAME_OWNER(2);
SAME_OWNER(3);
SAME(4, coll.nChannels);
SAME(4, p2p.nChannels);
SAME_CALLS(5);
SAME_CALLS(6);
SAME(6, ceColl.seqNumber);
SAME(6, ceColl.func);
SAME(6, ceColl.sendBuff);
SAME(6, ceColl.recvBuff);
SAME(6, ceColl.count);
SAME(6, ceColl.root);
SAME(6, ceColl.datatype);
SAME(6, ceColl.stream);
static_assert(offsetof(ncclProfiler_v6_t, finalize) == offsetof(ours::Profiler_v6, finalize));
static_assert(ncclProfileGroup == int{ours::kGroup} && ncclProfileColl == int{ours::kColl} &&
              ncclProfileP2p == int{ours::kP2p} && ncclProfileGroupApi == int{ours::kGroupApi} &&
              ncclProfileCollApi == int{ours::kCollApi} &&
              ncclProfileP2pApi == int{ours::kP2pApi} && ncclProfileCeColl == int{ours::kCeColl});

int main() {}
