// A shared object or program on disk: its build id, and the function at an address.
//
// The path comes from a trace and is not trusted: only regular files of real file systems are read,
// nothing is mapped or executed, every offset in the file is checked, and the symbol tables are
// read in chunks, so that memory grows with the number of addresses and not with the file.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

class ElfFile {
 public:
  // The object at `path` if it has this build id (hexadecimal, not empty).
  static std::optional<ElfFile> open(const std::string& path, std::string_view build_id);
  // Takes ownership of the descriptor, even when it is not an ELF object.
  static std::optional<ElfFile> from_fd(int fd);

  ElfFile(ElfFile&& other) noexcept;
  ElfFile& operator=(ElfFile&&) = delete;
  ~ElfFile();

  int fd() const { return fd_; }
  const std::string& build_id() const { return build_id_; }
  // Whether it has the table of all functions, not only of exported ones.
  bool has_full_symbols() const { return section_of_type(SHT_SYMTAB) != nullptr; }
  // Uncompressed size of .debug_info; 0: there is none.
  uint64_t debug_bytes() const;

  // The mangled names of the functions at these addresses of the file, which must be in order; ""
  // where no function covers the address.
  std::vector<std::string> functions_at(std::span<const uint64_t> addresses) const;

 private:
  struct Hit;

  explicit ElfFile(int fd) : fd_(fd) {}
  bool load();
  bool load_sections(const Elf64_Ehdr& header);
  void load_build_id(const Elf64_Ehdr& header);
  bool read_at(uint64_t offset, void* out, size_t size) const;
  std::string text_at(const Elf64_Shdr& strings, uint64_t offset) const;
  const Elf64_Shdr* section_of_type(uint32_t type) const;
  const Elf64_Shdr* section_named(std::string_view name) const;
  void search(const Elf64_Shdr& table, std::span<const uint64_t> addresses,
              std::vector<Hit>& hits) const;

  int fd_ = -1;
  uint64_t size_ = 0;
  std::vector<Elf64_Shdr> sections_;
  uint32_t names_section_ = 0;
  std::string build_id_;
};

}  // namespace tidemark
