#include "simgpu/environment.h"

#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

namespace tidemark::simgpu {
namespace {

std::vector<std::string>& copy_of_environment() {
  auto& copy = *new std::vector<std::string>;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    copy.emplace_back(*entry);
  }
  return copy;
}

}  // namespace

const char* variable(const char* name) {
  static const std::vector<std::string>& entries = copy_of_environment();
  const std::string_view wanted = name;
  for (const std::string& entry : entries) {
    if (entry.size() > wanted.size() && entry.starts_with(wanted) && entry[wanted.size()] == '=') {
      return entry.c_str() + wanted.size() + 1;
    }
  }
  return nullptr;
}

}  // namespace tidemark::simgpu
