#include "analysis/names/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "proto/base/descriptor.h"
#include "proto/base/file_io.h"

namespace tidemark {

namespace {

// PROC_SUPER_MAGIC and SYSFS_MAGIC of <linux/magic.h>, which only Linux has.
constexpr uint32_t kProc = 0x9fa0;
constexpr uint32_t kSysfs = 0x62656572;
constexpr uint64_t kMaxSections = 1 << 16;
constexpr uint64_t kMaxProgramHeaders = 1 << 12;
constexpr uint64_t kMaxNoteBytes = 1 << 16;
constexpr uint64_t kMaxSymbols = 1 << 26;  // libtorch has a few million
// Symbols times the addresses they cover. In a real file few functions share an address.
constexpr uint64_t kMaxComparisons = 1 << 27;
constexpr size_t kMaxNameBytes = 8 << 10;
constexpr size_t kSymbolsAtOnce = 8 << 10;
constexpr std::string_view kBuildIdOwner{"GNU\0", 4};

// Opening a device or a pipe has side effects, and so does reading some files of /proc and /sys:
// check what the path refers to first, and then open exactly that.
int open_regular(const std::string& path) {
  if (!path.starts_with('/') || path.find('\0') != std::string::npos) return -1;
  const Descriptor place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info {};
  struct statfs system {};
  if (place.get() < 0 || ::fstat(place.get(), &info) != 0 || !S_ISREG(info.st_mode)) return -1;
  if (::fstatfs(place.get(), &system) != 0) return -1;
  if (const auto type = static_cast<uint32_t>(system.f_type); type == kProc || type == kSysfs) {
    return -1;
  }
  const std::string self = "/proc/self/fd/" + std::to_string(place.get());
  return ::open(self.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

std::string hexadecimal(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string find_build_id(std::span<const uint8_t> notes) {
  const auto padded = [](uint64_t size) { return (size + 3) & ~uint64_t{3}; };
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data(), sizeof note);
    const uint64_t name = sizeof note;
    const uint64_t content = name + padded(note.n_namesz);
    const uint64_t end = content + padded(note.n_descsz);
    if (content + note.n_descsz > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == kBuildIdOwner.size() &&
        std::memcmp(notes.data() + name, kBuildIdOwner.data(), kBuildIdOwner.size()) == 0) {
      return hexadecimal(notes.subspan(content, note.n_descsz));
    }
    notes = notes.subspan(std::min<uint64_t>(end, notes.size()));
  }
  return {};
}

bool is_function(const Elf64_Sym& symbol) {
  const int type = ELF64_ST_TYPE(symbol.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF;
}

// Hand-written code often has no size, as the start of programs in older C libraries; most of it is
// short.
uint64_t size_of(const Elf64_Sym& symbol) {
  constexpr uint64_t kHandWritten = 64;
  return symbol.st_size != 0 ? symbol.st_size : kHandWritten;
}

// The rank of a name among several for the same code: the one that callers use wins.
int standing(const Elf64_Sym& symbol) {
  switch (ELF64_ST_BIND(symbol.st_info)) {
    case STB_GLOBAL:
      return 3;
    case STB_WEAK:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

struct ElfFile::Hit {
  bool sized = false;  // the symbol says how long its function is
  uint64_t begin = 0;
  uint32_t name = 0;  // in the table's strings
  int standing = 0;   // 0: nothing found
  const Elf64_Shdr* strings = nullptr;
};

std::optional<ElfFile> ElfFile::open(const std::string& path, std::string_view build_id) {
  if (build_id.empty()) return std::nullopt;
  std::optional<ElfFile> file = from_fd(open_regular(path));
  if (!file || file->build_id() != build_id) return std::nullopt;
  return file;
}

std::optional<ElfFile> ElfFile::from_fd(int fd) {
  if (fd < 0) return std::nullopt;
  ElfFile file(fd);
  if (!file.load()) return std::nullopt;
  return file;
}

ElfFile::ElfFile(ElfFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      sections_(std::move(other.sections_)),
      names_section_(other.names_section_),
      build_id_(std::move(other.build_id_)) {}

ElfFile::~ElfFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool ElfFile::read_at(uint64_t offset, void* out, size_t size) const {
  if (offset > size_ || size > size_ - offset) return false;
  return tidemark::read_at(fd_, offset, out, size);
}

bool ElfFile::load() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  size_ = static_cast<uint64_t>(info.st_size);
  constexpr int kOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  Elf64_Ehdr header;
  if (!read_at(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != kOrder) {
    return false;
  }
  load_build_id(header);
  return load_sections(header);
}

void ElfFile::load_build_id(const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kMaxProgramHeaders) return;
  std::vector<Elf64_Phdr> headers(header.e_phnum);
  if (!read_at(header.e_phoff, headers.data(), headers.size() * sizeof(Elf64_Phdr))) return;
  for (const Elf64_Phdr& program : headers) {
    if (program.p_type != PT_NOTE || program.p_filesz > kMaxNoteBytes) continue;
    std::vector<uint8_t> notes(program.p_filesz);
    if (!read_at(program.p_offset, notes.data(), notes.size())) continue;
    build_id_ = find_build_id(notes);
    if (!build_id_.empty()) return;
  }
}

bool ElfFile::load_sections(const Elf64_Ehdr& header) {
  if (header.e_shoff == 0) return true;  // fully stripped
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return false;
  Elf64_Shdr first;
  if (!read_at(header.e_shoff, &first, sizeof first)) return false;
  // Values that do not fit into the header's 16 bits are in the first section.
  const uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
  names_section_ = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
  if (count > kMaxSections) return false;
  sections_.resize(count);
  return read_at(header.e_shoff, sections_.data(), count * sizeof(Elf64_Shdr));
}

std::string ElfFile::text_at(const Elf64_Shdr& strings, uint64_t offset) const {
  if (strings.sh_type != SHT_STRTAB || offset >= strings.sh_size) return {};
  char text[kMaxNameBytes];
  const size_t size = std::min<uint64_t>(sizeof text, strings.sh_size - offset);
  if (strings.sh_offset > size_ || !read_at(strings.sh_offset + offset, text, size)) return {};
  return {text, ::strnlen(text, size)};
}

const Elf64_Shdr* ElfFile::section_of_type(uint32_t type) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(),
                                  [&](const Elf64_Shdr& s) { return s.sh_type == type; });
  return found == sections_.end() ? nullptr : &*found;
}

const Elf64_Shdr* ElfFile::section_named(std::string_view name) const {
  if (names_section_ >= sections_.size()) return nullptr;
  const Elf64_Shdr& names = sections_[names_section_];
  const auto found = std::find_if(sections_.begin(), sections_.end(), [&](const Elf64_Shdr& s) {
    return text_at(names, s.sh_name) == name;
  });
  return found == sections_.end() ? nullptr : &*found;
}

uint64_t ElfFile::debug_bytes() const {
  const Elf64_Shdr* const section = section_named(".debug_info");
  if (section == nullptr || section->sh_type == SHT_NOBITS) return 0;
  if ((section->sh_flags & SHF_COMPRESSED) == 0) return section->sh_size;
  Elf64_Chdr packed;
  return read_at(section->sh_offset, &packed, sizeof packed) ? packed.ch_size : 0;
}

void ElfFile::search(const Elf64_Shdr& table, std::span<const uint64_t> addresses,
                     std::vector<Hit>& hits) const {
  if (table.sh_entsize != sizeof(Elf64_Sym) || table.sh_link >= sections_.size()) return;
  const Elf64_Shdr& strings = sections_[table.sh_link];
  const uint64_t count = std::min(table.sh_size / sizeof(Elf64_Sym), kMaxSymbols);
  std::vector<Elf64_Sym> symbols;
  uint64_t comparisons = 0;
  for (uint64_t done = 0; done < count && comparisons < kMaxComparisons; done += symbols.size()) {
    symbols.resize(std::min<uint64_t>(kSymbolsAtOnce, count - done));
    const uint64_t at = table.sh_offset + done * sizeof(Elf64_Sym);
    if (!read_at(at, symbols.data(), symbols.size() * sizeof(Elf64_Sym))) return;
    for (const Elf64_Sym& symbol : symbols) {
      if (!is_function(symbol)) continue;
      auto it = std::lower_bound(addresses.begin(), addresses.end(), symbol.st_value);
      for (; it != addresses.end() && *it - symbol.st_value < size_of(symbol); ++it) {
        ++comparisons;
        Hit& hit = hits[static_cast<size_t>(it - addresses.begin())];
        const bool sized = symbol.st_size != 0;
        const std::tuple candidate(sized, symbol.st_value, standing(symbol));
        if (hit.standing != 0 && candidate <= std::tuple(hit.sized, hit.begin, hit.standing)) {
          continue;
        }
        hit = {sized, symbol.st_value, symbol.st_name, standing(symbol), &strings};
      }
    }
  }
}

std::vector<std::string> ElfFile::functions_at(std::span<const uint64_t> addresses) const {
  std::vector<Hit> hits(addresses.size());
  // Exported symbols are also in the full table, unless that was partly stripped.
  for (const uint32_t type : {uint32_t{SHT_SYMTAB}, uint32_t{SHT_DYNSYM}}) {
    std::vector<Hit> found(addresses.size());
    if (const Elf64_Shdr* table = section_of_type(type)) search(*table, addresses, found);
    for (size_t i = 0; i < hits.size(); ++i) {
      if (hits[i].standing == 0) hits[i] = found[i];
    }
  }
  std::vector<std::string> names;
  names.reserve(hits.size());
  for (const Hit& hit : hits) {
    names.push_back(hit.standing == 0 ? std::string() : text_at(*hit.strings, hit.name));
  }
  return names;
}

}  // namespace tidemark
