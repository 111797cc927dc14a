// Finds programs as a shell does.
#pragma once

#include <string>

namespace tidemark {

// The path of the program by $PATH; a name with a slash is returned unchanged. "" if not found.
std::string find_program(const std::string& name);

}  // namespace tidemark
