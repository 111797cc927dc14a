// The file names of shared libraries.
#pragma once

#include <string_view>

namespace tidemark {

// Whether a file is that library: "libc10_cuda.so", or "libc10_cuda.so.2.6" where a distribution
// has added a version.
constexpr bool is_library_name(std::string_view file, std::string_view library) noexcept {
  if (!file.starts_with(library)) return false;
  const std::string_view rest = file.substr(library.size());
  return rest.empty() || (rest.size() > 1 && rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9');
}

}  // namespace tidemark
