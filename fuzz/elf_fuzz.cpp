// Reads any bytes as a module that a trace names: its build id and the functions at some addresses.
#include <cstdint>
#include <vector>

#include "analysis/names/elf_file.h"
#include "analysis/names/readable_name.h"
#include "nameless_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  (void)short_function({reinterpret_cast<const char*>(data), size});
  const auto file = ElfFile::from_fd(nameless_file({data, size}));
  if (!file) return 0;
  std::vector<uint64_t> addresses;
  for (uint64_t address = 0; address < 0x4000; address += 0x40) addresses.push_back(address);
  (void)file->functions_at(addresses);
  (void)file->debug_bytes();
  return 0;
}
