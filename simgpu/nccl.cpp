// A stand-in for libnccl.so.2: a few calls that do no work, but load and call a profiler plugin as
// NCCL does, and take memory of the card as it does.
//
// SIMGPU_NCCL_PROFILER=1…6 is the newest version of the plugin interface that this NCCL knows; it
// looks for that one and then for older ones. Every operation is one plan with one kernel. With
// SIMGPU_NCCL_DIR=DIR the ranks of a communicator meet through a file there: the kernel of a
// collective runs when all ranks have called it, and the first collective is not even enqueued
// before (NCCL makes its connections then). If a rank never comes, the others wait, as with the
// real NCCL.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#include "abi/cuda.h"
#include "abi/cuda_functions.h"
#include "abi/nccl_profiler.h"
#include "simgpu/nccl.h"

namespace {

using namespace tidemark::nccl;

struct Driver {
  tidemark::cuda::cuMemAlloc_v2_fn allocate = nullptr;
  tidemark::cuda::cuMemFree_v2_fn free = nullptr;
  tidemark::cuda::cuLaunchKernel_fn launch = nullptr;
  tidemark::cuda::cuModuleLoadData_fn load = nullptr;
  tidemark::cuda::cuModuleGetFunction_fn find = nullptr;

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return;
    take(library, "cuMemAlloc_v2", allocate);
    take(library, "cuMemFree_v2", free);
    take(library, "cuLaunchKernel", launch);
    take(library, "cuModuleLoadData", load);
    take(library, "cuModuleGetFunction", find);
  }
  template <typename F>
  static void take(void* library, const char* name, F& out) {
    out = reinterpret_cast<F>(dlsym(library, name));
  }
};
Driver& driver() {
  static Driver only;
  return only;
}

// The plugin, in the version it has: one of these is not null.
struct Plugin {
  const Profiler_v1* v1 = nullptr;
  const Profiler_v2* v2 = nullptr;
  const Profiler_v3* v3 = nullptr;
  const Profiler_v4* v4 = nullptr;
  const Profiler_v5* v5 = nullptr;
  const Profiler_v6* v6 = nullptr;
  int version = 0;

  Plugin() {
    const char* const path = std::getenv("NCCL_PROFILER_PLUGIN");
    if (path == nullptr || std::strcmp(path, "none") == 0) return;
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const char* const newest = std::getenv("SIMGPU_NCCL_PROFILER");
    for (int n = newest != nullptr ? std::atoi(newest) : 6; n >= 1 && version == 0; --n) {
      const void* table = dlsym(library, ("ncclProfiler_v" + std::to_string(n)).c_str());
      if (table == nullptr) continue;
      version = n;
      set(n, table);
    }
  }
  void set(int n, const void* table) {
    if (n == 1) v1 = static_cast<const Profiler_v1*>(table);
    if (n == 2) v2 = static_cast<const Profiler_v2*>(table);
    if (n == 3) v3 = static_cast<const Profiler_v3*>(table);
    if (n == 4) v4 = static_cast<const Profiler_v4*>(table);
    if (n == 5) v5 = static_cast<const Profiler_v5*>(table);
    if (n == 6) v6 = static_cast<const Profiler_v6*>(table);
  }
  void stop(void* handle) const {
    if (handle == nullptr) return;
    if (v1 != nullptr) v1->stopEvent(handle);
    if (v2 != nullptr) v2->stopEvent(handle);
    if (v3 != nullptr) v3->stopEvent(handle);
    if (v4 != nullptr) v4->stopEvent(handle);
    if (v5 != nullptr) v5->stopEvent(handle);
    if (v6 != nullptr) v6->stopEvent(handle);
  }
};
const Plugin& plugin() {
  static const Plugin only;
  return only;
}

int g_mask = 0;
constexpr uint64_t kBufferBytes = uint64_t{10} << 20;  // per connection, as in NCCL

}  // namespace

struct ncclComm {
  void* profiler = nullptr;
  uint64_t hash = 0;
  std::string name;
  int ranks = 0;
  int rank = 0;
  uint64_t sequence = 0;
  tidemark::cuda::CUdeviceptr buffer = 0;
  uint64_t* arrivals = nullptr;  // shared by the ranks; null: ranks do not wait for each other
  uint64_t meetings = 0;
  tidemark::cuda::CUfunction kernel = nullptr;
};

namespace {

void open_profiler(ncclComm& comm) {
  const Plugin& p = plugin();
  const char* const name = comm.name.c_str();
  if (p.v1 != nullptr) p.v1->init(&comm.profiler, &g_mask);
  if (p.v2 != nullptr) p.v2->init(&comm.profiler, &g_mask);
  if (p.v3 != nullptr) p.v3->init(&comm.profiler, &g_mask);
  if (p.v4 != nullptr) {
    p.v4->init(&comm.profiler, &g_mask, name, comm.hash, 1, comm.ranks, comm.rank, nullptr);
  }
  if (p.v5 != nullptr) {
    p.v5->init(&comm.profiler, comm.hash, &g_mask, name, 1, comm.ranks, comm.rank, nullptr);
  }
  if (p.v6 != nullptr) {
    p.v6->init(&comm.profiler, comm.hash, &g_mask, name, 1, comm.ranks, comm.rank, nullptr);
  }
}

struct Operation {
  const char* function;
  uint8_t function_number;  // for v1
  const void* send;
  void* receive;
  size_t count;
  int peer;
  void* stream;
  bool collective;
};

template <typename Table, typename Descr>
void* start(const Table* table, ncclComm& comm, Descr& e) {
  void* handle = nullptr;
  table->startEvent(comm.profiler, &handle, &e);
  return handle;
}

template <typename Descr>
void fill_plain(Descr& e, ncclComm& comm, const Operation& op) {
  e.rank = comm.rank;
  if (op.collective) {
    e.type = kColl;
    e.coll.seqNumber = comm.sequence;
    e.coll.sendBuff = op.send;
    e.coll.recvBuff = op.receive;
    e.coll.count = op.count;
    e.coll.root = op.peer;
    e.coll.nWarps = 16;
  } else {
    e.type = kP2p;
    e.p2p.buff = op.send != nullptr ? const_cast<void*>(op.send) : op.receive;
    e.p2p.count = op.count;
    e.p2p.peer = op.peer;
  }
}

template <typename Descr>
void fill_names(Descr& e, const Operation& op) {
  if (op.collective) {
    e.coll.func = op.function;
    e.coll.datatype = "ncclFloat32";
    e.coll.algo = "RING";
    e.coll.proto = "LL";
  } else {
    e.p2p.func = op.function;
    e.p2p.datatype = "ncclFloat32";
  }
}

template <typename Descr>
void fill_owner(Descr& e, ncclComm& comm, const Operation& op) {
  if (op.collective) {
    e.coll.name = comm.name.c_str();
    e.coll.commHash = comm.hash;
    e.coll.nMaxChannels = 2;
  } else {
    e.p2p.name = comm.name.c_str();
    e.p2p.commHash = comm.hash;
  }
}

template <typename Table, typename Descr>
void* start_old(const Table* table, ncclComm& comm, const Operation& op, void* group) {
  Descr e{};
  fill_plain(e, comm, op);
  fill_owner(e, comm, op);
  e.parentObj = group;
  if constexpr (std::is_same_v<Descr, EventDescr_v1>) {
    if (op.collective) {
      e.coll.func = op.function_number;
      e.coll.datatype = 7;  // ncclFloat32
      e.coll.algo = 1;
      e.coll.proto = 0;
    } else {
      e.p2p.func = op.function_number;
      e.p2p.datatype = 7;
    }
  } else {
    fill_names(e, op);
  }
  return start(table, comm, e);
}

template <typename Table, typename Descr>
void* start_new(const Table* table, ncclComm& comm, const Operation& op, void* api, void* group) {
  Descr e{};
  fill_plain(e, comm, op);
  fill_names(e, op);
  e.parentObj = api;
  (op.collective ? e.coll.nChannels : e.p2p.nChannels) = 2;
  (op.collective ? e.coll.parentGroup : e.p2p.parentGroup) = group;
  return start(table, comm, e);
}

void* start_operation(ncclComm& comm, const Operation& op, void* api, void* group) {
  const Plugin& p = plugin();
  if (p.v1 != nullptr) return start_old<Profiler_v1, EventDescr_v1>(p.v1, comm, op, group);
  if (p.v2 != nullptr) return start_old<Profiler_v2, EventDescr_v2>(p.v2, comm, op, group);
  if (p.v3 != nullptr) return start_old<Profiler_v3, EventDescr_v3>(p.v3, comm, op, group);
  if (p.v5 != nullptr) return start_new<Profiler_v5, EventDescr_v5>(p.v5, comm, op, api, group);
  if (p.v6 != nullptr) return start_new<Profiler_v6, EventDescr_v6>(p.v6, comm, op, api, group);
  if (p.v4 == nullptr) return nullptr;
  EventDescr_v4 e{};
  fill_plain(e, comm, op);
  fill_names(e, op);
  e.parentObj = group;
  (op.collective ? e.coll.nChannels : e.p2p.nChannels) = 2;
  return start(p.v4, comm, e);
}

template <typename Table, typename Descr>
void* start_of_type(const Table* table, ncclComm& comm, EventType type) {
  Descr e{};
  e.type = static_cast<decltype(e.type)>(type);
  return start(table, comm, e);
}

void* start_group(ncclComm& comm) {
  const Plugin& p = plugin();
  if (p.v1 != nullptr) return start_of_type<Profiler_v1, EventDescr_v1>(p.v1, comm, kGroup);
  if (p.v2 != nullptr) return start_of_type<Profiler_v2, EventDescr_v2>(p.v2, comm, kGroup);
  if (p.v3 != nullptr) return start_of_type<Profiler_v3, EventDescr_v3>(p.v3, comm, kGroup);
  if (p.v4 != nullptr) return start_of_type<Profiler_v4, EventDescr_v4>(p.v4, comm, kGroup);
  if (p.v5 != nullptr) return start_of_type<Profiler_v5, EventDescr_v5>(p.v5, comm, kGroup);
  if (p.v6 != nullptr) return start_of_type<Profiler_v6, EventDescr_v6>(p.v6, comm, kGroup);
  return nullptr;
}

template <typename Table, typename Descr>
void* start_api(const Table* table, ncclComm& comm, const Operation& op, void* parent) {
  Descr e{};
  e.parentObj = parent;
  if (op.collective) {
    e.type = kCollApi;
    e.collApi = {op.function, op.count, "ncclFloat32", op.peer, op.stream, false};
  } else {
    e.type = kP2pApi;
    e.p2pApi = {op.function, op.count, "ncclFloat32", op.stream, false};
  }
  return start(table, comm, e);
}

// Returns when every rank of the communicator has called this as often as this rank.
void meet(ncclComm& comm) {
  if (comm.arrivals == nullptr) return;
  const uint64_t wanted = ++comm.meetings * static_cast<uint64_t>(comm.ranks);
  std::atomic_ref arrivals(*comm.arrivals);
  arrivals.fetch_add(1);
  while (arrivals.load() < wanted) usleep(50);
}

void open_meeting_place(ncclComm& comm) {
  const char* const folder = std::getenv("SIMGPU_NCCL_DIR");
  if (folder == nullptr) return;
  const std::string path = std::string(folder) + "/comm-" + std::to_string(comm.hash);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (ftruncate(fd, 4096) == 0) {
    void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) comm.arrivals = static_cast<uint64_t*>(page);
  }
  close(fd);
}

void launch(ncclComm& comm, const Operation& op) {
  Driver& d = driver();
  if (comm.kernel != nullptr && d.launch != nullptr) {
    d.launch(comm.kernel, 2, 1, 1, 512, 1, 1, 0, static_cast<tidemark::cuda::CUstream>(op.stream),
             nullptr, nullptr);
  }
}

// Events come in the order of NCCL 2.28: the API call, then the plan with its operations.
void run(ncclComm& comm, const Operation& op) {
  const Plugin& p = plugin();
  void* visit = nullptr;
  void* api = nullptr;
  if (p.v5 != nullptr) {
    visit = start_of_type<Profiler_v5, EventDescr_v5>(p.v5, comm, kGroupApi);
    api = start_api<Profiler_v5, EventDescr_v5>(p.v5, comm, op, visit);
  }
  if (p.v6 != nullptr) {
    visit = start_of_type<Profiler_v6, EventDescr_v6>(p.v6, comm, kGroupApi);
    api = start_api<Profiler_v6, EventDescr_v6>(p.v6, comm, op, visit);
  }
  p.stop(api);
  if (op.collective && comm.sequence == 0) meet(comm);
  // Buffers are allocated at the first use, as with NCCL_RUNTIME_CONNECT.
  if (comm.buffer == 0 && driver().allocate != nullptr) {
    driver().allocate(&comm.buffer, kBufferBytes);
  }
  void* const group = start_group(comm);
  void* const operation = start_operation(comm, op, api, group);
  p.stop(operation);
  p.stop(group);
  p.stop(visit);
  if (op.collective) meet(comm);
  launch(comm, op);
  if (op.collective) ++comm.sequence;
}

void find_kernel(ncclComm& comm) {
  Driver& d = driver();
  tidemark::cuda::CUmodule module = nullptr;
  if (d.load == nullptr || d.find == nullptr) return;
  // One kernel for everything; the real NCCL has hundreds.
  static const char code[] =
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry ncclDevKernel_Generic() { ret; }\n";
  if (d.load(&module, code) != tidemark::cuda::CUDA_SUCCESS) return;
  d.find(&comm.kernel, module, "ncclDevKernel_Generic");
}

}  // namespace

#define SIMGPU_EXPORT extern "C" __attribute__((visibility("default")))

SIMGPU_EXPORT int simgpuNcclCommInit(ncclComm** out, const char* name, uint64_t hash, int ranks,
                                     int rank) {
  auto* const comm = new ncclComm;
  comm->name = name;
  comm->hash = hash;
  comm->ranks = ranks;
  comm->rank = rank;
  find_kernel(*comm);
  open_meeting_place(*comm);
  open_profiler(*comm);
  *out = comm;
  return ncclSuccess;
}

SIMGPU_EXPORT int ncclAllReduce(const void* send, void* receive, size_t count, int, int,
                                ncclComm* comm, void* stream) {
  run(*comm, {"AllReduce", 4, send, receive, count, 0, stream, true});
  return ncclSuccess;
}

SIMGPU_EXPORT int ncclSend(const void* buffer, size_t count, int, int peer, ncclComm* comm,
                           void* stream) {
  run(*comm, {"Send", 6, buffer, nullptr, count, peer, stream, false});
  return ncclSuccess;
}

SIMGPU_EXPORT int ncclRecv(void* buffer, size_t count, int, int peer, ncclComm* comm,
                           void* stream) {
  run(*comm, {"Recv", 7, nullptr, buffer, count, peer, stream, false});
  return ncclSuccess;
}

SIMGPU_EXPORT int ncclMemAlloc(void** out, size_t bytes) {
  tidemark::cuda::CUdeviceptr address = 0;
  if (driver().allocate == nullptr || driver().allocate(&address, bytes) != 0) return 1;
  *out = reinterpret_cast<void*>(address);
  return ncclSuccess;
}

SIMGPU_EXPORT int ncclCommDestroy(ncclComm* comm) {
  const Plugin& p = plugin();
  if (comm->buffer != 0 && driver().free != nullptr) driver().free(comm->buffer);
  if (p.v1 != nullptr) p.v1->finalize(comm->profiler);
  if (p.v2 != nullptr) p.v2->finalize(comm->profiler);
  if (p.v3 != nullptr) p.v3->finalize(comm->profiler);
  if (p.v4 != nullptr) p.v4->finalize(comm->profiler);
  if (p.v5 != nullptr) p.v5->finalize(comm->profiler);
  if (p.v6 != nullptr) p.v6->finalize(comm->profiler);
  delete comm;
  return ncclSuccess;
}

SIMGPU_EXPORT int simgpuNcclProfilerVersion() {
  return plugin().version;
}
