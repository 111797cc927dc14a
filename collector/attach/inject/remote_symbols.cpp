#include "collector/attach/inject/remote_symbols.h"

#include <elf.h>

#include <cstring>
#include <span>

namespace tidemark::inject {

namespace {

// The table by which the loader itself finds the functions of a library (DT_GNU_HASH):
//   buckets, first symbol, bloom words, bloom shift | bloom … | bucket … | chain …
// The words of a chain are the hashes of its symbols; the last one of a chain is odd.
class SymbolTable {
 public:
  SymbolTable(const RemoteMemory& memory, const MappedFile& library)
      : memory_(memory), library_(library) {}

  bool open() {
    Elf64_Ehdr header;
    if (!library_.at_start || !memory_.read(library_.begin, header) ||
        std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
      return false;
    }
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (!memory_.read(library_.begin + header.e_phoff + i * sizeof segment, segment))
        return false;
      if (segment.p_type == PT_LOAD && !based_) {
        based_ = true;
        base_ = library_.begin - (segment.p_vaddr & ~(kSmallestPage - 1));
      }
      if (segment.p_type == PT_DYNAMIC) dynamic_ = segment;
    }
    return based_ && dynamic_.p_memsz != 0 && read_dynamic();
  }

  uint64_t find(std::string_view name) const {
    uint32_t head[4];
    if (!memory_.read(hash_, head) || head[0] == 0 || head[0] > kMost || head[2] > kMost) return 0;
    uint32_t wanted = 5381;
    for (const char c : name) wanted = wanted * 33 + static_cast<uint8_t>(c);
    const uint64_t buckets = hash_ + sizeof head + uint64_t{head[2]} * sizeof(uint64_t);
    const uint64_t chains = buckets + uint64_t{head[0]} * sizeof(uint32_t);
    uint32_t index = 0;
    if (!memory_.read(buckets + uint64_t{wanted % head[0]} * sizeof index, index)) return 0;
    for (; index >= head[1] && index < kMost; ++index) {
      uint32_t hash = 0;
      if (!memory_.read(chains + uint64_t{index - head[1]} * sizeof hash, hash)) return 0;
      if ((hash | 1) == (wanted | 1)) {
        if (const uint64_t address = function_named(index, name); address != 0) return address;
      }
      if ((hash & 1) != 0) break;
    }
    return 0;
  }

 private:
  static constexpr uint64_t kSmallestPage = 4096;
  static constexpr uint32_t kMost = 1 << 24;

  bool read_dynamic() {
    const uint64_t count = dynamic_.p_memsz / sizeof(Elf64_Dyn);
    for (uint64_t i = 0; i < count && i < 1024; ++i) {
      Elf64_Dyn entry;
      if (!memory_.read(base_ + dynamic_.p_vaddr + i * sizeof entry, entry)) return false;
      if (entry.d_tag == DT_NULL) break;
      // glibc replaces the offsets with addresses in most objects, but not in all.
      const uint64_t value = entry.d_un.d_ptr;
      const uint64_t address = value < base_ ? base_ + value : value;
      if (entry.d_tag == DT_GNU_HASH) hash_ = address;
      if (entry.d_tag == DT_SYMTAB) symbols_ = address;
      if (entry.d_tag == DT_STRTAB) strings_ = address;
    }
    return hash_ != 0 && symbols_ != 0 && strings_ != 0;
  }

  uint64_t function_named(uint32_t index, std::string_view name) const {
    Elf64_Sym symbol;
    if (!memory_.read(symbols_ + uint64_t{index} * sizeof symbol, symbol)) return 0;
    const int type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT)) return 0;
    if (memory_.text(strings_ + symbol.st_name, name.size() + 1) != name) return 0;
    return base_ + symbol.st_value;
  }

  const RemoteMemory& memory_;
  const MappedFile& library_;
  bool based_ = false;
  uint64_t base_ = 0;
  Elf64_Phdr dynamic_{};
  uint64_t hash_ = 0;
  uint64_t symbols_ = 0;
  uint64_t strings_ = 0;
};

}  // namespace

uint64_t find_symbol(const RemoteMemory& memory, const MappedFile& library, std::string_view name) {
  SymbolTable table(memory, library);
  return table.open() ? table.find(name) : 0;
}

uint64_t find_libc_symbol(const RemoteMemory& memory, const std::vector<MappedFile>& files,
                          std::string_view name) {
  // The file name is libdl.so.2, or libdl-2.31.so in glibc up to 2.33.
  for (const std::string_view part : {"libc", "libpthread", "libdl"}) {
    for (const MappedFile& file : files) {
      const std::string_view rest = file.name();
      if (!rest.starts_with(part)) continue;
      const std::string_view tail = rest.substr(part.size());
      if (!tail.starts_with(".so.") && !tail.starts_with("-2.")) continue;
      if (const uint64_t address = find_symbol(memory, file, name); address != 0) return address;
    }
  }
  return 0;
}

}  // namespace tidemark::inject
