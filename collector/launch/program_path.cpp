#include "collector/launch/program_path.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace tidemark {

std::string find_program(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/bin:/bin";
  while (true) {
    const size_t colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == std::string_view::npos) return "";
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace tidemark
