// NCCL's profiler plugin interface, declared by hand (see cuda.h for the reason): what a plugin
// exports as ncclProfiler_v1 … ncclProfiler_v6, and the descriptors that NCCL passes to it. Layouts
// are those of NCCL 2.23 (v1) to 2.30 (v6). The layout of a version never changes: NCCL converts
// for older plugins and looks for the newest table first.
//
// Only the members up to the last one used are declared; NCCL's unions are larger.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::nccl {

using ncclResult_t = int;  // an enum in C
inline constexpr ncclResult_t ncclSuccess = 0;

// Bits of the activation mask, and types of events.
enum EventType : uint64_t {
  kGroup = 1 << 0,  // one plan: the operations that one kernel runs
  kColl = 1 << 1,
  kP2p = 1 << 2,
  kProxyOp = 1 << 3,
  kProxyStep = 1 << 4,
  kProxyCtrl = 1 << 5,
  kKernelCh = 1 << 6,       // v3
  kNetPlugin = 1 << 7,      // v3
  kGroupApi = 1 << 8,       // v5
  kCollApi = 1 << 9,        // v5
  kP2pApi = 1 << 10,        // v5
  kKernelLaunch = 1 << 11,  // v5
  kCeColl = 1 << 12,        // v6
};

// v1: names are numbers.
struct EventDescr_v1 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;  // of the communicator
      uint64_t commHash;
      uint64_t seqNumber;
      uint8_t func;
      const void* sendBuff;
      void* recvBuff;
      size_t count;
      int root;
      uint8_t datatype;
      uint32_t op;
      size_t trafficBytes;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      uint8_t algo;
      uint8_t proto;
      int isCollnet;
      int isNvls;
    } coll;
    struct {
      const char* name;
      uint64_t commHash;
      uint8_t func;
      void* buff;
      uint8_t datatype;
      size_t count;
      int peer;
    } p2p;
  };
};

struct P2pDescr_v2 {
  const char* name;
  uint64_t commHash;
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
};

struct EventDescr_v2 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      size_t count;
      int root;
      const char* datatype;
      size_t trafficBytes;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    P2pDescr_v2 p2p;
  };
};

struct EventDescr_v3 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    struct {
      const char* name;
      uint64_t commHash;
      uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      size_t count;
      int root;
      const char* datatype;
      uint8_t nMaxChannels;
      uint8_t nWarps;
      const char* algo;
      const char* proto;
    } coll;
    P2pDescr_v2 p2p;
  };
};

struct CollDescr_v4 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
};

struct P2pDescr_v4 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
};

struct EventDescr_v4 {
  uint8_t type;
  void* parentObj;
  int rank;
  union {
    CollDescr_v4 coll;
    P2pDescr_v4 p2p;
  };
};

// v5 widens the type, and makes operations children of the API calls that caused them.
struct CollApiDescr_v5 {
  const char* func;
  size_t count;
  const char* datatype;
  int root;
  void* stream;
  bool graphCaptured;
};

struct P2pApiDescr_v5 {
  const char* func;
  size_t count;
  const char* datatype;
  void* stream;
  bool graphCaptured;
};

struct CollDescr_v5 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  uint8_t nChannels;
  uint8_t nWarps;
  const char* algo;
  const char* proto;
  void* parentGroup;
};

struct P2pDescr_v5 {
  const char* func;
  void* buff;
  const char* datatype;
  size_t count;
  int peer;
  uint8_t nChannels;
  void* parentGroup;
};

struct CeCollDescr_v6 {
  uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  size_t count;
  int root;
  const char* datatype;
  const char* syncStrategy;
  bool intraBatchSync;
  uint32_t batchSize;
  uint32_t numBatches;
  uint32_t ceSeqNum;
  void* stream;
};

struct EventDescr_v5 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    CollApiDescr_v5 collApi;
    P2pApiDescr_v5 p2pApi;
    CollDescr_v5 coll;
    P2pDescr_v5 p2p;
  };
};

struct EventDescr_v6 {
  uint64_t type;
  void* parentObj;
  int rank;
  union {
    CollApiDescr_v5 collApi;
    P2pApiDescr_v5 p2pApi;
    CollDescr_v5 coll;
    P2pDescr_v5 p2p;
    CeCollDescr_v6 ceColl;
  };
};

using Init_v1 = ncclResult_t (*)(void** context, int* eActivationMask);
using Init_v4 = ncclResult_t (*)(void** context, int* eActivationMask, const char* commName,
                                 uint64_t commHash, int nNodes, int nranks, int rank, void* logfn);
using Init_v5 = ncclResult_t (*)(void** context, uint64_t commId, int* eActivationMask,
                                 const char* commName, int nNodes, int nranks, int rank,
                                 void* logfn);

// What a plugin exports: data, not a function. `eState` is an enum, `eStateArgs` a union.
template <typename Init, typename Descr>
struct Profiler {
  const char* name;
  Init init;
  ncclResult_t (*startEvent)(void* context, void** eHandle, Descr* eDescr);
  ncclResult_t (*stopEvent)(void* eHandle);
  ncclResult_t (*recordEventState)(void* eHandle, int eState, void* eStateArgs);
  ncclResult_t (*finalize)(void* context);
};

using Profiler_v1 = Profiler<Init_v1, EventDescr_v1>;
using Profiler_v2 = Profiler<Init_v1, EventDescr_v2>;
using Profiler_v3 = Profiler<Init_v1, EventDescr_v3>;
using Profiler_v4 = Profiler<Init_v4, EventDescr_v4>;
using Profiler_v5 = Profiler<Init_v5, EventDescr_v5>;
using Profiler_v6 = Profiler<Init_v5, EventDescr_v6>;

// The offsets in NVIDIA's headers (tests/abi/nccl_check.cpp compares every member if they exist).
static_assert(offsetof(EventDescr_v1, coll.proto) == 107 &&
              offsetof(EventDescr_v1, p2p.peer) == 72);
static_assert(offsetof(EventDescr_v2, coll.proto) == 120 &&
              offsetof(EventDescr_v2, p2p.peer) == 72);
static_assert(offsetof(EventDescr_v3, coll.proto) == 112 &&
              offsetof(EventDescr_v3, p2p.peer) == 72);
static_assert(offsetof(EventDescr_v4, coll.proto) == 96 && offsetof(EventDescr_v4, p2p.peer) == 56);
static_assert(offsetof(EventDescr_v5, coll.parentGroup) == 104 &&
              offsetof(EventDescr_v5, p2p.parentGroup) == 64);
static_assert(offsetof(EventDescr_v6, ceColl.stream) == 104);

}  // namespace tidemark::nccl
