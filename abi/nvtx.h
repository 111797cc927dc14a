// The part of NVTX 3's injection interface that we use, declared by hand (tests/abi compares it).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemark::nvtx {

inline constexpr uint32_t kEtidCallbacks = 1;

enum Module : int32_t { kModuleCore = 1, kModuleCore2 = 5 };

// Indices of functions in the table of their module.
enum Core : uint32_t {
  kMarkEx = 1,
  kMarkA = 2,
  kMarkW = 3,
  kRangeStartEx = 4,
  kRangeStartA = 5,
  kRangeStartW = 6,
  kRangeEnd = 7,
  kRangePushEx = 8,
  kRangePushA = 9,
  kRangePushW = 10,
  kRangePop = 11,
};
enum Core2 : uint32_t {
  kDomainMarkEx = 1,
  kDomainRangeStartEx = 2,
  kDomainRangeEnd = 3,
  kDomainRangePushEx = 4,
  kDomainRangePop = 5,
  kDomainRegisterStringA = 10,
  kDomainRegisterStringW = 11,
  kDomainCreateA = 12,
  kDomainCreateW = 13,
};

using Function = void (*)();
using FunctionTable = Function**;  // pointers to the pointers to fill in

struct ExportTableCallbacks {
  size_t struct_size;
  int (*get_module_function_table)(int32_t module, FunctionTable* out_table, unsigned* out_size);
};

enum MessageType : int32_t { kMessageAscii = 1, kMessageUnicode = 2, kMessageRegistered = 3 };

struct EventAttributes {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;
};

}  // namespace tidemark::nvtx
