#include "injector/stacks/elf_facts.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace tidemark::injector {
namespace {

constexpr uint32_t kFewestFunctions = 8;
constexpr uintptr_t kLargestPart = 64ul << 20;

// The tables that the dynamic section points at.
struct DynamicTables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  size_t strings_size = 0;
  const uint32_t* gnu_hash = nullptr;
};

DynamicTables read_dynamic(const ElfW(Dyn) * entry) {
  DynamicTables tables;
  for (; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        break;
      case DT_STRSZ:
        tables.strings_size = entry->d_un.d_val;
        break;
      case DT_GNU_HASH:
        tables.gnu_hash = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr);
        break;
      default:
        break;
    }
  }
  return tables;
}

// One more than the index of the last symbol, at the end of the last bucket's chain.
uint32_t symbol_count(const uint32_t* gnu_hash) {
  const uint32_t bucket_count = gnu_hash[0];
  const uint32_t first_symbol = gnu_hash[1];
  const uint32_t bloom_words = gnu_hash[2];
  const uint32_t* buckets = gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chains = buckets + bucket_count;
  uint32_t last = 0;
  for (uint32_t i = 0; i < bucket_count; ++i) last = std::max(last, buckets[i]);
  if (last < first_symbol) return 0;
  while ((chains[last - first_symbol] & 1) == 0) ++last;
  return last + 1;
}

}  // namespace

ElfFacts::ElfFacts(const dl_phdr_info& info) noexcept : info_(info) {
  begin_ = ~uintptr_t{0};
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type != PT_LOAD || header.p_memsz == 0) continue;
    begin_ = std::min<uintptr_t>(begin_, info.dlpi_addr + header.p_vaddr);
    end_ = std::max<uintptr_t>(end_, info.dlpi_addr + header.p_vaddr + header.p_memsz);
  }
  if (end_ == 0) begin_ = 0;
}

const ElfW(Phdr) * ElfFacts::segment_of(uintptr_t address, size_t size) const noexcept {
  for (int i = 0; i < info_.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info_.dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_R) == 0) continue;
    const uintptr_t start = info_.dlpi_addr + header.p_vaddr;
    if (address >= start && address - start <= header.p_filesz &&
        size <= header.p_filesz - (address - start)) {
      return &header;
    }
  }
  return nullptr;
}

const ElfW(Phdr) * ElfFacts::header_of_type(uint32_t type) const noexcept {
  for (int i = 0; i < info_.dlpi_phnum; ++i) {
    if (info_.dlpi_phdr[i].p_type == type) return &info_.dlpi_phdr[i];
  }
  return nullptr;
}

UnwindTables ElfFacts::unwind_tables() const noexcept {
  const ElfW(Phdr)* header = header_of_type(PT_GNU_EH_FRAME);
  if (header == nullptr) return {};
  const uintptr_t address = info_.dlpi_addr + header->p_vaddr;
  const ElfW(Phdr)* segment = segment_of(address, header->p_memsz);
  if (segment == nullptr) return {};
  const auto* start = reinterpret_cast<const uint8_t*>(info_.dlpi_addr + segment->p_vaddr);
  return {reinterpret_cast<const uint8_t*>(address), start, start + segment->p_filesz};
}

std::string_view ElfFacts::build_id(char (&buffer)[kMaxBuildIdText]) const noexcept {
  for (int i = 0; i < info_.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info_.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const uintptr_t address = info_.dlpi_addr + header.p_vaddr;
    if (segment_of(address, header.p_memsz) == nullptr) continue;
    const auto* at = reinterpret_cast<const uint8_t*>(address);
    const uint8_t* end = at + header.p_memsz;
    while (static_cast<size_t>(end - at) >= sizeof(ElfW(Nhdr))) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const uint64_t name_bytes = (uint64_t{note.n_namesz} + 3) & ~uint64_t{3};
      const uint64_t text_bytes = (uint64_t{note.n_descsz} + 3) & ~uint64_t{3};
      const uint8_t* name = at + sizeof note;
      if (name_bytes + text_bytes > static_cast<uint64_t>(end - name)) break;
      const uint8_t* text = name + name_bytes;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        const size_t bytes = std::min<size_t>(note.n_descsz, kMaxBuildIdBytes);
        for (size_t k = 0; k < bytes; ++k) {
          constexpr char kDigits[] = "0123456789abcdef";
          buffer[2 * k] = kDigits[text[k] >> 4];
          buffer[2 * k + 1] = kDigits[text[k] & 15];
        }
        return {buffer, 2 * bytes};
      }
      at = text + text_bytes;
    }
  }
  return {};
}

template <typename Use>
void ElfFacts::for_each_function(Use&& use) const noexcept {
  const ElfW(Phdr)* header = header_of_type(PT_DYNAMIC);
  if (header == nullptr) return;
  const DynamicTables tables =
      read_dynamic(reinterpret_cast<const ElfW(Dyn)*>(info_.dlpi_addr + header->p_vaddr));
  // The loader has relocated the addresses in the dynamic section, except in the vdso.
  if (tables.symbols == nullptr || tables.strings == nullptr || tables.gnu_hash == nullptr ||
      reinterpret_cast<uintptr_t>(tables.symbols) < begin_) {
    return;
  }
  const uint32_t count = symbol_count(tables.gnu_hash);
  for (uint32_t i = 0; i < count; ++i) {
    const ElfW(Sym)& symbol = tables.symbols[i];
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
        symbol.st_name >= tables.strings_size) {
      continue;
    }
    const uintptr_t begin = info_.dlpi_addr + symbol.st_value;
    use(tables.strings + symbol.st_name, CodeRange{begin, begin + symbol.st_size});
  }
}

CodeRange ElfFacts::functions_named(std::string_view prefix,
                                    std::string_view other_prefix) const noexcept {
  CodeRange range{~uintptr_t{0}, 0};
  uint32_t found = 0;
  for_each_function([&](const char* name, const CodeRange& code) {
    if (std::strncmp(name, prefix.data(), prefix.size()) != 0 &&
        std::strncmp(name, other_prefix.data(), other_prefix.size()) != 0) {
      return;
    }
    ++found;
    range.begin = std::min(range.begin, code.begin);
    range.end = std::max(range.end, code.end);
  });
  if (found < kFewestFunctions || range.end - range.begin > kLargestPart) return {};
  return range;
}

CodeRange ElfFacts::function(const char* name) const noexcept {
  CodeRange range;
  for_each_function([&](const char* candidate, const CodeRange& code) {
    if (std::strcmp(candidate, name) == 0) range = code;
  });
  return range;
}

}  // namespace tidemark::injector
