// The mapped files of a process, from /proc/PID/maps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/base/result.h"

namespace tidemark::inject {

struct MappedFile {
  std::string path;       // as the process names it
  uint64_t begin = 0;     // of its first mapping
  uint64_t end = 0;       // of its last
  bool at_start = false;  // the first mapping contains the start of the file, so an ELF header
  bool executable = false;

  std::string_view name() const;  // without the directories
};

// Sorted by address; a file that is mapped at two different places is listed twice.
Result<std::vector<MappedFile>> read_maps(pid_t pid);
std::vector<MappedFile> parse_maps(std::string_view text);

// A single mapping.
struct MappedRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool writable = false;
  bool executable = false;
};
// The mapping that contains the address; an empty one if there is none.
MappedRange mapping_at(pid_t pid, uint64_t address);

enum class CLibrary { kGlibc, kMusl, kNone };
CLibrary find_c_library(const std::vector<MappedFile>& files);
// libcuda.so.1, whatever the version of its file.
bool has_cuda_driver(const std::vector<MappedFile>& files);

}  // namespace tidemark::inject
