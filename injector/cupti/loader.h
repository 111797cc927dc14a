// Finds libcupti and its functions at run time.
//
// If the process has loaded one already (a PyTorch wheel brings libcupti.so.12 or .13), that one is
// used, because two copies would compete for the single subscription of the driver. Otherwise the
// places of for_each_cupti_candidate are tried in order. Nothing here calls CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "abi/cupti.h"

namespace tidemark::injector {

// The calls of one subscriber among several: all present or all null.
struct CuptiSharedFunctions {
  cupti::cuptiGetTimestamp_v2_fn get_timestamp;
  cupti::cuptiActivityEnable_v2_fn activity_enable;
  cupti::cuptiActivityDisable_v2_fn activity_disable;
  cupti::cuptiActivityRegisterCallbacks_v2_fn activity_register_callbacks;
  cupti::cuptiActivityGetNextRecord_v2_fn activity_get_next_record;
  cupti::cuptiActivityGetNumDroppedRecords_v2_fn activity_get_num_dropped_records;
  cupti::cuptiActivitySetAttribute_v2_fn activity_set_attribute;
  cupti::cuptiActivityGetAttribute_v2_fn activity_get_attribute;
};

// Functions without a comment are always present; the others may be null.
struct CuptiFunctions {
  uint32_t version = 0;  // from cuptiGetVersion: 19…28 for CUDA 12, 130000 and up for CUDA 13
  cupti::cuptiGetVersion_fn get_version;
  cupti::cuptiSubscribe_fn subscribe;
  cupti::cuptiUnsubscribe_fn unsubscribe;
  cupti::cuptiEnableCallback_fn enable_callback;
  cupti::cuptiGetDeviceId_fn get_device_id;
  cupti::cuptiGetContextId_fn get_context_id;
  cupti::cuptiActivityEnable_fn activity_enable;
  cupti::cuptiActivityDisable_fn activity_disable;
  cupti::cuptiActivityRegisterCallbacks_fn activity_register_callbacks;
  cupti::cuptiActivityGetNextRecord_fn activity_get_next_record;
  cupti::cuptiActivityGetNumDroppedRecords_fn activity_get_num_dropped_records;
  cupti::cuptiActivityFlushAll_fn activity_flush_all;
  cupti::cuptiActivitySetAttribute_fn activity_set_attribute;
  cupti::cuptiActivityGetAttribute_fn activity_get_attribute;
  cupti::cuptiSubscribe_v2_fn subscribe_v2;          // CUDA 13.0
  cupti::cuptiGetResultString_fn get_result_string;  // for messages
  CuptiSharedFunctions shared;                       // CUDA 13.3
};

inline constexpr size_t kMaxLibraryPath = 1024;

// Calls `use` with paths (or bare names) to try, best first, until it returns true. `mapped` are
// the paths of the shared objects in the process.
using CandidateUse = bool (*)(const char* path, void* context);
bool for_each_cupti_candidate(std::span<const std::string_view> mapped, CandidateUse use,
                              void* context) noexcept;

struct CuptiLibrary {
  CuptiFunctions functions{};
  bool found = false;
  char path[kMaxLibraryPath] = "";    // where it was found
  char reason[kMaxLibraryPath] = "";  // why it was not found, for one line on stderr
};

void load_cupti(CuptiLibrary& out) noexcept;

}  // namespace tidemark::injector
