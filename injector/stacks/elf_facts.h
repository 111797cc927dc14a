// Reads a shared object as the loader has mapped it: segments, unwind tables, build id, symbols.
// Only while the object cannot be unloaded: inside a callback of dl_iterate_phdr.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/stacks/cfi.h"

namespace tidemark::injector {

inline constexpr size_t kMaxBuildIdBytes = 32;
inline constexpr size_t kMaxBuildIdText = 2 * kMaxBuildIdBytes;

struct CodeRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

class ElfFacts {
 public:
  explicit ElfFacts(const dl_phdr_info& info) noexcept;

  uintptr_t base() const noexcept { return info_.dlpi_addr; }
  uintptr_t begin() const noexcept { return begin_; }
  uintptr_t end() const noexcept { return end_; }

  UnwindTables unwind_tables() const noexcept;

  // Hexadecimal, in `buffer`; empty if the object has none.
  std::string_view build_id(char (&buffer)[kMaxBuildIdText]) const noexcept;

  // The range from the first to the last exported function whose name begins with one of the
  // prefixes. The linker places the members of an archive next to each other, so code between two
  // functions of NCCL is NCCL's. Empty when there are too few to tell.
  CodeRange functions_named(std::string_view prefix, std::string_view other_prefix) const noexcept;
  // The range of one exported function; empty if there is none of that name.
  CodeRange function(const char* name) const noexcept;

 private:
  // Calls `use` with the name and range of every exported function.
  template <typename Use>
  void for_each_function(Use&& use) const noexcept;
  const ElfW(Phdr) * segment_of(uintptr_t address, size_t size) const noexcept;
  const ElfW(Phdr) * header_of_type(uint32_t type) const noexcept;

  const dl_phdr_info& info_;
  uintptr_t begin_ = 0;
  uintptr_t end_ = 0;
};

}  // namespace tidemark::injector
