// Keeps the library loadable on glibc 2.34.
//
// The static libraries of newer compilers use functions of newer glibcs: libgcc of GCC 12 looks up
// unwind tables with _dl_find_object (2.35), and libstdc++ of GCC 13 built on glibc 2.38 reads
// GLIBCXX_TUNABLES with __isoc23_strtoul. The definitions below, hidden like everything else,
// satisfy these references. Nothing here throws and hardly anybody sets those tunables, so they
// rarely run; they are correct all the same.
#include <link.h>

#include <climits>
#include <cstdint>

namespace {

// glibc's struct dl_find_object, as on x86-64 and aarch64.
struct FoundObject {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  link_map* map;
  void* eh_frame_header;
  unsigned long long reserved[7];
};

struct Search {
  uintptr_t address;
  FoundObject* out;
  bool found;
};

int look_at(dl_phdr_info* info, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  const ElfW(Phdr)* tables = nullptr;
  const ElfW(Phdr)* segment = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) tables = &header;
    if (header.p_type == PT_LOAD && search.address >= begin &&
        search.address - begin < header.p_memsz) {
      segment = &header;
    }
  }
  if (segment == nullptr) return 0;
  search.found = tables != nullptr;
  if (tables == nullptr) return 1;
  const uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
  *search.out = {};
  search.out->map_start = reinterpret_cast<void*>(begin);
  search.out->map_end = reinterpret_cast<void*>(begin + segment->p_memsz);
  search.out->eh_frame_header = reinterpret_cast<void*>(info->dlpi_addr + tables->p_vaddr);
  return 1;
}

}  // namespace

// Declared under another name, since glibc's header may declare it too.
extern "C" __attribute__((visibility("hidden"))) int tidemark_find_object(
    void* address, FoundObject* out) __asm__("_dl_find_object");

int tidemark_find_object(void* address, FoundObject* out) {
  Search search{reinterpret_cast<uintptr_t>(address), out, false};
  dl_iterate_phdr(look_at, &search);
  return search.found ? 0 : -1;
}

extern "C" __attribute__((visibility("hidden"))) unsigned long tidemark_strtoul(
    const char* text, char** end, int base) __asm__("__isoc23_strtoul");

// Handles no sign, which the size of a pool never has, and no C23 prefix 0b.
unsigned long tidemark_strtoul(const char* text, char** end, int base) {
  const char* at = text;
  while (*at == ' ' || (*at >= '\t' && *at <= '\r')) ++at;
  const bool hexadecimal = at[0] == '0' && (at[1] | 0x20) == 'x';
  if ((base == 0 || base == 16) && hexadecimal) {
    base = 16;
    at += 2;
  }
  if (base == 0) base = *at == '0' ? 8 : 10;
  unsigned long value = 0;
  const char* const first = at;
  for (;; ++at) {
    const int letter = *at | 0x20;
    const int digit = *at >= '0' && *at <= '9'         ? *at - '0'
                      : letter >= 'a' && letter <= 'z' ? letter - 'a' + 10
                                                       : base;
    if (digit >= base) break;
    const auto number = static_cast<unsigned long>(digit);
    const auto factor = static_cast<unsigned long>(base);
    value = value > (ULONG_MAX - number) / factor ? ULONG_MAX : value * factor + number;
  }
  if (end != nullptr) *end = const_cast<char*>(at == first ? text : at);
  return value;
}
