#include "injector/stacks/got_slot.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "proto/base/library_name.h"

namespace tidemark::injector {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kGlobalData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kGlobalData = R_AARCH64_GLOB_DAT;
#else
#error "the relocation types of this processor are not known"
#endif

const char* name_of(const dl_phdr_info& info) {
  if (info.dlpi_name == nullptr) return "";
  const char* const slash = std::strrchr(info.dlpi_name, '/');
  return slash != nullptr ? slash + 1 : info.dlpi_name;
}

struct DynamicFacts {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * tables[2] = {};
  size_t bytes[2] = {};
};

// glibc has already added the load address to the pointers in the dynamic section.
DynamicFacts read_dynamic(const ElfW(Dyn) * dynamic) {
  DynamicFacts facts;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        facts.symbols = reinterpret_cast<const ElfW(Sym)*>(dynamic->d_un.d_ptr);
        break;
      case DT_STRTAB:
        facts.strings = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
        break;
      case DT_JMPREL:
        facts.tables[0] = reinterpret_cast<const ElfW(Rela)*>(dynamic->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        facts.bytes[0] = dynamic->d_un.d_val;
        break;
      case DT_RELA:
        facts.tables[1] = reinterpret_cast<const ElfW(Rela)*>(dynamic->d_un.d_ptr);
        break;
      case DT_RELASZ:
        facts.bytes[1] = dynamic->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return facts;
}

void** slot_in(const DynamicFacts& facts, ElfW(Addr) base, const char* symbol) {
  if (facts.symbols == nullptr || facts.strings == nullptr) return nullptr;
  for (size_t table = 0; table < 2; ++table) {
    if (facts.tables[table] == nullptr) continue;
    const size_t count = facts.bytes[table] / sizeof(ElfW(Rela));
    for (size_t i = 0; i < count; ++i) {
      const ElfW(Rela)& entry = facts.tables[table][i];
      const auto type = static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info));
      if (type != kJumpSlot && type != kGlobalData) continue;
      const ElfW(Sym)& target = facts.symbols[ELF64_R_SYM(entry.r_info)];
      if (std::strcmp(facts.strings + target.st_name, symbol) != 0) continue;
      return reinterpret_cast<void**>(base + entry.r_offset);
    }
  }
  return nullptr;
}

struct Search {
  const char* library;
  const char* symbol;
  GotSlot slot;
};

int look_into(dl_phdr_info* info, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  if (!is_library_name(name_of(*info), search.library)) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_DYNAMIC) continue;
    const auto* const dynamic =
        reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + header.p_vaddr);
    search.slot.address = slot_in(read_dynamic(dynamic), info->dlpi_addr, search.symbol);
  }
  const auto place = reinterpret_cast<uintptr_t>(search.slot.address) - info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_GNU_RELRO) continue;
    search.slot.read_only = place >= header.p_vaddr && place < header.p_vaddr + header.p_memsz;
  }
  return 1;
}

struct PathSearch {
  const char* library;
  char* path;
  size_t size;
  bool found;
};

int take_path(dl_phdr_info* info, size_t, void* context) {
  auto& search = *static_cast<PathSearch*>(context);
  if (!is_library_name(name_of(*info), search.library)) return 0;
  search.found = true;
  std::snprintf(search.path, search.size, "%s", info->dlpi_name);
  return 1;
}

int begins_like(dl_phdr_info* info, size_t, void* context) {
  const auto* const beginning = static_cast<const char*>(context);
  return std::strncmp(name_of(*info), beginning, std::strlen(beginning)) == 0 ? 1 : 0;
}

}  // namespace

bool find_got_slot(const char* library, const char* symbol, GotSlot& slot) noexcept {
  Search search{library, symbol, {}};
  dl_iterate_phdr(look_into, &search);
  slot = search.slot;
  return slot.address != nullptr;
}

bool write_got_slot(const GotSlot& slot, void* target) noexcept {
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(slot.address);
  void* const page = reinterpret_cast<void*>(address & ~(page_bytes - 1));
  if (slot.read_only && ::mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref(*slot.address).store(target, std::memory_order_release);
  if (slot.read_only) ::mprotect(page, page_bytes, PROT_READ);
  return true;
}

bool is_loaded(const char* beginning) noexcept {
  return dl_iterate_phdr(begins_like, const_cast<char*>(beginning)) != 0;
}

bool loaded_path(const char* library, char* path, unsigned long size) noexcept {
  PathSearch search{library, path, size, false};
  dl_iterate_phdr(take_path, &search);
  return search.found;
}

}  // namespace tidemark::injector
