// The profiler plugin that NCCL loads: libtidemark.so itself, through NCCL_PROFILER_PLUGIN.
//
// NCCL looks for the newest ncclProfiler_vN that it knows, so all of them are exported; each only
// translates its descriptors. NCCL always gets "success": an error from init would make it unload
// the plugin of every communicator. NCCL emits some events that the mask does not enable; they get
// no handle, and NCCL does not come back for events without one.
#include "abi/nccl_profiler.h"

#include "injector/nccl/operations.h"

namespace tidemark::injector {
namespace {

using namespace nccl;

constexpr uint64_t kWantedBeforeV5 = kGroup | kColl | kP2p;
constexpr uint64_t kWantedV5 = kWantedBeforeV5 | kGroupApi | kCollApi | kP2pApi;
constexpr uint64_t kWantedV6 = kWantedV5 | kCeColl;

NcclContext context_of(const void* context) {
  return static_cast<NcclContext>(reinterpret_cast<uintptr_t>(context));
}
NcclHandle handle_of(const void* object) {
  return reinterpret_cast<uintptr_t>(object);
}
void* object_of(uint64_t number) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(number));
}

ncclResult_t open(void** context, int* mask, uint64_t wanted,
                  const NcclCommunicator& communicator) {
  if (context == nullptr || mask == nullptr) return ncclSuccess;
  *context = nullptr;
  note_mask(mask, static_cast<int>(wanted));
  *context = object_of(open_communicator(communicator));
  *mask = nccl_enabled() ? static_cast<int>(wanted) : 0;
  return ncclSuccess;
}

ncclResult_t init_v1(void** context, int* mask) {
  return open(context, mask, kWantedBeforeV5, {});
}
ncclResult_t init_v4(void** context, int* mask, const char* name, uint64_t id, int nodes, int ranks,
                     int rank, void*) {
  return open(context, mask, kWantedBeforeV5, {name, id, ranks, rank, nodes});
}
template <uint64_t Wanted>
ncclResult_t init_v5(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks,
                     int rank, void*) {
  return open(context, mask, Wanted, {name, id, ranks, rank, nodes});
}

template <size_t N>
const char* word(const char* const (&words)[N], uint8_t number) {
  return number < N ? words[number] : nullptr;
}
// ncclFunc_t, ncclDataType_t, NCCL_ALGO_… and NCCL_PROTO_… of NCCL 2.23, the only version with v1.
constexpr const char* kFunctions[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                      "AllReduce", "SendRecv", "Send",      "Recv"};
constexpr const char* kTypes[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                  "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                  "ncclFloat64", "ncclBfloat16"};
constexpr const char* kAlgorithms[] = {
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
constexpr const char* kProtocols[] = {"LL", "LL128", "SIMPLE"};

void take_names(const EventDescr_v1& e, NcclCall& call) {
  const bool coll = e.type == kColl;
  call.function = word(kFunctions, coll ? e.coll.func : e.p2p.func);
  call.datatype = word(kTypes, coll ? e.coll.datatype : e.p2p.datatype);
  if (!coll) return;
  call.algorithm = word(kAlgorithms, e.coll.algo);
  call.protocol = word(kProtocols, e.coll.proto);
}
template <typename Descr>
void take_names(const Descr& e, NcclCall& call) {
  const bool coll = e.type == kColl;
  call.function = coll ? e.coll.func : e.p2p.func;
  call.datatype = coll ? e.coll.datatype : e.p2p.datatype;
  if (!coll) return;
  call.algorithm = e.coll.algo;
  call.protocol = e.coll.proto;
}

// What a collective or a point-to-point operation has in every version.
template <typename Descr>
NcclCall call_of(const Descr& e) {
  NcclCall call;
  call.rank = e.rank;
  take_names(e, call);
  if (e.type == kColl) {
    call.sequence = e.coll.seqNumber;
    call.count = e.coll.count;
    call.send = e.coll.sendBuff;
    call.receive = e.coll.recvBuff;
    call.peer = e.coll.root;
  } else {
    call.kind = NcclKind::kPointToPoint;
    call.count = e.p2p.count;
    (call.function != nullptr && call.function[0] == 'S' ? call.send : call.receive) = e.p2p.buff;
    call.peer = e.p2p.peer;
  }
  return call;
}

template <typename Descr>
ncclResult_t start_v1(void* context, void** handle, Descr* e) {
  if (handle == nullptr) return ncclSuccess;
  *handle = nullptr;
  if (e == nullptr || !nccl_enabled()) return ncclSuccess;
  if (e->type == kGroup) *handle = object_of(begin_group(context_of(context)));
  if (e->type != kColl && e->type != kP2p) return ncclSuccess;
  NcclCall call = call_of(*e);
  call.communicator_name = e->type == kColl ? e->coll.name : e->p2p.name;
  call.communicator_id = e->type == kColl ? e->coll.commHash : e->p2p.commHash;
  call.channels = e->type == kColl ? e->coll.nMaxChannels : 0;
  call.group = handle_of(e->parentObj);
  *handle = object_of(begin_operation(context_of(context), call));
  return ncclSuccess;
}

ncclResult_t start_v4(void* context, void** handle, EventDescr_v4* e) {
  if (handle == nullptr) return ncclSuccess;
  *handle = nullptr;
  if (e == nullptr || !nccl_enabled()) return ncclSuccess;
  if (e->type == kGroup) *handle = object_of(begin_group(context_of(context)));
  if (e->type != kColl && e->type != kP2p) return ncclSuccess;
  NcclCall call = call_of(*e);
  call.channels = e->type == kColl ? e->coll.nChannels : e->p2p.nChannels;
  call.group = handle_of(e->parentObj);
  *handle = object_of(begin_operation(context_of(context), call));
  return ncclSuccess;
}

template <typename Descr>
NcclHandle start_api(NcclContext context, const Descr& e) {
  NcclCall call;
  if (e.type == kCollApi) {
    call.function = e.collApi.func;
    call.datatype = e.collApi.datatype;
    call.count = e.collApi.count;
    call.peer = e.collApi.root;
    call.stream = e.collApi.stream;
    if (e.collApi.graphCaptured) return 0;  // runs when the graph is launched
  } else {
    call.kind = NcclKind::kPointToPoint;
    call.function = e.p2pApi.func;
    call.datatype = e.p2pApi.datatype;
    call.count = e.p2pApi.count;
    call.stream = e.p2pApi.stream;
    if (e.p2pApi.graphCaptured) return 0;
  }
  return begin_api(context, call);
}

template <typename Descr>
NcclHandle start_operation(NcclContext context, const Descr& e) {
  NcclCall call = call_of(e);
  call.channels = e.type == kColl ? e.coll.nChannels : e.p2p.nChannels;
  call.api = handle_of(e.parentObj);
  // Captured into a graph and not run: its kernels come with each launch of the graph, in no group.
  const bool captured = call.api == 0;
  if (!captured) call.group = handle_of(e.type == kColl ? e.coll.parentGroup : e.p2p.parentGroup);
  return begin_operation(context, call);
}

NcclHandle start_copies(NcclContext context, const EventDescr_v6& e) {
  NcclCall call;
  call.kind = NcclKind::kCopyEngine;
  call.function = e.ceColl.func;
  call.datatype = e.ceColl.datatype;
  call.sequence = e.ceColl.seqNumber;
  call.count = e.ceColl.count;
  call.send = e.ceColl.sendBuff;
  call.receive = e.ceColl.recvBuff;
  call.peer = e.ceColl.root;
  call.stream = e.ceColl.stream;
  call.api = handle_of(e.parentObj);
  return begin_operation(context, call);
}

template <typename Descr>
ncclResult_t start_v5(void* object, void** handle, Descr* e) {
  if (handle == nullptr) return ncclSuccess;
  *handle = nullptr;
  if (e == nullptr || !nccl_enabled()) return ncclSuccess;
  const NcclContext context = context_of(object);
  NcclHandle begun = 0;
  switch (e->type) {
    case kGroup:
      begun = begin_group(context);
      break;
    case kGroupApi:
      begun = begin_visit(context);
      break;
    case kCollApi:
    case kP2pApi:
      begun = start_api(context, *e);
      break;
    case kColl:
    case kP2p:
      begun = start_operation(context, *e);
      break;
    default:
      if constexpr (requires { e->ceColl; }) {
        if (e->type == kCeColl) begun = start_copies(context, *e);
      }
      break;
  }
  *handle = object_of(begun);
  return ncclSuccess;
}

ncclResult_t stop(void* handle) {
  end(handle_of(handle));
  return ncclSuccess;
}
ncclResult_t record_state(void*, int, void*) {
  return ncclSuccess;
}
ncclResult_t finalize(void* context) {
  close_communicator(context_of(context));
  return ncclSuccess;
}

constexpr char kName[] = "tidemark";

}  // namespace
}  // namespace tidemark::injector

#define TIDEMARK_PLUGIN extern "C" __attribute__((visibility("default"), used)) const
// NOLINTBEGIN: the names are NCCL's
TIDEMARK_PLUGIN tidemark::nccl::Profiler_v1 ncclProfiler_v1 = {
    tidemark::injector::kName,
    tidemark::injector::init_v1,
    tidemark::injector::start_v1<tidemark::nccl::EventDescr_v1>,
    tidemark::injector::stop,
    tidemark::injector::record_state,
    tidemark::injector::finalize};
TIDEMARK_PLUGIN tidemark::nccl::Profiler_v2 ncclProfiler_v2 = {
    tidemark::injector::kName,
    tidemark::injector::init_v1,
    tidemark::injector::start_v1<tidemark::nccl::EventDescr_v2>,
    tidemark::injector::stop,
    tidemark::injector::record_state,
    tidemark::injector::finalize};
TIDEMARK_PLUGIN tidemark::nccl::Profiler_v3 ncclProfiler_v3 = {
    tidemark::injector::kName,
    tidemark::injector::init_v1,
    tidemark::injector::start_v1<tidemark::nccl::EventDescr_v3>,
    tidemark::injector::stop,
    tidemark::injector::record_state,
    tidemark::injector::finalize};
TIDEMARK_PLUGIN tidemark::nccl::Profiler_v4 ncclProfiler_v4 = {
    tidemark::injector::kName, tidemark::injector::init_v4,      tidemark::injector::start_v4,
    tidemark::injector::stop,  tidemark::injector::record_state, tidemark::injector::finalize};
TIDEMARK_PLUGIN tidemark::nccl::Profiler_v5 ncclProfiler_v5 = {
    tidemark::injector::kName,
    tidemark::injector::init_v5<tidemark::injector::kWantedV5>,
    tidemark::injector::start_v5<tidemark::nccl::EventDescr_v5>,
    tidemark::injector::stop,
    tidemark::injector::record_state,
    tidemark::injector::finalize};
TIDEMARK_PLUGIN tidemark::nccl::Profiler_v6 ncclProfiler_v6 = {
    tidemark::injector::kName,
    tidemark::injector::init_v5<tidemark::injector::kWantedV6>,
    tidemark::injector::start_v5<tidemark::nccl::EventDescr_v6>,
    tidemark::injector::stop,
    tidemark::injector::record_state,
    tidemark::injector::finalize};
// NOLINTEND
