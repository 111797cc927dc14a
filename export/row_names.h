// The names of the kinds in rows, for tables and tracks.
#pragma once

#include <string>
#include <string_view>

#include "proto/rows.h"

namespace tidemark {

std::string_view driver_operation_name(DriverOperation operation);
std::string_view memory_kind_name(MemoryKind kind);
std::string_view copy_kind_name(CopyKind kind);
std::string_view counter_kind_name(CounterKind kind);
std::string_view nccl_kind_name(NcclKind kind);
std::string_view health_kind_name(HealthKind kind);
std::string_view source_name(Source source);
std::string_view setting_scope_name(SettingScope scope);

// The name of a kernel as its source spells it: CUPTI gives the mangled name. Other names stay.
std::string kernel_name(std::string_view name);

}  // namespace tidemark
